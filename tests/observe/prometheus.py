"""promtool of Prometheus, and the rules, dashboards and documents that it judges."""

import json
import os
import pathlib
import re
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "helm" / "presence" / "files" / "rules" / "presence.yaml"
DASHBOARD = ROOT / "helm" / "presence" / "files" / "dashboards" / "presence.json"
RUNBOOKS = ROOT / "docs" / "runbooks"
METRIC = re.compile(r"\bpresence_(?:core|edge|tls)_[a-z_]+[a-z]\b")


def promtool(*arguments, text=None):
    program = os.environ.get("PRESENCE_PROMTOOL")
    assert program, "PRESENCE_PROMTOOL is not set: run tests/run helm, or source tests/setup/lib.sh and ensure_prometheus"
    return subprocess.run([program, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=120)


def alerts():
    """All rules by name."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def panels():
    """Titles of the dashboard's panels with their queries."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield panel["title"], [target["expr"] for target in panel.get("targets", [])]


def without_suffix(name):
    """The name under which a histogram tells what it is."""
    return re.sub(r"_seconds_(bucket|sum|count)$", "_seconds", name)


def metrics_in(text):
    return {without_suffix(name) for name in METRIC.findall(text)}
