"""What the commands say to a person who got something wrong, and when they end."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from conftest import Dev, binary
from websockets.sync.client import connect


def presence(*arguments, program="presence"):
    path = binary().with_name(program)
    return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=30, env={"PATH": os.environ["PATH"]})


@pytest.mark.parametrize("command", [["room", "r"], ["watch", "r"], ["explain", "r", "u"], ["drain", "e"]])
def test_who_asks_a_port_that_is_no_core_is_told_so(dev, command):
    address = dev.http.removeprefix("http://")
    told = presence(*command, "--core", f"http://{address}")
    assert told.returncode == 75
    assert f"no presence core answers at http://{address}" in told.stderr and "gRPC" in told.stderr


def test_the_example_for_a_core_is_its_grpc_port():
    told = presence("watch", "r", "--core", "127.0.0.1:4701")
    assert "such as http://127.0.0.1:4701" in told.stderr


def test_the_help_of_dev_tells_its_own_timers():
    told = presence("dev", "--help").stdout
    assert "(3s)" in told and "(12s)" in told and "(15s)" not in told


@pytest.mark.parametrize("origin", ["foo", "https://app.example/", "https://app.example:443"])
def test_an_origin_that_no_page_has_is_a_mistake(origin, tmp_path):
    assert presence("keys", str(tmp_path)).returncode == 0
    keys = ["--jwks", str(tmp_path / "jwks.json"), "--check"]
    told = presence("--origins", origin, *keys, program="presence-edge")
    assert told.returncode == 64 and origin in told.stderr, told
    told = presence("--origins", "https://app.example,*", *keys, program="presence-edge")
    assert told.returncode == 0, told


@pytest.mark.parametrize("program", ["presence-edge", "presence-core"])
def test_a_check_answers_and_says_nothing_else(program, tmp_path):
    presence("keys", str(tmp_path))
    told = presence("--check", "--jwks", str(tmp_path / "jwks.json"), program=program)
    assert (told.returncode, told.stdout, told.stderr) == (0, "the configuration is good\n", "")


def test_an_edge_without_a_core_warns(tmp_path):
    presence("keys", str(tmp_path))
    # Port 9 is discard: nobody listens there.
    command = [
        binary().with_name("presence-edge"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
        "--core", "http://127.0.0.1:9", "--jwks", str(tmp_path / "jwks.json"),
    ]  # fmt: skip
    edge = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        lines = (line for line in edge.stderr if "127.0.0.1:9" in line)
        assert " WARN " in next(lines)
    finally:
        edge.kill()
        edge.wait(10)
        edge.stderr.close()


def test_dev_says_that_it_stops_and_that_it_has():
    dev = Dev(stderr=subprocess.PIPE)
    dev.process.send_signal(signal.SIGINT)
    _, said = dev.process.communicate(timeout=20)
    assert dev.process.returncode == 0
    assert [line.split(":")[1].strip() for line in said.splitlines()] == ["stopping", "stopped"]


def test_a_token_of_a_blank_user_is_not_signed(tmp_path):
    presence("keys", str(tmp_path))
    told = presence("token", "--key", str(tmp_path / "key.pem"), "--user", " ", "--room", "r")
    assert told.returncode == 64 and told.stdout == "" and "can be seen" in told.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["watch", " "], ["room", "x" * 256], ["explain", "r", ""], ["watch", "r", "--core", "nonsense"],
        ["room", "r", "--core", "127.0.0.1:4701"], ["room", "r", "--core", "http://127.0.0.1:4701/path?x"],
        ["token", "--ttl", "60"], ["token", "--ttl", "0s"], ["token", "--ttl", "18446744073709551615s"],
        ["token", "--ttl", "3650d 1ms"], ["token", "--key", "/nowhere/key.pem"],
    ],
)  # fmt: skip
def test_wrong_input_ends_with_64_and_one_line(command, tmp_path):
    if command[0] == "token":
        presence("keys", str(tmp_path))
        key = [] if "--key" in command else ["--key", str(tmp_path / "key.pem")]
        command = [*command, *key, "--user", "u", "--room", "r"]
    told = presence(*command)
    assert (told.returncode, told.stdout, len(told.stderr.splitlines())) == (64, "", 1), told


@pytest.mark.parametrize("ttl", ["1ms", "3650d"])
def test_a_token_is_good_for_a_while_and_for_at_most_ten_years(ttl, tmp_path):
    presence("keys", str(tmp_path))
    told = presence("token", "--key", str(tmp_path / "key.pem"), "--user", "u", "--room", "r", "--ttl", ttl)
    assert told.returncode == 0 and told.stdout.count(".") == 2, told


def flags_of(program, *command):
    """Every flag with a value, as the help of a command tells them."""
    told = presence(*command, "--help", program=program).stdout
    return re.findall(r"^\s+(--[a-z-]+)[= ][<\[]", told, re.MULTILINE)


ABSURD = [
    "", " ", "0", "-1", "0s", "1ns", "18446744073709551615", "18446744073709551616", "18446744073709551615s",
    "584942417355years", "99999999999999999999999999s", "1e308", "NaN", "http://a:99999", "[::]:65536", "\u202e\x1b[2J", "x" * 70_000,
]  # fmt: skip
COMMANDS = [
    ("presence-core", [], ["--check"]),
    ("presence-edge", [], ["--check"]),
    # Refused in any case: it would run until it is told to end.
    ("presence", ["dev"], ["--grpc", "nowhere"]),
    ("presence", ["token"], ["--user", "u", "--room", "r"]),
    ("presence", ["room", "r"], ["--core", "http://127.0.0.1:9"]),
]


@pytest.mark.parametrize(("program", "command", "more"), COMMANDS)
def test_no_value_of_a_flag_is_more_than_a_mistake(program, command, more, tmp_path):
    presence("keys", str(tmp_path))
    keys = {"presence": ["--key", str(tmp_path / "key.pem")] if "token" in command else []}
    more = [*more, *keys.get(program, ["--jwks", str(tmp_path / "jwks.json")])]
    flags = flags_of(program, *command)
    assert flags
    for flag in flags:
        others = [part for at, part in enumerate(more) if flag not in (part, more[max(at - 1, 0)])]
        guard = ["--listen", "nowhere"] if (command, flag) == (["dev"], "--grpc") else []
        for value in ABSURD:
            told = presence(*command, f"{flag}={value}", *others, *guard, program=program)
            assert told.returncode in (0, 64, 75), (flag, value[:80], told.returncode, told.stderr[-400:])
            assert "panicked" not in told.stderr and "\x1b" not in told.stderr, (flag, value[:80])


@pytest.mark.parametrize("program", ["presence", "presence-core", "presence-edge"])
def test_every_help_tells_the_exit_codes(program):
    told = presence("--help", program=program).stdout
    assert re.findall(r"^ +(\d+)  ", told[told.index("Exit codes:") :], re.MULTILINE) == ["0", "1", "64", "70", "75"]


@pytest.mark.parametrize("taken", ["listen", "grpc", "admin"])
def test_a_port_in_use_is_75_for_each_of_them(dev, taken, tmp_path):
    presence("keys", str(tmp_path))
    jwks, free = ["--jwks", str(tmp_path / "jwks.json")], "127.0.0.1:0"
    own = {"presence": ["listen", "grpc", "admin"], "presence-core": ["grpc", "admin"], "presence-edge": ["listen", "admin"]}
    for program, listeners in own.items():
        if taken not in listeners:
            continue
        where = [part for name in listeners for part in (f"--{name}", dev.addresses["grpc"] if name == taken else free)]
        told = presence(*(["dev"] if program == "presence" else jwks), *where, program=program)
        assert told.returncode == 75 and dev.addresses["grpc"] in told.stderr, (program, told)


def test_two_listeners_at_one_address_are_a_mistake(tmp_path):
    presence("keys", str(tmp_path))
    same = ["--admin", "127.0.0.1:4711", "--check", "--jwks", str(tmp_path / "jwks.json")]
    for program, flag in [("presence-edge", "--listen"), ("presence-core", "--grpc")]:
        told = presence(flag, "127.0.0.1:4711", *same, program=program)
        assert told.returncode == 64 and told.stderr.count("\n") == 1 and "listens there as well" in told.stderr


def test_a_directory_that_cannot_be_made_is_told_once():
    told = presence("keys", "/proc/nope")
    assert told.returncode == 64 and told.stderr.count("No such file") == 1 and "/proc/nope" in told.stderr


def test_the_configuration_that_is_printed_shows_the_store_and_loads_again(tmp_path):
    presence("keys", str(tmp_path))
    keys = ["--jwks", str(tmp_path / "jwks.json")]
    printed = presence("--print-config", *keys, program="presence-core")
    assert printed.returncode == 0 and "memory" in printed.stdout and "hidden" not in printed.stdout
    (tmp_path / "core.toml").write_text(printed.stdout)
    again = presence("--config", str(tmp_path / "core.toml"), "--check", program="presence-core")
    assert again.returncode == 0, again


@pytest.mark.parametrize("program", ["presence-edge", "presence-core"])
def test_port_0_tells_where_the_probes_are(program, tmp_path):
    presence("keys", str(tmp_path))
    own = ["--listen", "127.0.0.1:0", "--core", "http://127.0.0.1:9"] if program == "presence-edge" else ["--grpc", "127.0.0.1:0"]
    command = [binary().with_name(program), *own, "--admin", "127.0.0.1:0", "--jwks", str(tmp_path / "jwks.json")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in process.stderr if " accepts" in line)
        assert re.search(r"admin.*127\.0\.0\.1:[1-9]", line), line
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


def asked(dev, path, method="GET", **headers):
    request = urllib.request.Request(f"{dev.http}{path}", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


@pytest.mark.parametrize(
    ("path", "method"),
    [("/dev/token", "GET"), ("/dev/token?user=u1", "GET"), ("/dev/token?user=a&user=b&room=r", "GET"), ("/dev/token?user=%ff&room=r", "GET"), ("/dev/cut", "POST")],
)
def test_a_missing_parameter_is_told_with_an_example(dev, path, method):
    code, text = asked(dev, path, method)
    assert code == 400 and f"example: {path.split('?')[0]}?" in text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "10.0.0.1"])
def test_no_token_for_a_page_that_renamed_a_loopback_address(dev, host):
    path = "/dev/token?user=u1&room=r"
    assert asked(dev, path, Host=host)[0] == 403
    assert asked(dev, path, Host="localhost:1")[0] == 200


@pytest.mark.parametrize(
    ("span", "code"),
    [("0s", 400), ("0", 400), ("1ms", 404), ("24h", 404), ("24h 1ms", 400), ("18446744073709551615s", 400), ("99999999999999999999s", 400), ("-1s", 400), ("", 400)],
)  # fmt: skip
def test_a_cut_heals_after_a_while_that_can_be_waited_for(dev, span, code):
    query = urllib.parse.urlencode({"connection": "0123456789abcdef", "for": span})
    told, text = asked(dev, f"/dev/cut?{query}", "POST")
    assert told == code and ("24h" in text) == (code == 400), text


def test_dev_ends_well_when_its_terminal_closes():
    # Whoever runs the tests may have been started to outlive a terminal, which is inherited.
    dev = Dev(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    dev.process.send_signal(signal.SIGHUP)
    assert dev.process.wait(20) == 0


def test_dev_started_to_outlive_its_terminal_does_so():
    # As nohup does it.
    dev = Dev(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    dev.process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        dev.process.wait(1)
    assert dev.stop() == 0


TO_END = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def started(*arguments, stdout=subprocess.PIPE):
    # Whoever runs the tests may have been started to outlive a terminal, which is inherited.
    return subprocess.Popen(
        [binary(), *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )  # fmt: skip


@pytest.mark.parametrize("told", TO_END)
def test_a_watch_that_is_told_to_end_ends_well(dev, told):
    watch = started("watch", "told-to-end", "--json", "--core", f"http://{dev.grpc}")
    assert watch.stdout.readline()
    watch.send_signal(told)
    _, said = watch.communicate(timeout=10)
    assert (watch.returncode, said) == (0, "")


def test_a_watch_whose_output_nobody_reads_ends_when_it_is_told(dev):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, b"x")
    os.set_blocking(writing, True)
    watch = started("watch", "unread", "--core", f"http://{dev.grpc}", stdout=writing)
    os.close(writing)
    tasks = pathlib.Path(f"/proc/{watch.pid}/task")
    end = time.monotonic() + 3
    while time.monotonic() < end and not any("pipe" in where.read_text() for where in tasks.glob("*/wchan")):
        time.sleep(0.05)
    watch.send_signal(signal.SIGTERM)
    try:
        assert watch.wait(5) == 0
    finally:
        watch.kill()
        watch.communicate()
        os.close(reading)


@pytest.mark.parametrize("told", TO_END)
def test_a_drain_that_is_told_to_end_does_not_claim_that_the_edge_has_gone(told):
    dev = Dev()
    join = {"t": "join", "room": "r", "token": dev.token("anna", "r"), "session": "0123456789abcdef"}
    with connect(dev.ws) as client:
        client.send(json.dumps(join))
        while json.loads(client.recv(timeout=5))["t"] != "joined":
            pass
        drain = started("drain", "dev", "--core", f"http://{dev.grpc}")
        assert drain.stdout.readline() == "dev: going, 1 session left\n"
        drain.send_signal(told)
        _, said = drain.communicate(timeout=10)
    assert drain.returncode == 75 and "goes on to go" in said, (drain.returncode, said)
    assert dev.process.wait(20) == 0
    dev.process.stdout.close()
