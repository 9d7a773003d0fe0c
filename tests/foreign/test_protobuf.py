"""The client protocol in its binary subprotocol: Python's websockets, and messages generated from client.proto alone."""

import asyncio
import uuid

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

SUBPROTOCOL = "presence.v1.proto"


class Peer:
    """A client that keeps its list by the rules of docs/protocol.md."""

    def __init__(self, dev, socket, client):
        self.dev, self.socket, self.client = dev, socket, client
        self.members, self.paging, self.rev, self.cursor = {}, {}, None, None

    @classmethod
    async def open(cls, dev, presence_v1):
        socket = await connect(dev.ws, subprotocols=[SUBPROTOCOL])
        assert socket.subprotocol == SUBPROTOCOL
        peer = cls(dev, socket, presence_v1["client"])
        hello = await peer.read()
        assert hello.hello.limits.message_bytes == 16384
        return peer

    async def say(self, **what):
        await self.socket.send(self.client.ClientMessage(**what).SerializeToString())

    async def read(self):
        frame = await asyncio.wait_for(self.socket.recv(), 10)
        assert isinstance(frame, bytes), "binary messages only"
        return self.client.EdgeMessage.FromString(frame)

    def take(self, message):
        kind = message.WhichOneof("message")
        if kind == "snapshot":
            page = message.snapshot
            self.paging |= {member.user: member for member in page.members}
            if not page.more:
                self.members, self.paging, self.rev, self.cursor = self.paging, {}, page.rev, page.cursor
        elif kind == "delta":
            delta = message.delta
            if delta.HasField("prev"):
                assert delta.prev <= self.rev, "a gap"
                if delta.rev <= self.rev:
                    return kind
            self.members |= {member.user: member for member in delta.upserts}
            for removal in delta.removals:
                assert removal.reason, "a removal has a reason"
                self.members.pop(removal.user, None)
            self.rev, self.cursor = delta.rev, delta.cursor
        return kind

    async def until(self, condition):
        async with asyncio.timeout(15):
            while True:
                message = await self.read()
                self.take(message)
                if condition(message):
                    return message

    async def join(self, room, user, session=None, generation=1, **more):
        self.session = session or str(uuid.uuid4())
        token = self.dev.token(user, room)
        join = {"room": room, "token": token, "session": self.session, "generation": generation, **more}
        await self.say(join=join)
        joined = await self.until(lambda message: message.WhichOneof("message") == "joined")
        return joined.joined


def test_both_encodings_show_one_room(dev, presence_v1):
    asyncio.run(both_encodings_show_one_room(dev, presence_v1))


async def both_encodings_show_one_room(dev, presence_v1):
    types = presence_v1["types"]
    room = f"room-{uuid.uuid4()}"
    anna = await Peer.open(dev, presence_v1)
    joined = await anna.join(room, "anna", state=b'{"from": "protobuf"}', status=types.STATUS_AWAY)
    assert (joined.session, joined.generation, joined.resumed) == (anna.session, 1, False)
    from test_websocket import Client

    bela = await Client.open(dev)
    await bela.join(room, "bela")
    await anna.until(lambda _: set(anna.members) == {"anna", "bela"})
    await bela.until(lambda _: set(bela.members) == {"anna", "bela"})
    assert anna.members["bela"].state == b'{"from": "python"}'
    assert bela.members["anna"] | {"since": 0} == {
        "user": "anna", "status": "away", "state": {"from": "protobuf"}, "since": 0,
    }  # fmt: skip
    await anna.say(update={"room": room, "status": types.STATUS_BUSY})
    await bela.until(lambda _: bela.members["anna"]["status"] == "busy")
    assert bela.members["anna"]["state"] == {"from": "protobuf"}, "what is not named stays"
    # A cursor is good in whatever encoding, and who comes back is not announced.
    cursor = anna.cursor
    await anna.socket.close()
    again = await Peer.open(dev, presence_v1)
    joined = await again.join(room, "anna", anna.session, 2, since=cursor)
    assert joined.resumed
    await bela.send({"t": "leave", "room": room})
    gone = await again.until(lambda message: "bela" in [gone.user for gone in message.delta.removals])
    assert [gone.reason for gone in gone.delta.removals] == [types.REMOVAL_REASON_LEFT]
    await bela.socket.close()
    await again.socket.close()


def test_errors_and_pings_are_told_as_in_the_other_encoding(dev, presence_v1):
    asyncio.run(errors_and_pings_are_told(dev, presence_v1))


async def errors_and_pings_are_told(dev, presence_v1):
    codes = presence_v1["client"].EdgeMessage
    peer = await Peer.open(dev, presence_v1)
    await peer.say(ping={})
    assert (await peer.read()).WhichOneof("message") == "pong"
    await peer.say()
    error = (await peer.read()).error
    assert (error.code, error.HasField("room")) == (codes.ERROR_CODE_BAD_REQUEST, False)
    await peer.say(leave={"room": "elsewhere"})
    error = (await peer.read()).error
    assert (error.code, error.room) == (codes.ERROR_CODE_NOT_JOINED, "elsewhere")
    await peer.say(watch={"room": "r", "token": "x.y.z"})
    assert (await peer.read()).error.code == codes.ERROR_CODE_UNAUTHORIZED
    await peer.socket.close()


@pytest.mark.parametrize("frame", [b"\x2a", b"\x00", "text", b'{"t":"ping"}'])
def test_what_is_no_message_closes_with_4400(dev, presence_v1, frame):
    async def broken():
        peer = await Peer.open(dev, presence_v1)
        await peer.socket.send(frame)
        error = (await peer.read()).error
        assert error.code == presence_v1["client"].EdgeMessage.ERROR_CODE_BAD_REQUEST
        with pytest.raises(ConnectionClosed) as closed:
            await peer.read()
        assert closed.value.rcvd.code == 4400

    asyncio.run(broken())


def test_compression_is_not_negotiated(dev, presence_v1):
    async def offered():
        for subprotocols in ([SUBPROTOCOL], ["presence.v1.json"], None):
            socket = await connect(dev.ws, subprotocols=subprotocols, compression="deflate")
            assert "permessage-deflate" in socket.request.headers["Sec-WebSocket-Extensions"]
            assert "Sec-WebSocket-Extensions" not in socket.response.headers
            assert socket.protocol.extensions == []
            await asyncio.wait_for(socket.recv(), 5)
            await socket.close()

    asyncio.run(offered())
