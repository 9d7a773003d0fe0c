// Several regions in the playground: one list, and a link between them that can be cut.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startBrowser, startDev } from "./server.mjs";

let dev;
let browser;
before(async () => {
  dev = await startDev("--regions", "eu-west,us-east", "--merge-interval", "2s");
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  assert.equal(await dev?.stop(), 0, "SIGTERM must end it well");
});

async function playground(region, user) {
  const page = await (await browser.newContext()).newPage();
  const { playground: url } = dev.regions.find((each) => each.region === region);
  await page.goto(`${url}?${new URLSearchParams({ user, room: "lobby", join: "1" })}`);
  await page.waitForSelector("#freshness[data-state=live]");
  return page;
}

const stateOf = (page, region, state) => page.waitForSelector(`[data-region=${region}][data-state=${state}]`);
const logged = (page) =>
  page.$$eval("#log tr", (rows) => rows.map((row) => [...row.cells].slice(2).map((cell) => cell.textContent)));

test("two regions are one list; a cut link is stale, then lost, then over", async () => {
  assert.deepEqual(dev.regions.map(({ region }) => region), ["eu-west", "us-east"]);
  const here = await playground("eu-west", "anna");
  const there = await playground("us-east", "ben");
  await here.waitForSelector("#members li[data-user=ben]");
  await there.waitForSelector("#members li[data-user=anna]");
  const links = await here.$$eval("#region-list a", (all) => all.map((link) => link.textContent));
  assert.deepEqual(links, ["us-east: live"]);

  await here.click("#cut-regions");
  await stateOf(here, "us-east", "stale");
  await stateOf(there, "eu-west", "stale");
  await here.waitForSelector("#members li[data-user=ben]");
  await here.click("#cut-regions");
  await stateOf(here, "us-east", "live");
  await here.waitForSelector("#freshness[data-state=live]");
  assert.ok(!(await logged(here)).some(([what]) => what === "gone"), "a short cut shows nobody as gone");

  await here.click("#cut-regions");
  await here.waitForSelector("#log tr[data-kind=leave]");
  assert.deepEqual((await logged(here)).find(([what]) => what === "gone"), ["gone", "ben", "region_lost"]);
  await here.click("#cut-regions");
  await here.waitForSelector("#members li[data-user=ben]");
  await there.waitForSelector("#members li[data-user=anna]");
});

test("a single region has no link to cut", async () => {
  const single = await startDev();
  try {
    const page = await (await browser.newContext()).newPage();
    await page.goto(`${single.http}/`);
    await page.waitForSelector("#regions", { state: "hidden" });
    const answer = await fetch(`${single.http}/dev/regions/cut?cut=true`, { method: "POST" });
    assert.equal(answer.status, 400);
    assert.match(await answer.text(), /--regions/);
  } finally {
    await single.stop();
  }
});
