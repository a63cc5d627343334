// A test function for vitest: `setpoint` is a control plane for each test that asks for it.

import { test as base } from "vitest";
import { Server } from "./index.js";

export const test = base.extend({
  setpointServer: [async ({}, use) => {
    const server = await Server.start();
    await use(server);
    await server.close();
  }, { scope: "file" }],
  setpoint: async ({ setpointServer }, use) => {
    const plane = await setpointServer.plane();
    await use(plane);
    await plane.close();
  },
});
