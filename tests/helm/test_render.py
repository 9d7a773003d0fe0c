"""Both Helms render every file of values, to what Kubernetes and the operators take."""

import json
import os
import pathlib
import re
import subprocess

import kubernetes_validate
import pytest
import yaml
from chart import (
    CHART,
    NAMESPACE,
    RELEASE,
    VALUES,
    config_of,
    deployments,
    helm,
    objects_of,
    one,
    pods_of,
    rendered,
    template,
    values_named,
)

# The oldest that the chart is for, and the newest whose schemas there are.
KUBERNETES = ["1.30", kubernetes_validate.latest_version()]
OTHERS = {"monitoring.coreos.com/v1", "cert-manager.io/v1", "gateway.networking.k8s.io/v1"}


def test_lint_is_strict_and_silent(values, version):
    done = helm("lint", "--strict", CHART, version=version, values=values.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout and "ERROR" not in done.stdout, done.stdout


@pytest.mark.parametrize(("kubernetes", "is_taken"), [("1.29.9", False), ("1.30.0", True), ("1.37.1-gke.1", True)])
def test_it_is_for_kubernetes_from_the_first_that_has_what_it_uses(version, kubernetes, is_taken):
    values = values_named("minimal").read_text()
    done = helm("template", RELEASE, CHART, "--kube-version", kubernetes, version=version, values=values)
    assert (done.returncode == 0) == is_taken
    assert is_taken or "incompatible with Kubernetes" in done.stderr


def test_there_are_enough_files_of_values():
    assert len(VALUES) >= 10


def test_both_helms_render_the_same(values):
    assert rendered(values, "helm 3") == rendered(values, "helm 4")


def test_a_second_render_is_the_same_byte_by_byte(values, version):
    first, second = (template(values.read_text(), version) for _ in range(2))
    assert first.stdout and first.stdout == second.stdout


def test_the_notes_say_where_clients_and_services_connect(values):
    # Helm 3 asks a cluster before it shows them.
    done = helm("install", RELEASE, CHART, "--dry-run=client", "--namespace", NAMESPACE, values=values.read_text())
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("\nNOTES:\n")[2]
    kinds = {
        each["metadata"]["labels"]["app.kubernetes.io/component"] for each in rendered(values) if each["kind"] == "Deployment"
    }
    assert re.search(r"Clients:\n  wss?://[a-z0-9.-]+(:\d+)?/v1/ws\n", notes) if "edge" in kinds else "Clients:" not in notes, (
        notes
    )
    assert re.search(r"Services:\n  https?://[a-z0-9.-]+:4701\n", notes) if "core" in kinds else "Services:" not in notes, notes
    assert ("trust anybody" in notes) == (
        "core" in kinds and "insecure = true" in one(rendered(values), "ConfigMap", "-core")["data"]["core.toml"]
    )


def test_the_notes_say_which_regions_cores_keep_and_watch():
    def notes(name):
        values = values_named(name).read_text()
        return helm("install", RELEASE, CHART, "--dry-run=client", "--namespace", NAMESPACE, values=values).stdout

    assert "They keep the rosters of eu-west, us-east." in notes("central-cores")
    told = "They watch eu-east at https://core.eu-east.example:4701, whose cores have to name eu-west as well."
    assert told in notes("two-region-west")


@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_kubernetes_takes_it(objects, kubernetes):
    for each in objects:
        if each["apiVersion"] not in OTHERS:
            kubernetes_validate.validate(each, kubernetes, strict=True)


@pytest.mark.parametrize("name", ["no", "on", "off", "null", "true"])
def test_names_that_yaml_reads_as_something_else_stay_names(version, name):
    values = f"{values_named('autoscaled').read_text()}\nserviceAccount: {{ name: '{name}' }}\n"
    done = helm("template", name, CHART, "--namespace", NAMESPACE, version=version, values=values)
    assert done.returncode == 0, done.stderr
    objects = objects_of(done.stdout)
    for each in objects:
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == name
        if each["apiVersion"] not in OTHERS:
            kubernetes_validate.validate(each, KUBERNETES[0], strict=True)
    for pod in pods_of(objects).values():
        assert pod["spec"]["serviceAccountName"] == name
        assert pod["metadata"]["labels"]["app.kubernetes.io/instance"] == name


@pytest.mark.parametrize("text", ["1234", "yes", "x # y", "x, optional: true", "a: b", 'quo"te', "{{ x }}"])
def test_strings_stay_the_strings_they_are(text):
    minimal = yaml.safe_load(values_named("minimal").read_text())
    values = {**minimal, "jwks": {"existingSecret": text}, "imagePullSecrets": [text], "nameOverride": "presence"}
    values["core"] = {**minimal["core"], "config": {"class": {text: {"grace": "1s"}}}}
    values["edge"] = {**minimal["edge"], "service": {"type": "LoadBalancer", "loadBalancerClass": text}}
    done = template(json.dumps(values))
    assert done.returncode == 0, done.stderr
    objects = objects_of(done.stdout)
    for deployment in deployments(objects):
        pod = deployment["spec"]["template"]["spec"]
        (secret,) = [each["secret"] for each in pod["volumes"] if each["name"] == "jwks"]
        assert secret == {"secretName": text, "defaultMode": 0o440}
        assert pod["imagePullSecrets"] == [{"name": text}]
    assert one(objects, "Service", "-edge")["spec"]["loadBalancerClass"] == text
    assert config_of(objects, "core")["class"] == {text: {"grace": "1s"}}


def test_the_schemas_of_kubernetes_find_what_is_wrong():
    deployment = one(rendered(values_named("minimal")), "Deployment", "-edge")
    wrong = json.loads(json.dumps(deployment))
    wrong["spec"]["template"]["spec"]["topologySpreadConstraint"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[0], strict=True)


def mistakes_of(objects):
    script = pathlib.Path(__file__).with_name("crds.mjs")
    done = subprocess.run(["node", script], input=json.dumps(objects), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_operators_take_it():
    theirs = [each for path in VALUES for each in rendered(path) if each["apiVersion"] in OTHERS]
    kinds = {each["kind"] for each in theirs}
    assert kinds == {"ServiceMonitor", "PrometheusRule", "Certificate", "HTTPRoute", "TLSRoute"}, "each kind is in some file of values"
    assert mistakes_of(theirs) == []


def test_the_schemas_of_operators_find_what_is_wrong():
    route = one(rendered(values_named("gateway")), "HTTPRoute")
    wrong = json.loads(json.dumps(route))
    wrong["spec"]["rules"][0]["timeouts"]["request"] = "soon"
    assert any("timeouts/request" in line for line in mistakes_of([wrong]))


def unknown_fields_of(objects, folder):
    """What a compiler says of them as literals of their types, which their schemas take as it comes."""
    modules = {
        "monitoring.coreos.com/v1": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1",
        "cert-manager.io/v1": "@kubernetes-models/cert-manager/cert-manager.io/v1",
        "gateway.networking.k8s.io/v1": "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1",
    }
    lines = [
        f'export const of{number}: import("{modules[each["apiVersion"]]}").I{each["kind"]} = {json.dumps(each)};'
        for number, each in enumerate(objects)
    ]
    (folder / "objects.ts").write_text("\n".join(lines))
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node_modules").symlink_to(os.environ["PRESENCE_NODE_MODULES"])
    compiler = [folder / "node_modules" / ".bin" / "tsc", "--strict", "--noEmit", "--skipLibCheck", "--module", "nodenext"]
    done = subprocess.run([*compiler, folder / "objects.ts"], capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines()


def test_operators_know_every_field(tmp_path):
    theirs = [each for path in VALUES for each in rendered(path) if each["apiVersion"] in OTHERS]
    assert unknown_fields_of(theirs, tmp_path) == []


def test_a_field_that_operators_do_not_know_is_found(tmp_path):
    monitor = one(rendered(values_named("autoscaled")), "ServiceMonitor")
    (told, *_) = unknown_fields_of([{**monitor, "spec": {**monitor["spec"], "endpoint": []}}], tmp_path)
    assert "endpoint" in told


def test_every_value_is_in_the_schema_and_nothing_else_is():
    def holds(values, schema, path=""):
        if schema.get("properties") is None or not isinstance(values, dict):
            return
        assert schema["additionalProperties"] is False, f"{path} takes what it does not know"
        assert values.keys() == schema["properties"].keys(), path
        for key, value in values.items():
            holds(value, schema["properties"][key], f"{path}.{key}")

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    for component in "core", "edge":
        # Kubernetes' own; what it may hold depends on the cluster.
        schema["properties"][component]["properties"]["resources"].pop("properties")
    holds(values, schema)


def test_the_readme_tells_every_value(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text((CHART / "README.md").read_text())
    generator = pathlib.Path(os.environ["PRESENCE_NODE_MODULES"]) / ".bin" / "readme-generator"
    done = subprocess.run(
        [generator, "--values", CHART / "values.yaml", "--readme", readme], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    again = f"readme-generator --values {CHART}/values.yaml --readme {CHART}/README.md"
    assert readme.read_text() == (CHART / "README.md").read_text(), f"make it anew: {again}"


def test_the_versions_are_those_of_the_binaries():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    cargo = (CHART.parents[1] / "Cargo.toml").read_text()
    assert f'version = "{chart["appVersion"]}"' in cargo


def test_the_rules_and_the_dashboard_that_are_tried_are_those_that_are_rendered():
    objects = rendered(values_named("autoscaled"))
    files = CHART / "files"
    assert one(objects, "PrometheusRule")["spec"] == yaml.safe_load((files / "rules" / "presence.yaml").read_text())
    (board,) = one(objects, "ConfigMap", "-dashboard-presence")["data"].values()
    assert board == (files / "dashboards" / "presence.json").read_text()


def test_rules_and_dashboards_are_handed_over_as_they_are(tmp_path, version):
    chart = tmp_path / "presence"
    subprocess.run(["cp", "-r", CHART, chart], check=True)
    rules = {
        "groups": [{"name": "presence", "rules": [{"alert": "Gone", "expr": "up == 0", "annotations": {"text": "{{ $value }}"}}]}]
    }
    dashboard = '{"title": "Presence", "panels": [{"title": "{{instance}}"}]}\n'
    for folder, name, text in [("rules", "played.yaml", yaml.safe_dump(rules)), ("dashboards", "played.json", dashboard)]:
        (chart / "files" / folder).mkdir(exist_ok=True)
        (chart / "files" / folder / name).write_text(text)
    values = (
        values_named("minimal").read_text()
        + "metrics: {prometheusRule: {enabled: true, labels: {a: b}}, dashboards: {enabled: true}}"
    )
    done = template(values, version, chart)
    assert done.returncode == 0, done.stderr
    objects = objects_of(done.stdout)
    rule, board = one(objects, "PrometheusRule", "-played"), one(objects, "ConfigMap", "-dashboard-played")
    assert rule["spec"] == rules and rule["metadata"]["labels"]["a"] == "b"
    assert board["data"] == {"played.json": dashboard} and board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert mistakes_of([rule]) == []
