// A suite as users of the package have it: vitest's fixtures, and the client of Kubernetes.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { CoreV1Api, KubeConfig } from "@kubernetes/client-node";
import { test } from "setpoint/vitest";

const core = (plane) => {
  const config = new KubeConfig();
  config.loadFromString(plane.kubeconfig);
  return config.makeApiClient(CoreV1Api);
};
const map = (name) => ({ namespace: "default", body: { metadata: { name }, data: { k: "v" } } });

// The same name in each.
for (const turn of [1, 2, 3]) {
  test(`each test has a control plane (${turn})`, async ({ setpoint, expect }) => {
    await core(setpoint).createNamespacedConfigMap(map("a"));
    const found = await core(setpoint).readNamespacedConfigMap({ name: "a", namespace: "default" });
    expect(found.data).toEqual({ k: "v" });
  });
}

test("a plane goes back to a snapshot", async ({ setpoint, expect }) => {
  await setpoint.snapshot("start");
  await core(setpoint).createNamespacedConfigMap(map("b"));
  await setpoint.reset("start");
  const read = core(setpoint).readNamespacedConfigMap({ name: "b", namespace: "default" });
  await expect(read).rejects.toMatchObject({ code: 404 });
});

test("time is advanced", async ({ setpointServer, expect }) => {
  const plane = await setpointServer.plane({ virtualTime: true });
  const now = new Date();
  expect((await plane.advance(3700)) - now).toBeGreaterThanOrEqual(3_600_000);
  await plane.close();
});

test("requests need no client", async ({ setpointServer, expect }) => {
  expect((await setpointServer.request("GET", "/version")).major).toBe("1");
  await expect(setpointServer.request("GET", "/nowhere")).rejects.toThrow("404");
});

test("a program that closes nothing ends, and its server with it", async () => {
  const script = 'import { Server } from "setpoint"; await (await Server.start()).plane();';
  await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], { timeout: 50_000 });
});
