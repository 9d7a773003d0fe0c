// The playground: presence.js on a page, with buttons for what networks and people do.
import { Presence } from "/presence.js";

const LOG_ROWS_MAX = 200;
const CROWD_STEP = 10;
const CROWD_MAX = 200;
const CHURN_EVERY_MS = 700;

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));
const asked = new URLSearchParams(location.search);
/** Where a tab keeps, while it is loaded again, that it was in. */
const IN = "presence-playground-in";
const wasIn = takeWasIn();
page.room.value = wasIn?.room ?? asked.get("room") ?? "lobby";

let presence = null;
let room = null;
let isEntering = false;
let inTunnel = false;
let blips = 0;
let churn = null;
// How long a tab that fell silent is still shown.
let goneAfter = "two heartbeats and the grace";
// Rows of the delta that is being told.
let changes = [];
const crowd = [];

const socketUrl = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/ws`;

async function tokenFor(user, name) {
  const answer = await fetch(`/dev/token?${new URLSearchParams({ user, room: name })}`);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.text();
}

/** Holds a name until this tab closes: alone and at once, or together with other tabs of the same user. */
function claim(name, { alone }) {
  return new Promise((resolve) => {
    const options = alone ? { ifAvailable: true } : { mode: "shared" };
    navigator.locks.request(`presence-playground-user-${name}`, options, (lock) => {
      resolve(lock !== null);
      return lock === null ? undefined : new Promise(() => {});
    });
  });
}

/** Who this tab was in as, and where, if it has just been loaded again: never for a copy of a tab. */
function takeWasIn() {
  const kept = JSON.parse(sessionStorage.getItem(IN) ?? "null");
  sessionStorage.removeItem(IN);
  return kept?.search === location.search ? kept : null;
}

/**
 * Who was in before a reload; else the user of the address; else the one this tab had before a reload; else the first
 * of u1, u2, … that is free.
 */
async function whoAmI() {
  const kept = wasIn?.user ?? asked.get("user") ?? sessionStorage.getItem("presence-playground-user");
  if (kept !== null) {
    if ("locks" in navigator) claim(kept, { alone: false });
    return kept;
  }
  let number = 1;
  while ("locks" in navigator && !(await claim(`u${number}`, { alone: true }))) number += 1;
  sessionStorage.setItem("presence-playground-user", `u${number}`);
  return `u${number}`;
}

function log(kind, what, who = "", why = "") {
  const row = document.createElement("tr");
  row.dataset.kind = kind;
  const time = new Date().toLocaleTimeString([], { hour12: false });
  for (const text of [time, room?.revision ?? "", what, who, why]) row.insertCell().textContent = text;
  page.log.prepend(row);
  while (page.log.rows.length > LOG_ROWS_MAX) page.log.deleteRow(-1);
  return row;
}

/** Text with names in it, as nodes: each name by itself, so that it turns no word beside it around. */
function naming(texts, ...names) {
  const isolated = (name) => Object.assign(document.createElement("bdi"), { textContent: name });
  return texts.flatMap((text, at) => (at < names.length ? [text, isolated(names[at])] : [text]));
}

function hint(...nodes) {
  page.hint.replaceChildren(...nodes);
}

function seen(rule) {
  document.querySelector(`[data-rule=${rule}]`).classList.add("seen");
}

function showMembers() {
  // Oneself first: in a long list one is not to be looked for.
  const isMe = ({ user }) => user === page.user.value;
  const members = [...(room?.members.values() ?? [])].sort((a, b) => isMe(b) - isMe(a) || (a.user < b.user ? -1 : 1));
  page.members.replaceChildren(
    ...members.map((member) => {
      const item = document.createElement("li");
      item.dataset.status = member.status;
      item.dataset.user = member.user;
      const name = document.createElement("span");
      name.className = isMe(member) ? "name me" : "name";
      name.textContent = member.user;
      // On a line of its own, since a tooltip has no other way to keep a name from turning what follows around.
      name.title = `${member.user}\nhere since ${new Date(member.since).toLocaleTimeString()}`;
      const status = document.createElement("small");
      status.textContent = member.status;
      item.append(name, status);
      return item;
    }),
  );
  page.count.textContent = room === null ? "" : room.count;
  showEmpty();
  page.revision.textContent = room?.revision ?? "–";
}

const FRESH = {
  connecting: "connecting",
  live: "live: this is how it is now",
  held: "held: the store cannot vouch for silence, nobody is removed for it",
  stale: "stale: the region cannot be heard, this is the last that was known",
  reconnecting: "reconnecting: this is the last that was known",
  ended: "ended: this is the last that was known, and this tab does not come back by itself",
  outside: "not joined",
};

function showStatus(status) {
  page.freshness.dataset.state = status;
  page.freshness.textContent = FRESH[status];
  document.body.classList.toggle("not-live", status !== "live");
  showEmpty();
}

/** What stands where no list is. */
function showEmpty() {
  const name = page["room-name"].textContent;
  const outside = page.freshness.dataset.state === "outside";
  const here = room?.level === "count" ? `${room.count} members: too many to list.` : "Nobody is here yet.";
  page.empty.replaceChildren(...(outside ? naming`Join to see who is in ${name}, then open a second tab.` : [here]));
}

function showTab() {
  page.session.textContent = room?.session.slice(0, 13) ?? "–";
  page.connection.textContent = presence?.connection ?? "–";
  const kept = room && JSON.parse(sessionStorage.getItem(`presence:${presence.url}:${room.name}`) ?? "null");
  page.generation.textContent = kept?.generation ?? "–";
}

function enable(on) {
  // What had the focus may not take it any more: it goes to where things can be done now.
  const focused = document.activeElement;
  for (const button of document.querySelectorAll("[data-status], #blip, #drop, #leave, #crowd, #churn, #disperse")) {
    if (button.tagName === "BUTTON") button.disabled = !on;
  }
  page.join.disabled = page.user.disabled = page.room.disabled = on;
  if (focused?.disabled) (on ? page["tab-title"] : page.join).focus();
}

async function join() {
  if (presence !== null || isEntering) return;
  const [user, name] = [page.user.value, page.room.value];
  isEntering = true;
  let first;
  try {
    // A name that nobody may have is told at once, not with each attempt.
    first = await tokenFor(user, name);
  } catch (error) {
    log("error", "not let in", user, error.message);
    page.freshness.dataset.state = "refused";
    page.freshness.replaceChildren(...naming`not let in: ${error.message}`);
    return;
  } finally {
    isEntering = false;
  }
  page["room-name"].textContent = name;
  presence = new Presence({
    url: socketUrl,
    client: "playground",
    token: async ({ room: wanted }) => {
      if (inTunnel) throw new Error("no network in the tunnel");
      const token = first ?? (await tokenFor(user, wanted));
      first = null;
      return token;
    },
  });
  presence.on("connection", showTab);
  presence.on("closed", ({ code }) => log("mine", "connection closed", user, `code ${code}`));
  room = presence.join(name, { status: pressedStatus() });
  listen(user);
  showStatus("connecting");
  showMembers();
  enable(true);
  hint("");
}

/** Shows what happens in the room. */
function listen(user) {
  const mine = room;
  const change = (...cells) => changes.push(log(...cells));
  // Who is in the first list was here already: only later ones join.
  let listed = false;
  let tokenError = null;
  room.on("join", (member) =>
    change(listed ? "join" : "here", listed ? "joined" : "here already", member.user, member.status),
  );
  room.on("update", (member) => change("update", "changed", member.user, member.status));
  room.on("leave", (member, reason) => {
    change("leave", "gone", member.user, reason);
    if (reason === "connection_lost" || reason === "lease_expired") seen("lease");
  });
  room.on("delta", ({ prev, rev }) => {
    for (const row of changes) row.cells[1].textContent = prev === null ? rev : `${prev} → ${rev}`;
  });
  room.on("level", (level) => {
    // Whoever is in a list that begins anew was here already.
    listed = false;
    log("mine", level === "count" ? "too many to list" : "few enough to list", "", "nobody came or went by that");
  });
  room.on("count", ({ joined, left }) => {
    for (const member of joined) log("join", "joined", member.user, "one of those who came");
    for (const { user: gone, reason } of left) log("leave", "gone", gone, reason);
  });
  room.on("sync", () => {
    changes = [];
    listed = true;
    showMembers();
  });
  room.on("status", (status) => {
    // Left by the button: said already.
    if (room !== mine) return;
    showStatus(status);
    log("mine", `this tab is ${status}`);
    if (status === "ended") leave();
  });
  room.on("stale", ({ region, state }) => {
    if (regions.regions.length > 1) log("mine", `${region} is ${state}`);
    showRegions();
  });
  room.on("joined", ({ resumed }) => {
    showRegions();
    tokenError = null;
    log("mine", resumed ? "session resumed" : "session joined", user, resumed ? "within grace: nobody noticed" : "");
    if (resumed && blips > 0) seen("grace");
    if (!inTunnel) hint("");
    showTab();
    tellSisters("here");
  });
  room.on("ended", (reason) => log("error", "session ended", user, reason));
  room.on("error", ({ code, message }) => {
    if (code !== "token") return log("error", `error ${code}`, user, message);
    // Each try without a network fails alike: the pill says it better.
    if (inTunnel || message === tokenError) return;
    tokenError = message;
    log("error", "no token", user, message);
  });
  room.on("gap", ({ have, prev }) => log("error", "gap", "", `have ${have}, next follows ${prev}: resync`));
}

/** By the button, or because the room has ended by itself: then what was last known stays in sight. */
function leave() {
  // A reload is to leave it at that.
  asked.delete("join");
  history.replaceState(null, "", `?${asked}`);
  const [user, byMyself, wasInTunnel] = [page.user.value, room.status !== "ended", inTunnel];
  inTunnel = false;
  page.drop.textContent = "Silent drop";
  const [old, twins] = [presence, twinsOfMine()];
  presence = room = null;
  changes = [];
  enable(false);
  tellSisters("gone");
  old.close();
  if (!byMyself) return;
  showStatus("outside");
  showMembers();
  showTab();
  if (wasInTunnel) {
    log("mine", "left, unheard", user, "goodbyes do not leave a tunnel");
    hint(...naming`Nobody heard this goodbye in the tunnel: others see ${user} go for silence, as connection_lost.`);
  } else {
    log("mine", "left", user, twins === 0 ? "goodbye: gone at once" : "goodbye: another tab of this user stays");
    if (twins === 0) hint();
    else hint(...naming`${user}`, ` is still here by ${tabs(twins)}: others see nothing until that is left too.`);
  }
}

// Tabs of one browser tell each other who they are: only so can a page know that nobody saw its second tab come,
// and that a user whose other tab is here does not go with this one.
const sisters = "BroadcastChannel" in window ? new BroadcastChannel("presence-playground") : null;
const me = crypto.randomUUID();
const known = new Map();

function tellSisters(what) {
  sisters?.postMessage({ tab: me, what, user: page.user.value, room: page.room.value });
}

function isTwin({ user, room: name }) {
  return user === page.user.value && name === page.room.value;
}

/** How many other tabs of this browser are the same user in the same room. */
function twinsOfMine() {
  return [...known.values()].filter(isTwin).length;
}

function tabs(count) {
  return count === 1 ? "another tab" : `${count} other tabs`;
}

sisters?.addEventListener("message", ({ data }) => {
  if (data.what === "gone") return known.delete(data.tab);
  const isNew = !known.has(data.tab);
  known.set(data.tab, data);
  if (room === null) return;
  if (data.what === "here") tellSisters("too");
  if (!isNew || !isTwin(data)) return;
  seen("session");
  log("mine", "second session", data.user, "one member, no second join");
});
window.addEventListener("pagehide", () => {
  tellSisters("gone");
  if (room === null) return;
  // Kept only now, for whoever loads this tab again: a copy of a tab that is in has nothing of it.
  const kept = { user: page.user.value, room: room.name, status: pressedStatus(), search: location.search };
  sessionStorage.setItem(IN, JSON.stringify(kept));
});
window.addEventListener("pageshow", () => sessionStorage.removeItem(IN));

function pressedStatus() {
  return document.querySelector("[data-status][aria-pressed=true]").dataset.status;
}

function press(status) {
  for (const button of document.querySelectorAll("button[data-status]")) {
    button.setAttribute("aria-pressed", String(button.dataset.status === status));
  }
}

for (const button of document.querySelectorAll("button[data-status]")) {
  button.addEventListener("click", () => {
    press(button.dataset.status);
    room.update({ status: button.dataset.status });
  });
}

page.enter.addEventListener("submit", (event) => {
  event.preventDefault();
  join();
});
page.leave.addEventListener("click", () => leave());
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
    hint("Out of the tunnel: this tab asks for its connection, and comes back by another one.");
    presence.retry();
    return;
  }
  const connection = presence.connection;
  if (connection === null) return hint("There is no connection to cut just now.");
  inTunnel = true;
  const answer = await fetch(`/dev/cut?${new URLSearchParams({ connection })}`, { method: "POST" });
  if (!answer.ok) {
    inTunnel = false;
    log("error", "not cut", "", await answer.text());
    return;
  }
  log("mine", "silent drop", page.user.value, "bytes stop, neither end is told");
  page.drop.textContent = "Leave the tunnel";
  const twins = twinsOfMine();
  if (twins === 0) {
    const then = "then this user is gone, with the reason. Press again to come back.";
    hint(`Watch another tab: nothing for ${goneAfter}, ${then}`);
  } else {
    const others = "others see nothing. Close the other to see this user go.";
    hint(...naming`${page.user.value}`, ` is here by ${tabs(twins)} as well: ${others}`);
  }
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
    goneAfter = `${(2 * heartbeat + grace) / 1000} s`;
    document.querySelector("[data-timer=grace]").textContent = `${grace / 1000} s`;
    document.querySelector("[data-timer=silence]").textContent = `${(2 * heartbeat) / 1000} s`;
  })
  .catch(() => {});

/** Several regions: where their playgrounds are, how fresh each is here, and the link between them. */
let regions = { own: null, cut: false, regions: [] };

function showRegions() {
  page.regions.hidden = regions.regions.length < 2;
  page["cut-regions"].setAttribute("aria-pressed", String(regions.cut));
  page["cut-regions"].textContent = regions.cut ? "Mend the link" : "Cut the link";
  const freshness = room?.freshness ?? new Map();
  const entries = regions.regions.map(({ region, playground }) => {
    const state = freshness.get(region)?.state ?? "live";
    const entry = document.createElement(region === regions.own ? "b" : "a");
    if (region !== regions.own) Object.assign(entry, { href: playground, target: "_blank", rel: "noopener" });
    entry.dataset.region = region;
    entry.dataset.state = state;
    entry.textContent = `${region}: ${room === null ? "–" : state}`;
    return entry;
  });
  page["region-list"].replaceChildren(...entries.flatMap((entry) => [" ", entry]));
}

async function askRegions() {
  const answer = await fetch("/dev/regions");
  if (answer.ok) regions = await answer.json();
  showRegions();
}

page["cut-regions"].addEventListener("click", async () => {
  const cut = !regions.cut;
  const answer = await fetch(`/dev/regions/cut?${new URLSearchParams({ cut })}`, { method: "POST" });
  if (!answer.ok) return log("error", "not cut", "", await answer.text());
  log("mine", cut ? "link cut" : "link mended", "", cut ? "no region hears another one" : "regions hear each other again");
  await askRegions();
});
askRegions().catch(() => {});

page["room-name"].textContent = page.room.value;
showStatus("outside");
if (wasIn !== null) press(wasIn.status);
page.user.value = await whoAmI();
if (wasIn !== null || asked.has("join")) join();
