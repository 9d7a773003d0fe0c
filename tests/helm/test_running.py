"""The rendered configuration starts the real binaries, and clients join through them; and the test of a release."""

import asyncio
import tomllib
import uuid

import pytest
from chart import one, pods_of, rendered, values_named
from stage import (
    ROOM, cluster, command_of, free_port, joined, keys_by_https, name_of, once, pod, port_of, present, redis, secure_redis,
    sentinels,
)  # fmt: skip


def url_of(edge):
    """Where clients connect, by the name of its service."""
    told = edge.addresses["ws"]
    return f"{told.split('://')[0]}://{name_of('edge')}:{port_of(told)}/v1/ws"


class Region:
    """Core and edge of a file of values; `named` is what the core names and is here elsewhere, `shared` what both do."""

    def __init__(self, stage, root, name, named=(), shared=()):
        self.stage = stage
        self.objects = rendered(values_named(name))
        stage.certificates_of(self.objects)
        stage.hosts.update([name_of("core"), name_of("edge")])
        self.core = pod(stage, root, self.objects, "core", [*named, *shared])
        self.core_address = f"{name_of('core')}:{port_of(self.core.addresses['grpc'])}"
        self.edge = pod(stage, root, self.objects, "edge", [(f"{name_of('core')}:4701", self.core_address), *shared])
        self.url = url_of(self.edge)
        self.port = port_of(self.url)

    async def members_after_joining(self, user, room):
        return await joined(self.stage, self.url, user, room)

    def serves(self):
        """A client joins; both are ready and tell their metrics; both end well."""
        assert asyncio.run(self.members_after_joining("ann", "lobby")) == {"ann"}
        for process in self.edge, self.core:
            assert process.get("/readyz")[0] == 200 and process.get("/livez")[0] == 200
        # What the autoscaler goes by.
        assert "\npresence_edge_connections " in self.edge.get("/metrics")[1]
        assert "presence_core_" in self.core.get("/metrics")[1]
        for process in self.edge, self.core:
            assert process.stop() == 0, process.log.read_text()


def presence(stage, root, identity, *arguments):
    """What an operator types, with a certificate."""
    folder = stage.place(stage.folder / "operators" / str(uuid.uuid4()), identity)
    files = [f"--core-{flag}=/etc/operator/{name}" for flag, name in (("ca", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key"))]
    return once(stage, root, [(folder, "/etc/operator")], ["/usr/local/bin/presence", *arguments, *files])


def behind_sentinels(stage):
    hosts = [f"s-{number}.data" for number in range(3)]
    ports = sentinels(stage, hosts, "mymaster")
    return [(f"{host}:26379", f"{host}:{port}") for host, port in zip(hosts, ports, strict=True)]


def by_tls(stage, host="redis.data"):
    return [(f"{host}:6380", f"{host}:{secure_redis(stage, host, stage.of_store)}")]


def plain(stage, host="redis.data"):
    return [(f"{host}:6379", f"{host}:{redis(stage, host)}")]


def test_every_configuration_is_taken(stage, root, values):
    objects = rendered(values)
    stage.certificates_of(objects)
    for component in "core", "edge":
        if not any(name.endswith(f"-{component}") for name in pods_of(objects)):
            continue
        _, binds, command, environment, _ = command_of(stage, objects, component)
        given = tomllib.loads(one(objects, "ConfigMap", f"-{component}")["data"][f"{component}.toml"])
        told = once(stage, root, binds, [*command, "--check"], environment)
        # Stores and keys elsewhere are out of reach here, which is the only thing that may be wrong.
        is_elsewhere = component == "core" or "://" in given["jwks"]
        assert told.returncode == 0 or (is_elsewhere and told.returncode == 75), told.stderr
        printed = tomllib.loads(once(stage, root, binds, [*command, "--print-config"], environment).stdout)
        timing = given.pop("timing", {})
        assert timing.items() <= printed["timing"].items()
        for key in given.keys() - {"grpc", "listen", "admin", "store", "tls", "class"}:
            # One of what may be several is given by itself.
            assert printed[key] in (given[key], [given[key]]), key
        assert printed["name" if component == "core" else "edge"] in environment.values()


def test_the_default(stage, root):
    region = Region(stage, root, "minimal", plain(stage))
    region.serves()
    assert '"edge":"here-presence-edge-' in region.core.log.read_text(), "an edge has the name of its pod"


def test_tls_everywhere(stage, root):
    region = Region(stage, root, "tls", by_tls(stage))
    assert region.url.startswith("wss://")
    # An operator, whom the table of peers names, and somebody with a good certificate whom it does not.
    asks = ["room", "lobby", "--json", "--core", f"https://{region.core_address}"]
    known, stranger = (presence(stage, root, stage.certificate(name, stage.inner), *asks) for name in ("ops.rooms", "who.rooms"))
    assert known.returncode == 0, known.stderr
    assert stranger.returncode != 0, stranger.stdout
    region.serves()


def test_certificates_as_cert_manager_makes_them(stage, root):
    region = Region(stage, root, "certmanager", plain(stage))
    assert region.core.addresses["grpc"] and "https://" in region.edge.log.read_text()
    region.serves()


def test_sentinels(stage, root):
    Region(stage, root, "sentinel", behind_sentinels(stage)).serves()


def test_a_cluster(stage, root):
    hosts = [f"redis-{number}.data" for number in range(3)]
    store = [(f"{host}:6379", f"{host}:{port}") for host, port in zip(hosts, cluster(stage, hosts), strict=True)]
    Region(stage, root, "cluster", store).serves()


def test_keys_of_tokens_that_are_fetched(stage, root):
    port = keys_by_https(stage, "login.example")
    Region(stage, root, "gateway", plain(stage), [("//login.example/", f"//login.example:{port}/")]).serves()


def test_memory(stage, root):
    Region(stage, root, "memory").serves()


async def see_each_other(stage, west, east):
    """Somebody in each of two regions sees the other one come, and one of them sees the other one go."""
    async with present(stage, east, "bob", "plaza") as bob:
        async with present(stage, west, "ann", "plaza") as ann:
            await asyncio.gather(*(client.sees(lambda members: members == {"ann", "bob"}) for client in (ann, bob)))
        await bob.sees(lambda members: members == {"bob"})


def test_two_regions_whose_cores_watch_each_other(stage, root):
    ports = {side: free_port() for side in ("west", "east")}
    regions = {}
    for side, other in ("west", "east"), ("east", "west"):
        stage.hosts.add(f"core.eu-{side}.example")
        # One has to know where the other will be.
        listens = ('grpc = "0.0.0.0:0"', f'grpc = "0.0.0.0:{ports[side]}"')
        watches = (f"core.eu-{other}.example:4701", f"core.eu-{other}.example:{ports[other]}")
        named = [*by_tls(stage, f"redis-{side}.data"), listens, watches]
        stage.hosts.add(f"core.eu-{other}.example")
        regions[side] = Region(stage, root, f"two-region-{side}", named)
    asyncio.run(see_each_other(stage, regions["west"].url, regions["east"].url))
    for side, other in ("west", "east"), ("east", "west"):
        assert f'presence_core_peer_up{{peer="eu-{other}"}} 1' in regions[side].core.get("/metrics")[1]
    # A region needs nothing of the other one but to be told of it.
    regions["east"].core.kill()
    regions["west"].serves()


def test_edges_of_two_regions_at_one_core(stage, root):
    cores = rendered(values_named("central-cores"))
    stage.hosts |= {"core.eu-west.example", name_of("edge")}
    core = pod(stage, root, cores, "core", plain(stage))
    at = ("core.eu-west.example:4701", f"core.eu-west.example:{port_of(core.addresses['grpc'])}")
    edges = {side: pod(stage, root, rendered(values_named(f"central-edges-{side}")), "edge", [at]) for side in ("west", "east")}
    asyncio.run(see_each_other(stage, *(url_of(edges[side]) for side in ("west", "east"))))
    for process in *edges.values(), core:
        assert process.stop() == 0, process.log.read_text()


def hook(region, root):
    """The pod of `helm test`, run to its end."""
    stage, run = region.stage, one(region.objects, "Pod", "-test")
    (container,) = run["spec"]["containers"]
    # The port of the service, which leads to that of the pod.
    port = one(region.objects, "Service", "-edge")["spec"]["ports"][0]["port"]
    (url,) = (word for word in container["args"] if "://" in word)
    assert f":{port}/" in url
    here = url.replace(f":{port}/", f":{region.port}/")
    arguments = [here if word == url else word for word in container["args"]]
    binds = list(stage.mounts(region.objects, run, f"test-{uuid.uuid4()}", str))
    return once(stage, root, binds, [*container["command"], *arguments])


@pytest.mark.parametrize(("name", "store"), [("tls", by_tls), ("sentinel", behind_sentinels)])
def test_the_test_of_a_release_joins_sees_itself_and_leaves(stage, root, name, store):
    region = Region(stage, root, name, store(stage))
    done = hook(region, root)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("ok: ")]
    assert said[0].startswith("ok: ws") and said[0].endswith(f" lists 0 in {ROOM}"), said
    assert sorted(line.split()[1] for line in said[1:4]) == ["seen", "sees", "tester"], said
    assert said[4] == "ok: says goodbye" and said[5].endswith(": left") and len(said) == 6, said
    region.edge.stop()
    gone = hook(region, root)
    assert gone.returncode == 75 and "no edge is reached" in gone.stderr, "there is no edge any more"


def test_the_test_of_a_release_fails_with_a_token_for_another_room(stage, root):
    region = Region(stage, root, "sentinel", behind_sentinels(stage))
    stage.secrets["presence-test"]["token"] = stage.token("elsewhere")
    done = hook(region, root)
    assert done.returncode == 1 and "forbidden" in done.stderr, done.stdout + done.stderr
