"""Wrong values: each is refused, by both Helms, with a sentence that says what is wrong and what to do."""

import re

import pytest
import yaml
from chart import CHART, template, values_named

# With certificates between edges and cores.
SECURE = {
    "core": {"insecure": False, "tls": {"existingSecret": "x"}},
    "edge": {"coreTls": {"existingSecret": "x", "certificateName": "x"}},
}
# A change of values that held, and words of the sentence.
WRONG = [
    # What the schema says: names and types.
    ({"core": {"replica": 3}}, ["core", "replica", "not allowed"]),
    ({"edge": {"replicas": "2"}}, ["edge.replicas", "string", "integer"]),
    ({"core": {"replicas": -1}}, ["core.replicas", "0"]),
    ({"edge": {"clientAddress": "x-real-ip"}}, ["edge.clientAddress", "peer", "proxy-protocol", "x-forwarded-for", "forwarded"]),
    ({"edge": {"service": {"type": "ExternalName"}}}, ["edge.service.type", "ClusterIP", "LoadBalancer"]),
    ({"edge": {"service": {"port": 70000}}}, ["edge.service.port", "65535"]),
    ({"log": {"format": "xml"}}, ["log.format", "json", "text"]),
    ({"store": {"shards": 0}}, ["store.shards", "1"]),
    ({"edge": {"origins": "https://app.example"}}, ["edge.origins", "array"]),
    ({"image": {"pullPolicy": "Sometimes"}}, ["image.pullPolicy", "IfNotPresent"]),
    ({"store": {"password": "hunter2"}}, ["store", "password", "not allowed"]),
    ({"edge": {"autoscaling": {"targetCPUUtilizationPercentage": 140}}}, ["targetCPUUtilizationPercentage", "100"]),
    # The store.
    ({"store": {"url": ""}}, ["store.url = (not set)", "redis://redis.data:6379", "memory"]),
    ({"store": {"url": "http://redis"}}, ["store.url", "must be memory, or begin with redis://"]),
    ({"store": {"url": "redis://:hunter2@redis:6379"}}, ["store.url = (hidden)", "store.existingSecret"]),
    ({"store": {"url": "redis+sentinel://s-0:26379"}}, ["store.url", "the master's name", "/mymaster"]),
    ({"store": {"url": "redis://redis:6379/3"}}, ["store.url", "databases are not chosen", "store.prefix"]),
    ({"store": {"url": "redis://a:6379,b:6379"}}, ["store.url", "one address", "redis+cluster://"]),
    ({"store": {"url": "memory"}}, ["core.replicas = 2", "must be 1", "memory"]),
    ({"store": {"tls": {"existingSecret": "x"}}}, ["store.tls.existingSecret", "rediss"]),
    ({"store": {"url": "rediss://r:1", "tls": {"existingSecret": "x", "certKey": "tls.crt"}}}, ["store.tls.keyKey"]),
    ({"store": {"user": "presence"}}, ["store.user", "store.existingSecret"]),
    ({"store": {"sentinelPasswordKey": "x"}}, ["store.sentinelPasswordKey", "redis+sentinel://"]),
    # Trust.
    ({"jwks": {"existingSecret": ""}}, ["jwks.existingSecret = (not set)", "presence keys", "kubectl create secret"]),
    ({"jwks": {"existingConfigMap": "x"}}, ["jwks.existingConfigMap", "not both"]),
    ({"jwks": {"urls": ["login.example"]}}, ["jwks.urls", "https://login.example"]),
    ({"jwks": {"urls": ["http://login.example"]}, "edge": {"insecure": False, "tls": {"existingSecret": "x"}}}, ["jwks.urls", "must begin with https://"]),
    ({"jwks": {"key": ""}}, ["jwks.existingSecret = (not set)", "jwks.urls"]),
    ({"jwks": {"caKey": "ca.crt"}}, ['jwks.caKey = "ca.crt"', "goes with jwks.urls"]),
    ({"core": {"insecure": False}}, ["core.tls.existingSecret = (not set)", "certManager.enabled", "core.insecure: true"]),
    ({"edge": {"insecure": False}}, ["edge.tls.existingSecret = (not set)", "edge.insecure: true"]),
    ({"core": {"tls": {"existingSecret": "x"}}}, ["core.insecure = true: is of no use"]),
    ({"core": {"insecure": False, "tls": {"existingSecret": "x"}}}, ["edge.coreTls.existingSecret = (not set)", "ask edges"]),
    ({"core": {"insecure": False, "tls": {"existingSecret": "x"}}, "edge": {"coreTls": {"existingSecret": "x"}}}, ["edge.coreTls.certificateName = (not set)", "cores let nobody in"]),
    ({"core": {"insecure": False, "tls": {"existingSecret": "x"}}, "edge": {"enabled": False}}, ["core.peers.edges = []", "edges.example"]),
    ({"core": {"peers": {"services": [{"certificate": "x", "scopes": [], "rooms": []}]}}}, ["core.peers", "of no use"]),
    ({"core": {"peers": {"services": [{"certificate": "x", "scopes": ["read"], "rooms": []}]}}}, ["scopes", "presence.read"]),
    ({"core": {"config": {"peers": "/x"}}}, ["core.config.peers", "use core.peers"]),
    ({"edge": {"tls": {"existingSecret": "x"}}}, ["edge.insecure = true: is of no use"]),
    ({"edge": {"coreTls": {"existingSecret": "x"}}}, ["edge.coreTls.existingSecret", "https://"]),
    ({"core": {"external": {"enabled": True}}}, ["core.external.enabled", "evict"]),
    ({"core": {"insecure": False}, "certManager": {"enabled": True}}, ["certManager.issuerRef.name = (not set)"]),
    ({"core": {"tls": {"dnsNames": ["x"]}}}, ["core.tls.dnsNames", "cert-manager"]),
    # Regions.
    ({"core": {"peerRegions": [{"cores": ["http://a:1"]}]}}, ["core.peerRegions", "region"]),
    ({"core": {"peerRegions": [{"region": "us", "cores": []}]}}, ["core.peerRegions.0.cores", "1"]),
    ({"core": {"peerRegions": [{"region": "us", "core": ["http://a:1"]}]}}, ["core.peerRegions.0", "core", "not allowed"]),
    ({"core": {"peerRegions": [{"region": "local", "cores": ["http://a:1"]}]}}, ['core.peerRegions = "local"', "is kept by these cores themselves"]),
    ({"core": {"edgeRegions": ["us"], "peerRegions": [{"region": "us", "cores": ["http://a:1"]}]}}, ['core.peerRegions = "us"', "core.edgeRegions"]),
    ({"core": {"peerRegions": [{"region": "us", "cores": ["http://a:1"]}] * 2}}, ['core.peerRegions = "us"', "named twice", "one entry"]),
    ({"core": {"peerRegions": [{"region": "us=x", "cores": ["http://a:1"]}]}}, ['core.peerRegions = "us=x"', "the name of a region"]),
    ({"core": {"peerRegions": [{"region": "us", "cores": ["core.us.example"]}]}}, ['core.peerRegions = "core.us.example"', "https://core.us-east.example:4701"]),
    ({**SECURE, "core": {**SECURE["core"], "peerRegions": [{"region": "us", "cores": ["http://a:1"], "certificate": "x"}]}}, ['core.peerRegions = "http://a:1"', "must begin with https://", "core.insecure"]),
    ({**SECURE, "core": {**SECURE["core"], "peerRegions": [{"region": "us", "cores": ["https://a:1"]}]}}, ["core.peerRegions: us has no certificate", "DNS name or URI"]),
    ({"core": {"peerRegions": [{"region": "us", "cores": ["https://a:1"], "certificate": "x"}]}}, ["the certificate x of us", "of no use"]),
    ({"core": {"peerRegions": [{"region": "us", "cores": ["http://a:1"]}]}}, ["networkPolicy.coreFrom = []", "core.external.enabled", "cidr: 10.2.0.0/16"]),
    ({"core": {"peerRegions": [{"region": "us", "cores": ["http://a:1"]}]}, "networkPolicy": {"egress": {"enabled": True}}}, ["networkPolicy.egress.peersTo = []", "4701"]),
    ({"core": {"peerRegions": [{"region": f"r{number}", "cores": ["http://a:1"]} for number in range(64)]}}, ["65 regions", "at most 64"]),
    ({"core": {"coreTls": {"existingSecret": "x"}}}, ['core.coreTls.existingSecret = "x"', "core.peerRegions", "https://"]),
    ({"core": {"edgeRegions": ["us", "us"]}}, ['core.edgeRegions = "us"', "named twice"]),
    ({"core": {"edgeRegions": ["local"]}}, ['core.edgeRegions = "local"', "region itself"]),
    ({**SECURE, "core": {**SECURE["core"], "edgeRegions": ["us"]}}, ['core.edgeRegions = "us"', "nobody may link for it", "edges.us.example"]),
    ({**SECURE, "core": {**SECURE["core"], "peers": {"edges": [{"certificate": "x", "names": ["*"], "regions": ["us"]}]}}}, ['x may link for "us"', "core.edgeRegions"]),
    ({"core": {"config": {"peer": ["us=http://a:1"]}}}, ["core.config.peer", "use core.peerRegions"]),
    ({"core": {"config": {"edge_regions": ["us"]}}}, ["core.config.edge_regions", "use core.edgeRegions"]),
    ({"core": {"config": {"core_tls": {"ca_file": "/x"}}}}, ["core.config.core_tls", "use core.coreTls"]),
    ({**SECURE, "core": {**SECURE["core"], "external": {"gateway": {"enabled": True}}}}, ["core.external.gateway.enabled = true", "core.external.enabled", "ClusterIP", "gateway.parentRefs = []", "name: regions", "gateway.hostnames = []", "core.eu-west.example"]),
    ({**SECURE, "core": {**SECURE["core"], "external": {"enabled": True, "type": "ClusterIP", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}}, ["core.external.loadBalancerSourceRanges", "ClusterIP"]),
    # Clients.
    ({"edge": {"trustedProxies": ["10.0.0.0/8"]}}, ["edge.trustedProxies", "of no use", "edge.clientAddress"]),
    ({"edge": {"clientAddress": "forwarded"}}, ["edge.trustedProxies = []", "10.0.0.0/8"]),
    ({"edge": {"clientAddress": "forwarded", "trustedProxies": ["mesh"]}}, ['edge.trustedProxies = "mesh"', "10.0.0.0/8"]),
    ({"edge": {"origins": ["https://App.example/"]}}, ["edge.origins", "scheme://host"]),
    ({"edge": {"ingress": {"enabled": True}}}, ["edge.ingress.host = (not set)"]),
    ({"edge": {"gateway": {"enabled": True}}}, ["edge.gateway.parentRefs = []", "name: public"]),
    ({"edge": {"service": {"externalTrafficPolicy": "Local"}}}, ["externalTrafficPolicy", "ClusterIP"]),
    ({"edge": {"service": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}}, ["loadBalancerSourceRanges", "ClusterIP"]),
    ({"edge": {"cores": ["core.example"]}}, ["edge.cores", "http://host:port"]),
    ({"core": {"enabled": False}}, ["edge.cores = []", "https://core.example:4701"]),
    # Pods.
    ({"edge": {"terminationGracePeriodSeconds": 49}}, ["edge.terminationGracePeriodSeconds = 49", "at least 50", "10 s of edge.preStopSeconds", "40 s"]),
    ({"core": {"terminationGracePeriodSeconds": 24}}, ["core.terminationGracePeriodSeconds = 24", "at least 25", "5 s of core.preStopSeconds", "20 s"]),
    ({"edge": {"podDisruptionBudget": {"maxUnavailable": 0}}}, ["edge.podDisruptionBudget.maxUnavailable", "at least 1"]),
    ({"edge": {"autoscaling": {"enabled": True, "minReplicas": 11}}}, ["minReplicas = 11", "at most", "10"]),
    ({"edge": {"autoscaling": {"enabled": True, "targetConnections": 0}}}, ["targetConnections = 0", "nothing to follow"]),
    ({"edge": {"autoscaling": {"enabled": True}, "connectionsMax": 1000}}, ["targetConnections = 25000", "edge.connectionsMax", "1000"]),
    ({"edge": {"config": {"listen": "0.0.0.0:1"}}}, ["edge.config.listen", "settles ports"]),
    ({"core": {"config": {"store": {"url": "memory"}}}}, ["core.config.store", "use store"]),
    # The rest.
    ({"image": {"tag": "latest"}}, ['image.tag = "latest"', "image.digest"]),
    ({"runAsUser": 0}, ["runAsUser", "1"]),
    ({"image": {"digest": "sha256:abc"}}, ["image.digest", "64 hexadecimal digits"]),
    ({"fullnameOverride": "1st"}, ["fullnameOverride", '"1st"', "begin with a letter"]),
    ({"timing": {"heartbeat": "15"}}, ["timing.heartbeat", "a duration with a unit", "15s"]),
    ({"listenAddress": "localhost"}, ["listenAddress", "0.0.0.0"]),
    ({"core": {"enabled": False}, "edge": {"enabled": False}}, ["core.enabled, edge.enabled", "at least one"]),
    ({"networkPolicy": {"egress": {"enabled": True}}}, ["networkPolicy.egress.storeTo = []", "app: redis"]),
    ({"jwks": {"urls": ["https://login.example"]}, "networkPolicy": {"egress": {"enabled": True}}}, ["networkPolicy.egress.extra = []", "jwks.urls", "port: 443"]),
    ({"test": {"existingSecret": "x", "url": "https://presence.example"}}, ["test.url", "wss://presence.example/v1/ws"]),
    # Forms that only a cluster would refuse.
    ({"edge": {"podDisruptionBudget": {"maxUnavailable": "-1"}}}, ["edge.podDisruptionBudget.maxUnavailable = -1", "25%"]),
    ({"edge": {"podDisruptionBudget": {"maxUnavailable": "00%"}}}, ["edge.podDisruptionBudget.maxUnavailable = 00%", "at least 1"]),
    ({"edge": {"resources": {"limits": {"memory": "1GB"}}}}, ['edge.resources.limits.memory = "1GB"', "512Mi"]),
    ({"core": {"resources": {"requests": {"cpu": "half"}}}}, ['core.resources.requests.cpu = "half"', "500m"]),
    ({"jwks": {"key": "../x"}}, ['jwks.key = "../x"', "the key of a Secret"]),
    ({**SECURE, "core": {**SECURE["core"], "tls": {"existingSecret": "x", "keyKey": "a/b"}}}, ['core.tls.keyKey = "a/b"', "the key of a Secret"]),
    ({"commonLabels": {"team": "not a label!"}}, ["commonLabels.team", "the value of a label"]),
    ({"edge": {"podLabels": {"team": "x" * 64}}}, ["edge.podLabels.team", "at most 63"]),
    ({"edge": {"ingress": {"enabled": True, "host": "https://presence.example"}}}, ["edge.ingress.host", "without scheme"]),
    ({"edge": {"gateway": {"enabled": True, "parentRefs": [{"name": "x"}], "hostnames": ["presence.example:443"]}}}, ["edge.gateway.hostnames", "without scheme or port"]),
    ({"edge": {"gateway": {"enabled": True, "parentRefs": [{"name": "x"}], "requestTimeout": "1d"}}}, ["edge.gateway.requestTimeout", "Gateway API"]),
    ({"edge": {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/129"]}}}, ["edge.service.loadBalancerSourceRanges", "10.0.0.0/8"]),
    ({"metrics": {"serviceMonitor": {"interval": "half a minute"}}}, ["metrics.serviceMonitor.interval", "30s"]),
    ({"core": {"insecure": False}, "certManager": {"enabled": True, "issuerRef": {"name": "x"}, "duration": "30d"}}, ['certManager.duration = "30d"', "2160h"]),
    ({"core": {"insecure": False}, "edge": {"cores": ["https://core.example:4701"]}, "certManager": {"enabled": True, "issuerRef": {"name": "x"}}}, ["edge.coreTls.certificateName = (not set)", "another cluster", "edges.eu-west.example"]),
    ({"edge": {"podAnnotations": {"checksum/config": "x"}}}, ["edge.podAnnotations.checksum.config", "the chart's own"]),
    ({"edge": {"extraEnv": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}}, ["edge.extraEnv: A is given twice"]),
    ({"edge": {"extraEnv": [{"name": "PRESENCE_EDGE__EDGE", "value": "1"}]}}, ["edge.extraEnv: PRESENCE_EDGE__EDGE", "the chart's own"]),
    ({"edge": {"extraEnv": [{"name": "A", "value": 1}]}}, ["edge.extraEnv.0.value", "string"]),
    ({"edge": {"extraEnv": [{"value": "1"}]}}, ["edge.extraEnv.0", "name"]),
    ({"core": {"extraVolumes": [{"name": "config", "emptyDir": {}}]}}, ["core.extraVolumes: config", "the chart's own"]),
    ({"core": {"config": {"list": [1, {"a": 2}]}}}, ["core.config.list", "not both"]),
    ({"core": {"config": {"table": {"list": [{"a": 2}, 1]}}}}, ["core.config.table.list", "not both"]),
    ({"core": {"config": {"list": ["x", None]}}}, ["core.config.list", "null"]),
    ({"edge": {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/33"]}}}, ["edge.service.loadBalancerSourceRanges", "10.0.0.0/8"]),
    ({"edge": {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.256/8"]}}}, ["edge.service.loadBalancerSourceRanges", "10.0.0.0/8"]),
    ({"edge": {"clientAddress": "forwarded", "trustedProxies": ["10.0.0.0/99"]}}, ['edge.trustedProxies = "10.0.0.0/99"', "10.0.0.0/8"]),
    ({"edge": {"clientAddress": "forwarded", "trustedProxies": ["::/129"]}}, ['edge.trustedProxies = "::/129"']),
    ({"commonLabels": {"not a key": "x"}}, ["commonLabels", "the name of a label", "example.com/team"]),
    ({"edge": {"podLabels": {"a/b/c": "x"}}}, ["edge.podLabels", "the name of a label"]),
    ({"commonAnnotations": {"-x": "z"}}, ["commonAnnotations", "the name of an annotation"]),
    ({"commonAnnotations": {"x": 1}}, ["commonAnnotations.x", "string"]),
    ({"core": {"podAnnotations": {"x y": "z"}}}, ["core.podAnnotations", "the name of an annotation"]),
    ({"edge": {"ingress": {"enabled": True, "host": "x" * 64}}}, ["edge.ingress.host", "a host name"]),
    ({"edge": {"ingress": {"enabled": True, "host": ".".join(["x" * 50] * 5)}}}, ["edge.ingress.host", "at most 253"]),
    ({"jwks": {"key": "x" * 254}}, ["jwks.key", "at most 253"]),
    ({"edge": {"resources": {"limits": {"memory": "1e"}}}}, ["edge.resources.limits.memory"]),
    ({"core": {"extraVolumeMounts": [{"name": "config", "mountPath": "/etc/presence/config/"}]}}, ["core.extraVolumeMounts: /etc/presence/config", "the chart has one"]),
    ({"edge": {"extraVolumes": [{"name": "a", "emptyDir": {}}], "extraVolumeMounts": [{"name": "a", "mountPath": "/x"}] * 2}}, ["edge.extraVolumeMounts: /x is given twice"]),
    ({"edge": {"extraVolumeMounts": [{"name": "a", "mountPath": "/x"}]}}, ["edge.extraVolumeMounts: a is the name of no volume", "edge.extraVolumes"]),
    ({**SECURE, "core": {**SECURE["core"], "peers": {"edges": [{"certificate": "x", "names": ["*"], "regions": ["local"]}]}}}, ["core.peers.edges: x", "this release's own edges"]),
    ({"core": {"insecure": False}, "certManager": {"enabled": True, "issuerRef": {"name": "x"}}, "edge": {"coreTls": {"certificateName": "spiffe://x/y"}}}, ["edge.coreTls.certificateName", "a host name"]),
    ({"core": {"external": {"ipFamilyPolicy": "Both"}}}, ["core.external.ipFamilyPolicy", "PreferDualStack"]),
    ({"test": {"affinity": []}}, ["test.affinity", "object"]),
    ({"store": {"url": "memory", "existingSecret": "x"}, "core": {"replicas": 1}}, ["store.user, store.existingSecret", "memory"]),
    ({"store": {"url": "redis+sentinel://s:26379/m", "sentinelPasswordKey": "x"}}, ['store.sentinelPasswordKey = "x"', "say in which secret"]),
    ({**SECURE, "edge": {"coreTls": {**SECURE["edge"]["coreTls"], "certKey": ""}}}, ["edge.coreTls.certKey", "go together"]),
    ({"edge": {"cores": ["http://core.example:4701"]}, "networkPolicy": {"egress": {"enabled": True, "storeTo": [{}]}}}, ["networkPolicy.egress.coresTo = []", "port: 4701"]),
    ({"test": {"existingSecret": "x"}, "edge": {"enabled": False}}, ['test.existingSecret = "x"', "edge.enabled is false"]),
    # What has a default cannot be taken away.
    ({"image": None}, ["image"]),
    ({"edge": {"service": None}}, ["edge", "service"]),
    ({"edge": {"replicas": None}}, ["edge", "replicas"]),
    ({"test": {"existingSecret": "x", "room": None}}, ["test", "room"]),
]  # fmt: skip


def changed(values, change):
    if not isinstance(change, dict):
        return change
    return values | {key: changed(values.get(key, {}), value) for key, value in change.items()}


def spoken(change):
    return re.sub(r"[^A-Za-z0-9.]+", "-", str(change)).strip("-")


@pytest.mark.parametrize(("change", "words"), WRONG, ids=[spoken(change) for change, _ in WRONG])
def test_a_wrong_value_is_refused_with_what_to_do(change, words, version):
    values = changed(yaml.safe_load(values_named("minimal").read_text()), change)
    done = template(yaml.safe_dump(values), version)
    assert done.returncode != 0 and not done.stdout, change
    # One Helm writes the paths of a schema with slashes, the other with dots; and one sets thousands apart.
    told = done.stderr + done.stderr.replace("/", ".").replace(",", "")
    assert all(word in told for word in words), done.stderr
    assert "hunter2" not in done.stderr, "what is secret is not said again"


def test_all_mistakes_are_told_at_once(version):
    done = template("{}", version)
    told = [line.strip() for line in done.stderr.splitlines() if " = " in line]
    assert [line.split(" = ")[0] for line in told] == [
        "store.url", "jwks.existingSecret", "core.tls.existingSecret", "edge.tls.existingSecret"
    ]  # fmt: skip


def test_the_values_on_the_page_of_deploying_are_taken():
    page = (CHART.parents[1] / "docs" / "deploy.md").read_text()
    blocks = [yaml.safe_load(text) for text in re.findall(r"(?ms)^```yaml\n(.*?)^```", page)]
    # Some are whole; the others say only what they are about.
    base = changed(yaml.safe_load(values_named("minimal").read_text()), SECURE)
    base["jwks"] = {}
    assert len(blocks) == 5 and sum("region" in block for block in blocks) == 3
    for block in blocks:
        given = block if "region" in block else changed(base, block)
        given.setdefault("jwks", {}).setdefault("existingSecret", "" if "urls" in given["jwks"] else "presence-jwks")
        done = template(yaml.safe_dump(given))
        assert done.returncode == 0, (block, done.stderr)


def test_as_many_regions_as_a_cursor_can_name_are_taken():
    peers = [{"region": f"r{number}", "cores": ["http://a:1"]} for number in range(62)]
    change = {"core": {"edgeRegions": ["us"], "peerRegions": peers}, "networkPolicy": {"coreFrom": [{"podSelector": {}}]}}
    values = changed(yaml.safe_load(values_named("minimal").read_text()), change)
    done = template(yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    change["core"]["edgeRegions"].append("ap")
    assert template(yaml.safe_dump(changed(values, change))).returncode != 0


def test_what_is_well_formed_at_its_bounds_is_taken():
    change = {
        "commonLabels": {"team": "x" * 63, "none": ""},
        "core": {"config": {"empty": [], "tables": [{"a": 1}, {"a": 2}]}, "resources": None},
        "edge": {
            "podDisruptionBudget": {"maxUnavailable": "100%"}, "resources": {"limits": {"memory": "1.5Gi", "cpu": 2}, "requests": {"memory": "1e9", "cpu": "100m", "ephemeral-storage": "1E"}},
            "ingress": {"enabled": True, "host": "*." + ".".join(["x" * 61] * 4)}, "podAnnotations": None,
            "service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["::/0", "2001:db8::/128"]},
            "extraEnv": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "extraVolumes": [{"name": "more", "emptyDir": {}}], "cores": ["http://[::1]:4701"],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}, {"name": "more", "mountPath": "/etc/presence/more"}],
            "clientAddress": "forwarded", "trustedProxies": ["255.255.255.255/32", "::/128", "10.0.0.1", "::ffff:10.0.0.1"],
        },
        "commonAnnotations": {"example.com/owner": "anything at all, even = this", "x" * 63: ""},
        "jwks": {"key": "x" * 253},
        "certManager": {"enabled": False, "duration": "1.5h"},
    }  # fmt: skip
    done = template(yaml.safe_dump(changed(yaml.safe_load(values_named("minimal").read_text()), change)))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("component", ["core", "edge"])
def test_the_time_to_end_is_taken_at_its_bound(component):
    least = {"core": 25, "edge": 50}[component]
    values = changed(yaml.safe_load(values_named("minimal").read_text()), {component: {"terminationGracePeriodSeconds": least}})
    assert template(yaml.safe_dump(values)).returncode == 0
