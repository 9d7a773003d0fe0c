// presence.js sent away by one edge and taken in by another, both played by the test.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { FakeSocket, eventually, member, settled } from "./fake.mjs";

globalThis.WebSocket = FakeSocket;
const { Presence } = await import("../../edge/web/presence.js");

const opened = [];

function present(options = {}) {
  const presence = new Presence({ url: "ws://edge/v1/ws", token: () => "token", storage: null, ...options });
  opened.push(presence);
  return presence;
}

/** Everything that an application could notice. */
function record(room) {
  const noticed = [];
  room.on("join", ({ user }) => noticed.push(`join ${user}`));
  room.on("leave", ({ user }) => noticed.push(`leave ${user}`));
  room.on("status", (status) => noticed.push(status));
  room.on("stale", ({ state }) => noticed.push(state));
  room.on("ended", (reason) => noticed.push(`ended ${reason}`));
  return noticed;
}

const snapshot = (room, rev, users) => ({
  t: "snapshot", room, rev, cursor: `c${rev}`, members: users.map((user) => member(user)), more: false,
});
const delta = (room, prev, rev, users) => ({
  t: "delta", room, prev, rev, cursor: `c${rev}`, upserts: users.map((user) => member(user)), removals: [],
});
const drain = (after_ms) => ({ t: "reconnect", after_ms, reason: "drain" });

function lets(socket, name) {
  const { session, generation } = socket.of("join").findLast(({ room }) => room === name);
  socket.says({ t: "joined", room: name, session, generation, since: 1, resumed: true });
}

/** In a room with a list, and from here on recorded. */
async function joined(presence, name = "r") {
  const room = presence.join(name);
  await eventually(() => FakeSocket.all.length > 0);
  const socket = FakeSocket.last;
  if (!presence.isOpen) socket.hello();
  await eventually(() => socket.of("join").some((join) => join.room === name));
  lets(socket, name);
  socket.says(snapshot(name, 5, ["a"]));
  return { room, socket, noticed: record(room) };
}

/** The next socket, asked to let in. */
async function asked(count) {
  await eventually(() => FakeSocket.all.length === count);
  FakeSocket.last.hello();
  await eventually(() => FakeSocket.last.of("join").length > 0);
  return FakeSocket.last;
}

async function withChance(chance, act) {
  const random = Math.random;
  Math.random = () => chance;
  try {
    await act();
  } finally {
    Math.random = random;
  }
}

beforeEach(() => {
  FakeSocket.all = [];
});
afterEach(() => {
  for (const presence of opened.splice(0)) presence.close();
});

test("it comes in elsewhere before it lets go, and nothing shows", async () => {
  const presence = present();
  const { room, socket, noticed } = await joined(presence);
  const before = socket.of("join")[0];
  socket.says(drain(40));
  await settled();
  assert.equal(FakeSocket.all.length, 1, "not before its moment");
  const next = await asked(2);
  const join = next.of("join")[0];
  assert.deepEqual(
    [join.session, join.generation, join.since],
    [before.session, before.generation + 1, "c5"],
  );
  socket.says(delta("r", 5, 6, ["b"]));
  assert.deepEqual([...room.members.keys()], ["a", "b"], "the old one serves until then");
  assert.equal(socket.closedWith, undefined);

  lets(next, "r");
  assert.equal(socket.closedWith, 1000);
  next.says(delta("r", null, 2, ["a", "b", "c"]));
  next.says(delta("r", 2, 3, ["d"]));
  assert.deepEqual([...room.members.keys()], ["a", "b", "c", "d"]);
  assert.deepEqual(noticed, ["join b", "join c", "join d"]);
  assert.equal(room.session, before.session);
  room.update({ status: "busy" });
  assert.equal(next.of("update").length, 1);
});

test("being superseded by itself does not cost the session, whichever edge is heard first", async () => {
  const { room, socket, noticed } = await joined(present());
  const session = room.session;
  socket.says(drain(0));
  const next = await asked(2);
  socket.says({ t: "ended", room: "r", reason: "superseded" });
  socket.ends(4409);
  lets(next, "r");
  next.says(delta("r", null, 9, []));
  assert.equal(room.session, session);
  assert.equal(FakeSocket.all.length, 2);
  assert.equal(next.of("join").length, 1);
  assert.deepEqual(noticed, []);
});

test("being superseded by somebody else still does", async () => {
  const { room, socket } = await joined(present());
  const session = room.session;
  socket.says({ t: "ended", room: "r", reason: "superseded" });
  assert.notEqual(room.session, session);
});

test("the old socket is let go once every room is answered", async () => {
  const presence = present();
  const { socket } = await joined(presence, "r");
  await joined(presence, "s");
  socket.says(drain(0));
  const next = await asked(2);
  await eventually(() => next.of("join").length === 2);
  lets(next, "r");
  assert.equal(socket.closedWith, undefined);
  lets(next, "s");
  assert.equal(socket.closedWith, 1000);
});

test("a closed old socket does not disturb one that is being opened", async () => {
  const { room, socket, noticed } = await joined(present());
  socket.says(drain(0));
  await eventually(() => FakeSocket.all.length === 2);
  socket.ends(1012);
  assert.deepEqual(noticed, ["reconnecting"]);
  const next = await asked(2);
  lets(next, "r");
  next.says(delta("r", null, 1, []));
  assert.deepEqual(noticed, ["reconnecting", "live"]);
  assert.equal(room.members.size, 1);
  assert.equal(FakeSocket.all.length, 2);
});

test("a closed old socket does not disturb one that has asked", async () => {
  const { socket, noticed } = await joined(present());
  socket.says(drain(0));
  const next = await asked(2);
  socket.ends(1012);
  lets(next, "r");
  next.says(delta("r", null, 1, []));
  assert.deepEqual(noticed, []);
});

const useless = {
  "refuses the connection": (next) => next.ends(1006),
  "goes as well": (next) => (next.hello(), next.says(drain(0))),
  "takes nobody now": async (next) => {
    next.hello();
    await eventually(() => next.of("join").length > 0);
    next.says({ t: "error", room: "r", code: "unavailable", retry_after_ms: 5, message: "" });
  },
};
for (const [what, act] of Object.entries(useless)) {
  test(`where the other edge ${what}, the old one serves on and another try is made`, async () => {
    const { room, socket, noticed } = await joined(present());
    socket.says(drain(0));
    await eventually(() => FakeSocket.all.length === 2);
    await act(FakeSocket.all[1]);
    socket.says(delta("r", 5, 6, ["b"]));
    assert.deepEqual(noticed, ["join b"]);
    const next = await asked(3);
    lets(next, "r");
    next.says(delta("r", null, 1, []));
    assert.deepEqual([noticed, room.members.size, socket.closedWith], [["join b"], 2, 1000]);
  });
}

test("of several edges another one is tried, and each in its turn", async () => {
  await withChance(0, async () => {
    const presence = present({ url: ["ws://a/v1/ws", "ws://b/v1/ws"] });
    const { socket } = await joined(presence);
    assert.equal(socket.url, "ws://a/v1/ws");
    socket.says(drain(0));
    const next = await asked(2);
    assert.equal(next.url, "ws://b/v1/ws");
    lets(next, "r");
    next.ends(1006);
    await eventually(() => FakeSocket.all.length === 3);
    assert.equal(FakeSocket.last.url, "ws://a/v1/ws");
  });
  await withChance(0.99, async () => {
    present({ url: ["ws://a/v1/ws", "ws://b/v1/ws"] }).join("r");
    await eventually(() => FakeSocket.all.length === 4);
    assert.equal(FakeSocket.last.url, "ws://b/v1/ws", "the first one is anyone");
  });
});

test("a restart before its moment waits for that; a lost connection does not", async () => {
  await withChance(0.0001, async () => {
    const { socket } = await joined(present());
    socket.says(drain(150));
    const start = performance.now();
    socket.ends(1012);
    await eventually(() => FakeSocket.all.length === 2);
    assert.ok(performance.now() - start > 100, "the hint is honoured");
  });
  FakeSocket.all = [];
  await withChance(0.0001, async () => {
    const { socket } = await joined(present());
    socket.says(drain(60_000));
    socket.ends(1006);
    await eventually(() => FakeSocket.all.length === 2);
  });
});

test("an edge that is overloaded again and again is left alone for longer each time", async () => {
  await withChance(0.999, async () => {
    present().join("r");
    const waits = [];
    for (let count = 1; count <= 3; count += 1) {
      await eventually(() => FakeSocket.all.length === count);
      FakeSocket.last.hello({ reconnect_ms: 40 });
      const start = performance.now();
      FakeSocket.last.ends(1013);
      await eventually(() => FakeSocket.all.length === count + 1);
      waits.push(performance.now() - start);
    }
    assert.ok(waits[0] > 30 && waits[1] > 70 && waits[2] > 150, `${waits}`);
  });
});

test("whoever is turned away at the door comes back after the hint, and later each time", async () => {
  for (const [code, reason] of [[1013, "overloaded"], [4429, "rate_limited"]]) {
    FakeSocket.all = [];
    await withChance(0.02, async () => {
      const presence = present();
      const heard = [];
      presence.on("reconnect", (told) => heard.push(told));
      presence.join("r");
      const waits = [];
      for (const [count, after_ms] of [[1, 250], [2, 5], [3, 5]]) {
        await eventually(() => FakeSocket.all.length === count);
        const start = performance.now();
        // Before any hello, as an edge says it that lets nobody in.
        FakeSocket.last.says({ t: "reconnect", after_ms, reason });
        FakeSocket.last.ends(code);
        await eventually(() => FakeSocket.all.length === count + 1);
        waits.push(performance.now() - start);
      }
      assert.deepEqual(heard[0], { after: 250, reason });
      assert.ok(waits[0] > 240, `not before the hint: ${waits}`);
      assert.ok(waits[1] > 180 && waits[2] > 380, `growing, however short the hints: ${waits}`);
      presence.close();
    });
  }
});
