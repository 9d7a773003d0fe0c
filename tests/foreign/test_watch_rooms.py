"""Many rooms on one watch: what one room is refused, the others do not feel."""

import asyncio
import queue
import threading
import uuid

import pytest
from test_websocket import Client

ROOMS_MAX = 65_536


class Stream:
    """A watch to which anything is said, and whose events are read one by one."""

    def __init__(self, modules, channel):
        self.watch, self.types = modules["watch"], modules["types"]
        self.requests = queue.Queue()
        self.call = modules["watch_grpc"].PresenceServiceStub(channel).Watch(iter(self.requests.get, None))

    def open(self, room, **options):
        options = {"level": self.watch.WATCH_LEVEL_MEMBERS} | options
        self.requests.put(self.watch.WatchRequest(open=self.watch.OpenRoom(room=room, **options)))

    def shut(self, room):
        self.requests.put(self.watch.WatchRequest(close=self.watch.CloseRoom(room=room)))

    def until(self, condition, within=15):
        timer = threading.Timer(within, self.call.cancel)
        timer.start()
        try:
            for event in self.call:
                if condition(event):
                    return event
        finally:
            timer.cancel()
        raise AssertionError("the stream ended")

    def error(self, within=15):
        event = self.until(lambda event: event.WhichOneof("event") == "error", within)
        return event.room, event.error

    def answered(self, room):
        """The first page of a room: it is watched."""
        return self.until(lambda event: event.room == room and event.WhichOneof("event") == "snapshot")

    def count(self, room, members):
        self.until(lambda event: event.room == room and event.WhichOneof("event") == "count" and event.count.members == members)

    def close(self):
        self.requests.put(None)
        self.call.cancel()


@pytest.fixture
def stream(channel, presence_v1):
    opened = Stream(presence_v1, channel)
    yield opened
    opened.close()


def fresh():
    return f"watched-{uuid.uuid4()}"


@pytest.mark.parametrize("options", [{"regions": ["mars"]}, {"regions": ["local", "mars"]}, {"home_region": "mars"}])
def test_an_unknown_region_is_told_without_a_retry(stream, options):
    name, other = fresh(), fresh()
    stream.open(name, **options)
    room, error = stream.error()
    assert (room, error.reason) == (name, stream.types.ERROR_REASON_UNKNOWN_REGION)
    assert error.retry_after_ms == 0 and error.message
    stream.open(other, home_region="local", regions=["local"])
    stream.answered(other)


@pytest.mark.parametrize(
    ("room", "options", "field"),
    [
        ("", {}, "OpenRoom.room"),
        ("x" * 256, {}, "OpenRoom.room"),
        ("fine", {"level": 0}, "OpenRoom.level"),
        ("fine", {"level": 7}, "OpenRoom.level"),
        ("fine", {"regions": [""]}, "OpenRoom.regions"),
        ("fine", {"regions": [f"r{n}" for n in range(65)]}, "OpenRoom.regions"),
        ("fine", {"home_region": "x" * 256}, "OpenRoom.home_region"),
    ],
)
def test_a_malformed_open_concerns_its_room_alone(stream, room, options, field):
    before, after = fresh(), fresh()
    stream.open(before)
    stream.answered(before)
    stream.open(room, **options)
    named, error = stream.error()
    assert (named, error.reason) == (room[:255], stream.types.ERROR_REASON_BAD_REQUEST)
    assert field in error.message and error.retry_after_ms == 0
    stream.open(after)
    stream.answered(after)
    stream.until(lambda event: event.WhichOneof("event") == "progress")


def test_a_malformed_close_concerns_nobody(stream):
    stream.shut("x" * 256)
    assert stream.error()[1].reason == stream.types.ERROR_REASON_BAD_REQUEST
    name = fresh()
    stream.open(name)
    stream.answered(name)


def test_a_room_opened_again_in_a_malformed_way_is_not_watched_any_more(dev, stream):
    name = fresh()

    async def story():
        stream.open(name)
        stream.answered(name)
        stream.open(name, level=0)
        assert stream.error()[0] == name
        client = await Client.open(dev)
        await client.join(name, "anna")
        # Two beats of the whole stream later nothing has been told of it.
        for _ in range(5):
            event = stream.until(lambda event: event.room == name or event.WhichOneof("event") == "progress")
            assert event.room != name, event
        await client.close()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_stream_has_so_many_rooms_and_not_one_more(stream):
    name = fresh()
    for number in range(ROOMS_MAX - 1):
        stream.open(f"{name}-{number}", level=stream.watch.WATCH_LEVEL_COUNT)
    stream.open(f"{name}-last", level=stream.watch.WATCH_LEVEL_COUNT)
    stream.open(f"{name}-beyond")
    room, error = stream.error(within=60)
    assert (room, error.reason) == (f"{name}-beyond", stream.types.ERROR_REASON_TOO_MANY_ROOMS)
    stream.shut(f"{name}-0")
    stream.open(f"{name}-beyond")
    stream.until(lambda event: event.room == f"{name}-beyond" and event.WhichOneof("event") == "snapshot", within=60)


def test_the_count_of_a_room_is_told_without_its_members(dev, stream):
    name = fresh()

    async def story():
        first, second = await Client.open(dev), await Client.open(dev)
        await first.join(name, "anna")
        stream.open(name, level=stream.watch.WATCH_LEVEL_COUNT)
        await asyncio.to_thread(stream.count, name, 1)
        await second.join(name, "berta")
        await asyncio.to_thread(stream.count, name, 2)
        await first.send({"t": "leave", "room": name})
        event = await asyncio.to_thread(stream.until, lambda event: event.room == name)
        assert (event.WhichOneof("event"), event.count.members) == ("count", 1)
        await second.close()
        stream.open(name)
        snapshot = await asyncio.to_thread(stream.answered, name)
        assert [member.user for member in snapshot.snapshot.members] == ["berta"], "the level may change"

    asyncio.run(asyncio.wait_for(story(), 60))
