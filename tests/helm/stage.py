"""What the chart renders, on one machine: each pod is a process in the root of the image, with the files, arguments and
variables of its template. Names of the cluster lead to loopback, and ports are free ones."""

import asyncio
import contextlib
import http.server
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request
import uuid

from authority import Authority
from chart import NAMESPACE, RELEASE, one, pods_of
from image import USER, binaries, mounted_root, run, sandboxed
from websockets.asyncio.client import connect

STORE_PASSWORD, SENTINEL_PASSWORD = "hunter2-of-the-store", "hunter2-of-sentinels"
ROOM, USER_NAME = "helm-test", "tester"
LISTENERS = re.compile(r'(?m)^(grpc|listen|admin) = "(.+):\d+"$')
WITHIN_S = 30


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def name_of(component):
    """The name of a component's service in the cluster."""
    return f"{RELEASE}-presence-{component}.{NAMESPACE}.svc"


class Stage:
    """A folder that the user of the image may read, secrets of the cluster, and the processes of a test."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="presence-helm-"))
        self.folder.chmod(0o755)
        # One for each kind of peer, so that a certificate at the wrong place is of no use.
        self.inner, self.public, self.of_store = (Authority(self.folder, name) for name in ("inner", "public", "store"))
        self.processes, self.hosts, self.tokens = [], {"localhost"}, []
        self.secrets = self.make_secrets()

    def make_secrets(self):
        run(binaries() / "presence", "keys", self.folder / "keys")
        jwks = (self.folder / "keys" / "jwks.json").read_text()

        return {
            "presence-jwks": {"jwks.json": jwks, "keys.json": jwks},
            "presence-login": {"ca.crt": self.public.pem.read_text()},
            "presence-store": {"password": STORE_PASSWORD, "sentinel-password": SENTINEL_PASSWORD},
            "presence-store-tls": self.certificate("client.data", self.of_store),
            "presence-core-tls": self.certificate(name_of("core"), self.inner, "core.eu-west.example"),
            "presence-central-tls": self.certificate("core.eu-west.example", self.inner),
            "presence-west-tls": self.certificate("region.eu-west.example", self.inner),
            "presence-edge-tls": self.certificate(name_of("edge"), self.public),
            "presence-edge-core-tls": self.certificate("edge.rooms", self.inner),
            "presence-edges-west-tls": self.certificate("edges.eu-west.example", self.inner),
            "presence-edges-east-tls": self.certificate("edges.us-east.example", self.inner),
            "presence-test": {"token": self.token(ROOM), "ca.crt": self.public.pem.read_text()},
        }

    def certificate(self, name, authority, *others, usages=()):
        """A secret with a certificate for those names, as cert-manager writes it."""
        certificate, key = authority.sign(name, *others, usages=usages)
        return {"tls.crt": certificate.read_text(), "tls.key": key.read_text(), "ca.crt": authority.pem.read_text()}

    def certificates_of(self, objects):
        """Makes what cert-manager is asked for."""
        for each in objects:
            if each["kind"] == "Certificate":
                first, *others = each["spec"]["dnsNames"]
                # Each is good for what it is asked for and nothing else.
                usages = [usage for usage in each["spec"]["usages"] if usage.endswith(" auth")]
                self.secrets[each["spec"]["secretName"]] = self.certificate(first, self.inner, *others, usages=usages)

    def token(self, room, user=USER_NAME):
        key = self.folder / "keys" / "key.pem"
        self.tokens.append(run(binaries() / "presence", "token", "--key", key, "--user", user, "--room", room).strip())
        return self.tokens[-1]

    def place(self, folder, files):
        """A mounted folder, readable for the group of the pod as `fsGroup` has it."""
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o440)
            if os.geteuid() == 0:
                os.chown(folder / name, 0, USER)
        return folder

    def hosts_file(self):
        path = self.folder / f"hosts-{len(self.hosts)}"
        path.write_text("".join(f"127.0.0.1 {name}\n" for name in sorted(self.hosts)))
        return path

    def mounts(self, objects, pod, name, adapt):
        """Folders of a pod's volumes with where they are mounted; texts of ConfigMaps pass through `adapt`."""
        (container,) = pod["spec"]["containers"]
        at = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        for volume in pod["spec"]["volumes"]:
            if "emptyDir" in volume:
                files = {}
            elif "secret" in volume:
                files = self.secrets[volume["secret"]["secretName"]]
            elif "configMap" in volume and volume["configMap"]["name"] in self.secrets:
                files = self.secrets[volume["configMap"]["name"]]
            else:
                texts = one(objects, "ConfigMap", volume["configMap"]["name"])["data"]
                files = {file: adapt(text) if LISTENERS.search(text) else text for file, text in texts.items()}
            yield self.place(self.folder / "pods" / name / volume["name"], files), at[volume["name"]]

    def leaks(self):
        """Logs that have a token, a password or a private key in them."""
        keys = [text for secret in self.secrets.values() for text in secret.values() if "PRIVATE KEY" in text]
        lines = [line for text in keys for line in text.splitlines() if "-----" not in line]
        secrets = [*self.tokens, STORE_PASSWORD, SENTINEL_PASSWORD, *lines]
        written = {path.name: path.read_text() for path in self.folder.glob("*.log")}
        return [name for name, text in written.items() if any(secret in text for secret in secrets)]

    def end(self):
        for process in reversed(self.processes):
            process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Process:
    """A binary of ours in the root of the image, that has told where it listens."""

    def __init__(self, stage, name, root, binds, command, environment=None, grace_s=WITHIN_S):
        self.log, self.grace_s = stage.folder / f"{name}.log", grace_s
        binds = [*binds, (stage.hosts_file(), "/etc/hosts")]
        words = sandboxed(mounted_root(root), binds, environment or {}, [*command, "--json"])
        at = words.index("bwrap") + 1
        told, tells = os.pipe()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*words[:at], "--info-fd", str(tells), *words[at:]],
                stdout=subprocess.PIPE, stderr=log, text=True, pass_fds=[tells],
            )  # fmt: skip
        stage.processes.append(self)
        os.close(tells)
        with os.fdopen(told) as info:
            text = info.read()
        assert text, self.log.read_text()
        self.pid = json.loads(text)["child-pid"]
        ready, _, _ = select.select([self.process.stdout], [], [], WITHIN_S)
        line = self.process.stdout.readline() if ready else ""
        assert line, self.log.read_text()
        self.addresses = json.loads(line)
        self.admin = f"http://127.0.0.1:{port_of(self.addresses['admin'])}"

    def get(self, path):
        with urllib.request.urlopen(self.admin + path, timeout=5) as answer:
            return answer.status, answer.read().decode()

    def stop(self):
        """Tells it to end, and gives it as long as it may take."""
        os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(self.grace_s)

    def kill(self):
        self.process.kill()
        self.process.wait()


def adapted(text, replaced):
    """A configuration with free ports to listen at, and with what it names where that is here."""
    text = LISTENERS.sub(r'\1 = "\2:0"', text)
    for old, new in replaced:
        assert old in text, f"{old} is not in {text}"
        text = text.replace(old, new)
    return text


def command_of(stage, objects, component, replaced=()):
    """How the container of a Deployment is started: mounts, command and variables; with its template."""
    name = f"{RELEASE}-presence-{component}-{len(stage.processes)}"
    (template,) = (each for pod, each in pods_of(objects).items() if pod.endswith(f"-{component}"))
    (container,) = template["spec"]["containers"]
    environment = {each["name"]: name if "valueFrom" in each else each["value"] for each in container["env"]}
    binds = list(stage.mounts(objects, template, name, lambda text: adapted(text, replaced)))
    return name, binds, [*container["command"], *container["args"]], environment, template


def pod(stage, root, objects, component, replaced=()):
    """The running container of a Deployment."""
    name, binds, command, environment, template = command_of(stage, objects, component, replaced)
    return Process(stage, name, root, binds, command, environment, template["spec"]["terminationGracePeriodSeconds"])


def once(stage, root, binds, command, environment=None):
    """Runs a command in the image to its end."""
    words = sandboxed(mounted_root(root), [*binds, (stage.hosts_file(), "/etc/hosts")], environment or {}, command)
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def until(holds):
    """Asks again and again, as nothing tells when a server of others is there."""
    ends = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < ends, f"not within {WITHIN_S} s"
        time.sleep(0.05)


class Server:
    """A process that is not of the chart."""

    def __init__(self, stage, name, command, port):
        self.log = stage.folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, cwd=stage.folder)
        stage.processes.append(self)
        until(lambda: self.listens(port))

    def listens(self, port):
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


def port_of(address):
    return int(re.search(r":(\d+)(/|$)", address)[1])


def redis(stage, host, *more, port=None):
    """A Redis of the cluster under that name; gives its port."""
    port = port or free_port()
    stage.hosts.add(host)
    command = ["redis-server", "--save", "", "--bind", "127.0.0.1", *more]
    Server(stage, f"redis-{port}", command if "--tls-port" in more else [*command, "--port", port], port)
    return port


def keys_by_https(stage, host):
    """A server of the cluster that gives the key set to whoever asks; gives its port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            keys = stage.secrets["presence-jwks"]["jwks.json"].encode()
            self.send_response(200)
            self.send_header("content-length", str(len(keys)))
            self.end_headers()
            self.wfile.write(keys)

        def log_message(self, *_):
            pass

    stage.hosts.add(host)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*stage.public.sign(host))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stage.processes.append(Listening(server))
    return server.server_port


class Listening:
    """A server of this process, to be ended as the others are."""

    def __init__(self, server):
        self.server = server

    def kill(self):
        self.server.shutdown()
        self.server.server_close()


def users_of_redis(stage):
    """Arguments for a Redis whose one user has a password and the rights that docs/redis.md names."""
    acl = stage.folder / "users.acl"
    acl.write_text(f"user default off\nuser presence on >{STORE_PASSWORD} ~presence:* +@all -@admin -@dangerous +info\n")
    return ["--aclfile", acl]


def plain_redis_with_users(stage, host):
    return redis(stage, host, *users_of_redis(stage))


def secure_redis(stage, host, authority):
    """One with users that speaks TLS only and asks for certificates."""
    certificate, key = authority.sign(host)
    port = free_port()
    tls = ["--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", authority.pem]
    return redis(stage, host, "--port", 0, "--tls-port", port, *tls, *users_of_redis(stage), port=port)


def sentinels(stage, hosts, master):
    """A master with Sentinels, all with passwords; gives the ports of the Sentinels."""
    port = redis(stage, "redis.data", "--requirepass", STORE_PASSWORD)
    ports = []
    for host in hosts:
        stage.hosts.add(host)
        ports.append(free_port())
        config = stage.folder / f"sentinel-{ports[-1]}.conf"
        config.write_text(
            f"port {ports[-1]}\nbind 127.0.0.1\nrequirepass {SENTINEL_PASSWORD}\n"
            f"sentinel monitor {master} 127.0.0.1 {port} 2\nsentinel auth-pass {master} {STORE_PASSWORD}\n"
        )
        Server(stage, f"sentinel-{ports[-1]}", ["redis-sentinel", config], ports[-1])
    return ports


def cluster(stage, hosts):
    """The masters of a Redis Cluster; gives their ports."""
    ports = []
    for number, host in enumerate(hosts):
        port = free_port()
        more = ["--cluster-enabled", "yes", "--cluster-config-file", f"nodes-{number}.conf", "--cluster-port", free_port()]
        ports.append(redis(stage, host, *more, port=port))
    addresses = [f"127.0.0.1:{port}" for port in ports]
    run("redis-cli", "--cluster", "create", *addresses, "--cluster-yes")
    for port in ports:
        until(lambda port=port: "cluster_state:ok" in run("redis-cli", "-p", port, "cluster", "info"))
    return ports


class Client:
    """Who joined a room, with the list that it is told."""

    def __init__(self, socket):
        self.socket, self.members = socket, set()

    async def sees(self, holds):
        """Reads on until something holds of the users in the list, which it gives."""
        while not holds(self.members):
            message = json.loads(await asyncio.wait_for(self.socket.recv(), WITHIN_S))
            assert message["t"] != "error", message
            if message["t"] == "snapshot":
                self.members.clear()
            self.members |= {member["user"] for member in message.get("members", []) + message.get("upserts", [])}
            self.members -= {removal["user"] for removal in message.get("removals", [])}
        return set(self.members)


@contextlib.asynccontextmanager
async def present(stage, url, user, room):
    """Joins by an edge under its own name."""
    context = ssl.create_default_context(cafile=str(stage.public.pem)) if url.startswith("wss") else None
    async with connect(url, host="127.0.0.1", ssl=context, subprotocols=["presence.v1.json"]) as socket:
        await socket.send(json.dumps({
            "t": "join", "room": room, "token": stage.token(room, user), "session": str(uuid.uuid4()),
        }))  # fmt: skip
        yield Client(socket)


async def joined(stage, url, user, room):
    """Who is there once a user has joined, who goes again."""
    async with present(stage, url, user, room) as client:
        return await client.sees(lambda members: user in members)
