// `helm test`: somebody joins a room by an edge, sees themselves, leaves, and somebody else sees both.
// Speaks docs/protocol.md with nothing but what Node.js 22 brings along.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import process from "node:process";

const WITHIN_MS = 60_000;

const { PRESENCE_TEST_URL: url, PRESENCE_TEST_ROOM: room, PRESENCE_TEST_TOKEN_FILE: file } = process.env;

function fail(why) {
  console.error(`failed: ${why}`);
  process.exit(1);
}

function userOf(token) {
  try {
    return JSON.parse(Buffer.from(token.split(".")[1], "base64url").toString()).sub;
  } catch {
    return fail(`${file} holds no token; \`presence token\` signs one`);
  }
}

const token = readFileSync(file, "utf8").trim();
const user = userOf(token);

/** A connection that says `first`, again when it is told to wait, and hands on what it is told. */
function connect(first, onMessage) {
  const socket = new WebSocket(url, "presence.v1.json");
  const say = (message) => socket.send(JSON.stringify(message));
  socket.onopen = () => say(first);
  socket.onerror = (event) => fail(`${url}: ${event.error?.cause?.message ?? event.message ?? "no WebSocket"}`);
  socket.onclose = (event) => fail(`${url} closed with ${event.code} ${event.reason}`);
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.t === "error" && message.code === "unavailable") {
      setTimeout(() => say(first), message.retry_after_ms ?? 1_000);
    } else if (message.t === "error") {
      fail(`${message.code}: ${message.message}`);
    } else {
      onMessage(message);
    }
  };
  return { say, close: () => { socket.onclose = null; socket.close(1000); } };
}

/** Whom a message shows as present, and whom as gone. */
const shown = ({ members = [], upserts = [] }) => [...members, ...upserts].some((member) => member.user === user);
const gone = ({ removals = [] }) => removals.find((removal) => removal.user === user);

setTimeout(() => fail(`not done within ${WITHIN_MS / 1_000} s`), WITHIN_MS).unref();

const step = (what) => console.log(`ok: ${what}`);
let member, hasJoined = false, seesItself = false, isSeen = false, hasLeft = false;

function leaveOnceSeen() {
  if (!(hasJoined && seesItself && isSeen) || hasLeft) return;
  hasLeft = true;
  member.say({ t: "leave", room });
}

function onMember(message) {
  if (message.t === "joined") step(`${user} joined ${room}`);
  hasJoined ||= message.t === "joined";
  if (!seesItself && shown(message)) step("sees itself");
  seesItself ||= shown(message);
  leaveOnceSeen();
}

const watcher = connect({ t: "watch", room, token, level: "members" }, (message) => {
  const isList = message.t === "snapshot" || message.t === "freshness";
  if (isList && !member) {
    member = connect({ t: "join", room, token, session: randomUUID(), level: "members" }, onMember);
  }
  if (!isSeen && shown(message)) step("is seen by somebody who watches");
  isSeen ||= shown(message);
  leaveOnceSeen();
  const removal = gone(message);
  if (hasLeft && removal) {
    step(`is gone: ${removal.reason}`);
    if (removal.reason !== "left") fail(`the reason should be left, and is ${removal.reason}`);
    member.close();
    watcher.close();
    process.exit(0);
  }
});
