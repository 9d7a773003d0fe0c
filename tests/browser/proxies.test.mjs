// Scenarios 2 and 3 through what stands between: presence.js in Chromium behind a real nginx and a
// real HAProxy, which idle out, vanish, fall silent and half-close.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { eventually } from "./fake.mjs";
import { binary, startBrowser, startProcess } from "./server.mjs";
import { sleep } from "./stage.mjs";

const { WebSocket } = createRequire(path.join(process.env.PRESENCE_NODE_MODULES, "index.js"))("ws");

const HEARTBEAT_MS = 1000;
const GRACE_MS = 2000;
const TIMERS = ["--heartbeat", "1s", "--lease-ttl", "5s", "--grace", "2s"];
/** Proxies end what was idle for so long: longer than a heartbeat, and shorter than one. */
const IDLE_MS = 2000;
const SHORT_MS = 600;
/** What a busy machine may add. */
const SLACK_MS = 1500;
const folder = mkdtempSync(path.join(tmpdir(), "presence-"));
const started = [];
const proxies = {};
let browser;
let core;
let home;
let watched;

function run(...args) {
  const { status, stdout, stderr } = spawnSync(binary("presence"), args, { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout.trim();
}

const token = (user, act) => run("token", "--key", path.join(folder, "key.pem"), "--user", user, "--room", "lobby", "--act", act);

async function start(name, ...args) {
  const jwks = ["--jwks", path.join(folder, "jwks.json")];
  const process = await startProcess(name, ["--json", "--log", "warn", "--admin", "127.0.0.1:0", ...jwks, ...TIMERS, ...args]);
  started.push(process);
  return process;
}

const edge = (name, ...more) =>
  start("presence-edge", "--listen", "127.0.0.1:0", "--core", `http://${core.grpc}`, "--edge", name, "--origins", "*", ...more);

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

const isUp = (port) =>
  new Promise((told) => {
    const socket = net.connect(port, "127.0.0.1", () => (socket.destroy(), told(true)));
    socket.on("error", () => told(false));
  });

/** One of the two, with a port that idles out late and one that does so early. */
class Proxy {
  #command;
  #child;

  constructor(command, ports) {
    this.#command = command;
    [this.late, this.early] = ports;
    this.ws = `ws://127.0.0.1:${this.late}/v1/ws`;
    this.earlyWs = `ws://127.0.0.1:${this.early}/v1/ws`;
  }

  async start() {
    this.#child = spawn(this.#command[0], this.#command.slice(1), { stdio: ["ignore", "ignore", "inherit"] });
    await eventually(() => isUp(this.late));
  }

  /** Its host is gone: nothing is said to anybody. */
  async signal(name) {
    this.#child.kill(name);
    if (name === "SIGKILL") await once(this.#child, "exit");
  }
}

function nginx(upstream, ports) {
  const file = path.join(folder, "nginx.conf");
  const server = (port, idle) => `
    server {
      listen 127.0.0.1:${port};
      location / {
        proxy_pass http://${upstream};
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection "upgrade";
        proxy_set_header Host $http_host;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_read_timeout ${idle}ms;
        proxy_send_timeout ${idle}ms;
      }
    }`;
  writeFileSync(file, `
    daemon off; master_process off; pid ${folder}/nginx.pid; error_log stderr crit;
    events {}
    http {
      access_log off;
      ${["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((kind) => `${kind}_temp_path ${folder}/${kind};`).join(" ")}
      ${server(ports[0], IDLE_MS)} ${server(ports[1], SHORT_MS)}
    }`);
  return new Proxy(["nginx", "-p", folder, "-e", "stderr", "-c", file], ports);
}

function haproxy(upstream, ports) {
  const file = path.join(folder, "haproxy.cfg");
  const listen = (port, idle) => `
listen port-${port}
  bind 127.0.0.1:${port}
  timeout tunnel ${idle}ms
  server edge ${upstream} send-proxy-v2
`;
  writeFileSync(file, `
defaults
  mode http
  timeout connect 2s
  timeout client ${IDLE_MS}ms
  timeout server ${IDLE_MS}ms
${listen(ports[0], IDLE_MS)}${listen(ports[1], SHORT_MS)}`);
  return new Proxy(["haproxy", "-db", "-q", "-f", file], ports);
}

/** A page that is in the room by this address; what it notices is recorded. */
async function page(url, user, act = "join") {
  const page = await browser.newPage();
  await page.goto(`${home.ws.replace("ws:", "http:").replace("/v1/ws", "")}/presence.js`);
  await page.evaluate(
    async ({ url, token, act }) => {
      const { Presence } = await import("/presence.js");
      window.noticed = [];
      window.connections = [];
      window.presence = new Presence({ url, token: () => token });
      window.room = presence[act]("lobby");
      presence.on("connection", (id) => connections.push(id));
      for (const name of ["join", "leave"]) {
        room.on(name, ({ user }, reason) => noticed.push({ what: `${name} ${user} ${reason ?? ""}`.trim(), at: Date.now() }));
      }
      await new Promise((resolve) => room.on("sync", resolve));
    },
    { url, token: token(user, act), act },
  );
  return page;
}

/** What the observer on another edge has noticed of a user. */
const noticed = async (user) =>
  (await watched.evaluate(() => noticed)).filter(({ what }) => what.split(" ")[1] === user);
const leaves = async (user) => (await noticed(user)).filter(({ what }) => what.startsWith("leave"));
const connectionsOf = (page) => page.evaluate(() => connections);
const isLive = (page) => page.evaluate(() => room.status === "live");

before(async () => {
  run("keys", folder);
  core = await start("presence-core", "--grpc", "127.0.0.1:0");
  const behind = (source) => ["--client-address", source, "--trusted-proxies", "127.0.0.1", "--connections-per-address", "2"];
  const [plain, first, second] = await Promise.all([
    edge("home"), edge("behind-nginx", ...behind("x-forwarded-for")), edge("behind-haproxy", ...behind("proxy-protocol")),
  ]);
  home = plain;
  const ports = await Promise.all([1, 2, 3, 4].map(freePort));
  const upstream = ({ ws }) => new URL(ws).host;
  proxies.nginx = nginx(upstream(first), ports.slice(0, 2));
  proxies.haproxy = haproxy(upstream(second), ports.slice(2));
  await Promise.all([proxies.nginx.start(), proxies.haproxy.start()]);
  browser = await startBrowser();
  watched = await page(home.ws, "observer", "watch");
});

after(async () => {
  await browser?.close();
  for (const proxy of Object.values(proxies)) await proxy.signal("SIGKILL");
  for (const process of started.reverse()) await process.stop();
  rmSync(folder, { recursive: true, force: true });
});

for (const name of ["nginx", "haproxy"]) {
  test(`${name} tells where a client is, and the edge counts it there`, async () => {
    const statuses = [];
    const sockets = [];
    for (let count = 0; count < 4; count += 1) {
      // Of the last one 127.0.0.1 is the peer: as if the proxy spoke for itself.
      const localAddress = count < 3 ? "127.0.0.2" : "127.0.0.1";
      const request = http.get({
        host: "127.0.0.1", port: proxies[name].late, path: "/v1/ws", localAddress,
        headers: {
          Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13",
          "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "X-Forwarded-For": `198.51.100.${count}`,
        },
      });
      const status = await new Promise((told, failed) => {
        request.on("upgrade", (response, socket) => (sockets.push(socket), told(response.statusCode)));
        request.on("response", (response) => (response.resume(), told(response.statusCode)));
        request.on("error", failed);
      });
      statuses.push(status);
    }
    for (const socket of sockets) socket.destroy();
    assert.deepEqual(statuses, [101, 101, 429, 101]);
  });
}

test("pages stay connected for longer than their proxies' time-outs, or come back unnoticed", async () => {
  const at = { nginx: proxies.nginx.ws, haproxy: proxies.haproxy.ws };
  const early = { nginx: proxies.nginx.earlyWs, haproxy: proxies.haproxy.earlyWs };
  const idle = await Promise.all(Object.entries(at).map(([name, url]) => page(url, `idle-${name}`)));
  const cut = await Promise.all(Object.entries(early).map(([name, url]) => page(url, `cut-${name}`)));
  await sleep(3 * IDLE_MS);
  for (const page of idle) {
    assert.equal((await connectionsOf(page)).length, 1, "one connection all the time");
    assert.ok(await isLive(page));
  }
  for (const page of cut) {
    // Ended by its proxy before each heartbeat.
    const ended = (await connectionsOf(page)).filter((id) => id === null).length;
    assert.ok(ended >= 1, `${ended} times`);
  }
  for (const user of ["idle-nginx", "idle-haproxy", "cut-nginx", "cut-haproxy"]) {
    assert.deepEqual((await noticed(user)).map(({ what }) => what), [`join ${user}`], "nobody is seen to go");
  }
  await Promise.all([...idle, ...cut].map((page) => page.close()));
});

test("a proxy that vanishes, falls silent or half-closes ends as a lost connection does", async () => {
  const [stopped, killed] = await Promise.all([page(proxies.nginx.ws, "stopped"), page(proxies.haproxy.ws, "killed")]);
  const half = new WebSocket(proxies.haproxy.ws, { allowHalfOpen: true });
  const hello = once(half, "message");
  await once(half, "open");
  await hello;
  half.send(JSON.stringify({ t: "join", room: "lobby", token: token("half", "join"), session: "0123456789abcdef", generation: 1 }));
  await eventually(async () => (await noticed("half")).length === 1);

  // A socket whose client will write nothing more is over; it may come back within its grace.
  const closed = once(half, "close");
  const halved = Date.now();
  half._socket.end();
  await closed;
  assert.ok(Date.now() - halved < HEARTBEAT_MS, "the edge lets go at once");

  // Its host is gone without a word, the other one's process with its sockets.
  const silent = Date.now();
  await proxies.nginx.signal("SIGSTOP");
  await proxies.haproxy.signal("SIGKILL");
  const gone = async (user) => {
    await eventually(async () => (await leaves(user)).length === 1, 12_000);
    const [{ what, at }] = await leaves(user);
    assert.equal(what, `leave ${user} connection_lost`);
    return at;
  };
  const took = { half: (await gone("half")) - halved, killed: (await gone("killed")) - silent, stopped: (await gone("stopped")) - silent };
  console.log("departures after, in ms:", JSON.stringify(took));
  for (const user of ["half", "killed"]) {
    assert.ok(took[user] >= GRACE_MS - 50 && took[user] < GRACE_MS + SLACK_MS, `${user}: ${took[user]} ms`);
  }
  // Its last frame was up to a heartbeat and a fifth before.
  const silence = 2 * HEARTBEAT_MS + GRACE_MS;
  assert.ok(took.stopped > silence - 1.2 * HEARTBEAT_MS - 50 && took.stopped < silence + SLACK_MS, `${took.stopped} ms`);

  // Both keep their lists meanwhile, and come back once there is a way: by themselves, or told that there is.
  for (const page of [stopped, killed]) assert.ok(await page.evaluate(() => room.members.size > 0));
  await proxies.nginx.signal("SIGCONT");
  await proxies.haproxy.start();
  for (const page of [stopped, killed]) await page.evaluate(() => presence.retry());
  for (const user of ["stopped", "killed"]) {
    await eventually(async () => (await noticed(user)).at(-1).what === `join ${user}`, 15_000);
  }

  // One that is back before grace is over was never gone.
  const before = (await noticed("killed")).length;
  await proxies.haproxy.signal("SIGKILL");
  await proxies.haproxy.start();
  await eventually(async () => (await connectionsOf(killed)).filter((id) => id === null).length >= 2 && (await isLive(killed)));
  await sleep(GRACE_MS + HEARTBEAT_MS);
  assert.equal((await noticed("killed")).length, before);
});
