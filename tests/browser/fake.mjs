// A socket whose other end is the test: for what a real server cannot be made to do on demand.

export class FakeSocket {
  static all = [];
  sent = [];

  constructor(url, protocols) {
    this.url = url;
    this.protocols = protocols;
    FakeSocket.all.push(this);
  }

  static get last() {
    return FakeSocket.all.at(-1);
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close(code) {
    this.closedWith = code;
  }

  /** The edge says something. */
  says(message) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  /** The edge, or the network, ends it. */
  ends(code) {
    this.onclose?.({ code });
  }

  hello(more = {}) {
    this.says({ t: "hello", connection: "00000000000000aa", heartbeat_ms: 15000, reconnect_ms: 1, limits: {}, ...more });
  }

  /** What was sent of one kind. */
  of(kind) {
    return this.sent.filter(({ t }) => t === kind);
  }
}

export function member(user, more = {}) {
  return { user, status: "available", state: {}, since: 1, ...more };
}

/** Lets promises run. */
export const settled = () => new Promise((resolve) => setImmediate(resolve));

/** Waits until something holds. */
export async function eventually(condition, withinMs = 5000) {
  const end = Date.now() + withinMs;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`not within ${withinMs} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
