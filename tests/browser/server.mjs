// The real server and the real browser, each ended with the test that started it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, openSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const target = process.env.CARGO_TARGET_DIR ?? path.join(root, "target");
const packages = process.env.PRESENCE_NODE_MODULES;
if (packages === undefined) throw new Error("run by tests/run browser: PRESENCE_NODE_MODULES is not set");
const { chromium } = createRequire(path.join(packages, "index.js"))("playwright-core");

export const HEARTBEAT_MS = 1000;
export const GRACE_MS = 1000;
export const TTL_MS = 3000;

/** Where a binary of this workspace is. */
export const binary = (name) => path.join(target, "release", name);

/** Where a process writes its log, to be searched for secrets when all tests have run; else to that of the test. */
const kept = (name) => {
  const folder = process.env.PRESENCE_TEST_LOGS;
  return folder === undefined ? "inherit" : openSync(path.join(folder, "written", `${name}-${crypto.randomUUID()}`), "w");
};

/** Starts a binary; gives the addresses it prints and how to stop it. */
export async function startProcess(name, args) {
  const child = spawn(binary(name), args, { stdio: ["ignore", "pipe", kept(name)] });
  const [line] = await Promise.race([
    once(createInterface({ input: child.stdout }), "line"),
    once(child, "exit").then(([code]) => Promise.reject(new Error(`${name} ended with ${code}`))),
  ]);
  let ended;
  const stop = async () => {
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), 20_000);
    const [code] = await once(child, "exit");
    clearTimeout(timer);
    return code;
  };
  return { ...JSON.parse(line), stop: () => (ended ??= stop()) };
}

/** Starts `presence dev` with short timers; gives its addresses and how to stop it. */
export async function startDev(...more) {
  const dev = await startProcess("presence", [
    "dev", "--json", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0",
    "--heartbeat", "1s", "--lease-ttl", "3s", "--grace", "1s", ...more,
  ]);
  return { ...dev, http: dev.playground.replace(/\/$/, "") };
}

/** Starts headless Chromium without anything that would call home; `more` are further switches. */
export function startBrowser(...more) {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", ...more,
    ],
  });
}

/** Where screenshots go: beside the build, never into the tree. */
export function screenshot(name) {
  const folder = path.join(target, "screenshots");
  mkdirSync(folder, { recursive: true });
  return path.join(folder, `${name}.png`);
}
