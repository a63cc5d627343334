// Kubernetes control planes for tests. The types and their descriptions are in index.d.ts.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { request } from "node:https";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const program = () => process.env.SETPOINT || fileURLToPath(new URL("bin/setpoint", import.meta.url));

class Access {
  constructor({ url, kubeconfig, token, certificateAuthority }) {
    Object.assign(this, { url, kubeconfig, token, certificateAuthority });
  }

  async request(method, path, body) {
    const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json" };
    const sent = request(this.url + path, { method, headers, ca: this.certificateAuthority, agent: false });
    sent.end(body === undefined ? undefined : JSON.stringify(body));
    const [answer] = await once(sent, "response");
    const text = Buffer.concat(await answer.toArray()).toString();
    if (answer.statusCode >= 300) throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`);
    return JSON.parse(text);
  }
}

export class Server extends Access {
  #process;

  constructor(process, access) {
    super(access);
    this.#process = process;
  }

  static async start(flags = []) {
    const process = spawn(program(), ["envtest", "serve", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
    const line = new Promise((resolve, reject) => {
      createInterface(process.stdout).once("line", resolve);
      process.once("error", reject);
      process.once("exit", (code) => reject(new Error(`setpoint ended with ${code}`)));
    });
    const server = new Server(process, JSON.parse(await line));
    // Node does not wait for it at its end: it ends with Node.
    process.unref();
    process.stdout.unref();
    return server;
  }

  async plane({ virtualTime = false } = {}) {
    return new Plane(this, await this.request("POST", "/setpoint/planes", { virtualTime }));
  }

  async close() {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, "exit");
    this.#process.ref();
    this.#process.kill();
    await ended;
  }
}

export class Plane extends Access {
  #server;
  #path;

  constructor(server, access) {
    super(access);
    this.#server = server;
    this.#path = `/setpoint/planes/${access.id}`;
  }

  async snapshot(name = "") {
    await this.#server.request("POST", `${this.#path}/snapshot`, { name });
  }

  async reset(name = "") {
    await this.#server.request("POST", `${this.#path}/reset`, { name });
  }

  async advance(seconds) {
    const { time } = await this.#server.request("POST", `${this.#path}/advance`, { seconds });
    return new Date(time);
  }

  async close() {
    await this.#server.request("DELETE", this.#path);
  }
}
