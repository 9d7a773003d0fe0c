// Compiled by `tsc --strict`: what an application would write.
import { Presence, type Member, type Reason, type Room } from "../../edge/web/presence.js";

const presence = new Presence({
  url: "wss://presence.example.org/v1/ws",
  client: "example/1.0",
  token: async ({ room, action }) => {
    const answer = await fetch(`/token?room=${encodeURIComponent(room)}&act=${action}`);
    return answer.text();
  },
});

const lobby: Room = presence.join("lobby", { status: "available", state: { cursor: 5 } });
const stop: () => void = lobby.on("join", (member: Member) => show(member.user, member.status));
lobby.on("leave", ({ user }, reason: Reason) => show(user, reason));
lobby.on("sync", ({ revision }) => show(String(revision), String(lobby.members.size)));
lobby.on("status", (status) => (status === "live" ? stop() : undefined));
lobby.update({ status: "away" });
// @ts-expect-error there is no such status
lobby.update({ status: "sleeping" });
// @ts-expect-error there is no such event
lobby.on("joined-again", () => undefined);
const stage = presence.watch("stage", { level: "count" });
stage.on("count", ({ count, joined, left }) => show(String(count), ...joined.map(({ user }) => user), ...left.map(({ user }) => user)));
stage.on("level", (level) => (level === "members" ? show(String(stage.members.size)) : show(String(stage.count))));
presence.join("hall", { level: "members" });
// @ts-expect-error there is no such level
presence.watch("hall", { level: "all" });
presence.watch("yard").on("gap", ({ have, prev }) => show(String(have), String(prev)));
presence.close();

function show(...words: string[]): void {
  document.body.append(words.join(" "));
}
