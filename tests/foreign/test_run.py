"""What `tests/run` says to a person who got something wrong: at once, and before anything is built."""

import os
import subprocess

import pytest
from conftest import ROOT

BEGAN = 99


@pytest.fixture
def run(tmp_path):
    """Runs it with a cargo that only says that it was asked to build."""
    cargo = tmp_path / "cargo"
    cargo.write_text(f"#!/bin/sh\nexit {BEGAN}\n")
    cargo.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PRESENCE_TEST_CACHE": str(tmp_path / "cache")}

    def run(*arguments):
        command = [ROOT / "tests" / "run", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment)

    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sim", "--seeds", "0"], "from 1 to 1000000"), (["sim", "--seeds", "1000001"], "from 1 to 1000000"),
        (["sim", "--seed", "18446744073709551616"], "from 0 to 18446744073709551615"),
        (["sim", "--seed", "99999999999999999999"], "from 0 to 18446744073709551615"),
        (["sim", "--seed", "-1"], "not '-1'"), (["sim", "--seed", "one"], "not 'one'"), (["sim", "--seed"], "not ''"),
        (["sim", "--seed", "1", "--seeds", "2"], "one of --seed, --seeds and --mutants"),
        (["sim", "--mutants", "--seed", "1"], "one of --seed, --seeds and --mutants"),
        (["long", "quick"], "long takes nothing else"), (["quick", "sim"], "quick takes nothing else"),
        (["whole", "--seeds", "0"], "from 1 to 1000000"), (["whole", "--mutants"], "--mutants are those of sim"),
        (["model", "nope"], "no tier 'nope'"),
    ],
)  # fmt: skip
def test_wrong_arguments_end_with_64_and_a_sentence_before_anything_is_built(run, arguments, said):
    told = run(*arguments)
    assert (told.returncode, told.stdout) == (64, ""), told
    assert said in told.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "tiers"),
    [
        (["sim", "--seeds", "1"], "sim"), (["sim", "--seeds", "1000000"], "sim"), (["sim", "--seed", "0"], "sim"),
        (["sim", "--mutants"], "sim"), (["whole", "--seed", "7"], "whole"),
        (["sim", "--seed", "18446744073709551615"], "sim"), (["model", "sim"], "model sim"),
        (["long"], "model conformance topologies sim whole system foreign helm browser"),
    ],
)  # fmt: skip
def test_the_first_line_says_what_is_needed_and_what_runs(run, arguments, tiers):
    told = run(*arguments)
    first = "tests/run: installs missing Debian packages, for which it needs root or sudo; runs: "
    assert (told.returncode, told.stdout.splitlines()[0]) == (BEGAN, first + tiers), told


@pytest.mark.parametrize(
    ("written", "secrets", "code"),
    [
        ("all is well", "", 0), ("all is well", "a-secret-of-the-tests", 0), (None, "", 1), ("", "", 1),
        ("token=a-secret-of-the-tests", "a-secret-of-the-tests\nanother-of-them", 1),
        ("eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ1MSJ9.c2lnbmF0dXJl", "", 1), ("-----BEGIN PRIVATE KEY-----", "", 1),
        ('state={"note":"secret-state"}', "", 1), ("eyJ is no token, and neither is eyJ.x", "", 0),
    ],
)  # fmt: skip
def test_secrets_in_what_processes_wrote_are_found(tmp_path, written, secrets, code):
    for folder in ["written", "secrets"]:
        (tmp_path / folder).mkdir()
    if written is not None:
        (tmp_path / "written" / "presence-core-1").write_text(written)
    (tmp_path / "secrets" / "1").write_text(secrets)
    told = subprocess.run([ROOT / "tests" / "setup" / "leaks", tmp_path], capture_output=True, text=True, timeout=20)
    assert told.returncode == code, told
    assert "a-secret" not in told.stdout + told.stderr, "whatever is found is not written once more"
