// presence.js on a page, in a real browser against the real server.

import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "./fake.mjs";
import { GRACE_MS, HEARTBEAT_MS, TTL_MS } from "./server.mjs";
import { sleep, stage } from "./stage.mjs";
import { startTabs } from "./tabs.mjs";

const { dev, newContext, newRoom } = stage();

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
