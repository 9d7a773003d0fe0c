"""TLS with a private authority, spoken by Python's websockets and grpcio."""

import asyncio
import json
import re
import ssl
import subprocess
import uuid

import grpc
import pytest
from authority import Authority
from conftest import binary, kept, secret
from websockets.asyncio.client import connect


class Process:
    """A running binary, with its log."""

    def __init__(self, folder, name, *arguments):
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            command = [str(binary().with_name(name)), "--json", "--log", "warn", "--admin", "127.0.0.1:0", *map(str, arguments)]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.addresses = json.loads(line)

    def stop(self):
        self.process.terminate()
        try:
            assert self.process.wait(20) == 0, self.log.read_text()
        finally:
            self.process.kill()
            if (log := kept("tls")) is not None:
                with log:
                    log.write(self.log.read_bytes())


PEERS = """
[[edge]]
certificate = "edge.test"
names = ["*"]
regions = ["local"]

[[service]]
certificate = "service.test"
scopes = ["presence.read"]
rooms = [""]
"""


class Region:
    """A core that asks for certificates, and an edge by TLS."""

    def __init__(self, folder):
        self.folder, self.authority = folder, Authority(folder, "authority")
        subprocess.run([binary(), "keys", folder / "keys"], check=True, capture_output=True)
        (core_cert, core_key), (edge_cert, edge_key) = self.authority.sign("core.test"), self.authority.sign("edge.test")
        common = ["--jwks", folder / "keys" / "jwks.json", "--heartbeat", "1s", "--lease-ttl", "4s", "--grace", "1s"]
        self.peers = folder / "peers.toml"
        self.peers.write_text(PEERS)
        self.core = Process(
            folder, "presence-core", "--grpc", "127.0.0.1:0", *common, "--peers", self.peers,
            "--tls-cert", core_cert, "--tls-key", core_key, "--tls-client-ca", self.authority.pem,
        )  # fmt: skip
        self.grpc = self.core.addresses["grpc"]
        self.edge = Process(
            folder, "presence-edge", "--listen", "127.0.0.1:0", "--core", f"https://{self.grpc}", *common,
            "--tls-cert", edge_cert, "--tls-key", edge_key,
            "--core-ca", self.authority.pem, "--core-cert", edge_cert, "--core-key", edge_key,
        )  # fmt: skip
        self.ws = self.edge.addresses["ws"]

    def token(self, user, room):
        key = self.folder / "keys" / "key.pem"
        told = subprocess.run(
            [binary(), "token", "--key", key, "--user", user, "--room", room], check=True, capture_output=True, text=True
        )
        return secret(told.stdout.strip())


@pytest.fixture(scope="module")
def region(tmp_path_factory):
    running = Region(tmp_path_factory.mktemp("tls"))
    yield running
    running.edge.stop()
    running.core.stop()


def trusting(path):
    return ssl.create_default_context(cafile=str(path))


def credentials(region, identity=None):
    chain, key = (None, None) if identity is None else (path.read_bytes() for path in identity)
    return grpc.ssl_channel_credentials(region.authority.pem.read_bytes(), key, chain)


def count(presence_v1, channel, room):
    stub = presence_v1["watch_grpc"].PresenceServiceStub(channel)
    return stub.CountRoom(presence_v1["watch"].CountRoomRequest(room=room), timeout=5).count


def test_a_client_joins_by_wss_and_a_service_with_a_certificate_counts_it(region, presence_v1):
    async def joined():
        async with connect(region.ws, ssl=trusting(region.authority.pem), subprotocols=["presence.v1.json"]) as socket:
            assert socket.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
            join = {
                "t": "join", "room": "secure", "token": region.token("u1", "secure"),
                "session": str(uuid.uuid4()), "generation": 1,
            }  # fmt: skip
            await socket.send(json.dumps(join))
            while json.loads(await asyncio.wait_for(socket.recv(), 5))["t"] != "joined":
                pass
            with grpc.secure_channel(region.grpc, credentials(region, region.authority.sign("service.test"))) as channel:
                return await asyncio.to_thread(count, presence_v1, channel, "secure")

    assert asyncio.run(joined()) == 1


def test_version_1_2_is_spoken_and_older_ones_are_not(region):
    async def version(least, most):
        context = trusting(region.authority.pem)
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        context.minimum_version, context.maximum_version = least, most
        async with connect(region.ws, ssl=context) as socket:
            return socket.transport.get_extra_info("ssl_object").version()

    assert asyncio.run(version(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)) == "TLSv1.2"
    with pytest.raises(ssl.SSLError), pytest.warns(DeprecationWarning):
        asyncio.run(version(ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1))


def test_whoever_does_not_know_the_authority_does_not_connect(region):
    async def connects():
        async with connect(region.ws):
            pass

    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(connects())


@pytest.mark.parametrize("known", [False, True])
def test_a_service_without_a_good_certificate_gets_no_answer(region, presence_v1, known, tmp_path):
    identity = Authority(tmp_path, "stranger").sign("service.test") if known else None
    with grpc.secure_channel(region.grpc, credentials(region, identity)) as channel, pytest.raises(grpc.RpcError) as told:
        count(presence_v1, channel, "secure")
    assert told.value.code() == grpc.StatusCode.UNAVAILABLE


def test_who_speaks_in_plain_to_a_tls_port_is_told_so_and_the_log_has_one_line(region, presence_v1):
    async def connects():
        async with connect(region.ws.replace("wss://", "ws://")):
            pass

    for _ in range(3):
        with pytest.raises(Exception, match="400"):
            asyncio.run(connects())
        with grpc.insecure_channel(region.grpc) as channel, pytest.raises(grpc.RpcError) as told:
            count(presence_v1, channel, "secure")
        assert told.value.code() == grpc.StatusCode.UNAVAILABLE and "http1.x" in told.value.details()
    for process in region.core, region.edge:
        lines = [line for line in process.log.read_text().splitlines() if "plain text came" in line]
        assert len(lines) == 1 and "https://" in lines[0], lines


def test_who_speaks_tls_to_a_plain_port_is_ended_clearly(region, presence_v1, dev):
    async def connects():
        async with connect(dev.ws.replace("ws://", "wss://")):
            pass

    with pytest.raises(ssl.SSLError, match=re.compile("wrong.version.number", re.IGNORECASE)):
        asyncio.run(connects())
    with grpc.secure_channel(dev.grpc, credentials(region)) as channel, pytest.raises(grpc.RpcError) as told:
        count(presence_v1, channel, "secure")
    assert told.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("program", "flag", "told"),
    [
        ("presence-core", "--grpc", ["--tls-cert", "--tls-client-ca", "--peers", "--insecure"]),
        ("presence-edge", "--listen", ["--tls-cert", "--insecure"]),
    ],
)
def test_nothing_listens_beyond_loopback_without_protection(region, program, flag, told):
    jwks = ["--jwks", str(region.folder / "keys" / "jwks.json")]

    def check(*more):
        command = [binary().with_name(program), "--check", flag, "0.0.0.0:4999", *jwks, *map(str, more)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    refused = check()
    assert refused.returncode == 64 and refused.stderr.count("\n") == 1, refused
    assert all(word in refused.stderr for word in ["127.0.0.1", *told]), refused.stderr
    assert check("--insecure").returncode == 0
    certificate, key = region.authority.sign("listener.test")
    tls = ["--tls-cert", certificate, "--tls-key", key]
    assert check(*tls).returncode == (64 if program == "presence-core" else 0), "whoever may call may evict"
    asking = [*tls, "--tls-client-ca", region.authority.pem]
    assert check(*asking).returncode == (64 if program == "presence-core" else 0), "whom do they stand for?"
    if program == "presence-core":
        asking += ["--peers", region.peers]
    assert check(*asking).returncode == 0
    assert check(*asking, "--tls-client-auth", "optional").returncode == 0, "others bring tokens"
