// The playground: presence.js on a page, with buttons for what networks and people do.
import { Presence } from "/presence.js";

const LOG_ROWS_MAX = 200;
const CROWD_STEP = 10;
const CROWD_MAX = 200;
const CHURN_EVERY_MS = 700;

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));
const asked = new URLSearchParams(location.search);
page.user.value = asked.get("user") ?? `u${Math.floor(Math.random() * 900 + 100)}`;
page.room.value = asked.get("room") ?? "lobby";

let presence = null;
let room = null;
let inTunnel = false;
let blips = 0;
let churn = null;
const crowd = [];

const socketUrl = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/ws`;

async function tokenFor(user, name) {
  const answer = await fetch(`/dev/token?${new URLSearchParams({ user, room: name })}`);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.text();
}

function log(kind, what, who = "", why = "") {
  const row = document.createElement("tr");
  row.dataset.kind = kind;
  const time = new Date().toLocaleTimeString([], { hour12: false });
  for (const text of [time, room?.revision ?? "", what, who, why]) row.insertCell().textContent = text;
  page.log.prepend(row);
  while (page.log.rows.length > LOG_ROWS_MAX) page.log.deleteRow(-1);
}

function seen(rule) {
  document.querySelector(`[data-rule=${rule}]`).classList.add("seen");
}

function showMembers() {
  const members = [...(room?.members.values() ?? [])].sort((a, b) => (a.user < b.user ? -1 : 1));
  page.members.replaceChildren(
    ...members.map((member) => {
      const item = document.createElement("li");
      item.dataset.status = member.status;
      item.dataset.user = member.user;
      const name = document.createElement("span");
      name.className = member.user === page.user.value ? "name me" : "name";
      name.textContent = member.user;
      name.title = `${member.user}, here since ${new Date(member.since).toLocaleTimeString()}`;
      const status = document.createElement("small");
      status.textContent = member.status;
      item.append(name, status);
      return item;
    }),
  );
  page.count.textContent = members.length;
  page.revision.textContent = room?.revision ?? "–";
}

const FRESH = {
  connecting: "connecting",
  live: "live: this is how it is now",
  held: "held: the store cannot vouch for silence, nobody is removed for it",
  stale: "stale: the region cannot be heard, this is the last that was known",
  reconnecting: "reconnecting: this is the last that was known",
  ended: "ended",
};

function showStatus(status) {
  page.freshness.dataset.state = status;
  page.freshness.textContent = FRESH[status];
  document.body.classList.toggle("not-live", status !== "live");
}

function showTab() {
  page.session.textContent = room?.session.slice(0, 13) ?? "–";
  page.connection.textContent = presence?.connection ?? "–";
  const kept = room && JSON.parse(sessionStorage.getItem(`presence:${presence.url}:${room.name}`) ?? "null");
  page.generation.textContent = kept?.generation ?? "–";
}

function enable(on) {
  for (const button of document.querySelectorAll("[data-status], #blip, #drop, #leave, #crowd, #churn, #disperse")) {
    if (button.tagName === "BUTTON") button.disabled = !on;
  }
  page.join.disabled = page.user.disabled = page.room.disabled = on;
}

function join() {
  const [user, name] = [page.user.value, page.room.value];
  page["room-name"].textContent = name;
  presence = new Presence({
    url: socketUrl,
    client: "playground",
    token: async ({ room: wanted }) => {
      if (inTunnel) throw new Error("no network in the tunnel");
      return tokenFor(user, wanted);
    },
  });
  presence.on("connection", showTab);
  room = presence.join(name, { status: pressedStatus() });
  // Who is in the first list was here already: only later ones join.
  let listed = false;
  room.on("join", (member) => log(listed ? "join" : "here", listed ? "joined" : "here already", member.user, member.status));
  room.on("update", (member) => log("update", "changed", member.user, member.status));
  room.on("leave", (member, reason) => {
    log("leave", "gone", member.user, reason);
    if (reason === "connection_lost" || reason === "lease_expired") seen("lease");
  });
  room.on("sync", () => {
    listed = true;
    showMembers();
  });
  room.on("status", (status) => {
    showStatus(status);
    log("mine", `this tab is ${status}`);
  });
  room.on("joined", ({ resumed }) => {
    log("mine", resumed ? "session resumed" : "session joined", user, resumed ? "within grace: nobody noticed" : "");
    if (resumed && blips > 0) seen("grace");
    showTab();
    checkSecondTab();
  });
  room.on("ended", (reason) => log("mine", "session ended", user, reason));
  room.on("error", ({ code, message }) => {
    // Each try without a network fails alike: the pill says it better.
    if (code !== "token") log("mine", `error ${code}`, user, message);
  });
  room.on("gap", ({ have, prev }) => log("mine", "gap", "", `have ${have}, next follows ${prev}: resync`));
  enable(true);
  page.hint.textContent = "";
}

function leave() {
  inTunnel = false;
  page.drop.textContent = "Silent drop";
  presence.close();
  presence = room = null;
  enable(false);
  showStatus("ended");
  showMembers();
  showTab();
  log("mine", "left", page.user.value, "goodbye: gone at once");
}

// A second tab says hello to its sisters, so that each can tell that no second join was announced.
const sisters = "BroadcastChannel" in window ? new BroadcastChannel("presence-playground") : null;
const me = crypto.randomUUID();

function checkSecondTab() {
  sisters?.postMessage({ tab: me, user: page.user.value, room: page.room.value, answer: true });
}

sisters?.addEventListener("message", ({ data }) => {
  if (room === null || data.user !== page.user.value || data.room !== page.room.value || data.tab === me) return;
  seen("session");
  log("mine", "second session", data.user, "one member, no second join");
  if (data.answer) sisters.postMessage({ tab: me, user: page.user.value, room: page.room.value, answer: false });
});

function pressedStatus() {
  return document.querySelector("[data-status][aria-pressed=true]").dataset.status;
}

for (const button of document.querySelectorAll("button[data-status]")) {
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("button[data-status]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    room.update({ status: button.dataset.status });
  });
}

page.enter.addEventListener("submit", (event) => {
  event.preventDefault();
  join();
});
page.leave.addEventListener("click", leave);
page.tab2.addEventListener("click", () => {
  window.open(`/?${new URLSearchParams({ user: page.user.value, room: page.room.value, join: "1" })}`, "_blank", "noopener");
});
page.blip.addEventListener("click", () => {
  blips += 1;
  log("mine", "blip", page.user.value, "closed without goodbye, coming back");
  presence.blip();
});
page.drop.addEventListener("click", async () => {
  if (inTunnel) {
    inTunnel = false;
    page.drop.textContent = "Silent drop";
    page.hint.textContent = "Out of the tunnel: this tab comes back by itself.";
    return;
  }
  const connection = presence.connection;
  if (connection === null) return;
  inTunnel = true;
  const answer = await fetch(`/dev/cut?${new URLSearchParams({ connection })}`, { method: "POST" });
  if (!answer.ok) {
    inTunnel = false;
    log("mine", "not cut", "", await answer.text());
    return;
  }
  log("mine", "silent drop", page.user.value, "bytes stop, neither end is told");
  page.drop.textContent = "Leave the tunnel";
  page.hint.textContent =
    "Watch another tab: nothing happens at first, then this user is gone, with the reason. Press again to come back.";
});

page.crowd.addEventListener("click", () => {
  for (let count = 0; count < CROWD_STEP && crowd.length < CROWD_MAX; count += 1) {
    const user = `crowd-${String(crowd.length + 1).padStart(3, "0")}`;
    const one = new Presence({
      url: socketUrl,
      storage: null,
      client: "playground-crowd",
      token: ({ room: wanted }) => tokenFor(user, wanted),
    });
    one.join(page.room.value);
    crowd.push(one);
  }
});
page.churn.addEventListener("click", () => {
  const on = churn === null;
  page.churn.setAttribute("aria-pressed", String(on));
  if (on) {
    churn = setInterval(() => {
      const one = crowd[Math.floor(Math.random() * crowd.length)];
      const statuses = ["available", "away", "busy"];
      one?.rooms.get(page.room.value)?.update({ status: statuses[Math.floor(Math.random() * 3)] });
      if (Math.random() < 0.3) crowd[Math.floor(Math.random() * crowd.length)]?.blip();
    }, CHURN_EVERY_MS);
  } else {
    clearInterval(churn);
    churn = null;
  }
});
page.disperse.addEventListener("click", () => {
  for (const one of crowd.splice(0)) one.close();
});

fetch("/dev/timers")
  .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error("no timers"))))
  .then(({ heartbeat_ms: heartbeat, grace_ms: grace }) => {
    document.querySelector("[data-timer=grace]").textContent = `${grace / 1000} s`;
    document.querySelector("[data-timer=silence]").textContent = `${(2 * heartbeat) / 1000} s`;
  })
  .catch(() => {});

showStatus("connecting");
page.freshness.textContent = "not joined";
if (asked.has("join")) join();
