/** Types of presence.js. */

export declare const version: string;

/** How reachable a user is; of several sessions the strongest is shown: busy, available, away. */
export type Status = "available" | "away" | "busy";

/** Any JSON value of at most 1 KiB. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Why a member is gone. `unknown`: a snapshot lacks it and history does not say why. */
export type Reason =
  | "left"
  | "connection_lost"
  | "lease_expired"
  | "edge_lost"
  | "superseded"
  | "evicted"
  | "token_expired"
  | "token_revoked"
  | "region_lost"
  | "unknown";

/** A user as everybody in the room sees it. */
export interface Member {
  user: string;
  status: Status;
  state: Json;
  /** Milliseconds since 1970. */
  since: number;
}

/** What this user says about itself. */
export interface Profile {
  status?: Status;
  state?: Json;
}

/**
 * What of a room is shown: its members, or their number only. Unless one is asked for, a room is a list until it has
 * more members than the edge lists (5,000), and again when it has shrunk to nine tenths of that.
 */
export type Level = "members" | "count";

/** What is asked of a room. */
export interface RoomOptions {
  level?: Level;
}

/** How many there are, and some of those who came and went since the last number. */
export interface Count {
  count: number;
  joined: Member[];
  left: { user: string; reason: Reason; silent_ms?: number }[];
}

/** How a room is doing. While it is not live its list is the last that was known. */
export type RoomStatus = "connecting" | "live" | "held" | "stale" | "reconnecting" | "ended";

/** How fresh one region of a room is. */
export interface Freshness {
  region: string;
  state: "live" | "held" | "stale";
  /** Milliseconds since 1970, while held or stale. */
  since?: number;
}

/** A delta as it came over the wire. */
export interface Delta {
  room: string;
  prev: number | null;
  rev: number;
  cursor: string;
  upserts: Member[];
  removals: { user: string; reason: Reason; silent_ms?: number }[];
}

/** An error the edge answered, or `token` when the application's callback failed. */
export interface PresenceError {
  code:
    | "token"
    | "bad_request"
    | "unauthorized"
    | "forbidden"
    | "stale_generation"
    | "too_many_sessions"
    | "too_many_rooms"
    | "too_large"
    | "rate_limited"
    | "unavailable"
    | "not_joined";
  message: string;
  retry_after_ms?: number;
}

/** Events of a room. */
export interface RoomEvents {
  join: (member: Member) => void;
  update: (member: Member, before: Member) => void;
  leave: (member: Member, reason: Reason) => void;
  /** The list is complete up to a revision. */
  sync: (how: { how: "snapshot" | "resumed" | "delta" | "count"; revision: number | null }) => void;
  stale: (freshness: Freshness) => void;
  status: (status: RoomStatus) => void;
  joined: (session: { session: string; resumed: boolean; since: number }) => void;
  ended: (reason: Reason) => void;
  delta: (delta: Delta) => void;
  /** Only the number is known: `members` is empty, and nobody is announced as gone. */
  count: (count: Count) => void;
  /** The room is shown otherwise from here on. A list begins anew: everybody in it is told as `join`. */
  level: (level: Level) => void;
  gap: (gap: { have: number | null; prev: number; rev: number }) => void;
  error: (error: PresenceError) => void;
}

/** A room: its members as they are now, and what happens to them. */
export declare class Room {
  private constructor();
  readonly name: string;
  readonly action: "join" | "watch";
  readonly status: RoomStatus;
  readonly level: Level;
  /** How many members are known to be there, whatever is shown of them. */
  readonly count: number;
  readonly session: string;
  readonly revision: number | null;
  readonly cursor: string | null;
  readonly members: Map<string, Member>;
  readonly freshness: Map<string, { state: Freshness["state"]; since?: number }>;
  on<Name extends keyof RoomEvents>(name: Name, listener: RoomEvents[Name]): () => void;
  /** Says something new about this user. */
  update(profile: Profile): void;
  /** Says goodbye, or stops watching. */
  leave(): void;
}

/** Events of the connection. */
export interface ConnectionEvents {
  connection: (id: string | null) => void;
  reconnect: (hint: { after: number; reason: string }) => void;
  closed: (close: { code: number }) => void;
  error: (error: PresenceError) => void;
}

export interface PresenceOptions {
  /** The edge: wss://…/v1/ws. Of several, one at a time is used, and another one when that goes. */
  url: string | readonly string[];
  /** Called for each room at each connect, and before a token ends. */
  token: (request: { room: string; action: "join" | "watch" }) => string | Promise<string>;
  /** Release name of the application. */
  client?: string;
  /** Where session ids are kept: sessionStorage by default; null keeps none. */
  storage?: Pick<Storage, "getItem" | "setItem"> | null;
}

/** One socket, any number of rooms up to the edge's limit. */
export declare class Presence {
  constructor(options: PresenceOptions);
  readonly url: string;
  readonly connection: string | null;
  readonly isOpen: boolean;
  readonly rooms: Map<string, Room>;
  /** Is present in a room, and sees it. */
  join(room: string, options?: Profile & RoomOptions): Room;
  /** Sees a room without being present in it. */
  watch(room: string, options?: RoomOptions): Room;
  on<Name extends keyof ConnectionEvents>(name: Name, listener: ConnectionEvents[Name]): () => void;
  /** Tries at once instead of waiting, and asks an open socket whether it still works. */
  retry(): void;
  /** Closes the socket without goodbye and comes back, as networks make it happen. */
  blip(): void;
  /** Says goodbye everywhere and closes the socket. */
  close(): void;
}
