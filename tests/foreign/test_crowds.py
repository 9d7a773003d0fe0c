"""Rooms too large for a list, as the protocol page tells them. The limit is a small one here."""

import pytest
from conftest import Dev
from test_websocket import Client, room, run

LIST_MEMBERS = 10


@pytest.fixture(scope="module")
def small():
    running = Dev("--list-members", str(LIST_MEMBERS))
    yield running
    assert running.stop() == 0


async def come(dev, name, users):
    clients = {}
    for user in users:
        clients[user] = await Client.open(dev)
        await clients[user].join(name, user)
    return clients


def named(frame, side):
    return [entry["user"] for entry in frame[side]]


def test_a_room_is_a_list_up_to_the_limit_then_a_number_then_a_list_again(small):
    async def story():
        name = room()
        observer = await Client.open(small)
        assert observer.hello["limits"]["list_members"] == LIST_MEMBERS
        await observer.watch(name)
        users = [f"u{n:02}" for n in range(LIST_MEMBERS + 1)]
        clients = await come(small, name, users[:LIST_MEMBERS])
        await observer.until(lambda _: sorted(observer.members) == users[:LIST_MEMBERS])
        assert observer.count is None, "at the limit it is a list"

        clients |= await come(small, name, users[LIST_MEMBERS:])
        frame = await observer.until(lambda frame: frame["t"] == "count")
        assert (frame["count"], named(frame, "joined"), named(frame, "left")) == (LIST_MEMBERS + 1, users[LIST_MEMBERS:], [])
        seen = len(observer.frames)

        await clients[users[0]].send({"t": "leave", "room": name})
        frame = await observer.until(lambda frame: frame["t"] == "count" and frame["count"] == LIST_MEMBERS)
        assert named(frame, "left") == [users[0]] and frame["left"][0]["reason"] == "left"
        assert [frame["t"] for frame in observer.frames[seen:]] == ["count"], "one less is not much smaller"

        await clients[users[1]].send({"t": "leave", "room": name})
        await observer.until(lambda frame: frame["t"] == "snapshot" and not frame["more"])
        assert sorted(observer.members) == users[2:]
        await clients[users[2]].send({"t": "leave", "room": name})
        assert (await observer.until_gone(users[2]))["reason"] == "left"

    run(story())


def test_whoever_asks_gets_a_list_of_a_large_room_and_the_number_of_a_small_one(small):
    async def story():
        large, little = room(), room()
        users = [f"u{n:02}" for n in range(LIST_MEMBERS + 2)]
        await come(small, large, users)
        await come(small, little, users[:2])
        automatic, listed, counted = [await Client.open(small) for _ in range(3)]
        await automatic.watch(large)
        await listed.watch(large, level="members")
        await counted.watch(little, level="count")
        # The room has grown a moment ago: who comes before it is shown so is given the list first.
        while automatic.count != LIST_MEMBERS + 2:
            await automatic.until(lambda frame: frame["t"] == "count")
        assert automatic.members == {}
        while sorted(listed.members) != users:
            await listed.until(lambda _: True)
        while counted.count != 2:
            await counted.until(lambda _: True)
        assert counted.members == {} and not [frame for frame in counted.frames if frame["t"] not in ("count", "freshness")]
        more = await come(small, little, ["late"])
        frame = await counted.until(lambda frame: frame["t"] == "count")
        assert (frame["count"], named(frame, "joined")) == (3, ["late"])
        await more["late"].send({"t": "leave", "room": little})
        frame = await counted.until(lambda frame: frame["t"] == "count")
        assert (frame["count"], named(frame, "left")) == (2, ["late"])

    run(story())


def test_a_room_that_is_refused_leaves_the_others_of_its_connection(small):
    async def story():
        good, forbidden = room(), room()
        client = await Client.open(small)
        token = small.token("anna", good)
        session = "0123456789abcdef"
        # All at once, the refused one first: what follows is on its way while it is refused.
        for name in (forbidden, good):
            await client.send({"t": "join", "room": name, "token": token, "session": session, "generation": 1})
        answers = {}
        await client.until(lambda frame: answers.update({frame["t"]: frame.get("room")}) or len(answers.keys() & {"error", "joined"}) == 2)
        assert (answers["error"], answers["joined"]) == (forbidden, good)
        await client.quiet(6)
        assert client.socket.close_code is None
        assert [member["user"] for member in client.members.values()] == ["anna"]

    run(story())


@pytest.mark.parametrize(("length", "code"), [(4096, "unauthorized"), (4097, "too_large"), (15_000, "too_large")])
def test_a_token_above_its_limit_is_too_large_and_the_connection_stays(small, length, code):
    async def story():
        name = room()
        client = await Client.open(small)
        assert client.hello["limits"]["token_bytes"] == 4096
        await client.send({"t": "watch", "room": name, "token": "x" * length})
        frame = await client.until(lambda frame: frame["t"] == "error")
        assert (frame["code"], frame["room"]) == (code, name)
        await client.watch(name)
        await client.close()

    run(story())
