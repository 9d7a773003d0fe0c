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

const NOT_BY_ITSELF = new Set([4400, 4410, 4413]);
const TOKEN_FIRST = new Set([4401, 4403]);

/** Full jitter: evenly from zero to a ceiling that doubles with each failure. */
class Backoff {
  #first;
  #failures = 0;

  constructor(first) {
    this.#first = first;
  }

  next() {
    const ceiling = Math.min(this.#first * 2 ** Math.min(this.#failures, 16), RECONNECT_CEILING_MS);
    this.#failures += 1;
    return Math.random() * ceiling;
  }

  reset(first = this.#first) {
    this.#first = first;
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
  #paging = null;
  #revision = null;
  #token = null;
  #wanted;
  #told = null;
  #inside = false;

  /** @internal */
  constructor(presence, name, action, profile, storage) {
    this.#presence = presence;
    this.#identity = new Identity(presence.url, name, storage);
    this.#wanted = { status: profile.status ?? "available", state: profile.state ?? {} };
    this.name = name;
    this.action = action;
    this.status = "connecting";
    this.count = 0;
    this.cursor = null;
    this.backoff = new Backoff(FIRST_RECONNECT_MS);
  }

  /** Members by user; a snapshot of the list, in no particular order. */
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

  /** @internal */
  async enter() {
    if (this.#asking || this.status === "ended") return;
    clearTimeout(this.#retry);
    this.#asking = true;
    try {
      if (this.#token === null) await this.prepare();
      const token = this.#token;
      if (this.status !== "ended" && this.#presence.isOpen) {
        this.#token = null;
        this.#request(token);
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

  #request(token) {
    const since = this.cursor ?? undefined;
    const client = this.#presence.client;
    if (this.action === "watch") {
      this.#presence.send({ t: "watch", room: this.name, token, since, client });
      return;
    }
    this.#identity.raise();
    const { session, generation } = this.#identity;
    this.#told = JSON.stringify(this.#wanted);
    this.#presence.send({
      t: "join", room: this.name, token, session, generation, ...this.#wanted, since, watch: true, client,
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
        this.#revision = message.rev;
        this.count = message.count;
        this.#synced("count");
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
      if (this.#revision === null || delta.prev > this.#revision) {
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
    if (this.#isLive()) this.become("live");
    this.#events.emit("sync", { how, revision: this.#revision });
  }

  #isLive() {
    return [...this.#freshness.values()].every(({ state }) => state === "live");
  }

  #fresh({ region, state, since }) {
    this.#freshness.set(region, { state, since });
    if (state === "live") {
      if (this.#isLive() && this.#paging === null && this.#revision !== null) {
        for (const user of [...this.#unconfirmed]) this.#drop(user, "lease_expired");
        this.become("live");
      }
    } else {
      this.become(state);
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
    this.#inside = false;
    this.#paging = null;
    this.#revision = null;
    this.#token = null;
    // How fresh a region is, is the word of one connection.
    this.#freshness.clear();
    clearTimeout(this.#retry);
    if (this.status !== "ended") this.become("reconnecting");
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
  #rooms = new Map();
  #socket = null;
  #open = false;
  #backoff = new Backoff(FIRST_RECONNECT_MS);
  #events = new Events();
  #timer;
  #watchdog;
  #heartbeatMs = HEARTBEAT_MS;
  #pingSent = null;
  #preparing = false;
  #closed = false;
  #stopListening = [];

  /**
   * @param {object} options
   * @param {string} options.url the edge: wss://…/v1/ws
   * @param {(request: {room: string, action: string}) => string | Promise<string>} options.token
   * @param {string} [options.client] release name of the application
   * @param {Storage | null} [options.storage] where session ids are kept; sessionStorage by default
   */
  constructor(options) {
    if (typeof options?.url !== "string") throw new TypeError("url is required");
    if (typeof options.token !== "function") throw new TypeError("token must be a function");
    this.#options = options;
    this.url = options.url;
    this.client = options.client;
    this.connection = null;
    this.#listenToThePage();
  }

  /** Whether messages can be sent now. */
  get isOpen() {
    return this.#open;
  }

  /** Rooms by name. */
  get rooms() {
    return new Map(this.#rooms);
  }

  /** Is present in a room, and sees it. */
  join(room, profile = {}) {
    return this.#enter(room, "join", profile);
  }

  /** Sees a room without being present in it. */
  watch(room) {
    return this.#enter(room, "watch", {});
  }

  /** Listens: "connection" (id or null), "reconnect" (ms and reason), "closed" (code and reason). */
  on(name, listener) {
    return this.#events.on(name, listener);
  }

  /** Leaves nothing behind: says goodbye in every room and closes the socket. */
  close() {
    for (const room of [...this.#rooms.values()]) room.leave();
    this.#closed = true;
    this.#drop(1000);
    for (const stop of this.#stopListening) stop();
  }

  /** Does not wait any longer: for who knows that the network is back before the page is told "online". */
  retry() {
    if (this.#closed) return;
    if (this.#open) this.#check();
    else if (this.#socket === null && this.#rooms.size > 0) this.#connect();
  }

  /** Closes the socket without goodbye and comes back: a blip, as networks make them. */
  blip() {
    this.#drop(1000);
    this.#lost(1000, 0);
  }

  #enter(name, action, profile) {
    if (this.#closed) throw new Error("this presence is closed");
    if (this.#rooms.has(name)) throw new Error(`already in ${name}`);
    const storage = this.#options.storage === undefined ? sessionStorageIfAny() : this.#options.storage;
    const room = new Room(this, name, action, profile, storage);
    this.#rooms.set(name, room);
    if (this.#open) room.enter();
    else if (this.#socket === null && this.#timer === undefined && !this.#preparing) this.#connect();
    return room;
  }

  /** @internal */
  token(room) {
    return this.#options.token({ room: room.name, action: room.action });
  }

  /** @internal */
  send(message) {
    if (this.#open) this.#socket.send(JSON.stringify(message));
  }

  /** @internal */
  forget(room) {
    if (this.#rooms.get(room.name) !== room) return;
    this.#rooms.delete(room.name);
    if (this.#rooms.size === 0) {
      // The goodbye is on its way before the socket closes.
      this.#drop(1000);
      clearTimeout(this.#timer);
      this.#timer = undefined;
    }
  }

  async #connect() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#preparing || this.#closed || this.#rooms.size === 0) return;
    this.#preparing = true;
    const rooms = [...this.#rooms.values()];
    const prepared = await Promise.allSettled(rooms.map((room) => room.prepare()));
    this.#preparing = false;
    prepared.forEach(({ status, reason }, at) => status === "rejected" && rooms[at].tokenFailed(reason));
    if (this.#closed || this.#rooms.size === 0 || this.#socket !== null) return;
    if (prepared.every(({ status }) => status === "rejected")) {
      this.#timer = setTimeout(() => this.#connect(), this.#backoff.next());
      return;
    }
    this.#dial();
  }

  #dial() {
    const socket = new WebSocket(this.url, ["presence.v1.json"]);
    this.#socket = socket;
    this.#guard(OPEN_WITHIN_MS);
    // What an old socket still has to say concerns nobody.
    const current = (act) => (event) => this.#socket === socket && act(event);
    socket.onmessage = current(({ data }) => this.#receive(data));
    socket.onclose = current(({ code }) => this.#lost(code));
  }

  #receive(data) {
    this.#pingSent = null;
    this.#guard(this.#heartbeatMs);
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    if (message.t === "hello") {
      this.#open = true;
      this.connection = message.connection;
      this.#heartbeatMs = message.heartbeat_ms;
      this.#backoff.reset(message.reconnect_ms);
      this.#guard(this.#heartbeatMs);
      this.#events.emit("connection", message.connection);
      for (const room of this.#rooms.values()) room.enter();
    } else if (message.t === "reconnect") {
      this.#events.emit("reconnect", { after: message.after_ms, reason: message.reason });
      this.#timer = setTimeout(() => {
        this.#drop(1000);
        this.#lost(1012, 0);
      }, message.after_ms);
    } else if (message.room !== undefined) {
      this.#rooms.get(message.room)?.receive(message);
    } else if (message.t === "error") {
      this.#events.emit("error", message);
    }
  }

  /** No frame for a while: ask, and give the socket up only if the question goes unanswered. */
  #guard(afterMs) {
    clearTimeout(this.#watchdog);
    this.#watchdog = setTimeout(() => this.#check(), afterMs);
  }

  #check() {
    if (this.#socket === null) return;
    if (!this.#open) {
      this.#drop(1000);
      this.#lost(1006);
    } else if (this.#pingSent !== null && performance.now() - this.#pingSent < 2 * ANSWER_WITHIN_MS) {
      this.#drop(1000);
      this.#lost(1006, 0);
    } else {
      // A page that slept through the answer asks again: it was away, not the edge.
      const at = {};
      for (const room of this.#rooms.values()) {
        if (room.revision !== null) Object.defineProperty(at, room.name, { value: room.revision, enumerable: true });
      }
      this.#pingSent = performance.now();
      this.send({ t: "ping", at });
      this.#guard(Math.min(ANSWER_WITHIN_MS, this.#heartbeatMs));
    }
  }

  #drop(code) {
    clearTimeout(this.#watchdog);
    const socket = this.#socket;
    this.#socket = null;
    this.#open = false;
    this.#pingSent = null;
    if (socket === null) return;
    socket.onmessage = socket.onclose = null;
    socket.close(code);
  }

  #lost(code, afterMs) {
    clearTimeout(this.#watchdog);
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#socket = null;
    this.#open = false;
    this.connection = null;
    this.#events.emit("closed", { code });
    this.#events.emit("connection", null);
    for (const room of [...this.#rooms.values()]) {
      if (NOT_BY_ITSELF.has(code)) room.end(`closed ${code}`);
      else room.disconnected();
      if (code === 4409) room.yieldIdentity();
    }
    if (this.#closed || this.#rooms.size === 0) return;
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
