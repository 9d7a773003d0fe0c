"""The client protocol, spoken by Python's websockets."""

import asyncio
import json
import time
import urllib.error
import uuid

import pytest
from conftest import GRACE_S, HEARTBEAT_S, TTL_S
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


class Client:
    """A client that keeps its list only by the frames it is sent."""

    def __init__(self, dev, socket, hello):
        self.dev, self.socket, self.hello = dev, socket, hello
        self.members, self.rev, self.cursor, self.paging, self.count = {}, None, None, {}, None
        self.frames = []

    @classmethod
    async def open(cls, dev):
        socket = await connect(dev.ws, subprotocols=["presence.v1.json"])
        hello = json.loads(await asyncio.wait_for(socket.recv(), 5))
        assert hello["t"] == "hello"
        return cls(dev, socket, hello)

    async def send(self, message):
        await self.socket.send(json.dumps(message))

    async def join(self, room, user, session=None, generation=1, since=None):
        self.session = session or str(uuid.uuid4())
        message = {
            "t": "join", "room": room, "token": self.dev.token(user, room), "session": self.session,
            "generation": generation, "status": "available", "state": {"from": "python"},
        }  # fmt: skip
        await self.send(message | ({"since": since} if since else {}))
        return await self.until(lambda frame: frame["t"] == "joined")

    async def watch(self, room, user="watcher", since=None, **more):
        message = {"t": "watch", "room": room, "token": self.dev.token(user, room, act="watch"), **more}
        await self.send(message | ({"since": since} if since else {}))
        await self.until(lambda _: self.rev is not None)

    def take(self, frame):
        self.frames.append(frame)
        if frame["t"] == "snapshot":
            self.paging |= {member["user"]: member for member in frame["members"]}
            if not frame["more"]:
                self.members, self.paging, self.count = self.paging, {}, None
                self.rev, self.cursor = frame["rev"], frame["cursor"]
        elif frame["t"] == "delta":
            assert frame["prev"] is None or frame["prev"] <= self.rev, f"gap: {self.rev} then {frame}"
            if frame["prev"] is not None and frame["rev"] <= self.rev:
                return
            for member in frame["upserts"]:
                self.members[member["user"]] = member
            for removal in frame["removals"]:
                assert removal["reason"], "a removal has a reason"
                self.members.pop(removal["user"], None)
            self.rev, self.cursor = frame["rev"], frame["cursor"]
        elif frame["t"] == "count":
            # The list ends here, and nobody in it is gone by that.
            self.members, self.paging, self.cursor = {}, {}, None
            self.rev, self.count = frame["rev"], frame["count"]

    async def until(self, condition, within=15.0):
        async with asyncio.timeout(within):
            while True:
                frame = json.loads(await self.socket.recv())
                self.take(frame)
                if condition(frame):
                    return frame

    async def quiet(self, seconds):
        """All frames of a span."""
        seen = []
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                frame = json.loads(await asyncio.wait_for(self.socket.recv(), left))
            except TimeoutError:
                break
            self.take(frame)
            seen.append(frame)
        return seen

    async def until_gone(self, user):
        frame = await self.until(lambda frame: any(r["user"] == user for r in frame.get("removals", [])))
        return next(r for r in frame["removals"] if r["user"] == user)

    async def close(self):
        await self.socket.close()


def changes(frames):
    return [frame for frame in frames if frame["t"] == "delta" and (frame["upserts"] or frame["removals"])]


def room():
    return f"py-{uuid.uuid4()}"


def run(story):
    asyncio.run(asyncio.wait_for(story, 60))


def test_join_update_leave_are_seen_with_their_reasons(dev):
    async def story():
        name = room()
        observer, actor = await Client.open(dev), await Client.open(dev)
        await observer.watch(name)
        assert observer.members == {}
        await actor.join(name, "anna")
        await observer.until(lambda _: "anna" in observer.members)
        assert observer.members["anna"]["state"] == {"from": "python"}
        await actor.send({"t": "update", "room": name, "status": "busy", "state": {"n": 2}})
        await observer.until(lambda _: observer.members["anna"]["status"] == "busy")
        assert observer.members["anna"]["state"] == {"n": 2}
        await actor.send({"t": "leave", "room": name})
        assert (await observer.until_gone("anna"))["reason"] == "left"
        await observer.close()
        await actor.close()

    run(story())


def test_a_second_tab_is_no_second_join_and_closing_one_is_no_departure(dev):
    async def story():
        name = room()
        observer, one, two = [await Client.open(dev) for _ in range(3)]
        await observer.watch(name)
        await one.join(name, "anna")
        await observer.until(lambda _: "anna" in observer.members)
        await two.join(name, "anna")
        await one.close()
        assert changes(await observer.quiet(2 * HEARTBEAT_S + GRACE_S + 1)) == []
        await two.send({"t": "leave", "room": name})
        assert (await observer.until_gone("anna"))["reason"] == "left"

    run(story())


def test_a_blip_is_not_seen_by_anybody(dev):
    async def story():
        name = room()
        observer, first = await Client.open(dev), await Client.open(dev)
        await observer.watch(name)
        await first.join(name, "anna")
        await observer.until(lambda _: "anna" in observer.members)
        first.socket.transport.abort()
        second = await Client.open(dev)
        joined = await second.join(name, "anna", session=first.session, generation=2, since=first.cursor)
        assert joined["resumed"] is True
        assert changes(await observer.quiet(GRACE_S + TTL_S)) == []

    run(story())


def test_a_silent_drop_ends_by_itself_with_its_reason(dev):
    async def story():
        name = room()
        observer, silent = await Client.open(dev), await Client.open(dev)
        await observer.watch(name)
        await silent.join(name, "anna")
        await observer.until(lambda _: "anna" in observer.members)
        dev.cut(silent.hello["connection"])
        cut = time.monotonic()
        removal = await observer.until_gone("anna")
        took = time.monotonic() - cut
        assert removal["reason"] == "connection_lost"
        # The last packet arrived at most 1.2 heartbeats before the cut.
        assert 0.8 * HEARTBEAT_S + GRACE_S - 0.1 <= took <= 2 * HEARTBEAT_S + GRACE_S + 1.5, took

    run(story())


def test_resume_five_times_and_learn_who_left_meanwhile(dev):
    async def story():
        name = room()
        actor, leaver = await Client.open(dev), await Client.open(dev)
        await actor.join(name, "anna")
        await leaver.join(name, "ben")
        watcher = await Client.open(dev)
        await watcher.watch(name)
        cursor, members = watcher.cursor, watcher.members
        assert set(members) == {"anna", "ben"}
        await watcher.close()
        await leaver.send({"t": "leave", "room": name})
        await asyncio.sleep(0.3)
        for time_away in range(5):
            again = await Client.open(dev)
            again.members = dict(members)
            await again.watch(name, since=cursor)
            assert again.frames[-1]["t"] == "delta" and again.frames[-1]["prev"] is None, again.frames[-1]
            if time_away == 0:
                assert again.frames[-1]["removals"][0]["reason"] == "left"
            assert set(again.members) == {"anna"}
            cursor, members = again.cursor, again.members
            await again.close()

    run(story())


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("not json", 4400),
        (json.dumps({"t": "join", "room": "r", "token": "no.good.token", "session": "0123456789abcdef"}), 4401),
    ],
)
def test_a_bad_first_message_is_told_and_closed(dev, message, code):
    async def story():
        client = await Client.open(dev)
        await client.socket.send(message)
        # Until it is closed for its token, what it asked for other rooms may be on its way.
        await until_closed(client)
        assert client.socket.close_code == code

    run(story())


def test_a_token_for_one_room_does_not_open_another(dev):
    async def story():
        name = room()
        client = await Client.open(dev)
        token = dev.token("anna", "elsewhere")
        await client.send({"t": "watch", "room": name, "token": token})
        error = await client.until(lambda frame: frame["t"] == "error")
        assert error["code"] == "forbidden" and token not in json.dumps(error)

    run(story())


def test_names_are_only_names(dev):
    async def story():
        name = room()
        observer = await Client.open(dev)
        await observer.watch(name)
        names = ["__proto__", "constructor", "😀" * 63, "שלום", "nul\0", "new\nline", "\x1b[31mred", "\u202ereversed"]
        actors = []
        for user in names:
            actor = await Client.open(dev)
            await actor.join(name, user)
            actors.append(actor)
        await observer.until(lambda _: len(observer.members) == len(names))
        assert set(observer.members) == set(names)
        for actor in actors:
            await actor.close()

    run(story())


async def until_closed(client, within=10):
    """All frames up to the end."""
    frames = []
    with pytest.raises(ConnectionClosed):
        async with asyncio.timeout(within):
            while True:
                frames.append(json.loads(await client.socket.recv()))
    return frames


def test_who_asks_without_reading_is_told_that_it_floods(dev):
    async def story():
        name = room()
        client, other = await Client.open(dev), await Client.open(dev)
        await client.join(name, "anna")
        await other.watch(name)
        for number in range(400):
            await client.send({"t": "update", "room": name, "state": number})
        await until_closed(client)
        assert client.socket.close_code == 4429, client.socket.close_reason
        await other.send({"t": "ping"})
        await other.until(lambda frame: frame["t"] == "pong")
        await other.close()

    run(story())


@pytest.mark.parametrize("state", ["1e999", "[-1e309]", r'"\ud800"', r'{"\udc00": 1}'])
def test_a_state_that_other_readers_refuse_is_refused(dev, state):
    async def story():
        name = room()
        client = await Client.open(dev)
        await client.join(name, "anna")
        await client.socket.send(f'{{"t":"update","room":"{name}","state":{state}}}')
        error = await client.until(lambda frame: frame["t"] == "error")
        assert (error["code"], error["room"]) == ("bad_request", name)
        await client.socket.send(f'{{"t":"update","room":"{name}","state":["\\ud83d\\ude00",1e308]}}')
        # The first list may come before anna, who then comes with a delta.
        await client.until(lambda _: client.members.get("anna", {}).get("state") == ["😀", 1e308])
        await client.close()

    run(story())


@pytest.mark.parametrize(
    ("field", "code", "number"),
    [({"status": "asleep"}, "bad_request", 4400), ({"state": "x" * 2000}, "too_large", 4413)],
)
def test_a_join_that_no_repetition_mends_closes_with_its_code(dev, field, code, number):
    async def story():
        name = room()
        client = await Client.open(dev)
        message = {"t": "join", "room": name, "token": dev.token("anna", name), "session": str(uuid.uuid4())}
        await client.send(message | field)
        error = await client.until(lambda frame: frame["t"] == "error")
        assert (error["code"], error["room"]) == (code, name)
        await until_closed(client)
        assert client.socket.close_code == number, client.socket.close_reason

    run(story())


def test_who_names_no_room_is_told_so(dev):
    async def story():
        client = await Client.open(dev)
        for _ in range(6):
            await client.send({"t": "ping"})
            await asyncio.sleep(0.5)
        await until_closed(client)
        assert client.socket.close_code == 4408
        assert client.socket.close_reason == "no room was joined or watched in time"

    run(story())


@pytest.mark.parametrize("user", [" ", "\u200b", "\u3000\t"])
def test_nobody_has_a_name_that_cannot_be_seen(dev, user):
    with pytest.raises(urllib.error.HTTPError) as refused:
        dev.token(user, room())
    assert refused.value.code == 400 and b"can be seen" in refused.value.read()
