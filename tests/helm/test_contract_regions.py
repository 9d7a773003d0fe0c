"""What holds for releases that are regions, between which nobody renders anything."""

from chart import RELEASE, config_of, deployments, objects_of, one, peers_of, pods_of, rendered, template, values_named

# Names in a secret of the values.
IN_SECRETS = {"presence-west-tls": ["region.eu-west.example"]}


def names_shown(objects):
    """Names in what the cores of a release show to those of other regions."""
    certificates = {each["spec"]["secretName"]: each["spec"] for each in objects if each["kind"] == "Certificate"}
    pod = pods_of(objects)[f"{RELEASE}-presence-core"]
    sources = {volume["name"]: volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume}
    folder = config_of(objects, "core")["core_tls"]["cert_file"].split("/")[-2]
    made = certificates.get(sources[folder])
    assert made is None or "client auth" in made["usages"]
    return made["dnsNames"] if made else IN_SECRETS[sources[folder]]


def test_regions_that_watch_each_other_name_each_other_and_let_each_other_in():
    ends = {side: rendered(values_named(f"two-region-{side}")) for side in ("west", "east")}
    for side, other in ("west", "east"), ("east", "west"):
        here, there = config_of(ends[side], "core"), config_of(ends[other], "core")
        region, _, url = here["peer"][0].partition("=")
        assert len(here["peer"]) == 1 and region == there["region"] != here["region"]
        assert here["timing"] == there["timing"], "how long a region is held is said once"
        host = url.removeprefix("https://").rsplit(":", 1)[0]
        assert host == f"core.{region}.example"
        (known,) = peers_of(ends[side])["core"]
        assert known["regions"] == [region]
        assert known["certificate"] in names_shown(ends[other])
        for each in ends[other]:
            if each["kind"] == "TLSRoute":
                shown = one(ends[other], "Certificate", "presence-core-tls")["spec"]["dnsNames"]
                assert host in each["spec"]["hostnames"] and host in shown


def test_regions_get_to_each_other_by_what_policies_and_services_let_through():
    west, east = (rendered(values_named(f"two-region-{side}")) for side in ("west", "east"))
    network = {"ipBlock": {"cidr": "10.2.0.0/16"}}
    policy = one(west, "NetworkPolicy", "-core")["spec"]
    (grpc,) = [rule for rule in policy["ingress"] if rule["ports"][0]["port"] == "grpc"]
    assert network in grpc["from"] and any("podSelector" in peer for peer in grpc["from"]), "and edges of the release still"
    assert {"to": [network], "ports": [{"port": 4701}]} in policy["egress"]
    assert {"to": [network], "ports": [{"port": 4701}]} not in one(west, "NetworkPolicy", "-edge")["spec"]["egress"]
    (open_to,) = [rule for rule in one(east, "NetworkPolicy", "-core")["spec"]["ingress"] if rule["ports"][0]["port"] == "grpc"]
    assert "from" not in open_to, "certificates say who may"
    route, service = one(east, "TLSRoute"), one(east, "Service", "-core-external")
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    assert backend == {"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]}


def test_a_region_more_makes_its_cores_anew_and_its_edges_not():
    values = values_named("two-region-west").read_text()
    more = values.replace("eu-east.example:4701\"]", "eu-east.example:4701\", \"https://core-2.eu-east.example:4701\"]")
    assert more != values
    before, after = (deployments(objects_of(template(text).stdout)) for text in (values, more))
    changed = [each["metadata"]["name"] for each in after if each not in before]
    assert changed == ["here-presence-core"]
