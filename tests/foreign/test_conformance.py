"""Conformance with RFC 6455: the cases of Autobahn, run by kosoku against an echo on the edge's own WebSocket stack."""

import asyncio
import os
import pathlib
import re
import subprocess

import kosoku
import pytest
from conftest import ROOT

DOCUMENT = ROOT / "docs" / "conformance.md"


@pytest.fixture
def echo():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = target / "release" / "echo"
    assert path.exists(), f"{path} is not built: cargo build --release --workspace"
    process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield f"{process.stdout.readline().strip()}/v1/ws"
    process.stdin.close()
    process.wait(10)


def explained():
    """What the document says of cases that are not simply passed: patterns, verdict and reason."""
    rows = re.findall(r"^\| `([0-9.*]+)` \| (\w+(?:-\w+)?) \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert rows, "the document lists them"
    return {pattern: verdict for pattern, verdict, _ in rows}


def row_of(case, rows):
    fits = [pattern for pattern in rows if re.fullmatch(pattern.replace(".", r"\.").replace("*", ".*"), case)]
    return max(fits, key=len, default=None)


def test_no_case_fails_and_each_other_result_is_explained(echo):
    async def run():
        try:
            return await kosoku.run_fuzzingclient(echo, concurrency=4)
        except kosoku.FailureError as failure:
            return failure.results

    results = asyncio.run(run())
    assert len(results) > 500, "the whole suite ran"
    passing = {"OK", "NON-STRICT", "INFORMATIONAL"}
    rows, used, wrong = explained(), set(), []
    for result in results:
        verdicts = {result.behavior.value, result.behavior_close.value} - {"OK"}
        row = row_of(result.case_id, rows)
        if not verdicts:
            continue
        if row is not None and verdicts == {rows[row]} and (verdicts <= passing or rows[row] == "UNIMPLEMENTED"):
            used.add(row)
        else:
            wrong.append(f"{result.case_id}: {verdicts}: {result.result} {result.result_close}")
    assert not wrong, "\n".join(wrong)
    assert used == set(rows), f"no longer so: {set(rows) - used}"
