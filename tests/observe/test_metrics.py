"""What running processes tell, and what rules, dashboard and documents say that they do."""

import asyncio
import json
import re

import pytest
import yaml
from prometheus import DASHBOARD, ROOT, RULES, alerts, metrics_in, panels, promtool, without_suffix

CROWD = 200
TABLE_ROW = re.compile(r"(?m)^\| `(presence_[a-z_]+)` \| (counter|gauge|histogram) \| (.*?) \| \S")
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "helm").rglob("*.md")]
# Told only by processes with TLS, where tests of TLS look at it.
WITH_TLS = {"presence_tls_certificate_ends_seconds"}


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
    table = TABLE_ROW.findall((ROOT / "docs" / "metrics.md").read_text())
    rows = {name: (kind, set(re.findall(r"`([a-z_]+)`:", labels))) for name, kind, labels in table}
    assert len(rows) == len(table)
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
