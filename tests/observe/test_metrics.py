"""What running processes tell, and what rules, dashboard and documents say that they do."""

import asyncio
import json
import os
import pathlib
import re
import select
import subprocess
import tempfile
import urllib.request
import uuid

import pytest
import yaml
from prometheus import DASHBOARD, ROOT, RULES, alerts, metrics_in, panels, promtool, without_suffix
from websockets.asyncio.client import connect

WITHIN_S = 20
CROWD = 200
TABLE_ROW = re.compile(r"(?m)^\| `(presence_[a-z_]+)` \| (counter|gauge|histogram) \| (.*?) \| \S")
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "helm").rglob("*.md")]
# Told only by processes with TLS, where tests of TLS look at it.
WITH_TLS = {"presence_tls_certificate_ends_seconds"}


class Running:
    """A process that tells where it listens, in one line of JSON."""

    def __init__(self, folder, name, *arguments):
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [target / "release" / name, *map(str, arguments), "--json"], stdout=subprocess.PIPE, stderr=log, text=True
            )
        ready, _, _ = select.select([self.process.stdout], [], [], WITHIN_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.end()
            raise AssertionError(self.log.read_text())
        self.addresses = json.loads(line)

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.addresses['admin']}/metrics", timeout=5) as answer:
            return answer.read().decode()

    def end(self):
        self.process.kill()
        self.process.wait(WITHIN_S)


class Region:
    """One core over Redis, and one edge."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.presence = target / "release" / "presence"
        subprocess.run([self.presence, "keys", folder / "keys"], check=True, capture_output=True, timeout=WITHIN_S)
        jwks, socket = folder / "keys" / "jwks.json", folder / "redis.sock"
        self.redis = self.start_redis(socket)
        any_port = "127.0.0.1:0"
        self.core = self.start(
            "presence-core", "--grpc", any_port, "--admin", any_port, "--store", f"redis://127.0.0.1:{self.redis}", "--jwks", jwks
        )
        core = f"http://{self.core.addresses['grpc']}"
        self.edge = self.start("presence-edge", "--listen", any_port, "--admin", any_port, "--core", core, "--jwks", jwks)

    def start(self, name, *arguments):
        running = Running(self.folder, name, *arguments)
        self.processes.append(running.process)
        return running

    def start_redis(self, socket):
        """The port that Redis was given, once it answers: another one if somebody took it meanwhile."""
        import socket as sockets

        for _ in range(5):
            with sockets.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            process = subprocess.Popen(
                ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(socket), "--save", ""],
                stdout=subprocess.PIPE, text=True, cwd=self.folder,
            )  # fmt: skip
            self.processes.append(process)
            for line in process.stdout:
                if "Ready to accept connections" in line:
                    return port
        raise AssertionError("Redis did not start")

    async def join(self, number):
        """One client in a room of its own, until it is in; it stays as long as the connection is held."""
        user, room = f"user-{number}-q", f"room-{number}-q"
        command = [self.presence, "token", "--key", self.folder / "keys" / "key.pem", "--user", user, "--room", room]
        token = subprocess.run(command, check=True, capture_output=True, text=True, timeout=WITHIN_S).stdout.strip()
        client = await connect(self.edge.addresses["ws"])
        session = uuid.uuid4().hex[:16]
        await client.send(json.dumps({"t": "join", "room": room, "token": token, "session": session}))
        while json.loads(await asyncio.wait_for(client.recv(), WITHIN_S))["t"] != "joined":
            pass
        return client, session

    def texts(self):
        return [self.core.metrics(), self.edge.metrics()]

    def end(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait(WITHIN_S)


@pytest.fixture(scope="module")
def region():
    with tempfile.TemporaryDirectory(prefix="presence-observe-") as folder:
        region = None
        try:
            region = Region(pathlib.Path(folder))
            yield region
        finally:
            if region is not None:
                region.end()


def kinds_in(texts):
    return {name: kind for text in texts for name, kind in re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text)}


def series_in(text):
    return {line.rsplit(" ", 1)[0] for line in text.splitlines() if line and not line.startswith("#")}


def test_what_is_told_is_well_formed(region):
    for text in region.texts():
        done = promtool("check", "metrics", text=text)
        assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


def test_the_table_has_each_metric_with_its_kind_and_labels(region):
    texts = region.texts()
    rows = {name: (kind, set(re.findall(r"`([a-z_]+)`:", labels))) for name, kind, labels in TABLE_ROW.findall(
        (ROOT / "docs" / "metrics.md").read_text()
    )}  # fmt: skip
    told = {}
    for name, kind in kinds_in(texts).items():
        told[name] = (kind, set())
    for series in set().union(*map(series_in, texts)):
        name, _, labels = series.partition("{")
        told[without_suffix(name)][1].update(set(re.findall(r'([a-z_]+)="', labels)) - {"le"})
    assert {name: row for name, row in rows.items() if name not in WITH_TLS} == {
        name: row for name, row in told.items() if name not in WITH_TLS
    }


@pytest.mark.parametrize("path", [RULES, DASHBOARD, *DOCUMENTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_named_exists(region, path):
    unknown = metrics_in(path.read_text()) - set(kinds_in(region.texts())) - WITH_TLS
    assert not unknown, unknown


def labels_asked(expression):
    for name, matchers in re.findall(r"(presence_[a-z_]+)\{([^}]*)\}", expression):
        for label, how, value in re.findall(r'([a-z_]+)(=~|!=|=)"([^"]*)"', matchers):
            yield without_suffix(name), label, value


def test_labels_of_rules_and_dashboard_have_such_values(region):
    """But outcomes of a histogram, whose series begin with the first of their kind."""
    have = {}
    for series in set().union(*map(series_in, region.texts())):
        name, _, labels = series.partition("{")
        for label, value in re.findall(r'([a-z_]+)="([^"]*)"', labels):
            have.setdefault((without_suffix(name), label), set()).add(value)
    expressions = [rule["expr"] for rule in alerts().values()] + [each for _, exprs in panels() for each in exprs]
    for expression in expressions:
        for name, label, value in labels_asked(expression):
            if label != "job" and not name.endswith("_seconds"):
                assert set(value.split("|")) <= have[name, label], (name, label, value)


def test_each_query_of_the_dashboard_parses(tmp_path):
    queries = [query.replace("$__rate_interval", "5m") for _, exprs in panels() for query in exprs]
    rules = [{"record": f"asked:{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = promtool("check", "rules", path)
    assert done.returncode == 0 and f"{len(queries)} rules" in done.stdout, done.stdout + done.stderr


def test_panels_are_numbered_once_and_know_their_source():
    dashboard = json.loads(DASHBOARD.read_text())
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in dashboard["panels"]:
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}", panel["title"]


def test_series_do_not_grow_with_who_is_there(region):
    """The first few begin the series of each kind of command; a crowd in rooms of its own adds none but by chance of
    what a core does by itself, and none has a name of theirs."""

    async def crowd():
        clients = [await region.join(number) for number in range(3)]
        before = [series_in(text) for text in region.texts()]
        for start in range(3, CROWD, 20):
            clients += await asyncio.gather(*(region.join(number) for number in range(start, min(CROWD, start + 20))))
        after = [series_in(text) for text in region.texts()]
        names = [session for _, session in clients]
        for client, _ in clients:
            await client.close()
        return before, after, names

    before, after, sessions = asyncio.run(crowd())
    for earlier, later in zip(before, after, strict=True):
        # A command of the store or a request whose first one came only now.
        begun = {without_suffix(series.partition("{")[0]) for series in later - earlier}
        assert begun <= {"presence_core_store_seconds", "presence_core_rpc_seconds"}, begun
        assert len({series for series in later - earlier if "_count{" in series}) <= 6
        told = "\n".join(later)
        for name in ["user-", "room-", "127.0.0.1", *sessions]:
            assert name not in told, name
