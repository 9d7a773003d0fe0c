"""Foreign peers: clients that know nothing of this project but its documents and its .proto files.

The gRPC code is generated from proto/ into a temporary folder; the server is the real binary.
"""

import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

import grpc
import grpc_tools
import pytest
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEARTBEAT_S = 1.0
GRACE_S = 1.0
TTL_S = 3.0


def binary() -> pathlib.Path:
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = target / "release" / "presence"
    assert path.exists(), f"{path} is not built: cargo build --release"
    return path


LOGS = os.environ.get("PRESENCE_TEST_LOGS")


def kept(name: str):
    """Where a process writes its log, to be searched for secrets when all tests have run; None: to that of the test."""
    if LOGS is None:
        return None
    descriptor, _ = tempfile.mkstemp(prefix=f"{name}-", dir=pathlib.Path(LOGS) / "written")
    return os.fdopen(descriptor, "wb")


def secret(token: str) -> str:
    """A token that no process may write: neither what it says nor its signature."""
    if LOGS is not None:
        with (pathlib.Path(LOGS) / "secrets" / str(os.getpid())).open("a") as lines:
            lines.write("\n".join(token.split(".")[1:]) + "\n")
    return token


class Dev:
    """A running `presence dev`."""

    def __init__(self, *more: str, **options) -> None:
        command = [
            str(binary()), "dev", "--json",
            "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0",
            "--heartbeat", "1s", "--lease-ttl", "3s", "--grace", "1s", *more,
        ]  # fmt: skip
        options.setdefault("stderr", kept("dev"))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
        line = self.process.stdout.readline()
        assert line, f"presence dev ended with {self.process.wait(10)}"
        self.addresses = json.loads(line)
        self.ws = self.addresses["ws"]
        self.http = self.addresses["playground"].rstrip("/")
        self.grpc = self.addresses["grpc"]

    def token(self, user: str, room: str, **more: str) -> str:
        query = urllib.parse.urlencode({"user": user, "room": room, **more})
        with urllib.request.urlopen(f"{self.http}/dev/token?{query}", timeout=5) as answer:
            return secret(answer.read().decode())

    def cut(self, connection: str) -> None:
        query = urllib.parse.urlencode({"connection": connection})
        request = urllib.request.Request(f"{self.http}/dev/cut?{query}", method="POST")
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 204

    def stop(self) -> int:
        if (page := kept("metrics")) is not None:
            with page, urllib.request.urlopen(f"http://{self.addresses['admin']}/metrics", timeout=5) as answer:
                page.write(answer.read())
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()


@pytest.fixture(scope="session")
def dev():
    running = Dev()
    yield running
    assert running.stop() == 0, "SIGTERM must end it well"


@pytest.fixture(scope="session")
def presence_v1(tmp_path_factory):
    """Modules generated from the .proto files, by their last name."""
    out = tmp_path_factory.mktemp("generated")
    proto = ROOT / "proto" / "proto"
    files = sorted(str(path.relative_to(proto)) for path in proto.rglob("*.proto"))
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{proto}", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}", *files]
    assert protoc.main(arguments) == 0
    sys.path.insert(0, str(out))
    names = ["types", "watch", "link", "admin", "client"]
    modules = {name: importlib.import_module(f"presence.v1.{name}_pb2") for name in names}
    modules |= {f"{name}_grpc": importlib.import_module(f"presence.v1.{name}_pb2_grpc") for name in names}
    return modules


@pytest.fixture
def channel(dev):
    with grpc.insecure_channel(dev.grpc) as opened:
        yield opened
