/** Path of the program: the one that `SETPOINT` names, otherwise this package's. */
export function program(): string;

/** How an API server is reached by its administrator. */
interface Access {
  readonly url: string;
  /** The text of a kubeconfig. */
  readonly kubeconfig: string;
  readonly token: string;
  /** The CA of the server's certificate, in PEM. */
  readonly certificateAuthority: string;
  /** Sends a request as the administrator; resolves with the document of the answer, rejects from status 300 on. */
  request(method: string, path: string, body?: unknown): Promise<any>;
}

/** A process of setpoint. It is an API server itself, but tests want a `plane` each. */
export interface Server extends Access {
  /** Makes a control plane; one with virtual time can be advanced. */
  plane(options?: { virtualTime?: boolean }): Promise<Plane>;
  /** Ends the process and all planes. */
  close(): Promise<void>;
}

export const Server: {
  /** Starts a process with flags of kube-apiserver. It ends with `close`, or with this process. */
  start(flags?: string[]): Promise<Server>;
};

/** A control plane with its own objects, port and administrator. It ends with `close`, or with its server. */
export interface Plane extends Access {
  /** Keeps the state under a name. */
  snapshot(name?: string): Promise<void>;
  /** Brings the state of a snapshot back. Watches see the differences as changes. */
  reset(name?: string): Promise<void>;
  /** Lets time pass, at most a week; resolves with the time that is reached. Only with virtual time. */
  advance(seconds: number): Promise<Date>;
  close(): Promise<void>;
}
