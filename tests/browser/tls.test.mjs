// wss:// with a private authority: presence.js in Chromium, from a page of the edge itself.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { eventually } from "./fake.mjs";
import { binary, startBrowser, startProcess } from "./server.mjs";

const TIMERS = ["--heartbeat", "1s", "--lease-ttl", "4s", "--grace", "1s"];
const EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
const folder = mkdtempSync(path.join(tmpdir(), "presence-"));
const file = (name) => path.join(folder, name);
const started = [];
let edge;

const openssl = (...args) => execFileSync("openssl", args, { cwd: folder, stdio: ["ignore", "pipe", "ignore"] });

function makeCertificates() {
  openssl("req", "-x509", ...EC, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=an authority of tests");
  openssl("req", ...EC, "-keyout", "edge.key", "-out", "edge.csr", "-subj", "/CN=edge");
  writeFileSync(file("edge.ext"), "subjectAltName=IP:127.0.0.1\n");
  openssl("x509", "-req", "-in", "edge.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "edge.crt",
    "-days", "2", "-extfile", "edge.ext");
  // The authority is sent along, so that its key is found in the chain.
  writeFileSync(file("chain.pem"), readFileSync(file("edge.crt"), "utf8") + readFileSync(file("ca.pem"), "utf8"));
}

/** What Chromium is told of the authority: it has no switch that takes a certificate. */
function trusted() {
  const key = openssl("x509", "-in", "ca.pem", "-noout", "-pubkey").toString();
  const der = Buffer.from(key.replace(/-----[^-]+-----|\s/g, ""), "base64");
  return `--ignore-certificate-errors-spki-list=${createHash("sha256").update(der).digest("base64")}`;
}

async function start(name, ...args) {
  const jwks = ["--jwks", file("jwks.json")];
  const running = await startProcess(name, ["--json", "--log", "warn", "--admin", "127.0.0.1:0", ...jwks, ...TIMERS, ...args]);
  started.push(running);
  return running;
}

before(async () => {
  execFileSync(binary("presence"), ["keys", folder]);
  makeCertificates();
  const core = await start("presence-core", "--grpc", "127.0.0.1:0");
  edge = await start("presence-edge", "--listen", "127.0.0.1:0", "--core", `http://${core.grpc}`,
    "--tls-cert", file("chain.pem"), "--tls-key", file("edge.key"));
});

after(async () => {
  for (const running of started.reverse()) assert.equal(await running.stop(), 0, "SIGTERM must end it well");
  rmSync(folder, { recursive: true });
});

const script = () => `${edge.ws.replace("wss:", "https:").replace("/v1/ws", "")}/presence.js`;

test("a page that knows the authority joins by wss", async () => {
  assert.match(edge.ws, /^wss:/);
  const token = execFileSync(binary("presence"), ["token", "--key", file("key.pem"), "--user", "u1", "--room", "lobby"]);
  const browser = await startBrowser(trusted());
  try {
    const page = await browser.newPage();
    await page.goto(script());
    await page.evaluate(
      async ({ url, token }) => {
        const { Presence } = await import("/presence.js");
        window.presence = new Presence({ url, token: () => token });
        window.room = presence.join("lobby");
      },
      { url: edge.ws, token: token.toString().trim() },
    );
    await eventually(async () => (await page.evaluate(() => [...room.members.keys()])).join() === "u1");
    assert.ok(await page.evaluate(() => isSecureContext));
  } finally {
    await browser.close();
  }
});

test("a page that does not know the authority gets nowhere", async () => {
  const browser = await startBrowser();
  try {
    const page = await browser.newPage();
    await assert.rejects(page.goto(script()), /ERR_CERT_AUTHORITY_INVALID/);
    const blank = await browser.newPage();
    const code = await blank.evaluate(
      (url) => new Promise((ended) => { new WebSocket(url).onclose = ({ code }) => ended(code); }),
      edge.ws,
    );
    assert.equal(code, 1006);
    const plain = await page.goto(script().replace("https:", "http:"));
    assert.equal(plain.status(), 400);
    assert.match(await plain.text(), /https:\/\/ or wss:\/\//);
  } finally {
    await browser.close();
  }
});
