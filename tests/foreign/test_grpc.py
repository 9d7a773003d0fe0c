"""The services, spoken by code generated from the .proto files alone."""

import asyncio
import queue
import threading
import uuid

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from test_websocket import Client


class Watch:
    """A watch on one room that folds what it is sent."""

    def __init__(self, modules, channel, room):
        self.modules, self.watch = modules, modules["watch"]
        self.requests = queue.Queue()
        members = self.watch.WATCH_LEVEL_MEMBERS
        self.requests.put(self.watch.WatchRequest(open=self.watch.OpenRoom(room=room, level=members)))
        stub = modules["watch_grpc"].PresenceServiceStub(channel)
        self.call = stub.Watch(iter(self.requests.get, None))
        self.members, self.removals, self.revision, self.complete = {}, [], None, False

    def until(self, condition, within=15):
        timer = threading.Timer(within, self.call.cancel)
        timer.start()
        try:
            for event in self.call:
                self.take(event)
                if condition(self):
                    return
        finally:
            timer.cancel()
        raise AssertionError("the stream ended")

    def take(self, event):
        kind = event.WhichOneof("event")
        if kind == "snapshot":
            if event.snapshot.first:
                self.members = {}
            self.members |= {member.user: member for member in event.snapshot.members}
            self.revision = event.snapshot.position.revision
            self.complete = not event.snapshot.more
        elif kind == "delta":
            # `from` is a word of Python.
            start = getattr(event.delta, "from")
            assert start <= self.revision, "a gap"
            self.members |= {member.user: member for member in event.delta.upserts}
            for removal in event.delta.removals:
                self.members.pop(removal.user, None)
                self.removals.append(removal)
            self.revision = event.delta.to

    def close(self):
        self.requests.put(None)
        self.call.cancel()


def acting(story):
    return asyncio.run(asyncio.wait_for(story, 60))


def test_watch_get_room_and_explain_tell_the_same_story(dev, channel, presence_v1):
    room = f"grpc-{uuid.uuid4()}"
    types = presence_v1["types"]
    services = presence_v1["watch_grpc"].PresenceServiceStub(channel)
    operators = presence_v1["admin_grpc"].AdminServiceStub(channel)
    watch = Watch(presence_v1, channel, room)
    watch.until(lambda watch: watch.complete)
    assert watch.members == {}

    async def present():
        client = await Client.open(dev)
        await client.join(room, "anna")
        await asyncio.to_thread(watch.until, lambda watch: "anna" in watch.members)
        page = services.GetRoom(presence_v1["watch"].GetRoomRequest(room=room), timeout=5)
        assert [member.user for member in page.members] == ["anna"] and page.count == 1
        assert page.regions[0].freshness.state == types.Freshness.STATE_LIVE
        assert page.members[0].state == b'{"from": "python"}'
        count = services.CountRoom(presence_v1["watch"].CountRoomRequest(room=room), timeout=5)
        assert count.count == 1
        rooms = services.ListRooms(presence_v1["watch"].ListRoomsRequest(prefix=room), timeout=5)
        assert [(found.room, found.count) for found in rooms.rooms] == [(room, 1)]
        told = operators.Explain(presence_v1["admin"].ExplainRequest(room=room, user="anna"), timeout=5)
        assert told.member.user == "anna" and len(told.sessions) == 1
        assert told.sessions[0].session == client.session and told.sessions[0].generation == 1
        assert not told.sessions[0].in_grace and told.sessions[0].deadline_ms > told.store_time_ms
        assert "anna is shown" in told.story
        await client.send({"t": "leave", "room": room})
        await asyncio.to_thread(watch.until, lambda watch: "anna" not in watch.members)

    acting(present())
    assert [removal.reason for removal in watch.removals] == [types.REMOVAL_REASON_LEFT]
    told = operators.Explain(presence_v1["admin"].ExplainRequest(room=room, user="anna"), timeout=5)
    assert not told.HasField("member") and [e.reason for e in told.ended] == [types.REMOVAL_REASON_LEFT]
    assert "said goodbye" in told.story
    nobody = operators.Explain(presence_v1["admin"].ExplainRequest(room=room, user="nobody"), timeout=5)
    assert "not in" in nobody.story
    watch.close()


def test_pages_walk_a_room(dev, channel, presence_v1):
    room = f"pages-{uuid.uuid4()}"
    services = presence_v1["watch_grpc"].PresenceServiceStub(channel)
    users = [f"u{number:02}" for number in range(25)]

    async def story():
        clients = [await Client.open(dev) for _ in users]
        for client, user in zip(clients, users, strict=True):
            await client.join(room, user)
        found, token = [], ""
        while True:
            request = presence_v1["watch"].GetRoomRequest(room=room, page_size=10, page_token=token)
            page = services.GetRoom(request, timeout=5)
            found += [member.user for member in page.members]
            token = page.next_page_token
            if not token:
                break
        assert found == users
        for client in clients:
            await client.close()

    acting(story())


@pytest.mark.parametrize(
    "request_fields", [{"room": ""}, {"room": "x" * 256}, {"room": "r", "page_size": 1001}, {"room": "r", "page_token": "%"}]
)
def test_bad_requests_are_named(channel, presence_v1, request_fields):
    services = presence_v1["watch_grpc"].PresenceServiceStub(channel)
    with pytest.raises(grpc.RpcError) as refused:
        services.GetRoom(presence_v1["watch"].GetRoomRequest(**request_fields), timeout=5)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details()


def test_health_and_reflection_are_served(channel):
    health = health_pb2_grpc.HealthStub(channel)
    answer = health.Check(health_pb2.HealthCheckRequest(service="presence.v1.PresenceService"), timeout=5)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    from grpc_reflection.v1alpha import reflection_pb2

    # The messages of both versions are the same; older tools know the older name only.
    for version in ("v1", "v1alpha"):
        call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        answers = call(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=5)
        names = {service.name for service in next(answers).list_services_response.service}
        assert {"presence.v1.EdgeService", "presence.v1.PresenceService", "presence.v1.AdminService"} <= names


HELLO = {"edge": "by-hand", "incarnation": 7, "link_number": 1, "region": "local", "release": "test"}


def error_info(error):
    (details,) = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
    return details


@pytest.mark.parametrize("service", ["EdgeService/Link", "PresenceService/Watch"])
def test_a_message_that_cannot_be_read_ends_the_stream_with_its_reason(channel, presence_v1, service):
    first = []
    if service == "EdgeService/Link":
        link = presence_v1["link"]
        first = [link.LinkRequest(hello=link.Hello(**HELLO)).SerializeToString()]
    # A field of a length that is never reached.
    call = channel.stream_stream(f"/presence.v1.{service}", request_serializer=bytes, response_deserializer=bytes)
    answers = call(iter(first + [b"\x0a\x7f\x00"]), timeout=10)
    with pytest.raises(grpc.RpcError) as ended:
        for _ in answers:
            pass
    assert ended.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "cannot be read" in ended.value.details()
    assert b"BAD_REQUEST" in error_info(ended.value)


@pytest.mark.parametrize("method", ["PresenceService/GetRoom", "PresenceService/ListRooms", "AdminService/Explain"])
def test_a_request_that_cannot_be_read_is_the_fault_of_who_sent_it(channel, method):
    call = channel.unary_unary(f"/presence.v1.{method}", request_serializer=bytes, response_deserializer=bytes)
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\x0a\x7f\x00", timeout=10)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "decode" in refused.value.details()


def test_a_watch_request_that_says_nothing_is_answered_and_the_watch_goes_on(channel, presence_v1):
    watch = presence_v1["watch"]
    services = presence_v1["watch_grpc"].PresenceServiceStub(channel)
    opened = watch.OpenRoom(room="nobody", level=watch.WATCH_LEVEL_COUNT)
    answers = services.Watch(iter([watch.WatchRequest(), watch.WatchRequest(open=opened)]), timeout=20)
    told = {}
    for answer in answers:
        told[answer.WhichOneof("event")] = answer
        if {"error", "count"} <= told.keys():
            break
    answers.cancel()
    assert (told["error"].room, told["error"].error.reason) == ("", presence_v1["types"].ERROR_REASON_BAD_REQUEST)
    assert "WatchRequest.message" in told["error"].error.message
    assert told["count"].count.members == 0
