"""Real faults move the metrics that alerts are about, as their expressions expect."""

import subprocess
import time

from region import WITHIN_S

OK = 'presence_core_store_seconds_count{op="turn",outcome="ok"}'
PAGES = "presence_core_audit_pages_total "


def until(holds):
    end = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.1)


def faults(core):
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in core.metrics().splitlines()
        if line.startswith("presence_core_store_seconds_count{") and 'outcome="ok"' not in line
    )


def stand_still(core, series):
    """Whether they are the same after another twenty faults."""
    before, failed = [core.value(each) for each in series], faults(core)
    until(lambda: faults(core) > failed + 20)
    return [core.value(each) for each in series] == before


def test_an_edge_without_a_core_is_not_linked(fragile):
    assert fragile.edge.value("presence_edge_link_up ") == 1
    fragile.core.end()
    until(lambda: fragile.edge.value("presence_edge_link_up ") == 0)


def test_without_a_store_nothing_is_answered_and_nobody_audits(fragile):
    until(lambda: fragile.core.value(PAGES) > 0)
    fragile.store.kill()
    until(lambda: faults(fragile.core) > 20)
    assert stand_still(fragile.core, [PAGES, 'presence_core_store_seconds_count{op="renew",outcome="ok"}', OK])


def test_without_the_right_to_run_scripts_the_auditor_is_silent_and_the_gauge_says_nothing(fragile):
    until(lambda: fragile.core.value(PAGES) > 0)
    rights = ["redis-cli", "-p", str(fragile.redis), "ACL", "SETUSER", "default"]
    subprocess.run([*rights, "-@scripting"], check=True, capture_output=True, timeout=WITHIN_S)
    until(lambda: faults(fragile.core) > 20)
    assert stand_still(fragile.core, [PAGES, OK, "presence_core_oldest_overdue_seconds "])
    subprocess.run([*rights, "+@scripting"], check=True, capture_output=True, timeout=WITHIN_S)
    pages = fragile.core.value(PAGES)
    until(lambda: fragile.core.value(PAGES) > pages)
