// The playground and presence.js in a real browser against the real server.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { eventually } from "./fake.mjs";
import { GRACE_MS, HEARTBEAT_MS, TTL_MS, screenshot, startBrowser, startDev } from "./server.mjs";
import { startTabs } from "./tabs.mjs";

let dev;
let browser;
let contexts = [];
let rooms = 0;

before(async () => {
  dev = await startDev();
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  assert.equal(await dev?.stop(), 0, "SIGTERM must end it well");
});
afterEach(async () => {
  for (const context of contexts.splice(0)) await context.close();
});

const newRoom = () => `browser-${(rooms += 1)}`;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function newContext(options) {
  const context = await browser.newContext(options);
  contexts.push(context);
  return context;
}

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

/** A page that only uses presence.js; what happens is recorded in `window.events`. */
async function client(context, user, room, action = "join") {
  const page = await context.newPage();
  await page.goto(`${dev.http}/presence.js`);
  await enter(page, user, room, action);
  return page;
}

function enter(page, user, room, action = "join") {
  return page.evaluate(
    async ([user, room, action, url]) => {
      const { Presence } = await import("/presence.js");
      window.events ??= [];
      window.presence ??= new Presence({
        url,
        token: async ({ room: wanted, action: act }) =>
          (await fetch(`/dev/token?${new URLSearchParams({ user, room: wanted, act })}`)).text(),
      });
      const entered = window.presence[action](room);
      window.room ??= entered;
      entered.on("join", (member) => window.events.push(`join ${member.user}`));
      entered.on("leave", (member, reason) => window.events.push(`leave ${member.user} ${reason}`));
      await new Promise((resolve) => entered.on("sync", resolve));
    },
    [user, room, action, dev.ws],
  );
}

const eventsOf = (page) => page.evaluate(() => window.events);
const usersOf = (page) => page.evaluate(() => [...window.room.members.keys()].sort());
const sessionOf = (page) => page.evaluate(() => window.room.session);

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
  assert.deepEqual(await membersOn(observer), ["anna", "ben"]);

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

test("a frozen page stays present and is right again when it thaws", async () => {
  const room = newRoom();
  const context = await newContext();
  const frozen = await client(context, "anna", room);
  const observer = await client(context, "ben", room);
  const leaver = await client(context, "cleo", room);
  await eventually(async () => (await usersOf(frozen)).length === 3);
  const devtools = await context.newCDPSession(frozen);
  await devtools.send("Page.setWebLifecycleState", { state: "frozen" });
  await leaver.evaluate(() => window.room.leave());
  await sleep(TTL_MS + GRACE_MS);
  await devtools.send("Page.setWebLifecycleState", { state: "active" });
  await eventually(async () => (await usersOf(frozen)).join() === "anna,ben", 15_000);
  await sleep(HEARTBEAT_MS);
  assert.deepEqual(await usersOf(observer), ["anna", "ben"]);
  assert.deepEqual((await eventsOf(frozen)).filter((event) => event.startsWith("leave")), ["leave cleo left"]);
});

test("offline and online again: the list is kept, then right", async () => {
  const room = newRoom();
  const away = await newContext();
  const here = await newContext();
  const traveller = await client(away, "anna", room);
  const leaver = await client(here, "ben", room);
  await eventually(async () => (await usersOf(traveller)).length === 2);
  await away.setOffline(true);
  await traveller.evaluate(() => window.presence.blip());
  await leaver.evaluate(() => window.room.leave());
  await sleep(2 * HEARTBEAT_MS);
  assert.deepEqual(await usersOf(traveller), ["anna", "ben"], "the last that was known");
  assert.equal(await traveller.evaluate(() => window.room.status), "reconnecting");
  await away.setOffline(false);
  await eventually(async () => (await usersOf(traveller)).join() === "anna", 15_000);
  assert.equal(await traveller.evaluate(() => window.room.status), "live");
});

test("a hidden tab is present for three heartbeats and more", async () => {
  const room = newRoom();
  const tabs = await startTabs();
  try {
    const hidden = await client(tabs, "anna", room);
    const observer = await client(tabs, "ben", room);
    await eventually(async () => (await usersOf(observer)).length === 2);
    await observer.activate();
    await eventually(async () => (await hidden.evaluate(() => document.visibilityState)) === "hidden");
    await sleep(3 * HEARTBEAT_MS + TTL_MS);
    assert.equal(await hidden.evaluate(() => document.visibilityState), "hidden", "all the time");
    assert.deepEqual((await eventsOf(observer)).filter((event) => event.includes("leave")), []);
    assert.deepEqual(await usersOf(observer), ["anna", "ben"]);
    await hidden.activate();
    await eventually(async () => (await usersOf(hidden)).join() === "anna,ben");
    assert.equal(await hidden.evaluate(() => window.room.status), "live");
  } finally {
    await tabs.close();
  }
});

test("a duplicated tab: both are present under different sessions, nobody sees a change", async () => {
  const room = newRoom();
  const context = await newContext();
  const observer = await client(context, "ben", room);
  const original = await client(context, "anna", room);
  await eventually(async () => (await usersOf(observer)).length === 2);
  const before = await eventsOf(observer);
  // A tab opened by script starts with a copy of the session storage, as a duplicated one does.
  const [copy] = await Promise.all([
    context.waitForEvent("page"),
    original.evaluate(() => void window.open("/presence.js")),
  ]);
  await copy.waitForLoadState();
  await enter(copy, "anna", room);
  await eventually(async () => (await sessionOf(copy)) !== (await sessionOf(original)));
  await sleep(TTL_MS + GRACE_MS);
  for (const tab of [copy, original]) assert.equal(await tab.evaluate(() => window.room.status), "live");
  assert.notEqual(await sessionOf(copy), await sessionOf(original));
  assert.deepEqual(await eventsOf(observer), before);
  await copy.close();
  await sleep(2 * GRACE_MS);
  assert.deepEqual(await eventsOf(observer), before, "closing one of two is no departure");
});

test("two tabs restored at once with the same session both end up present", async () => {
  const room = newRoom();
  const context = await newContext();
  const observer = await client(context, "ben", room);
  const pages = [await context.newPage(), await context.newPage()];
  for (const page of pages) {
    await page.goto(`${dev.http}/presence.js`);
    await page.evaluate(
      ([url, room]) =>
        sessionStorage.setItem(
          `presence:${url}:${room}`,
          JSON.stringify({ session: "restored-session-0001", generation: 7 }),
        ),
      [dev.ws, room],
    );
  }
  await Promise.all(pages.map((page) => enter(page, "anna", room)));
  await eventually(async () => (await sessionOf(pages[0])) !== (await sessionOf(pages[1])));
  await sleep(TTL_MS + GRACE_MS);
  for (const page of pages) assert.equal(await page.evaluate(() => window.room.status), "live");
  assert.deepEqual((await eventsOf(observer)).filter((event) => event.includes("anna")), ["join anna"]);
});

test("two rooms on one socket", async () => {
  const [one, two] = [newRoom(), newRoom()];
  const context = await newContext();
  const both = await client(context, "anna", one);
  const connection = await both.evaluate(() => window.presence.connection);
  await enter(both, "anna", two);
  const observer = await client(context, "ben", two);
  await eventually(async () => (await usersOf(observer)).join() === "anna,ben");
  assert.equal(await both.evaluate(() => window.presence.connection), connection);
  await both.evaluate((room) => window.presence.rooms.get(room).leave(), two);
  await eventually(async () => (await eventsOf(observer)).includes("leave anna left"));
  assert.equal(await both.evaluate(() => window.room.status), "live");
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

test("a token that is refused for one room leaves the other rooms of its socket alone", async () => {
  const [refused, good] = [newRoom(), newRoom()];
  const context = await newContext();
  const page = await context.newPage();
  await page.goto(`${dev.http}/presence.js`);
  const told = await page.evaluate(
    async ([url, refused, good]) => {
      const { Presence } = await import("/presence.js");
      const told = { closed: 0, errors: [] };
      let asked = 0;
      const presence = new Presence({
        url,
        token: async ({ room, action }) => {
          if (room === refused && (asked += 1) === 1) return "not.a.token";
          return (await fetch(`/dev/token?${new URLSearchParams({ user: "anna", room, act: action })}`)).text();
        },
      });
      presence.on("closed", () => (told.closed += 1));
      // The refused one first: what follows is on its way while it is refused.
      const rooms = [presence.join(refused), presence.join(good)];
      rooms[0].on("error", ({ code }) => told.errors.push(code));
      const live = (room) => new Promise((resolve) => room.on("status", (status) => status === "live" && resolve()));
      await Promise.all(rooms.map(live));
      return told;
    },
    [dev.ws, refused, good],
  );
  assert.deepEqual(told, { closed: 0, errors: ["unauthorized"] });
});

/** A page whose socket the test can listen to and interfere with: `pass` says of each frame of the edge. */
async function overheard(context, user, room, pass) {
  const page = await context.newPage();
  const said = [];
  await page.routeWebSocket(/\/v1\/ws$/, (socket) => {
    const edge = socket.connectToServer();
    socket.onMessage((message) => {
      said.push(JSON.parse(message));
      edge.send(message);
    });
    edge.onMessage((message) => pass(JSON.parse(message)) && socket.send(message));
  });
  await page.goto(`${dev.http}/presence.js`);
  await enter(page, user, room);
  return { page, said };
}

test("a gap in prev, from a frame that never came, is noticed and made good", async () => {
  const room = newRoom();
  const context = await newContext();
  let lose = false;
  const lost = [];
  const { page, said } = await overheard(context, "anna", room, (frame) => {
    if (!lose || frame.t !== "delta") return true;
    lose = false;
    lost.push(frame);
    return false;
  });
  await eventually(async () => (await usersOf(page)).join() === "anna");
  lose = true;
  await client(context, "ben", room);
  await eventually(() => lost.length === 1);
  assert.deepEqual(await usersOf(page), ["anna"]);
  await client(context, "cleo", room);
  await eventually(async () => (await usersOf(page)).join() === "anna,ben,cleo");
  assert.equal(said.filter(({ t }) => t === "resync").length, 1);
  assert.deepEqual((await eventsOf(page)).filter((event) => event.startsWith("leave")), []);
});

test("a snapshot that is paged: who leaves meanwhile is gone, and a new one cancels it", async () => {
  const context = await newContext();
  const page = await context.newPage();
  const member = (user) => ({ user, status: "available", state: {}, since: 1 });
  let says;
  await page.routeWebSocket(/\/v1\/ws$/, (socket) => {
    says = (message) => socket.send(JSON.stringify({ room: "r", cursor: "c", ...message }));
    socket.send(JSON.stringify({ t: "hello", connection: "00000000000000aa", heartbeat_ms: 15000, reconnect_ms: 100, limits: {} }));
  });
  await page.goto(`${dev.http}/presence.js`);
  await page.evaluate(async (url) => {
    const { Presence } = await import("/presence.js");
    window.room = new Presence({ url, token: () => "t" }).watch("r");
  }, dev.ws);
  await eventually(() => says !== undefined);
  says({ t: "snapshot", rev: 5, members: [member("a"), member("b")], more: true });
  says({ t: "delta", prev: 5, rev: 6, upserts: [member("d")], removals: [{ user: "a", reason: "left" }] });
  assert.deepEqual(await usersOf(page), [], "not before it is whole");
  says({ t: "snapshot", rev: 5, members: [member("c")], more: false });
  await eventually(async () => (await usersOf(page)).join() === "b,c,d");
  says({ t: "snapshot", rev: 8, members: [member("never")], more: true });
  says({ t: "snapshot", rev: 9, members: [member("e")], more: false });
  await eventually(async () => (await usersOf(page)).join() === "e");
});

test("a token callback that fails twice is asked a third time, and a user may be called __proto__", async () => {
  const room = newRoom();
  const context = await newContext();
  const observer = await client(context, "ben", room);
  const page = await context.newPage();
  await page.goto(`${dev.http}/presence.js`);
  const failures = await page.evaluate(
    async ([url, room]) => {
      const { Presence } = await import("/presence.js");
      let asked = 0;
      const presence = new Presence({
        url,
        token: async ({ room: wanted }) => {
          if ((asked += 1) <= 2) throw new Error("the issuer is away");
          return (await fetch(`/dev/token?${new URLSearchParams({ user: "__proto__", room: wanted })}`)).text();
        },
      });
      window.room = presence.join(room);
      const failures = [];
      window.room.on("error", ({ code }) => failures.push(code));
      await new Promise((resolve) => window.room.on("sync", resolve));
      return failures;
    },
    [dev.ws, room],
  );
  assert.deepEqual(failures, ["token", "token"]);
  await eventually(async () => (await usersOf(observer)).join() === "__proto__,ben");
  await eventually(async () => (await usersOf(page)).join() === "__proto__,ben");
  assert.equal(await observer.evaluate(() => ({}).user), undefined, "a name and nothing else");
  await page.evaluate(() => window.room.leave());
  await eventually(async () => (await eventsOf(observer)).includes("leave __proto__ left"));
});
