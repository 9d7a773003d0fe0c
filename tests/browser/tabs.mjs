// Real tabs of one real window, spoken to directly: Playwright keeps every page visible, and a tab that nobody looks
// at is hidden.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { eventually } from "./fake.mjs";

const packages = process.env.PRESENCE_NODE_MODULES;

/** A window of its own; gives tabs that answer to `goto`, `evaluate` and `activate`. */
export async function startTabs() {
  const WebSocket = createRequire(path.join(packages, "index.js"))("ws");
  const profile = mkdtempSync(path.join(tmpdir(), "presence-tabs-"));
  const child = spawn(
    process.env.CHROMIUM ?? "/usr/bin/chromium",
    [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", `--user-data-dir=${profile}`,
      "about:blank",
    ],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  const ended = once(child, "exit");
  const socket = new WebSocket(await addressOf(child));
  await once(socket, "open");
  const send = commands(socket);
  return {
    async newPage() {
      const { targetId } = await send("Target.createTarget", { url: "about:blank" });
      const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
      return tab(send, targetId, sessionId);
    },
    async close() {
      // Asked, it ends its own processes first; killed, they would still write while their folder goes.
      send("Browser.close").catch(() => {});
      const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
      await ended;
      clearTimeout(timer);
      socket.close();
      await rm(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    },
  };
}

function addressOf(child) {
  return new Promise((resolve, reject) => {
    let said = "";
    child.stderr.on("data", (text) => {
      said += text;
      const address = said.match(/ws:\/\/\S+/);
      if (address !== null) resolve(address[0]);
    });
    child.once("exit", (code) => reject(new Error(`Chromium ended with ${code}: ${said}`)));
  });
}

function commands(socket) {
  const waiting = new Map();
  let last = 0;
  socket.on("message", (text) => {
    const { id, result, error } = JSON.parse(text);
    const answer = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) answer?.resolve(result);
    else answer?.reject(new Error(error.message));
  });
  return (method, params = {}, sessionId = undefined) =>
    new Promise((resolve, reject) => {
      last += 1;
      waiting.set(last, { resolve, reject });
      socket.send(JSON.stringify({ id: last, method, params, sessionId }));
    });
}

function tab(send, targetId, sessionId) {
  const evaluate = async (act, argument) => {
    const expression = `(${act})(${argument === undefined ? "" : JSON.stringify(argument)})`;
    const options = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await send("Runtime.evaluate", options, sessionId);
    if (exceptionDetails !== undefined) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  return {
    evaluate,
    async goto(url) {
      await send("Page.navigate", { url }, sessionId);
      await eventually(() => evaluate((url) => location.href === url && document.readyState === "complete", url));
    },
    /** Brings it to the front; the one that was there is hidden from then on. */
    async activate() {
      await send("Target.activateTarget", { targetId });
    },
  };
}
