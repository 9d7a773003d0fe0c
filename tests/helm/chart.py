"""The chart as Helm renders it, for every file of values in tests/helm/values."""

import functools
import os
import pathlib
import subprocess
import tomllib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "presence"
VALUES = sorted((ROOT / "tests" / "helm" / "values").glob("*.yaml"))
RELEASE, NAMESPACE = "here", "rooms"
HELMS = {"helm 4": "PRESENCE_HELM4", "helm 3": "PRESENCE_HELM3"}


def values_named(name):
    return next(path for path in VALUES if path.stem == name)


def helm(*arguments, version="helm 4", values=None):
    """Runs Helm; `values` is a text of values for its standard input."""
    program = os.environ.get(HELMS[version])
    assert program, f"{HELMS[version]} is not set: run tests/run helm, or source tests/setup/lib.sh and ensure_helm"
    more = [] if values is None else ["--values", "-"]
    command = [program, *map(str, arguments), *more]
    return subprocess.run(command, input=values, capture_output=True, text=True, timeout=60)


def template(values, version="helm 4", chart=CHART):
    """What `helm template` says of a text of values."""
    return helm("template", RELEASE, chart, "--namespace", NAMESPACE, version=version, values=values)


def objects_of(text):
    return [each for each in yaml.safe_load_all(text) if each]


@functools.cache
def rendered(path, version="helm 4"):
    """All objects of a file of values, hooks included."""
    done = template(path.read_text(), version)
    assert done.returncode == 0, done.stderr
    return objects_of(done.stdout)


def one(objects, kind, suffix=""):
    """The one object of a kind whose name ends so."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)]
    return found


def pods_of(objects):
    """Templates of pods by name, those of hooks included, each with its metadata."""
    found = {}
    for each in objects:
        if each["kind"] == "Pod":
            found[each["metadata"]["name"]] = each
        elif "template" in each.get("spec", {}):
            found[each["metadata"]["name"]] = each["spec"]["template"]
    return found


def selects(selector, labels):
    """Whether a selector finds what has these labels."""
    return all(labels.get(key) == value for key, value in selector.items())


def deployments(objects):
    """All of them."""
    return [each for each in objects if each["kind"] == "Deployment"]


def config_of(objects, component):
    """What the binary of a component is told."""
    return tomllib.loads(one(objects, "ConfigMap", f"-{component}")["data"][f"{component}.toml"])


def peers_of(objects):
    """Who may call cores."""
    return tomllib.loads(one(objects, "ConfigMap", "-core")["data"]["peers.toml"])
