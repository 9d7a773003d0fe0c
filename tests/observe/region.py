"""A region of real processes: Redis, one core, one edge, and clients that join."""

import asyncio
import json
import os
import pathlib
import select
import socket
import subprocess
import urllib.request
import uuid

from prometheus import ROOT
from websockets.asyncio.client import connect

WITHIN_S = 20


def binary(name):
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / name


class Running:
    """A process that tells where it listens, in one line of JSON."""

    def __init__(self, folder, name, *arguments):
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [binary(name), *map(str, arguments), "--json"], stdout=subprocess.PIPE, stderr=log, text=True
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

    def value(self, series):
        """Of one series, or the sum of all that begin so; 0 if there is none yet."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.metrics().splitlines() if line.startswith(series))

    def end(self):
        self.process.kill()
        self.process.wait(WITHIN_S)


class Region:
    """One core over Redis, and one edge."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []

    def begin(self):
        folder = self.folder
        self.presence = binary("presence")
        subprocess.run([self.presence, "keys", folder / "keys"], check=True, capture_output=True, timeout=WITHIN_S)
        jwks = folder / "keys" / "jwks.json"
        self.redis = self.start_redis()
        any_port = "127.0.0.1:0"
        self.core = self.start(
            "presence-core", "--grpc", any_port, "--admin", any_port, "--store", f"redis://127.0.0.1:{self.redis}", "--jwks", jwks
        )
        core = f"http://{self.core.addresses['grpc']}"
        self.begin_watching()
        self.edge = self.start("presence-edge", "--listen", any_port, "--admin", any_port, "--core", core, "--jwks", jwks)

    def start(self, name, *arguments):
        running = Running(self.folder, name, *arguments)
        self.processes.append(running.process)
        return running

    def start_redis(self):
        """The port that Redis was given, once it answers: another one if somebody took it meanwhile."""
        for _ in range(5):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            process = subprocess.Popen(
                ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
                stdout=subprocess.PIPE, text=True, cwd=self.folder,
            )  # fmt: skip
            self.processes.append(process)
            self.store = process
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

    def begin_watching(self):
        """One core more, beside all this, that is to watch a region where nobody answers."""
        options = ["--store", "memory", "--region", "apart", "--peer", "there=http://127.0.0.1:9"]
        any_port, jwks = "127.0.0.1:0", self.folder / "keys" / "jwks.json"
        self.apart = self.start("presence-core", "--grpc", any_port, "--admin", any_port, "--jwks", jwks, *options)

    def texts(self):
        return [self.core.metrics(), self.edge.metrics(), self.apart.metrics()]

    def end(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait(WITHIN_S)
