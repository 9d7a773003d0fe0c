"""One or two hosts with systemd: the units are sound, and their commands start with the configuration beside them."""

import asyncio
import configparser
import pathlib
import re
import shlex
import subprocess

import pytest
from image import ROOT, binaries
from stage import (
    STORE_PASSWORD, Process, adapted, free_port, joined, plain_redis_with_users, port_of, present, secure_redis,
)  # fmt: skip

UNITS = ROOT / "docs" / "systemd"
DRAIN_S = {"core": 20, "edge": 40}


def unit(component):
    class Unit(configparser.RawConfigParser):
        optionxform = staticmethod(str)

    parsed = Unit(strict=False)
    parsed.read(UNITS / f"presence-{component}.service")
    return parsed


@pytest.fixture(params=DRAIN_S)
def component(request):
    return request.param


def test_systemd_has_nothing_to_say_of_the_units(tmp_path, component):
    text = (UNITS / f"presence-{component}.service").read_text()
    path = tmp_path / f"presence-{component}.service"
    path.write_text(text.replace("/usr/local/bin/", f"{binaries()}/"))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if f"presence-{component}" in line]
    assert done.returncode == 0 and ours == [], done.stderr
    path.write_text(path.read_text().replace("TimeoutStopSec=", "TimeoutStopSecs="))
    wrong = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60)
    assert "TimeoutStopSecs" in wrong.stderr, "what is no setting is found"


def test_systemd_makes_their_user():
    done = subprocess.run(
        ["systemd-sysusers", "--dry-run", UNITS / "presence.sysusers"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "presence" in done.stdout + done.stderr, done.stdout + done.stderr
    assert all(unit(component)["Service"]["User"] == "presence" for component in DRAIN_S)


def test_systemd_calls_the_units_safe(component):
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", UNITS / f"presence-{component}.service"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_units_give_the_time_and_the_descriptors_that_are_needed(component):
    service = unit(component)["Service"]
    assert int(service["TimeoutStopSec"]) > DRAIN_S[component]
    assert service["RestartPreventExitStatus"] == "64" and service["Restart"] == "on-failure"
    connections = {"edge": 50_000, "core": 4_096}[component]
    assert int(service["LimitNOFILE"]) > 2 * connections


class Host:
    """A host with the files of /etc/presence as the page says; what its units start."""

    def __init__(self, stage, root, kind, name, certificates):
        self.stage, self.root, self.kind, self.name = stage, root, kind, name
        self.secrets = {"redis-password": STORE_PASSWORD, "ca.crt": stage.inner.pem.read_text()}
        for file, host in certificates.items():
            made = stage.certificate(host, stage.public if file == "edge" else stage.inner)
            self.secrets |= {f"{file}.crt": made["tls.crt"], f"{file}.key": made["tls.key"]}

    def start(self, component, replaced, turned=None):
        """Starts a unit's command; `turned` makes texts for this host into those for the other one."""
        turned = turned or str
        text = adapted(turned((UNITS / self.kind / f"{component}.toml").read_text()), replaced)
        folder = self.stage.folder / "hosts" / f"{self.name}-{component}-{len(self.stage.processes)}"
        jwks = self.stage.secrets["presence-jwks"]["jwks.json"]
        peers = UNITS / self.kind / "peers.toml"
        more = {"peers.toml": turned(peers.read_text())} if peers.exists() else {}
        etc = self.stage.place(folder / "etc", {f"{component}.toml": text, "jwks.json": jwks, **more})
        (etc / "secrets").mkdir()
        binds = [(etc, "/etc/presence"), (self.stage.place(folder / "secrets", self.secrets), "/etc/presence/secrets")]
        service = unit(component)["Service"]
        name = f"{self.name}-{component}-{len(self.stage.processes)}"
        command = shlex.split(service["ExecStart"])
        return Process(self.stage, name, self.root, binds, command, grace_s=int(service["TimeoutStopSec"]))


def url_of(edge, host):
    return f"wss://{host}:{port_of(edge.addresses['ws'])}/v1/ws"


def test_one_host(stage, root):
    stage.hosts.add("presence.example")
    port = plain_redis_with_users(stage, "redis.internal")
    host = Host(stage, root, "one-host", "host", {"edge": "presence.example"})
    core = host.start("core", [("127.0.0.1:6379", f"127.0.0.1:{port}")])
    at = [("127.0.0.1:4701", f"127.0.0.1:{port_of(core.addresses['grpc'])}")]
    edge = host.start("edge", at)
    assert asyncio.run(joined(stage, url_of(edge, "presence.example"), "ann", "lobby")) == {"ann"}
    # An upgrade: each is ended and started again.
    assert edge.stop() == 0, edge.log.read_text()
    edge = host.start("edge", at)
    assert asyncio.run(joined(stage, url_of(edge, "presence.example"), "ann", "lobby")) == {"ann"}
    assert edge.stop() == 0 and core.stop() == 0, core.log.read_text()


def test_two_hosts_of_which_one_core_goes(stage, root):
    stage.hosts |= {"presence.example", "host-1.internal", "host-2.internal"}
    port = secure_redis(stage, "redis.internal", stage.inner)
    hosts = [
        Host(stage, root, "two-hosts", name, {"edge": "presence.example", "core": f"{name}.internal"})
        for name in ("host-1", "host-2")
    ]
    cores = [host.start("core", [("redis.internal:6380", f"redis.internal:{port}")]) for host in hosts]
    at = [
        (f"host-{number}.internal:4701", f"host-{number}.internal:{port_of(core.addresses['grpc'])}")
        for number, core in enumerate(cores, 1)
    ]
    edges = [host.start("edge", [*at, ('"edge-1"', f'"edge-{number}"')]) for number, host in enumerate(hosts, 1)]
    urls = [url_of(edge, "presence.example") for edge in edges]
    assert asyncio.run(joined(stage, urls[0], "ann", "lobby")) == {"ann"}
    assert cores[0].stop() == 0, cores[0].log.read_text()
    for number, url in enumerate(urls):
        assert f"user-{number}" in asyncio.run(joined(stage, url, f"user-{number}", f"room-{number}"))
    assert [edge.stop() for edge in edges] == [0, 0] and cores[1].stop() == 0


def other_way_round(text):
    """What is written for host-1 and its region, for host-2 and the other one."""
    other = {"1": "2", "2": "1", "eu-west": "us-east", "us-east": "eu-west"}
    return re.sub(r"(?<=host-)[12]|(?<=edge-)1|(?<=core-)1|eu-west|us-east", lambda found: other[found.group()], text)


def test_two_regions_on_two_hosts(stage, root):
    stage.hosts |= {"presence.example", "host-1.internal", "host-2.internal"}
    ports = {number: free_port() for number in (1, 2)}
    redis_port = plain_redis_with_users(stage, "redis.internal"), plain_redis_with_users(stage, "redis.internal")
    running = []
    for number, other, turned, store in (1, 2, None, redis_port[0]), (2, 1, other_way_round, redis_port[1]):
        name = f"host-{number}"
        host = Host(stage, root, "two-regions", name, {"edge": "presence.example", "core": f"{name}.internal"})
        core = host.start("core", [
            ("127.0.0.1:6379", f"127.0.0.1:{store}"), ('grpc = "0.0.0.0:0"', f'grpc = "0.0.0.0:{ports[number]}"'),
            (f"host-{other}.internal:4701", f"host-{other}.internal:{ports[other]}"),
        ], turned)  # fmt: skip
        edge = host.start("edge", [(f"{name}.internal:4701", f"{name}.internal:{ports[number]}")], turned)
        running.append((edge, core))

    async def see_each_other():
        urls = [url_of(edge, "presence.example") for edge, _ in running]
        async with present(stage, urls[0], "ann", "plaza") as ann, present(stage, urls[1], "bob", "plaza") as bob:
            await asyncio.gather(*(client.sees(lambda members: members == {"ann", "bob"}) for client in (ann, bob)))

    asyncio.run(see_each_other())
    for edge, core in running:
        assert edge.stop() == 0 and core.stop() == 0, core.log.read_text()


def test_the_page_names_every_file_there():
    page = (ROOT / "docs" / "deploy.md").read_text()
    for path in UNITS.rglob("*"):
        if path.is_file():
            assert str(path.relative_to(ROOT / "docs")) in page, path
    for link in re.findall(r"\]\((systemd/[^)]+)\)", page):
        assert (ROOT / "docs" / pathlib.Path(link)).exists(), link
