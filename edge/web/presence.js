/**
 * presence.js: who is here, without flicker and without ghosts.
 *
 * One socket carries all rooms. A room keeps its session id and generation over reconnects, its member
 * list by revision, and its place by a cursor; a lost connection is not a departure, so the list stays
 * (marked stale) until the edge says what really changed.
 */

export const version = "0.1.0";

const FIRST_RECONNECT_MS = 5_000;
const RECONNECT_CEILING_MS = 30_000;
const HEARTBEAT_MS = 15_000;
const ANSWER_WITHIN_MS = 5_000;
const OPEN_WITHIN_MS = 10_000;
const GENERATION_MAX = Number.MAX_SAFE_INTEGER - 1;

/** Ended from here: an open socket did not answer. Never on the wire. */
const SILENT = 0;
/** Of what this connection does: the same would be refused again. */
const OUR_FAULT = new Set([4400, 4413]);
/** Of rooms it was in: those it only asked for were not meant. */
const SUPERSEDED = 4409;
const EVICTED = 4410;
const TOKEN_FIRST = new Set([4401, 4403]);
const AFTER_THE_HINT = new Set([1001, 1012, 1013, 4429]);
/** It is too much for this edge: wait longer each time, whatever it says. */
const TOO_MUCH = new Set([1013, 4429]);
/** Errors after which the same may go well a little later, or elsewhere. */
const PASSING = new Set(["unavailable", "rate_limited"]);

/** Full jitter: evenly from zero to a ceiling that doubles with each failure. */
class Backoff {
  #first;
  #failures = 0;

  constructor(first) {
    this.#first = first;
  }

  /** Whether the last attempt failed. */
  get failed() {
    return this.#failures > 0;
  }

  next() {
    const ceiling = Math.min(this.#first * 2 ** Math.min(this.#failures, 16), RECONNECT_CEILING_MS);
    this.#failures += 1;
    return Math.random() * ceiling;
  }

  startFrom(first) {
    this.#first = first;
  }

  reset() {
    this.#failures = 0;
  }
}

/** Listeners by event name; one that throws disturbs nobody else. */
class Events {
  #listeners = new Map();

  on(name, listener) {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  emit(name, ...details) {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        listener(...details);
      } catch (error) {
        reportError(error);
      }
    }
  }
}

/** Session id and generation of a room, kept for the life of the tab. */
class Identity {
  #key;
  #storage;
  session;
  generation;

  constructor(url, room, storage) {
    this.#key = `presence:${url}:${room}`;
    this.#storage = storage;
    const kept = this.#read();
    this.session = kept?.session ?? crypto.randomUUID();
    this.generation = kept?.generation ?? 0;
  }

  #read() {
    try {
      const kept = JSON.parse(this.#storage?.getItem(this.#key) ?? "null");
      const sound = typeof kept?.session === "string" && Number.isSafeInteger(kept.generation);
      return sound && kept.generation < GENERATION_MAX ? kept : null;
    } catch {
      return null;
    }
  }

  #keep() {
    try {
      this.#storage?.setItem(this.#key, JSON.stringify({ session: this.session, generation: this.generation }));
    } catch {
      // A full or forbidden storage costs a new session after a reload, nothing else.
    }
  }

  /** A new attempt: the edge tells old connections from new by it. */
  raise() {
    this.generation += 1;
    this.#keep();
  }

  /** Somebody else has this id (a duplicated tab): take another, never fight over it. */
  mint() {
    this.session = crypto.randomUUID();
    this.generation = 1;
    this.#keep();
  }
}

/** One socket to an edge. What it says, and that it ended, is told to its owner; after `close` nothing is. */
class Line {
  open = false;
  connection = null;
  /** When its edge wants it gone, by performance.now(). */
  leaves = null;
  #socket;
  #owner;
  #watchdog;
  #pingSent = null;

  constructor(url, owner) {
    this.#owner = owner;
    this.#socket = new WebSocket(url, ["presence.v1.json"]);
    this.#socket.onmessage = ({ data }) => this.#receive(data);
    this.#socket.onclose = ({ code }) => this.#end(code);
    this.#guard(OPEN_WITHIN_MS);
  }

  send(message) {
    if (this.open) this.#socket.send(JSON.stringify(message));
  }

  close() {
    clearTimeout(this.#watchdog);
    const socket = this.#socket;
    this.#socket = null;
    this.open = false;
    if (socket === null) return;
    socket.onmessage = socket.onclose = null;
    socket.close(1000);
  }

  /** Asks whether it still works; given up if an earlier question went unanswered. */
  check() {
    if (this.#socket === null) return;
    if (!this.open) {
      this.#give(1006);
    } else if (this.#pingSent !== null && performance.now() - this.#pingSent < 2 * ANSWER_WITHIN_MS) {
      this.#give(SILENT);
    } else {
      // A page that slept through the answer asks again: it was away, not the edge.
      this.#pingSent = performance.now();
      this.send({ t: "ping", at: this.#owner.reached(this) });
      this.#guard(Math.min(ANSWER_WITHIN_MS, this.#owner.heartbeatMs()));
    }
  }

  #receive(data) {
    if (this.#socket === null) return;
    this.#pingSent = null;
    this.#hear(data);
    // What it said may have told how soon to ask, or have let it go.
    if (this.#socket !== null) this.#guard(this.#owner.heartbeatMs());
  }

  #hear(data) {
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    if (message.t === "hello") {
      this.open = true;
      this.connection = message.connection;
    } else if (message.t === "reconnect") {
      this.leaves = performance.now() + message.after_ms;
    }
    this.#owner.said(this, message);
  }

  #end(code) {
    if (this.#socket === null) return;
    clearTimeout(this.#watchdog);
    this.#socket = null;
    this.open = false;
    this.#owner.ended(this, code);
  }

  #give(code) {
    this.close();
    this.#owner.ended(this, code);
  }

  /** No frame for a while: ask, and give the socket up only if the question goes unanswered. */
  #guard(afterMs) {
    clearTimeout(this.#watchdog);
    this.#watchdog = setTimeout(() => this.check(), afterMs);
  }
}

/** A room: its members as they are now, and what happens to them. */
export class Room {
  #presence;
  #identity;
  #events = new Events();
  #members = new Map();
  #unconfirmed = new Set();
  #freshness = new Map();
  #retry;
  #asking = false;
  #asked = null;
  #paging = null;
  #revision = null;
  #token = null;
  #wanted;
  #told = null;
  #inside = false;
  #asks;

  /** @internal */
  constructor(presence, name, action, options, storage) {
    this.#presence = presence;
    this.#identity = new Identity(presence.url, name, storage);
    this.#wanted = { status: options.status ?? "available", state: options.state ?? {} };
    this.#asks = options.level;
    this.name = name;
    this.action = action;
    this.status = "connecting";
    this.level = "members";
    this.count = 0;
    this.cursor = null;
    this.timers = {};
    this.backoff = new Backoff(FIRST_RECONNECT_MS);
  }

  /** Members by user; a snapshot of the list, in no particular order. Empty while only the number is shown. */
  get members() {
    return new Map(this.#members);
  }

  /** Revision of the list on this connection, null before the first frame. */
  get revision() {
    return this.#revision;
  }

  /** This tab's session id in the room. */
  get session() {
    return this.#identity.session;
  }

  /** How fresh each region is: region → { state, since }. */
  get freshness() {
    return new Map(this.#freshness);
  }

  /** Listens; gives back a function that stops. */
  on(name, listener) {
    return this.#events.on(name, listener);
  }

  /** Says something new about this user. Kept over reconnects. */
  update({ status, state }) {
    if (this.action !== "join") throw new Error("only a joined room can be updated");
    if (status !== undefined) this.#wanted.status = status;
    if (state !== undefined) this.#wanted.state = state;
    if (this.#inside) this.#presence.send({ t: "update", room: this.name, ...this.#wanted });
  }

  /** Says goodbye, or stops watching. */
  leave() {
    if (this.status === "ended") return;
    this.#presence.send({ t: "leave", room: this.name });
    this.end("left");
  }

  /** @internal Fetches a token before a socket is opened: the edge waits only so long for the first message. */
  async prepare() {
    this.#token = await this.#presence.token(this);
  }

  /** @internal Asks to be let in, on this line. */
  async enter(line = this.#presence.line) {
    if (this.#asking || this.status === "ended") return;
    clearTimeout(this.#retry);
    this.#asking = true;
    try {
      if (this.#token === null) await this.prepare();
      const token = this.#token;
      const speaks = this.#presence.speaksOver(line) ? line : this.#presence.line;
      if (this.status !== "ended" && speaks?.open) {
        this.#token = null;
        this.#asked = speaks;
        this.#request(token, speaks);
      }
    } catch (error) {
      this.tokenFailed(error);
      this.#again(this.backoff.next());
    } finally {
      this.#asking = false;
    }
  }

  /** @internal */
  tokenFailed(error) {
    this.#events.emit("error", { code: "token", message: String(error) });
  }

  /** @internal Whether it asked to be let in on this line. */
  hasAsked(line) {
    return this.#asked === line;
  }

  #request(token, line) {
    const since = this.cursor ?? undefined;
    const client = this.#presence.client;
    const level = this.#asks;
    if (this.action === "watch") {
      line.send({ t: "watch", room: this.name, token, since, level, client });
      return;
    }
    this.#identity.raise();
    const { session, generation } = this.#identity;
    this.#told = JSON.stringify(this.#wanted);
    line.send({
      t: "join", room: this.name, token, session, generation, ...this.#wanted, since, watch: true, level, client,
    });
  }

  #again(afterMs) {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.enter(), afterMs);
  }

  /** @internal */
  receive(message) {
    switch (message.t) {
      case "joined":
        this.#inside = true;
        this.#identity.generation = Math.max(this.#identity.generation, message.generation);
        this.backoff.reset();
        this.timers = { heartbeatMs: message.heartbeat_ms, reconnectMs: message.reconnect_ms };
        this.#events.emit("joined", { session: message.session, resumed: message.resumed, since: message.since });
        // What was said while the answer was on its way.
        if (JSON.stringify(this.#wanted) !== this.#told) this.update({});
        break;
      case "snapshot":
        this.#page(message);
        break;
      case "delta":
        this.#delta(message);
        break;
      case "count":
        this.#counted(message);
        break;
      case "freshness":
        this.#fresh(message);
        break;
      case "token_expiring":
        this.#refresh();
        break;
      case "ended":
        this.#over(message.reason);
        break;
      case "error":
        this.#failed(message);
        break;
    }
  }

  /** The room is too large for a list, or a number was asked for. What was listed is not gone, only not known. */
  #counted({ rev, count, joined, left }) {
    this.#paging = null;
    this.#members.clear();
    this.#unconfirmed.clear();
    this.#revision = rev;
    this.cursor = null;
    this.#show("count");
    this.count = count;
    this.#events.emit("count", { count, joined, left });
    this.#synced("count");
  }

  #show(level) {
    if (this.level === level) return;
    this.level = level;
    this.#events.emit("level", level);
  }

  #page(page) {
    if (this.#paging === null || this.#paging.revision !== page.rev) {
      this.#paging = { revision: page.rev, members: new Map(), later: [] };
    }
    for (const member of page.members) this.#paging.members.set(member.user, member);
    if (page.more) return;
    const { members, later } = this.#paging;
    this.#paging = null;
    this.#revision = page.rev;
    this.cursor = page.cursor;
    this.#show("members");
    this.#replace(members);
    for (const delta of later) this.#delta(delta);
    this.#synced("snapshot");
  }

  /** Announces only real differences; while a region is not live, who is missing stays unconfirmed. */
  #replace(members) {
    this.#unconfirmed.clear();
    for (const member of members.values()) this.#put(member);
    for (const user of [...this.#members.keys()]) {
      if (members.has(user)) continue;
      if (this.#isLive()) this.#drop(user, "unknown");
      else this.#unconfirmed.add(user);
    }
  }

  #delta(delta) {
    if (this.#paging !== null) {
      this.#paging.later.push(delta);
      return;
    }
    if (delta.prev !== null) {
      if (this.#revision === null || delta.prev > this.#revision || this.level === "count") {
        this.#presence.send({ t: "resync", room: this.name });
        this.#events.emit("gap", { have: this.#revision, prev: delta.prev, rev: delta.rev });
        return;
      }
      if (delta.rev <= this.#revision) return;
    }
    // Whoever is told of a change may ask of which revision it is.
    this.#revision = delta.rev;
    this.cursor = delta.cursor;
    for (const member of delta.upserts) this.#put(member);
    for (const { user, reason } of delta.removals) this.#drop(user, reason);
    this.#events.emit("delta", delta);
    this.#synced(delta.prev === null ? "resumed" : "delta");
  }

  #put(member) {
    const before = this.#members.get(member.user);
    this.#members.set(member.user, member);
    this.#unconfirmed.delete(member.user);
    if (before === undefined) this.#events.emit("join", member);
    else if (!same(before, member)) this.#events.emit("update", member, before);
  }

  #drop(user, reason) {
    const before = this.#members.get(user);
    if (before === undefined) return;
    this.#members.delete(user);
    this.#unconfirmed.delete(user);
    this.#events.emit("leave", before, reason);
  }

  #synced(how) {
    if (how !== "count") this.count = this.#members.size;
    if (this.#isLive()) {
      // The hold may have ended while no connection could tell.
      for (const user of [...this.#unconfirmed]) this.#drop(user, "lease_expired");
      this.become("live");
    }
    this.#events.emit("sync", { how, revision: this.#revision });
  }

  #isLive() {
    return [...this.#freshness.values()].every(({ state }) => state === "live");
  }

  #fresh({ region, state, since }) {
    this.#freshness.set(region, { state, since });
    // Of several regions the one that is known worst says how the whole is.
    const states = [...this.#freshness.values()].map((fresh) => fresh.state);
    const worst = ["stale", "held"].find((bad) => states.includes(bad));
    if (worst !== undefined) {
      this.become(worst);
    } else if (this.#paging === null && this.#revision !== null) {
      for (const user of [...this.#unconfirmed]) this.#drop(user, "lease_expired");
      this.become("live");
    }
    this.#events.emit("stale", { region, state, since });
  }

  async #refresh() {
    try {
      const token = await this.#presence.token(this);
      if (this.status !== "ended") this.#presence.send({ t: "token", room: this.name, token });
    } catch (error) {
      // The old one ends in a while; then the room is entered again with a new one.
      this.tokenFailed(error);
    }
  }

  #over(reason) {
    this.#inside = false;
    this.#events.emit("ended", reason);
    if (reason === "superseded") {
      this.#identity.mint();
      this.enter();
    } else if (reason === "token_expired") {
      this.become("reconnecting");
      this.#again(this.backoff.next());
    } else {
      this.end(reason);
    }
  }

  #failed(error) {
    this.#events.emit("error", error);
    switch (error.code) {
      case "stale_generation":
        this.#identity.mint();
        this.enter();
        break;
      case "unauthorized":
      case "forbidden":
      case "unavailable":
      case "too_many_sessions":
        this.#again(Math.max(this.backoff.next(), error.retry_after_ms ?? 0));
        break;
      case "rate_limited":
        if (!this.#inside) this.#again(Math.max(this.backoff.next(), error.retry_after_ms ?? 0));
        else setTimeout(() => this.#inside && this.update({}), error.retry_after_ms ?? ANSWER_WITHIN_MS);
        break;
      case "not_joined":
        this.#inside = false;
        this.enter();
        break;
      case "bad_request":
      case "too_large":
        // The same again would be refused again. Who is in already lost one message, not the room.
        if (!this.#inside && this.#revision === null) this.end(error.code);
        break;
      case "too_many_rooms":
        this.end(error.code);
        break;
    }
  }

  /** @internal The socket is gone: the list stays, and says that it is stale. */
  disconnected() {
    this.moved();
    this.#token = null;
    if (this.status !== "ended") this.become("reconnecting");
  }

  /** @internal Another socket speaks for it from here on. Nothing shows. */
  moved() {
    this.#inside = false;
    this.#paging = null;
    this.#revision = null;
    // How fresh a region is, is the word of one connection.
    this.#freshness.clear();
    clearTimeout(this.#retry);
  }

  /** @internal Whether this connection was let in, or showed anything. */
  get isIn() {
    return this.#inside || this.#revision !== null;
  }

  /** @internal This id belongs to another connection. */
  yieldIdentity() {
    this.#identity.mint();
  }

  /** @internal */
  become(status) {
    if (this.status === status || this.status === "ended") return;
    this.status = status;
    this.#events.emit("status", status);
  }

  /** @internal */
  end(reason) {
    clearTimeout(this.#retry);
    this.#inside = false;
    this.become("ended");
    this.#presence.forget(this, reason);
  }
}

function same(a, b) {
  return a.status === b.status && a.since === b.since && JSON.stringify(a.state) === JSON.stringify(b.state);
}

/** A connection to presence: one socket, any number of rooms up to the edge's limit. */
export class Presence {
  #options;
  #urls;
  #place;
  #rooms = new Map();
  #line = null;
  /** Comes in elsewhere while the current one still serves. */
  #next = null;
  /** Served before, and is closed once the rooms of `#awaited` are answered by the current one. */
  #old = null;
  #awaited = new Set();
  #backoff = new Backoff(FIRST_RECONNECT_MS);
  #events = new Events();
  #timer;
  #moveTimer;
  #oldTimer;
  #hello = { heartbeatMs: HEARTBEAT_MS, reconnectMs: FIRST_RECONNECT_MS };
  #preparing = false;
  #closed = false;
  #stopListening = [];

  /**
   * @param {object} options
   * @param {string | string[]} options.url the edge: wss://…/v1/ws; of several, one at a time is used
   * @param {(request: {room: string, action: string}) => string | Promise<string>} options.token
   * @param {string} [options.client] release name of the application
   * @param {Storage | null} [options.storage] where session ids are kept; sessionStorage by default
   */
  constructor(options) {
    const urls = [options?.url].flat();
    if (urls.length === 0 || urls.some((url) => typeof url !== "string")) throw new TypeError("url is required");
    if (typeof options.token !== "function") throw new TypeError("token must be a function");
    this.#options = options;
    this.#urls = urls;
    // Anywhere, so that all pages do not begin at the same edge.
    this.#place = Math.floor(Math.random() * urls.length);
    this.url = urls[0];
    this.client = options.client;
    this.connection = null;
    this.#listenToThePage();
  }

  /** Whether messages can be sent now. */
  get isOpen() {
    return this.#line?.open ?? false;
  }

  /** @internal */
  get line() {
    return this.#line;
  }

  /** @internal False: another one has taken over meanwhile. */
  speaksOver(line) {
    return line !== null && (line === this.#line || line === this.#next);
  }

  /** Rooms by name. */
  get rooms() {
    return new Map(this.#rooms);
  }

  /** Is present in a room, and sees it. */
  join(room, options = {}) {
    return this.#enter(room, "join", options);
  }

  /** Sees a room without being present in it. */
  watch(room, options = {}) {
    return this.#enter(room, "watch", options);
  }

  /** Listens: "connection" (id or null), "reconnect" (ms and reason), "closed" (code and reason). */
  on(name, listener) {
    return this.#events.on(name, listener);
  }

  /** Leaves nothing behind: says goodbye in every room and closes the socket. */
  close() {
    for (const room of [...this.#rooms.values()]) room.leave();
    this.#closed = true;
    this.#drop();
    for (const stop of this.#stopListening) stop();
  }

  /** Does not wait any longer: for who knows that the network is back before the page is told "online". */
  retry() {
    if (this.#closed) return;
    if (this.isOpen) this.#line.check();
    else if (this.#line === null && this.#rooms.size > 0) this.#connect();
  }

  /** Closes the socket without goodbye and comes back: a blip, as networks make them. */
  blip() {
    this.#drop();
    this.#lost(1000, 0);
  }

  #enter(name, action, options) {
    if (this.#closed) throw new Error("this presence is closed");
    if (this.#rooms.has(name)) throw new Error(`already in ${name}`);
    const storage = this.#options.storage === undefined ? sessionStorageIfAny() : this.#options.storage;
    const room = new Room(this, name, action, options, storage);
    this.#rooms.set(name, room);
    if (this.isOpen) room.enter();
    else if (this.#line === null && this.#timer === undefined && !this.#preparing) this.#connect();
    return room;
  }

  /** @internal */
  token(room) {
    return this.#options.token({ room: room.name, action: room.action });
  }

  /** @internal */
  send(message) {
    this.#line?.send(message);
  }

  /** @internal */
  forget(room) {
    if (this.#rooms.get(room.name) !== room) return;
    this.#rooms.delete(room.name);
    this.#answered(room.name);
    // The goodbye is on its way before the socket closes.
    if (this.#rooms.size === 0) this.#drop();
  }

  async #connect() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#preparing || this.#closed || this.#rooms.size === 0) return;
    const prepared = await this.#prepare();
    if (this.#closed || this.#rooms.size === 0 || this.#line !== null) return;
    if (prepared) this.#line = this.#dial();
    else this.#timer = setTimeout(() => this.#connect(), this.#backoff.next());
  }

  /** Tokens first: the edge waits only so long for the first message. False: not one was to be had. */
  async #prepare() {
    this.#preparing = true;
    const rooms = [...this.#rooms.values()];
    const prepared = await Promise.allSettled(rooms.map((room) => room.prepare()));
    this.#preparing = false;
    prepared.forEach(({ status, reason }, at) => status === "rejected" && rooms[at].tokenFailed(reason));
    return prepared.some(({ status }) => status === "fulfilled");
  }

  #dial() {
    return new Line(this.#urls[this.#place], {
      heartbeatMs: () => this.#pace("heartbeatMs"),
      said: (line, message) => this.#said(line, message),
      ended: (line, code) => this.#ended(line, code),
      reached: (line) => (line === this.#line ? this.#reached() : {}),
    });
  }

  /** The next attempt goes to the next edge, if there are several to choose from. */
  #elsewhere() {
    this.#place = (this.#place + 1) % this.#urls.length;
  }

  /** Revisions by room. */
  #reached() {
    const at = {};
    for (const room of this.#rooms.values()) {
      if (room.revision !== null) Object.defineProperty(at, room.name, { value: room.revision, enumerable: true });
    }
    return at;
  }

  #said(line, message) {
    if (message.t === "hello") {
      this.#hello = { heartbeatMs: message.heartbeat_ms, reconnectMs: message.reconnect_ms };
    }
    if (line === this.#line) this.#hear(message);
    else if (line === this.#next) this.#hearNext(message);
    this.#backoff.startFrom(this.#pace("reconnectMs"));
  }

  /** A timer: that of the quickest room that was told its own, else that of the edge. */
  #pace(name) {
    const told = [...this.#rooms.values()].map((room) => room.timers[name]).filter((ms) => ms !== undefined);
    return told.length > 0 ? Math.min(...told) : this.#hello[name];
  }

  #hear(message) {
    if (message.t === "hello") {
      this.#opened();
      for (const room of this.#rooms.values()) room.enter();
    } else if (message.t === "reconnect") {
      this.#events.emit("reconnect", { after: message.after_ms, reason: message.reason });
      this.#moveLater(message.after_ms);
    } else if (message.room !== undefined) {
      this.#hearRoom(message);
    } else if (message.t === "error") {
      this.#events.emit("error", message);
    }
  }

  #hearRoom(message) {
    const room = this.#rooms.get(message.room);
    if (message.t === "ended" && message.reason === "superseded" && this.#next?.open && room?.hasAsked(this.#next)) {
      // By ourselves: the core has let us in elsewhere.
      this.#promote();
      return;
    }
    if (message.t !== "error" && message.t !== "ended") this.#backoff.reset();
    this.#answered(message.room);
    room?.receive(message);
  }

  #opened() {
    this.connection = this.#line.connection;
    this.#events.emit("connection", this.connection);
  }

  #moveLater(afterMs) {
    clearTimeout(this.#moveTimer);
    this.#moveTimer = setTimeout(() => this.#move(), afterMs);
  }

  /** Comes in elsewhere; the current socket serves until that has gone well, or until it is closed. */
  async #move() {
    if (this.#closed || !this.isOpen || this.#next !== null || this.#preparing) return;
    const from = this.#line;
    const prepared = await this.#prepare();
    if (this.#closed || this.#line !== from || this.#rooms.size === 0) return;
    if (!prepared) {
      this.#moveLater(this.#backoff.next());
      return;
    }
    this.#elsewhere();
    this.#next = this.#dial();
  }

  #hearNext(message) {
    if (message.t === "hello") {
      for (const room of this.#rooms.values()) room.enter(this.#next);
    } else if (message.t === "reconnect") {
      // Another that goes.
      this.#stay(message.after_ms);
    } else if (message.t === "error" && PASSING.has(message.code)) {
      this.#stay(message.retry_after_ms ?? 0);
    } else if (message.room !== undefined) {
      this.#promote();
      this.#hearRoom(message);
    }
  }

  /** The new socket was of no use: tries another one, while the current one lasts. */
  #stay(afterMs) {
    this.#next?.close();
    this.#next = null;
    this.#moveLater(Math.max(this.#backoff.next(), afterMs));
  }

  /** The new socket serves from here on. Rooms keep their lists and say nothing. */
  #promote() {
    this.#old?.close();
    this.#old = this.#line;
    this.#line = this.#next;
    this.#next = null;
    this.#opened();
    this.#awaited = new Set(this.#rooms.keys());
    for (const room of this.#rooms.values()) {
      room.moved();
      if (!room.hasAsked(this.#line)) room.enter();
    }
    clearTimeout(this.#oldTimer);
    this.#oldTimer = setTimeout(() => this.#letGo(), ANSWER_WITHIN_MS);
    if (this.#line.leaves !== null) this.#moveLater(this.#line.leaves - performance.now());
  }

  #answered(room) {
    if (this.#old !== null && this.#awaited.delete(room) && this.#awaited.size === 0) this.#letGo();
  }

  #letGo() {
    clearTimeout(this.#oldTimer);
    this.#old?.close();
    this.#old = null;
  }

  #ended(line, code) {
    if (line === this.#next) {
      this.#next = null;
      this.#stay(0);
    } else if (line === this.#old) {
      this.#letGo();
    } else if (line === this.#line && this.#next?.open) {
      this.#promote();
      this.#letGo();
    } else if (line === this.#line) {
      this.#elsewhere();
      this.#lost(code, this.#waitAfter(code, line.leaves));
    }
  }

  /** Milliseconds; undefined: as the backoff says. */
  #waitAfter(code, leaves) {
    if (code === SILENT) return 0;
    if (leaves === null || !AFTER_THE_HINT.has(code)) return undefined;
    const left = Math.max(0, leaves - performance.now());
    if (TOO_MUCH.has(code)) return Math.max(left, this.#backoff.next());
    return left > 0 || !this.#backoff.failed ? left : undefined;
  }

  /** Lets every socket go, and waits for nothing. */
  #drop() {
    for (const timer of [this.#timer, this.#moveTimer]) clearTimeout(timer);
    this.#timer = undefined;
    this.#letGo();
    this.#next?.close();
    this.#line?.close();
    this.#next = this.#line = null;
  }

  #lost(code, afterMs) {
    clearTimeout(this.#timer);
    clearTimeout(this.#moveTimer);
    this.#timer = undefined;
    this.#letGo();
    // One that is still being opened goes on, as the only one.
    this.#line = this.#next;
    this.#next = null;
    this.connection = null;
    this.#events.emit("closed", { code: code === SILENT ? 1006 : code });
    this.#events.emit("connection", null);
    for (const room of [...this.#rooms.values()]) {
      const wasIn = room.isIn;
      if (OUR_FAULT.has(code) || (code === EVICTED && wasIn)) room.end(`closed ${code}`);
      else room.disconnected();
      if (code === SUPERSEDED && wasIn) room.yieldIdentity();
    }
    if (this.#closed || this.#rooms.size === 0 || this.#line !== null) return;
    if (TOKEN_FIRST.has(code)) this.#backoff.next();
    const wait = afterMs ?? this.#backoff.next();
    this.#timer = setTimeout(() => this.#connect(), wait);
  }

  #listenToThePage() {
    const listen = (target, name, listener) => {
      target?.addEventListener?.(name, listener);
      this.#stopListening.push(() => target?.removeEventListener?.(name, listener));
    };
    const wake = () => this.retry();
    listen(globalThis.window, "online", wake);
    listen(globalThis.window, "pageshow", wake);
    listen(globalThis.document, "resume", wake);
    listen(globalThis.document, "visibilitychange", () => document.visibilityState === "visible" && wake());
  }
}

function sessionStorageIfAny() {
  try {
    return globalThis.sessionStorage ?? null;
  } catch {
    return null;
  }
}
