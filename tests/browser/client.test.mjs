// presence.js against an edge played by the test.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { FakeSocket, eventually, member, settled } from "./fake.mjs";

globalThis.WebSocket = FakeSocket;
globalThis.reportError ??= (error) => {
  throw error;
};
const { Presence } = await import("../../edge/web/presence.js");

const opened = [];

function present(options = {}) {
  const presence = new Presence({ url: "ws://edge/v1/ws", token: () => "token", storage: memory(), ...options });
  opened.push(presence);
  return presence;
}

function memory(kept = new Map()) {
  return { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
}

function record(room) {
  const events = [];
  room.on("join", ({ user }) => events.push(`join ${user}`));
  room.on("leave", ({ user }, reason) => events.push(`leave ${user} ${reason}`));
  room.on("update", ({ user, status }) => events.push(`update ${user} ${status}`));
  return events;
}

const snapshot = (room, rev, members, more = false) => ({ t: "snapshot", room, rev, cursor: `c${rev}`, members, more });
const delta = (room, prev, rev, upserts = [], removals = []) => ({
  t: "delta", room, prev, rev, cursor: `c${rev}`, upserts, removals,
});
const gone = (user, reason = "left") => ({ user, reason });

async function joined(presence, name = "r") {
  const room = presence.join(name);
  const events = record(room);
  await eventually(() => FakeSocket.all.length > 0);
  const socket = FakeSocket.last;
  socket.hello();
  await eventually(() => socket.of("join").length > 0);
  const { session, generation } = socket.of("join")[0];
  socket.says({ t: "joined", room: name, session, generation, since: 1, resumed: false });
  return { room, events, socket };
}

beforeEach(() => {
  FakeSocket.all = [];
});
afterEach(() => {
  for (const presence of opened.splice(0)) presence.close();
});

test("the token travels in the first message and never in the address", async () => {
  const { socket } = await joined(present({ token: () => "secret" }));
  assert.equal(socket.url, "ws://edge/v1/ws");
  assert.deepEqual(socket.protocols, ["presence.v1.json"]);
  assert.equal(socket.of("join")[0].token, "secret");
});

test("a list is kept by snapshot and deltas, old ones are ignored", async () => {
  const { room, events, socket } = await joined(present());
  socket.says(snapshot("r", 5, [member("a"), member("b")]));
  socket.says(delta("r", 5, 7, [member("c"), member("a", { status: "busy" })], [gone("b", "lease_expired")]));
  socket.says(delta("r", 5, 6, [member("z")]));
  socket.says(delta("r", 6, 8, [], [gone("nobody")]));
  assert.deepEqual([...room.members.keys()].sort(), ["a", "c"]);
  assert.deepEqual(events, ["join a", "join b", "join c", "update a busy", "leave b lease_expired"]);
  assert.equal(room.revision, 8);
});

test("a gap is answered by a resync and nothing is shown wrongly", async () => {
  const { room, events, socket } = await joined(present());
  socket.says(snapshot("r", 5, [member("a")]));
  socket.says(delta("r", 7, 8, [member("x")]));
  assert.deepEqual(socket.of("resync"), [{ t: "resync", room: "r" }]);
  assert.deepEqual([...room.members.keys()], ["a"]);
  socket.says(snapshot("r", 8, [member("a"), member("x")]));
  assert.deepEqual(events, ["join a", "join x"]);
});

test("a leave while a snapshot is paged is not lost, and a new snapshot cancels the old one", async () => {
  const { room, socket } = await joined(present());
  socket.says(snapshot("r", 5, [member("a"), member("b")], true));
  socket.says(delta("r", 5, 6, [], [gone("a")]));
  socket.says(snapshot("r", 5, [member("c")], false));
  assert.deepEqual([...room.members.keys()].sort(), ["b", "c"]);
  assert.equal(room.revision, 6);
  socket.says(snapshot("r", 9, [member("old")], true));
  socket.says(snapshot("r", 10, [member("new")], false));
  assert.deepEqual([...room.members.keys()], ["new"]);
});

test("a resync announces only real differences", async () => {
  const { events, socket } = await joined(present());
  socket.says(snapshot("r", 5, [member("a"), member("b")]));
  events.length = 0;
  socket.says(snapshot("r", 9, [member("a"), member("c")]));
  assert.deepEqual(events, ["join c", "leave b unknown"]);
});

test("a held snapshot removes nobody until the region is live", async () => {
  const { room, events, socket } = await joined(present());
  socket.says(snapshot("r", 5, [member("a"), member("b")]));
  socket.says({ t: "freshness", room: "r", region: "local", state: "held", since: 1 });
  events.length = 0;
  socket.says(snapshot("r", 9, [member("a")]));
  assert.deepEqual(events, []);
  assert.equal(room.status, "held");
  socket.says({ t: "freshness", room: "r", region: "local", state: "live" });
  assert.deepEqual(events, ["leave b lease_expired"]);
  assert.equal(room.status, "live");
});

test("of several regions the one that is known worst says how the room is", async () => {
  const { room, events, socket } = await joined(present());
  const says = (region, state) => socket.says({ t: "freshness", room: "r", region, state, since: 1 });
  socket.says(snapshot("r", 5, [member("a"), member("b")]));
  says("eu", "held");
  says("us", "stale");
  says("ap", "held");
  assert.equal(room.status, "stale");
  events.length = 0;
  says("us", "live");
  assert.equal(room.status, "held");
  says("ap", "live");
  socket.says(snapshot("r", 9, [member("a")]));
  assert.deepEqual(events, []);
  says("eu", "live");
  assert.equal(room.status, "live");
  assert.deepEqual(events, ["leave b lease_expired"]);
  assert.deepEqual([...room.freshness.values()].map(({ state }) => state), ["live", "live", "live"]);
});

test("who missed the end of a hold is told at the next list who did not come back", async () => {
  const { room, events, socket } = await joined(present());
  socket.says(snapshot("r", 5, [member("a"), member("b")]));
  socket.says({ t: "freshness", room: "r", region: "local", state: "held", since: 1 });
  socket.says(snapshot("r", 9, [member("a")]));
  assert.deepEqual([...room.members.keys()], ["a", "b"]);
  socket.ends(1006);
  await eventually(() => FakeSocket.all.length === 2);
  FakeSocket.last.hello();
  await eventually(() => FakeSocket.last.of("join").length === 1);
  events.length = 0;
  FakeSocket.last.says({ t: "delta", room: "r", prev: null, rev: 10, cursor: "c10", upserts: [], removals: [] });
  assert.deepEqual(events, ["leave b lease_expired"]);
  assert.deepEqual([...room.members.keys()], ["a"]);
});

test("a reconnect keeps session and list, raises the generation and names the cursor", async () => {
  const { room, events, socket } = await joined(present());
  socket.says(snapshot("r", 5, [member("a")]));
  const first = socket.of("join")[0];
  socket.ends(1006);
  assert.equal(room.status, "reconnecting");
  assert.deepEqual([...room.members.keys()], ["a"]);
  await eventually(() => FakeSocket.all.length === 2);
  FakeSocket.last.hello();
  await eventually(() => FakeSocket.last.of("join").length === 1);
  const second = FakeSocket.last.of("join")[0];
  assert.equal(second.session, first.session);
  assert.equal(second.generation, first.generation + 1);
  assert.equal(second.since, "c5");
  events.length = 0;
  FakeSocket.last.says(delta("r", null, 3, [member("b")], [gone("a", "connection_lost")]));
  assert.deepEqual(events, ["join b", "leave a connection_lost"]);
  assert.equal(room.status, "live");
});

test("what an old socket still says is ignored", async () => {
  const presence = present();
  const { room, socket } = await joined(presence);
  socket.says(snapshot("r", 5, [member("a")]));
  const { onmessage, onclose } = socket;
  presence.blip();
  onmessage({ data: JSON.stringify(delta("r", 5, 6, [member("ghost")])) });
  onclose({ code: 4410 });
  assert.deepEqual([...room.members.keys()], ["a"]);
  assert.notEqual(room.status, "ended");
});

test("stale_generation and superseded each mint a new session id", async () => {
  const { room, socket } = await joined(present());
  const first = room.session;
  socket.says({ t: "error", room: "r", code: "stale_generation", message: "" });
  await eventually(() => socket.of("join").length === 2);
  const second = room.session;
  assert.notEqual(second, first);
  socket.says({ t: "ended", room: "r", reason: "superseded" });
  await eventually(() => socket.of("join").length === 3);
  assert.equal(new Set([first, second, room.session]).size, 3);
});

test("a reloaded tab goes on with its session and a higher generation", async () => {
  const storage = memory();
  const one = await joined(present({ storage }));
  const before = one.socket.of("join")[0];
  FakeSocket.all = [];
  const two = await joined(present({ storage }));
  const after = two.socket.of("join")[0];
  assert.equal(after.session, before.session);
  assert.equal(after.generation, before.generation + 1);
});

test("two rooms share one socket and are kept apart", async () => {
  const presence = present();
  const { room, socket } = await joined(presence, "r");
  const other = presence.watch("s");
  await eventually(() => socket.of("watch").length === 1);
  socket.says(snapshot("s", 40, [member("x")]));
  socket.says(snapshot("r", 5, [member("a")]));
  socket.says(delta("s", 40, 41, [member("y")]));
  assert.equal(FakeSocket.all.length, 1);
  assert.deepEqual([...room.members.keys()], ["a"]);
  assert.deepEqual([...other.members.keys()], ["x", "y"]);
  other.leave();
  assert.equal(socket.closedWith, undefined);
  room.leave();
  assert.equal(socket.closedWith, 1000);
});

test("a token callback that fails twice is asked a third time", async () => {
  let asked = 0;
  const errors = [];
  const presence = present({
    token: () => {
      asked += 1;
      if (asked <= 2) throw new Error("issuer away");
      return "good";
    },
  });
  const random = Math.random;
  Math.random = () => 0.001;
  try {
    const room = presence.join("r");
    room.on("error", ({ code }) => errors.push(code));
    await eventually(() => FakeSocket.all.length === 1);
    FakeSocket.last.hello();
    await eventually(() => FakeSocket.last.of("join").length === 1);
  } finally {
    Math.random = random;
  }
  assert.equal(asked, 3);
  assert.deepEqual(errors, ["token", "token"]);
  assert.equal(FakeSocket.last.of("join")[0].token, "good");
});

test("a user called __proto__ is only a user", async () => {
  const { room, events, socket } = await joined(present());
  const hostile = ["__proto__", "constructor", "toString"];
  socket.says(snapshot("r", 1, hostile.map((user) => member(user))));
  assert.deepEqual([...room.members.keys()], hostile);
  socket.says(delta("r", 1, 2, [], [gone("__proto__")]));
  assert.ok(events.includes("leave __proto__ left"));
  assert.equal({}.user, undefined);
  assert.equal(present().join("__proto__").name, "__proto__");
});

test("what was said while away goes along with the next join", async () => {
  const { room, socket } = await joined(present());
  socket.ends(1006);
  room.update({ status: "busy", state: { n: 1 } });
  await eventually(() => FakeSocket.all.length === 2);
  FakeSocket.last.hello();
  await eventually(() => FakeSocket.last.of("join").length === 1);
  const { status, state } = FakeSocket.last.of("join")[0];
  assert.deepEqual({ status, state }, { status: "busy", state: { n: 1 } });
});

test("what is said between a join and its answer is not lost", async () => {
  const room = present().join("r");
  await eventually(() => FakeSocket.all.length === 1);
  const socket = FakeSocket.last;
  socket.hello();
  await eventually(() => socket.of("join").length === 1);
  room.update({ status: "away" });
  const { session, generation } = socket.of("join")[0];
  socket.says({ t: "joined", room: "r", session, generation, since: 1, resumed: false });
  assert.deepEqual(
    socket.of("update").map(({ status }) => status),
    ["away"],
  );
});

for (const code of [4400, 4410, 4413]) {
  test(`after ${code} it does not come back by itself`, async () => {
    const { room, socket } = await joined(present());
    socket.ends(code);
    await settled();
    assert.equal(room.status, "ended");
    assert.equal(FakeSocket.all.length, 1);
  });
}

test("an expiring token is refreshed in band", async () => {
  let count = 0;
  const { socket } = await joined(present({ token: () => `token-${(count += 1)}` }));
  socket.says({ t: "token_expiring", room: "r", in_ms: 1000 });
  await eventually(() => socket.of("token").length === 1);
  assert.deepEqual(socket.of("token")[0], { t: "token", room: "r", token: "token-2" });
});

test("a listener that throws disturbs nobody else", async () => {
  const report = globalThis.reportError;
  const reported = [];
  globalThis.reportError = (error) => reported.push(error.message);
  try {
    const { room, events, socket } = await joined(present());
    room.on("join", () => {
      throw new Error("mine");
    });
    const late = record(room);
    socket.says(snapshot("r", 5, [member("a")]));
    assert.deepEqual([events, late, reported], [["join a"], ["join a"], ["mine"]]);
  } finally {
    globalThis.reportError = report;
  }
});

test("who hears of a change reads the revision it belongs to", async () => {
  const { room, socket } = await joined(present());
  const revisions = [];
  for (const name of ["join", "update", "leave"]) room.on(name, () => revisions.push(room.revision));
  socket.says(snapshot("r", 5, [member("a")]));
  socket.says(delta("r", 5, 7, [member("a", { status: "busy" }), member("b")]));
  socket.says(delta("r", 7, 8, [], [gone("b")]));
  assert.deepEqual(revisions, [5, 7, 7, 8]);
});

test("a retry does not wait, and asks a socket that seems open", async () => {
  const presence = present();
  const { socket } = await joined(presence);
  presence.retry();
  assert.equal(socket.of("ping").length, 1);
  const random = Math.random;
  Math.random = () => 0.999;
  try {
    socket.hello({ reconnect_ms: 30_000 });
    socket.ends(1006);
    await settled();
    assert.equal(FakeSocket.all.length, 1, "it waits");
    presence.retry();
    await eventually(() => FakeSocket.all.length === 2, 500);
  } finally {
    Math.random = random;
  }
});

for (const code of ["bad_request", "too_large"]) {
  test(`a join refused with ${code} ends its room, one message refused does not`, async () => {
    const presence = present();
    const { room, socket } = await joined(presence);
    const other = presence.join("s");
    await eventually(() => socket.of("join").length === 2);
    socket.says({ t: "error", room: "s", code, message: "" });
    assert.equal(other.status, "ended");
    assert.deepEqual([...presence.rooms.keys()], ["r"]);
    socket.says({ t: "error", room: "r", code, message: "" });
    assert.notEqual(room.status, "ended");
  });
}

test("the quickest room decides how soon a silent edge is asked", async () => {
  const presence = present();
  const { room, socket } = await joined(presence);
  const { session } = room;
  await new Promise((resolve) => setTimeout(resolve, 60));
  assert.equal(socket.of("ping").length, 0, "hello said 15 s");
  socket.says({ t: "joined", room: "r", session, generation: 1, since: 1, resumed: true, heartbeat_ms: 20, reconnect_ms: 1 });
  await eventually(() => socket.of("ping").length === 1, 1000);
  socket.says({ t: "pong" });
  await eventually(() => socket.of("ping").length === 2, 1000);
  await eventually(() => FakeSocket.all.length === 2, 1000);
});

test("the quickest room decides how soon a lost socket is opened again", async () => {
  const presence = present();
  presence.join("other");
  const { room, socket } = await joined(presence);
  socket.hello({ reconnect_ms: 600_000 });
  const told = { t: "joined", session: room.session, generation: 1, since: 1, resumed: false, heartbeat_ms: 15_000 };
  socket.says({ ...told, room: "other", reconnect_ms: 600_000 });
  socket.says({ ...told, room: "r", reconnect_ms: 5 });
  socket.ends(1006);
  await eventually(() => FakeSocket.all.length === 2, 1000);
});

const number = (room, rev, count, joined = [], left = []) => ({ t: "count", room, rev, count, joined, left });

test("a room that becomes too large is a number: nobody is announced as gone, and the list begins anew", async () => {
  const { room, events, socket } = await joined(present());
  const levels = [];
  const counts = [];
  room.on("level", (level) => levels.push(level));
  room.on("count", (told) => counts.push(told));
  socket.says(snapshot("r", 5, [member("a"), member("b")]));
  events.length = 0;
  socket.says(number("r", 6, 5001, [member("x")], [gone("b")]));
  assert.deepEqual([room.level, room.count, room.members.size, room.cursor], ["count", 5001, 0, null]);
  assert.deepEqual(counts, [{ count: 5001, joined: [member("x")], left: [gone("b")] }]);
  assert.deepEqual(events, []);
  socket.says(number("r", 9, 4700));
  socket.says(snapshot("r", 12, [member("a"), member("c")]));
  assert.deepEqual([room.level, room.count, [...room.members.keys()]], ["members", 2, ["a", "c"]]);
  assert.deepEqual(events, ["join a", "join c"]);
  assert.deepEqual(levels, ["count", "members"]);
  socket.says(delta("r", 12, 13, [], [gone("a")]));
  assert.deepEqual(events.at(-1), "leave a left");
});

test("a number ends a snapshot under way, and a delta on it is a gap", async () => {
  const { room, socket } = await joined(present());
  socket.says(snapshot("r", 5, [member("a")], true));
  socket.says(number("r", 6, 5001));
  assert.deepEqual([room.level, room.members.size, room.status], ["count", 0, "live"]);
  socket.says(delta("r", 6, 7, [member("x")]));
  assert.deepEqual([socket.of("resync").length, room.members.size], [1, 0]);
  socket.says(snapshot("r", 6, [member("x")]));
  assert.deepEqual([room.level, [...room.members.keys()]], ["members", ["x"]]);
});

test("who knows a number only asks without a cursor, and stays what it is until it is told otherwise", async () => {
  const { room, socket } = await joined(present());
  socket.says(snapshot("r", 5, [member("a")]));
  socket.says(number("r", 6, 5001));
  socket.ends(1006);
  assert.deepEqual([room.level, room.count, room.status], ["count", 5001, "reconnecting"]);
  await eventually(() => FakeSocket.all.length === 2);
  FakeSocket.last.hello();
  await eventually(() => FakeSocket.last.of("join").length === 1);
  assert.equal("since" in FakeSocket.last.of("join")[0], false);
  FakeSocket.last.says(number("r", 2, 5002));
  assert.deepEqual([room.count, room.status], [5002, "live"]);
});

test("what is asked of a room goes along each time", async () => {
  const presence = present();
  presence.join("r", { level: "members", status: "away" });
  presence.watch("s", { level: "count" });
  presence.watch("t");
  for (let attempt = 1; attempt <= 2; attempt += 1) {
    await eventually(() => FakeSocket.all.length === attempt);
    const socket = FakeSocket.last;
    socket.hello();
    await eventually(() => socket.sent.length === 3);
    assert.deepEqual(socket.sent.map(({ room, level }) => [room, level]), [["r", "members"], ["s", "count"], ["t", undefined]]);
    socket.ends(1006);
  }
});

test("a room that is refused is asked for again by itself, the others go on", async () => {
  const presence = present();
  const { room, socket } = await joined(presence);
  const random = Math.random;
  Math.random = () => 0.001;
  try {
    const other = presence.watch("s");
    await eventually(() => socket.of("watch").length === 1);
    socket.says({ t: "error", room: "s", code: "unauthorized", message: "" });
    await eventually(() => socket.of("watch").length === 2);
    socket.says(snapshot("s", 3, [member("x")]));
    socket.says(snapshot("r", 5, [member("a")]));
    assert.deepEqual([room.status, other.status, FakeSocket.all.length], ["live", "live", 1]);
  } finally {
    Math.random = random;
  }
});

test("a close that concerns the rooms of a connection leaves alone what was only asked for", async () => {
  for (const code of [4410, 4409]) {
    FakeSocket.all = [];
    const presence = present();
    const { room, socket } = await joined(presence);
    const asked = presence.join("s");
    await eventually(() => socket.of("join").length === 2);
    const sessions = [room.session, asked.session];
    socket.ends(code);
    await eventually(() => FakeSocket.all.length === 2);
    FakeSocket.last.hello();
    await eventually(() => FakeSocket.last.of("join").some((join) => join.room === "s"));
    assert.equal(room.status === "ended", code === 4410);
    assert.equal(room.session === sessions[0], code === 4410, "superseded: another id");
    assert.equal(asked.session, sessions[1]);
  }
});
