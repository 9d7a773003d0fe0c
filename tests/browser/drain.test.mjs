// presence.js in Chromium, sent away by a real edge that ends, and seen by somebody on another one.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { eventually } from "./fake.mjs";
import { binary, startBrowser, startProcess } from "./server.mjs";

const TIMERS = ["--heartbeat", "1s", "--lease-ttl", "5s", "--grace", "2s"];
const ROOM = "lobby";
const folder = mkdtempSync(path.join(tmpdir(), "presence-"));
const started = [];
let browser;
let core;

function run(...args) {
  const { status, stdout, stderr } = spawnSync(binary("presence"), args, { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout.trim();
}

const token = (user, act) => run("token", "--key", path.join(folder, "key.pem"), "--user", user, "--room", ROOM, "--act", act);

async function start(name, ...args) {
  const jwks = ["--jwks", path.join(folder, "jwks.json")];
  const process = await startProcess(name, ["--json", "--log", "warn", "--admin", "127.0.0.1:0", ...jwks, ...TIMERS, ...args]);
  started.push(process);
  return process;
}

const edge = (name) =>
  start("presence-edge", "--listen", "127.0.0.1:0", "--core", `http://${core.grpc}`, "--edge", name, "--origins", "*");

/** A page of one edge, connected to others. */
async function page(home, urls, user, act) {
  const page = await browser.newPage();
  await page.goto(`${home.ws.replace("ws:", "http:").replace("/v1/ws", "")}/presence.js`);
  await page.evaluate(
    async ({ urls, room, token, act }) => {
      const { Presence } = await import("/presence.js");
      window.noticed = [];
      window.connections = [];
      // The first of them, whichever chance would take.
      const { random } = Math;
      Math.random = () => 0;
      window.presence = new Presence({ url: urls, token: () => token });
      Math.random = random;
      window.room = act === "join" ? presence.join(room) : presence.watch(room);
      presence.on("connection", (id) => connections.push(id));
      for (const name of ["join", "leave", "update"]) {
        window.room.on(name, ({ user }, reason) => noticed.push([name, user, typeof reason === "string" ? reason : ""].join(" ").trim()));
      }
      window.room.on("status", (status) => noticed.push(status));
      window.room.on("sync", ({ how }) => (window.synced = how));
    },
    { urls, room: ROOM, token: token(user, act), act },
  );
  return page;
}

before(async () => {
  run("keys", folder);
  core = await start("presence-core", "--grpc", "127.0.0.1:0");
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  for (const process of started.reverse()) await process.stop();
  rmSync(folder, { recursive: true });
});

test("an edge that ends sends its page on to the next, and nobody notices", async () => {
  const [goes, stays, home] = [await edge("goes"), await edge("stays"), await edge("home")];
  const traveller = await page(home, [goes.ws, stays.ws], "ann", "join");
  const watcher = await page(home, [home.ws], "watcher", "watch");
  await eventually(() => watcher.evaluate(() => room.members.has("ann") && room.status === "live"));
  await eventually(() => traveller.evaluate(() => room.members.has("ann") && room.status === "live"));
  const before = await traveller.evaluate(() => ({ session: room.session, connection: presence.connection }));
  await Promise.all([traveller, watcher].map((page) => page.evaluate(() => void (noticed.length = 0))));

  assert.equal(await goes.stop(), 0, "it ends well");
  const after = await traveller.evaluate(() => ({
    session: room.session, connection: presence.connection, status: room.status, synced, lost: connections.includes(null),
  }));
  assert.notEqual(after.connection, before.connection);
  assert.deepEqual(
    { ...after, connection: "" },
    { session: before.session, connection: "", status: "live", synced: "resumed", lost: false },
  );
  // Longer than anybody who is not renewed would be shown.
  await new Promise((resolve) => setTimeout(resolve, 6_000));
  assert.deepEqual(await traveller.evaluate(() => noticed), []);
  assert.deepEqual(await watcher.evaluate(() => noticed), []);
  assert.equal(await watcher.evaluate(() => room.members.size), 1);
});
