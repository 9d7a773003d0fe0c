// One server and one browser for all tests of a file.

import assert from "node:assert/strict";
import { after, afterEach, before } from "node:test";
import { startBrowser, startDev } from "./server.mjs";

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The addresses of the server, once tests run, and what gives a test contexts and rooms of its own. */
export function stage() {
  const dev = {};
  const contexts = [];
  let browser;
  let rooms = 0;
  before(async () => {
    Object.assign(dev, await startDev());
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    assert.equal(await dev.stop?.(), 0, "SIGTERM must end it well");
  });
  afterEach(async () => {
    for (const context of contexts.splice(0)) await context.close();
  });
  return {
    dev,
    newRoom: () => `browser-${(rooms += 1)}`,
    async newContext(options) {
      const context = await browser.newContext(options);
      contexts.push(context);
      return context;
    },
  };
}
