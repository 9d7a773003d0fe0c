"""Tokens that are signed as docs/tokens.md tells it, by other languages, open a room; revoked ones close it."""

import contextlib
import functools
import http.server
import json
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time

import pytest
from authority import Authority
from conftest import ROOT, binary
from websockets.sync.client import connect

PAGE = (ROOT / "docs" / "tokens.md").read_text()
GO_MOD = "module example\n\ngo 1.21\n\nrequire github.com/golang-jwt/jwt/v5 v5.2.1\n"
GO_MAIN = """package main

import (
	"fmt"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func main() {{
	pem, err := os.ReadFile("keys/key.pem")
	if err != nil {{
		panic(err)
	}}
	text, err := token(pem, os.Args[1], "u1", "lobby")
	if err != nil {{
		panic(err)
	}}
	fmt.Println(text)
}}

{}"""


def example(language):
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 1, f"{len(found)} examples in {language}"
    assert len([line for line in found[0].splitlines() if line.strip()]) <= 13, "about ten lines"
    return found[0]


class Stage:
    """A core and an edge that verify by a key set of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.keys = folder / "keys"
        assert self.presence("keys", str(self.keys)).returncode == 0
        jwks = ["--jwks", str(self.keys / "jwks.json"), "--json", "--log", "warn", "--admin", "127.0.0.1:0"]
        self.core = self.start("presence-core", "--grpc", "127.0.0.1:0", *jwks)
        self.grpc = json.loads(self.core.stdout.readline())["grpc"]
        self.edge = self.start("presence-edge", "--listen", "127.0.0.1:0", "--core", f"http://{self.grpc}", *jwks)
        self.ws = json.loads(self.edge.stdout.readline())["ws"]

    def presence(self, *arguments):
        return subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=30)

    def start(self, program, *arguments):
        return subprocess.Popen([binary().with_name(program), *arguments], stdout=subprocess.PIPE, text=True)

    def stop(self):
        for process in (self.edge, self.core):
            process.kill()
            process.wait(10)

    def join(self, token, room="lobby"):
        socket = connect(self.ws)
        assert json.loads(socket.recv(10))["t"] == "hello"
        message = {"t": "join", "room": room, "token": token, "session": "session-0123456789"}
        socket.send(json.dumps(message))
        return socket, json.loads(socket.recv(10))

    def run(self, *command):
        told = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=self.folder)
        assert told.returncode == 0, told.stderr
        return told.stdout.strip()


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    running = Stage(tmp_path_factory.mktemp("tokens"))
    yield running
    running.stop()


def opens_the_lobby_and_nothing_else(stage, token):
    socket, answer = stage.join(token)
    assert answer["t"] == "joined", answer
    socket.close()
    socket, answer = stage.join(token, "vault")
    assert (answer["t"], answer["code"]) == ("error", "forbidden")
    socket.close()


def test_the_example_in_python_signs_tokens_that_are_taken(stage):
    opens_the_lobby_and_nothing_else(stage, stage.run(sys.executable, "-c", example("python")))


def test_the_example_in_node_signs_tokens_that_are_taken(stage):
    (stage.folder / "token.mjs").write_text(example("js"))
    opens_the_lobby_and_nothing_else(stage, stage.run("node", "token.mjs"))


def test_the_example_in_go_signs_tokens_that_are_taken(stage):
    if shutil.which("go") is None:
        pytest.skip("NOT CHECKED: Go is not at hand, so the example in Go of docs/tokens.md was not run")
    (stage.folder / "main.go").write_text(GO_MAIN.format(example("go")))
    (stage.folder / "go.mod").write_text(GO_MOD)
    stage.run("go", "mod", "tidy")
    kid = json.loads((stage.keys / "jwks.json").read_text())["keys"][0]["kid"]
    opens_the_lobby_and_nothing_else(stage, stage.run("go", "run", ".", kid))


def test_a_token_is_taken_back_by_its_id(stage):
    signed = stage.presence("token", "--key", str(stage.keys / "key.pem"), "--user", "u2", "--room", "lobby", "--id", "t-1")
    socket, answer = stage.join(signed.stdout.strip())
    assert answer["t"] == "joined", answer
    told = stage.presence("revoke", "token", "t-1", "--for", "1h", "--core", f"http://{stage.grpc}")
    assert told.returncode == 0, told.stderr
    assert re.fullmatch(r"token t-1: revoked until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", told.stdout), told.stdout
    frames = []
    try:
        while True:
            frames.append(json.loads(socket.recv(10)))
    except Exception:  # The end of the connection, whatever it is called.
        pass
    assert frames[-1] == {"t": "ended", "room": "lobby", "reason": "token_revoked"}
    assert socket.close_code == 4410
    _, answer = stage.join(signed.stdout.strip())
    assert (answer["t"], answer["code"]) == ("error", "unauthorized")


@contextlib.contextmanager
def keys_at_an_address(folder, identity=None):
    """Serves a folder, by TLS if there is a certificate; gives the address."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*identity)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http{'' if identity is None else 's'}://127.0.0.1:{server.server_port}/jwks.json"
        server.shutdown()


@contextlib.contextmanager
def edge_with_keys(stage, url, *more):
    """An edge that fetches its keys; gives where it accepts."""
    arguments = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--core", f"http://{stage.grpc}"]
    edge = stage.start("presence-edge", *arguments, "--jwks", url, "--json", "--log", "info", *more)
    try:
        yield json.loads(edge.stdout.readline())["ws"]
    finally:
        edge.kill()
        edge.wait(10)


def joins_with(ws, stage, user, key, act="join"):
    arguments = ["--key", str(key), "--user", user, "--room", "lobby", "--act", act]
    signed = stage.presence("token", *arguments).stdout.strip()
    with connect(ws) as socket:
        socket.recv(10)
        message = {"t": act, "room": "lobby", "token": signed}
        if act == "join":
            message["session"] = f"session-of-{user:0>12}"
        socket.send(json.dumps(message))
        return json.loads(socket.recv(10))


def test_keys_are_fetched_from_an_address(stage):
    with keys_at_an_address(stage.keys) as url, edge_with_keys(stage, url) as ws:
        assert joins_with(ws, stage, "u3", stage.keys / "key.pem")["t"] == "joined"


def test_keys_are_fetched_by_tls_from_whom_an_authority_vouches_for(stage, tmp_path):
    authority = Authority(tmp_path, "authority")
    identity = authority.sign("keys.example")
    served = tmp_path / "served"
    assert stage.presence("keys", str(tmp_path / "new")).returncode == 0
    shutil.copytree(stage.keys, served)
    with (
        keys_at_an_address(served, identity) as url,
        edge_with_keys(stage, url, "--jwks-ca", str(authority.pem)) as ws,
    ):
        assert joins_with(ws, stage, "u4", stage.keys / "key.pem")["t"] == "joined"
        new = tmp_path / "new" / "key.pem"
        assert joins_with(ws, stage, "u5", new, "watch")["code"] == "unauthorized"
        both = [json.loads((folder / "jwks.json").read_text())["keys"] for folder in (stage.keys, tmp_path / "new")]
        (served / "jwks.json").write_text(json.dumps({"keys": sum(both, [])}))
        # A token of an unknown key has the set fetched, at most every five seconds. To watch is the edge's own affair:
        # its core does not know that key.
        until = time.monotonic() + 20
        while joins_with(ws, stage, "u5", new, "watch")["t"] == "error":
            assert time.monotonic() < until, "the new key is not fetched"
            time.sleep(0.2)


def test_keys_of_whom_nobody_vouches_for_are_not_taken(stage, tmp_path):
    identity = Authority(tmp_path, "stranger").sign("keys.example")
    other = Authority(tmp_path, "authority")
    with keys_at_an_address(stage.keys, identity) as url:
        told = subprocess.run(
            [
                binary().with_name("presence-edge"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
                "--core", f"http://{stage.grpc}", "--jwks", url, "--jwks-ca", str(other.pem),
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )  # fmt: skip
    assert told.returncode not in (0, 101) and url in told.stderr and "panicked" not in told.stderr, told


@pytest.mark.parametrize("program", ["presence-core", "presence-edge"])
def test_keys_are_not_fetched_where_others_could_give_out_their_own(program):
    told = subprocess.run(
        [binary().with_name(program), "--check", "--jwks", "http://id.example/jwks.json"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert told.returncode == 64 and "https" in told.stderr and "--insecure" in told.stderr, told


@pytest.mark.parametrize(
    "wrong",
    [["user", "u1"], ["user", "u1", "--for", "0s"], ["key", "k", "--for", "11y"], ["token", "", "--for", "1h"], ["sessions"]],
)
def test_what_is_asked_for_wrongly_is_told_and_changes_nothing(stage, wrong):
    told = stage.presence("revoke", *wrong, "--core", f"http://{stage.grpc}")
    assert told.returncode == 64 and told.stderr, told
