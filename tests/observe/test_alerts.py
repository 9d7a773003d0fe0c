"""Each alert fires, does not fire just below, and each way to break its rule is found by a case."""

import concurrent.futures
import pathlib
import re
import tempfile

import pytest
import yaml
from cases import CASES
from histories import STEP_S
from prometheus import RULES, RUNBOOKS, alerts, promtool

RULE_NAMES = sorted(alerts())
SPAN = re.compile(r"\[(\d+)([smh])\]")
LIMIT = re.compile(r"(?<=[><=] )(\d+(?:\.\d+)?)(?=\s|$)")
FACTOR = re.compile(r"(?m)^\d+(?= \*)")
MATCHER = re.compile(r'[a-z]+(?:=~|!=|=)"[^"]*"')
COMPARED = re.compile(r" ([<>]|==) ")
OPPOSITE = {">": " < ", "<": " > ", "==": " != "}
IN_SECONDS = {"s": 1, "m": 60, "h": 3600}


def fails(rule, cases):
    """What promtool says of a rule against its cases; nothing if all is well."""
    with tempfile.TemporaryDirectory(prefix="presence-alerts-") as name:
        folder = pathlib.Path(name)
        group = {"name": "tried", "rules": [rule]}
        (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}))
        files = [folder / f"{number}.yaml" for number in range(len(cases))]
        for file, case in zip(files, cases, strict=True):
            file.write_text(yaml.safe_dump(played(rule, case)))
        done = promtool("test", "rules", *files)
        return "" if done.returncode == 0 else done.stdout + done.stderr


def played(rule, case):
    """Whether it fires at the end. What has to last is asked of the series that Prometheus keeps of alerts, which takes an
    evaluation a step; anything else fires with its expression."""
    alert = f'ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}}' if "for" in rule else rule["expr"]
    expected = {
        "expr": f"count(\n{alert}\n) or vector(0)",
        "eval_time": f"{round(case.seconds)}s",
        "exp_samples": [{"labels": "{}", "value": int(case.fires)}],
    }
    asked = {
        "name": case.name,
        "interval": f"{STEP_S}s",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "promql_expr_test": [expected],
    }
    every = STEP_S if "for" in rule else round(case.seconds)
    return {"rule_files": ["rules.yaml"], "evaluation_interval": f"{every}s", "tests": [asked]}


def changed(text, pattern, change):
    """The text with one match changed, for each match and each change."""
    for match in pattern.finditer(text):
        for new in change(match):
            yield f"{match.group()} → {new}", text[: match.start()] + new + text[match.end() :]


def other_limit(match):
    limit = float(match.group())
    return [] if limit in (0, 1) else [str(limit * 1.25), str(limit * 0.8)]


def other_span(match):
    seconds = int(match.group(1)) * IN_SECONDS[match.group(2)]
    return [f"[{seconds * 4}s]", f"[{seconds // 4}s]"]


def other_matcher(match):
    name, how = re.match(r"([a-z]+)(=~|!=|=)", match.group()).groups()
    value = match.group().split('"')[1]
    wrong = [f'{name}{how}"nothing"', f'{name}!~""']
    words = value.split("|")
    if len(words) > 1:
        # One word less each.
        wrong += [f'{name}=~"{"|".join(words[:at] + words[at + 1 :])}"' for at in range(len(words))]
    return wrong


def mutants(rule):
    expression = rule["expr"]
    ways = [
        (LIMIT, other_limit),
        (FACTOR, lambda match: ["1"]),
        (SPAN, other_span),
        (MATCHER, other_matcher),
        (COMPARED, lambda match: [OPPOSITE[match.group(1)]]),
        (re.compile(r"(?m)^and$"), lambda match: ["or"]),
        (re.compile(r"(?m)^or$"), lambda match: ["and"]),
    ]
    for pattern, change in ways:
        for what, text in changed(expression, pattern, change):
            yield what, {**rule, "expr": text}
    if "for" in rule:
        seconds = int(rule["for"][:-1]) * IN_SECONDS[rule["for"][-1]]
        yield "at once", {key: value for key, value in rule.items() if key != "for"}
        yield "for twice as long", {**rule, "for": f"{seconds * 2}s"}


def test_rules_are_well_formed():
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_cases_and_its_page():
    assert set(CASES) == set(RULE_NAMES)
    pages = {rule["annotations"]["runbook_url"] for rule in alerts().values()}
    assert pages == {f"docs/runbooks/{page.name}" for page in RUNBOOKS.glob("*.md") if page.name != "README.md"}
    index = (RUNBOOKS / "README.md").read_text()
    for name, rule in alerts().items():
        assert rule["annotations"]["summary"] and rule["annotations"]["description"], name
        assert rule["labels"]["severity"] in ("page", "ticket"), name
        page = RUNBOOKS / pathlib.Path(rule["annotations"]["runbook_url"]).name
        assert page.read_text().startswith(f"# {name}\n"), page
        assert f"[{name}]({page.name})" in index, name


@pytest.mark.parametrize("name", RULE_NAMES)
def test_an_alert_tells_its_cases_apart(name):
    told = fails(alerts()[name], CASES[name])
    assert not told, told


@pytest.mark.parametrize("name", RULE_NAMES)
def test_each_way_to_break_a_rule_is_found(name):
    broken = list(mutants(alerts()[name]))
    assert broken
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda each: fails(each[1], CASES[name]), broken)
        assert [what for (what, _), told in zip(broken, found, strict=True) if not told] == []
