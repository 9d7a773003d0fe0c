"""What holds for everything that the chart renders, and no schema says."""

import ipaddress
import math
import re

import pytest
import yaml
from chart import (
    CHART, NAMESPACE, RELEASE, ROOT, config_of, deployments, helm, objects_of, one, peers_of, pods_of, rendered, selects, template,
    values_named,
)  # fmt: skip

# Secrets of operators end in these words; a ConfigMap may name files of such names only.
SECRET = re.compile(r"(?i)(password|secret|token|key)\s*=\s*\"(?!/)")
DRAIN_S = {"core": 20, "edge": 40}
HOOKS = "helm.sh/hook"


def containers(pod):
    return pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


def test_every_pod_is_restricted(objects):
    pods = pods_of(objects)
    assert pods
    for name, pod in pods.items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False, name
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True, name
        # The user of the image, or one that the platform gives.
        assert {security.get(key) for key in ("runAsUser", "runAsGroup", "fsGroup")} in ({65532}, {None}), name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}, name
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True,
                "capabilities": {"drop": ["ALL"]},
            }, name  # fmt: skip
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"], name
        kinds = {kind for volume in spec["volumes"] for kind in volume.keys() - {"name"}}
        assert kinds <= {"configMap", "secret", "emptyDir"}, name


def test_secrets_are_mounted_read_only_and_in_no_text(objects):
    for name, pod in pods_of(objects).items():
        secrets = {volume["name"]: volume["secret"] for volume in pod["spec"]["volumes"] if "secret" in volume}
        for container in containers(pod):
            mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
            assert mounts.keys() == {volume["name"] for volume in pod["spec"]["volumes"]}, name
            for volume, source in secrets.items():
                assert mounts[volume]["readOnly"] is True and source["defaultMode"] == 0o440, name
                # A single file that is mounted by itself is never renewed.
                assert "subPath" not in mounts[volume], name
            said = container["command"] + container.get("args", [])
            assert not any(re.search(r"(?i)password|eyJ", word) for word in said), name
            assert not any("secretKeyRef" in str(variable) for variable in container.get("env", [])), name
    assert not [each for each in objects if each["kind"] == "Secret"], "the chart makes none"
    for each in objects:
        for text in each.get("data", {}).values() if each["kind"] == "ConfigMap" else []:
            assert not SECRET.search(text), each["metadata"]["name"]


def test_every_file_that_a_configuration_names_is_mounted(objects):
    for deployment in deployments(objects):
        component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        at = [mount["mountPath"] for mount in container["volumeMounts"]]
        text = one(objects, "ConfigMap", f"-{component}")["data"][f"{component}.toml"]
        files = re.findall(r'"(/[^"]+)"', text) + [word.split("=")[1] for word in container["args"] if "=/" in word]
        assert files
        for file in files:
            assert file.rsplit("/", 1)[0] in at, file


def test_selectors_find_the_pods_of_one_component_and_no_others(objects):
    pods = {name: pod["metadata"]["labels"] for name, pod in pods_of(objects).items()}
    for deployment in deployments(objects):
        name, spec = deployment["metadata"]["name"], deployment["spec"]
        matched = [other for other, labels in pods.items() if selects(spec["selector"]["matchLabels"], labels)]
        assert matched == [name]
        for spread in spec["template"]["spec"].get("topologySpreadConstraints", []):
            assert spread["labelSelector"] == spec["selector"] and spread["matchLabelKeys"] == ["pod-template-hash"]
    for each in objects:
        component = each["metadata"]["labels"].get("app.kubernetes.io/component")
        selector = {
            "Service": lambda spec: spec["selector"],
            "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
            "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
        }.get(each["kind"])
        if selector:
            matched = {
                labels["app.kubernetes.io/component"] for labels in pods.values() if selects(selector(each["spec"]), labels)
            }
            assert matched == {component}, each["metadata"]["name"]


def test_selectors_stay_as_they_are(objects):
    # A Deployment refuses an upgrade that changes its selector.
    for deployment in deployments(objects):
        assert deployment["spec"]["selector"]["matchLabels"].keys() == {
            f"app.kubernetes.io/{label}" for label in ("name", "instance", "component")
        }


def test_ports_are_those_of_the_configuration(objects):
    for deployment in deployments(objects):
        component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        config = config_of(objects, component)
        main = "grpc" if component == "core" else "listen"
        listens = {
            name: config[key].rsplit(":", 1)
            for name, key in [("grpc" if component == "core" else "ws", main), ("admin", "admin")]
        }
        assert {name: int(port) for name, (_, port) in listens.items()} == ports
        for host, _ in listens.values():
            assert ipaddress.ip_address(host.strip("[]")).is_unspecified
        for probe, path in [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]:
            assert container[probe]["httpGet"] == {"path": path, "port": "admin"}
        # Redis may be away for a while when a core starts, and nobody is to be killed for that.
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 300
        assert all(len(name) <= 15 for name in ports)
        exposed = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("EXPOSE"))
        assert len(set(ports.values())) == len(ports) and {str(port) for port in ports.values()} <= set(exposed.split())


def test_services_lead_to_declared_ports_and_clients_to_no_metrics(objects):
    pods = pods_of(objects)
    for service in (each for each in objects if each["kind"] == "Service"):
        name, spec = service["metadata"]["name"], service["spec"]
        (pod,) = [pod for pod in pods.values() if selects(spec["selector"], pod["metadata"]["labels"])]
        declared = {port["name"] for container in containers(pod) for port in container["ports"]}
        targets = {port["targetPort"] for port in spec["ports"]}
        assert targets <= declared, name
        assert ("admin" in targets) == name.endswith("-metrics"), name
        if name.endswith("-metrics"):
            assert spec["clusterIP"] == "None" and spec["publishNotReadyAddresses"] is True


def test_edges_find_the_cores_of_their_release_by_name(objects):
    if {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in deployments(objects)} != {"core", "edge"}:
        return
    (url,) = config_of(objects, "edge")["core"]
    service = one(objects, "Service", "-core")
    scheme = "https" if "tls" in config_of(objects, "core") else "http"
    assert url == f"{scheme}://{service['metadata']['name']}.{NAMESPACE}.svc:{service['spec']['ports'][0]['port']}"
    assert service["spec"]["clusterIP"] == "None", "the name stands for every core"
    assert ("core_tls" in config_of(objects, "edge")) == (scheme == "https")


def test_the_certificate_of_cores_is_for_the_name_that_edges_connect_to():
    objects = rendered(values_named("certmanager"))
    (url,) = config_of(objects, "edge")["core"]
    server, client = one(objects, "Certificate", "presence-core-tls"), one(objects, "Certificate", "-edge-link-tls")
    assert url.split("://")[1].rsplit(":", 1)[0] in server["spec"]["dnsNames"]
    assert "core.presence.example" in server["spec"]["dnsNames"]
    assert "server auth" in server["spec"]["usages"] and "client auth" in client["spec"]["usages"]
    mounted = {
        volume["secret"]["secretName"]
        for pod in pods_of(objects).values()
        for volume in pod["spec"]["volumes"]
        if "secret" in volume
    }
    assert {server["spec"]["secretName"], client["spec"]["secretName"]} <= mounted


def test_cores_that_ask_for_certificates_know_who_may_call():
    edges = {"certificate": "edge.rooms", "names": ["here-presence-edge-*"], "regions": ["local"]}
    service = {"certificate": "spiffe://example/billing", "scopes": ["presence.read"], "rooms": ["team-a:"]}
    operator = {"certificate": "ops.rooms", "scopes": ["presence.read", "presence.admin"], "rooms": [""]}
    assert peers_of(rendered(values_named("tls"))) == {"edge": [edges], "service": [service, operator]}
    assert peers_of(rendered(values_named("central-cores"))) == {"edge": [
        {"certificate": f"edges.{region}.example", "names": ["here-presence-edge-*"], "regions": [region]}
        for region in ("eu-west", "us-east")
    ]}  # fmt: skip
    by_manager = rendered(values_named("certmanager"))
    (name,) = one(by_manager, "Certificate", "-edge-link-tls")["spec"]["dnsNames"]
    assert peers_of(by_manager)["edge"] == [{**edges, "certificate": name}]
    # Edges of equal names in two clusters are told apart by what their certificates are for.
    values = yaml.safe_load(values_named("certmanager").read_text())
    values.setdefault("edge", {}).setdefault("coreTls", {})["certificateName"] = "edges.eu-west.example"
    done = template(yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    named = objects_of(done.stdout)
    assert one(named, "Certificate", "-edge-link-tls")["spec"]["dnsNames"] == ["edges.eu-west.example"]
    assert peers_of(named)["edge"][0]["certificate"] == "edges.eu-west.example"


def test_who_may_call_is_in_force_exactly_where_certificates_are_asked_for(objects):
    for deployment in deployments(objects):
        if deployment["metadata"]["name"].endswith("-core"):
            config = config_of(objects, "core")
            assert ("peers" in config) == ("client_ca_file" in config.get("tls", {}))
            assert ("peers.toml" in one(objects, "ConfigMap", "-core")["data"]) == ("peers" in config)


def test_a_change_of_peers_makes_no_pod_anew():
    values = values_named("tls").read_text()
    before, after = (objects_of(template(text).stdout) for text in (values, values.replace("team-a:", "team-b:")))
    assert peers_of(before) != peers_of(after) and deployments(before) == deployments(after)


def test_policies_admit_the_declared_ports_and_nothing_else(objects):
    pods = pods_of(objects)
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    assert len(policies) == len(deployments(objects))
    for policy in policies:
        spec = policy["spec"]
        assert "Ingress" in spec["policyTypes"]
        (pod,) = [pod for pod in pods.values() if selects(spec["podSelector"]["matchLabels"], pod["metadata"]["labels"])]
        (container,) = containers(pod)
        admitted = [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
        assert sorted(admitted) == sorted(port["name"] for port in container["ports"]), "each port by one rule"
        for rule in spec["ingress"]:
            if rule["ports"][0]["port"] == "admin":
                assert rule["from"], "metrics are for scrapers, and not for the world"


def test_policies_let_edges_reach_cores_and_the_scraper_metrics():
    objects = rendered(values_named("autoscaled"))
    core = one(objects, "NetworkPolicy", "-core")
    edges = pods_of(objects)[f"{RELEASE}-presence-edge"]["metadata"]["labels"]
    rules = {rule["ports"][0]["port"]: rule for rule in core["spec"]["ingress"]}
    assert any(selects(peer["podSelector"]["matchLabels"], edges) for peer in rules["grpc"]["from"])
    assert rules["admin"]["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert (
        "from" not in {rule["ports"][0]["port"]: rule for rule in one(objects, "NetworkPolicy", "-edge")["spec"]["ingress"]}["ws"]
    )


def test_policies_let_the_test_of_a_release_in():
    objects = rendered(values_named("everything"))
    (test,) = [pod["metadata"]["labels"] for name, pod in pods_of(objects).items() if name.endswith("-test")]
    (rule,) = [rule for rule in one(objects, "NetworkPolicy", "-edge")["spec"]["ingress"] if rule["ports"][0]["port"] == "ws"]
    assert any("podSelector" in peer and selects(peer["podSelector"]["matchLabels"], test) for peer in rule["from"])


def test_the_scraper_finds_each_component_once(objects):
    for monitor in (each for each in objects if each["kind"] == "ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        found = [
            each["metadata"]["labels"]["app.kubernetes.io/component"]
            for each in objects
            if each["kind"] == "Service"
            and selects(monitor["spec"]["selector"]["matchLabels"], each["metadata"]["labels"])
            and endpoint["port"] in {port["name"] for port in each["spec"]["ports"]}
        ]
        assert sorted(found) == ["core", "edge"]


def test_there_are_no_replicas_beside_an_autoscaler(objects):
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in objects if each["kind"] == "HorizontalPodAutoscaler"}
    for deployment in deployments(objects):
        assert ("replicas" in deployment["spec"]) != (deployment["metadata"]["name"] in scaled)


def test_the_autoscaler_follows_connections():
    spec = one(rendered(values_named("autoscaled")), "HorizontalPodAutoscaler")["spec"]
    pods = next(metric["pods"] for metric in spec["metrics"] if metric["type"] == "Pods")
    assert pods == {"metric": {"name": "presence_edge_connections"}, "target": {"type": "AverageValue", "averageValue": "20000"}}
    assert spec["behavior"]["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 120}]


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_a_budget_never_blocks_a_drain(replicas):
    values = values_named("minimal").read_text().replace("insecure: true", f"insecure: true, replicas: {replicas}")
    objects = objects_of(template(values).stdout)
    budgets = [each["spec"] for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == 2
    for budget in budgets:
        assert "minAvailable" not in budget and budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        unavailable = budget["maxUnavailable"]
        # Kubernetes rounds shares up.
        may_go = math.ceil(int(unavailable[:-1]) * replicas / 100) if str(unavailable).endswith("%") else unavailable
        assert may_go >= 1


def test_a_pod_has_the_time_that_its_drain_takes(objects):
    for deployment in deployments(objects):
        component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        spec = deployment["spec"]["template"]["spec"]
        sleep = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert spec["terminationGracePeriodSeconds"] >= sleep + DRAIN_S[component]


def test_a_rollout_takes_nobody_away_before_another_is_there(objects):
    for deployment in deployments(objects):
        strategy = deployment["spec"]["strategy"]
        config = config_of(objects, deployment["metadata"]["labels"]["app.kubernetes.io/component"])
        if config.get("store", {}).get("url") == "memory":
            assert strategy == {"type": "Recreate"}, "two cores in memory would show two lists"
        else:
            assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
            assert deployment["spec"]["minReadySeconds"] >= 5, "edges notice cores within 5 s"


def test_pods_are_made_anew_when_their_configuration_changes_and_else_not():
    def checksums(values):
        found = deployments(objects_of(template(values).stdout))
        return {each["metadata"]["name"]: each["spec"]["template"] for each in found}

    values = values_named("minimal").read_text()
    before = checksums(values)
    core = checksums(values.replace("core: {", "core: { config: { joins_per_second: 7 },"))
    assert core["here-presence-core"] != before["here-presence-core"]
    assert core["here-presence-edge"] == before["here-presence-edge"]
    assert checksums(values + "metrics: { serviceMonitor: { enabled: true } }") == before


def test_each_pod_tells_its_own_name():
    for name, variable in [("core", "PRESENCE_CORE__NAME"), ("edge", "PRESENCE_EDGE__EDGE")]:
        (container,) = pods_of(rendered(values_named("minimal")))[f"{RELEASE}-presence-{name}"]["spec"]["containers"]
        assert container["env"] == [{"name": variable, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]


def test_a_digest_counts_and_the_tag_does_not():
    (core,) = pods_of(rendered(values_named("everything")))["who-is-here-core"]["spec"]["containers"]
    assert core["image"] == f"registry.example/platform/presence@sha256:{'0123456789abcdef' * 4}"
    (plain,) = pods_of(rendered(values_named("minimal")))[f"{RELEASE}-presence-core"]["spec"]["containers"]
    assert plain["image"] == "presence:0.1.0"


def test_long_lived_connections_are_left_alone_by_routes():
    ingress = one(rendered(values_named("ingress")), "Ingress")
    timeouts = [value for key, value in ingress["metadata"]["annotations"].items() if key.endswith("-timeout")]
    assert timeouts and all(int(value) >= 3600 for value in timeouts)
    route = one(rendered(values_named("gateway")), "HTTPRoute")
    assert route["spec"]["rules"][0]["timeouts"] == {"request": "0s", "backendRequest": "0s"}
    for each, path in [(ingress, "rules.0.http.paths.0.path"), (route, "rules.0.matches.0.path.value")]:
        place = each["spec"]
        for step in path.split("."):
            place = place[int(step)] if step.isdigit() else place[step]
        assert place == "/v1/ws"


def test_hooks_are_tests_and_leave_nothing_behind(objects):
    hooks = [each for each in objects if HOOKS in each["metadata"].get("annotations", {})]
    for hook in hooks:
        assert hook["metadata"]["annotations"][HOOKS] == "test"
        assert hook["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"


def test_settings_of_ones_own_keep_their_types():
    objects = rendered(values_named("tls"))
    core = config_of(objects, "core")
    assert core["joins_per_second"] == 5000 and isinstance(core["joins_per_second"], int)
    assert core["class"] == [{"name": "trading", "match": "trading:*", "heartbeat": "5s", "lease_ttl": "15s", "grace": "4s"}]
    assert core["store"] == {
        "url": "rediss://redis.data:6380", "prefix": "presence", "shards": 16, "user": "presence",
        "password_file": "/etc/presence/store/password", "ca_file": "/etc/presence/store-tls/ca.crt",
        "cert_file": "/etc/presence/store-tls/tls.crt", "key_file": "/etc/presence/store-tls/tls.key",
    }  # fmt: skip
    odd = 'edge: { config: { text: "a\\"b\\\\c\\n\\u2028", big: 1000000, half: 0.5, "off": false, list: [1, "x"], table: { deep: { x: 1 } } } }\n'
    done = template(
        values_named("minimal").read_text().replace("edge: { insecure: true }", odd.replace("edge: {", "edge: { insecure: true,"))
    )
    assert done.returncode == 0, done.stderr
    edge = config_of(objects_of(done.stdout), "edge")
    expected = {
        "text": 'a"b\\c\n\u2028',
        "big": 1_000_000,
        "half": 0.5,
        "off": False,
        "list": [1, "x"],
        "table": {"deep": {"x": 1}},
    }
    assert {key: edge[key] for key in expected} == expected and isinstance(edge["big"], int)
