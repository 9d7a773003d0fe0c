"""Wrong values: each is refused, by both Helms, with a sentence that says what is wrong and what to do."""

import re

import pytest
import yaml
from chart import template, values_named

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


@pytest.mark.parametrize("component", ["core", "edge"])
def test_the_time_to_end_is_taken_at_its_bound(component):
    least = {"core": 25, "edge": 50}[component]
    values = changed(yaml.safe_load(values_named("minimal").read_text()), {component: {"terminationGracePeriodSeconds": least}})
    assert template(yaml.safe_dump(values)).returncode == 0
