// The playground in a real browser against the real server.

import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "./fake.mjs";
import { GRACE_MS, HEARTBEAT_MS, TTL_MS, screenshot, startDev } from "./server.mjs";
import { sleep, stage } from "./stage.mjs";

const { dev, newContext, newRoom } = stage();

/** A page of the playground, joined. */
async function playground(context, user, room, { http } = dev) {
  const page = await context.newPage();
  await page.goto(`${http}/?${new URLSearchParams({ user, room, join: "1" })}`);
  await page.waitForSelector("#freshness[data-state=live]");
  return page;
}

const logged = (page) =>
  page.$$eval("#log tr", (rows) => rows.map((row) => [...row.cells].slice(2).map((cell) => cell.textContent)));
const text = (page, selector) => page.textContent(selector);
const membersOn = (page) => page.$$eval("#members li", (items) => items.map((item) => item.dataset.user));

/** A tab that was joined by hand, under an address that says nothing of it. */
async function entered(context, user, room) {
  const page = await context.newPage();
  await page.goto(`${dev.http}/`);
  await page.waitForFunction(() => document.querySelector("#user").value !== "");
  await page.fill("#user", user);
  await page.fill("#room", room);
  await page.click("#join");
  await page.waitForSelector("#freshness[data-state=live]");
  return page;
}

test("a newcomer sees join, second tab, blip and silent drop, each with its reason", async () => {
  const room = newRoom();
  const context = await newContext({ viewport: { width: 1280, height: 900 } });
  const observer = await playground(context, "ben", room);
  const actor = await playground(context, "anna", room);
  await observer.waitForSelector("#members li[data-user=anna]");
  assert.deepEqual((await logged(observer))[0], ["joined", "anna", "available"]);

  await actor.click("button[data-status=busy]");
  await observer.waitForSelector("#members li[data-user=anna][data-status=busy]");

  const [second] = await Promise.all([context.waitForEvent("page"), actor.click("#tab2")]);
  await second.waitForSelector("#freshness[data-state=live]");
  await actor.waitForSelector("[data-rule=session].seen");
  await second.click("#leave");

  const seenBefore = await logged(observer);
  await actor.click("#blip");
  await actor.waitForSelector("[data-rule=grace].seen");
  await sleep(GRACE_MS + TTL_MS);
  assert.deepEqual(await logged(observer), seenBefore, "a blip and a second tab are not seen by anybody");
  assert.deepEqual(await membersOn(observer), ["ben", "anna"]);

  await actor.click("#drop");
  await observer.waitForFunction(() => document.querySelector("#log tr[data-kind=leave]") !== null);
  assert.deepEqual((await logged(observer))[0], ["gone", "anna", "connection_lost"]);
  await observer.waitForSelector("[data-rule=lease].seen");
  assert.equal(await actor.getAttribute("#freshness", "data-state"), "reconnecting");
  await observer.screenshot({ path: screenshot("observer"), fullPage: true });
  await actor.screenshot({ path: screenshot("actor-in-the-tunnel"), fullPage: true });

  await actor.click("#drop");
  await observer.waitForSelector("#members li[data-user=anna]", { timeout: 2 * HEARTBEAT_MS });
  await actor.waitForSelector("#freshness[data-state=live]");
  assert.equal(await text(actor, "#hint"), "", "what is over is not said any more");

  await actor.click("#leave");
  await observer.waitForSelector("#members li[data-user=anna]", { state: "detached" });
  assert.deepEqual((await logged(observer))[0], ["gone", "anna", "left"]);
  assert.equal(await actor.getAttribute("#freshness", "data-state"), "outside");
  assert.equal(await text(actor, "#empty"), `Join to see who is in ${room}, then open a second tab.`);
  assert.equal(await text(actor, "#count"), "");
});

test("each row tells from which revision to which", async () => {
  const room = newRoom();
  const context = await newContext();
  const observer = await playground(context, "ben", room);
  const actor = await playground(context, "anna", room);
  await observer.waitForSelector("#members li[data-user=anna]");
  await actor.click("button[data-status=busy]");
  await observer.waitForSelector("#members li[data-user=anna][data-status=busy]");
  const [changed, joined] = await observer.$$eval("#log tr[data-kind=update], #log tr[data-kind=join]", (rows) =>
    rows.map((row) => row.cells[1].textContent.split(" → ").map(Number)),
  );
  assert.equal(changed[1], Number(await text(observer, "#revision")));
  assert.equal(changed[0], joined[1], "the next follows the one before");
  assert.ok(joined[0] < joined[1] && changed[0] < changed[1], `${joined} ${changed}`);
});

test("tabs are different users by themselves, and stay who they are", async () => {
  const context = await newContext();
  const [one, two] = [await context.newPage(), await context.newPage()];
  for (const page of [one, two]) {
    await page.goto(`${dev.http}/`);
    await page.waitForFunction(() => document.querySelector("#user").value !== "");
  }
  const users = () => Promise.all([one, two].map((page) => page.inputValue("#user")));
  assert.deepEqual(await users(), ["u1", "u2"]);
  await one.reload();
  await one.waitForFunction(() => document.querySelector("#user").value !== "");
  assert.deepEqual(await users(), ["u1", "u2"]);
});

test("who has a second tab is told that others will see nothing", async () => {
  const room = newRoom();
  const context = await newContext();
  const actor = await playground(context, "anna", room);
  const [second] = await Promise.all([context.waitForEvent("page"), actor.click("#tab2")]);
  await second.waitForSelector("#freshness[data-state=live]");
  await actor.waitForSelector("[data-rule=session].seen");
  await actor.click("#drop");
  await actor.waitForFunction(() => document.querySelector("#hint").textContent.includes("by another tab as well"));
  await actor.click("#leave");
  assert.match(await text(actor, "#hint"), /Nobody heard this goodbye/);
  assert.deepEqual((await logged(actor))[0], ["left, unheard", "anna", "goodbyes do not leave a tunnel"]);
  await actor.click("#join");
  await actor.waitForSelector("#freshness[data-state=live]");
  await actor.click("#leave");
  assert.match(await text(actor, "#hint"), /still here by another tab/);
  await second.close();
  await actor.click("#join");
  await actor.waitForSelector("#freshness[data-state=live]");
  await actor.click("#leave");
  assert.equal(await text(actor, "#hint"), "");
});

test("a name that nobody may have is refused in sight", async () => {
  const context = await newContext();
  const page = await context.newPage();
  for (const user of [" ", "\u{1F600}".repeat(120)]) {
    await page.goto(`${dev.http}/?${new URLSearchParams({ user, room: newRoom() })}`);
    await page.click("#join");
    await page.waitForSelector("#freshness[data-state=refused]");
    assert.match(await text(page, "#freshness"), /^not let in: .*user/);
    assert.ok(await page.isEnabled("#join"));
  }
});

test("the playground is readable in the dark, at 360 px and by keyboard", async () => {
  const room = newRoom();
  const narrow = await newContext({ viewport: { width: 360, height: 740 }, colorScheme: "dark" });
  const page = await narrow.newPage();
  await page.goto(`${dev.http}/?${new URLSearchParams({ user: "anna", room })}`);
  await page.focus("#user");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#freshness[data-state=live]");
  assert.equal(await page.evaluate(() => document.activeElement.id), "tab-title", "the keyboard goes on from here");
  await page.focus("#crowd");
  await page.keyboard.press("Space");
  await page.waitForFunction(() => document.querySelectorAll("#members li").length === 11);
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 360, `scrolls sideways: ${width}`);
  const cut = await page.$$eval("#members .name", (names) => names.filter((name) => name.scrollWidth > name.clientWidth));
  assert.equal(cut.length, 0, "names that are cut look alike");
  await page.screenshot({ path: screenshot("narrow-dark"), fullPage: true });
  await page.focus("#disperse");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("#members li").length === 1);
});

test("a room too large for a list is a number in sight, and a list again when it has shrunk", async () => {
  const small = await startDev("--list-members", "12");
  try {
    const context = await newContext({ viewport: { width: 1280, height: 900 } });
    const page = await playground(context, "anna", newRoom(), small);
    await page.click("#crowd");
    await page.waitForFunction(() => document.querySelectorAll("#members li").length === 11);
    await page.click("#crowd");
    await page.waitForFunction(() => document.querySelector("#empty").textContent.startsWith("21 members"));
    assert.deepEqual([await text(page, "#count"), (await membersOn(page)).length], ["21", 0]);
    assert.ok(await page.isVisible("#empty"));
    const told = await logged(page);
    assert.ok(told.some(([what]) => what === "too many to list"), `${told}`);
    assert.ok(told.some(([what, who, why]) => what === "joined" && who.startsWith("crowd-") && why === "one of those who came"));
    assert.ok(!told.some(([what]) => what === "gone"), "nobody went by that");
    await page.screenshot({ path: screenshot("too-many-to-list"), fullPage: true });
    await page.click("#disperse");
    await page.waitForFunction(() => document.querySelectorAll("#members li").length === 1);
    assert.deepEqual([await membersOn(page), await text(page, "#count")], [["anna"], "1"]);
    assert.ok((await logged(page)).some(([what]) => what === "few enough to list"));
  } finally {
    assert.equal(await small.stop(), 0);
  }
});

test("a name with characters that turn text around turns nothing beside it", async () => {
  // What ends an isolation, what overrides a direction, and what reads from right to left by itself.
  const odd = (name) => `\u2069\u202e${name}\u05d0`;
  const [user, room] = [odd("anna"), odd(newRoom())];
  const context = await newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(`${dev.http}/?${new URLSearchParams({ user, room })}`);
  await page.waitForFunction(() => document.querySelector("#user").value !== "");
  const inOrder = (selector) =>
    page.$eval(selector, (element) => {
      const boxes = [...element.childNodes].filter((node) => node.textContent.trim() !== "").map((node) => {
        const range = document.createRange();
        range.selectNodeContents(node);
        return range.getBoundingClientRect();
      });
      return boxes.length > 1 && boxes.every((box, at) => at === 0 || boxes[at - 1].right <= box.left + 1);
    });
  assert.equal(await text(page, "#empty"), `Join to see who is in ${room}, then open a second tab.`);
  assert.ok(await inOrder("#empty"), "what stands where no list is");
  await page.click("#join");
  await page.waitForSelector("#freshness[data-state=live]");
  await page.waitForSelector("#members li");
  assert.ok(await inOrder("#members-title"), "the number of members follows the name of the room");
  assert.ok(await inOrder("#members li"), "the status follows the name of the user");
  await page.screenshot({ path: screenshot("odd-names"), fullPage: true });
  await page.click("#drop");
  await page.waitForFunction(() => document.querySelector("#drop").textContent === "Leave the tunnel");
  await page.click("#leave");
  assert.equal(await text(page, "#hint bdi"), user);
});

test("a tab that is loaded again is in again as it was, and nobody sees it go", async () => {
  const room = newRoom();
  const context = await newContext();
  const observer = await playground(context, "ben", room);
  const actor = await entered(context, "anna", room);
  await actor.click("button[data-status=busy]");
  await observer.waitForSelector("#members li[data-user=anna][data-status=busy]");
  const [seen, session] = [await logged(observer), await text(actor, "#session")];
  await actor.reload();
  await actor.waitForSelector("#freshness[data-state=live]");
  assert.deepEqual([await actor.inputValue("#user"), await text(actor, "#session")], ["anna", session]);
  await actor.waitForSelector("button[data-status=busy][aria-pressed=true]");
  await sleep(GRACE_MS + TTL_MS);
  assert.deepEqual(await logged(observer), seen);
  assert.deepEqual(await membersOn(observer), ["ben", "anna"]);
});

test("a tab that was left stays outside when it is loaded again, also if its address says join", async () => {
  const room = newRoom();
  const context = await newContext();
  for (const page of [await entered(context, "anna", room), await playground(context, "cleo", room)]) {
    await page.click("#leave");
    await page.reload();
    await page.waitForFunction(() => document.querySelector("#user").value !== "");
    await sleep(HEARTBEAT_MS / 2);
    assert.equal(await page.getAttribute("#freshness", "data-state"), "outside");
    assert.ok(await page.isEnabled("#join"));
  }
});

test("a duplicated tab is not in by itself, and joins as a second session", async () => {
  const room = newRoom();
  const context = await newContext();
  const observer = await playground(context, "ben", room);
  const actor = await entered(context, "anna", room);
  // Once more, so that it has been loaded again when it is duplicated.
  await actor.reload();
  await actor.waitForSelector("#freshness[data-state=live]");
  await observer.waitForSelector("#members li[data-user=anna]");
  const seen = await logged(observer);
  // A tab opened by script starts with a copy of the session storage, as a duplicated one does.
  const [copy] = await Promise.all([
    context.waitForEvent("page"),
    actor.evaluate(() => void window.open(location.href)),
  ]);
  await copy.waitForFunction(() => document.querySelector("#user").value !== "");
  await sleep(HEARTBEAT_MS / 2);
  assert.equal(await copy.getAttribute("#freshness", "data-state"), "outside");
  await copy.fill("#user", "anna");
  await copy.click("#join");
  await copy.waitForSelector("#freshness[data-state=live]");
  await eventually(async () => (await text(copy, "#session")) !== (await text(actor, "#session")));
  await sleep(GRACE_MS + TTL_MS);
  for (const page of [copy, actor]) assert.equal(await page.getAttribute("#freshness", "data-state"), "live");
  assert.deepEqual(await logged(observer), seen);
});

test("oneself is first in the list, and no button moves when one changes its text", async () => {
  const context = await newContext({ viewport: { width: 1280, height: 900 } });
  const page = await playground(context, "zoe", newRoom());
  await page.click("#crowd");
  await page.waitForFunction(() => document.querySelectorAll("#members li").length === 11);
  const [first, ...others] = await membersOn(page);
  assert.equal(first, "zoe");
  assert.deepEqual(others, [...others].sort());
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 900 });
    const boxes = () => page.$$eval(".buttons button", (all) => all.map((button) => {
      const { left, width } = button.getBoundingClientRect();
      return [button.id, left, width, button.offsetTop];
    }));
    const before = await boxes();
    await page.click("#drop");
    await page.waitForFunction(() => document.querySelector("#drop").textContent === "Leave the tunnel");
    assert.deepEqual(await boxes(), before);
    await page.click("#drop");
    await page.waitForFunction(() => document.querySelector("#drop").textContent === "Silent drop");
    assert.deepEqual(await boxes(), before);
    await page.waitForSelector("#freshness[data-state=live]");
  }
});
