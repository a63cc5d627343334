import type { TestAPI } from "vitest";
import type { Plane, Server } from "./index.js";

/** vitest's `test` with two fixtures: a process for the file, and a control plane of its own for each test. */
export const test: TestAPI<{ setpointServer: Server; setpoint: Plane }>;
