"""The image as far as it goes without an engine: its root as the Dockerfile lays it out, in an OCI layout, and a process
in it as a node would start it: unprivileged, read-only, with nothing but what is mounted."""

import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
USER = 65532


def binaries():
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    assert (folder / "presence-edge").exists(), f"{folder} has no binaries: cargo build --release --locked --workspace --bins"
    return folder


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def final_stage():
    """Instructions of the last stage of the Dockerfile, in order, as pairs."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    last = max(place for place, line in enumerate(lines) if line.startswith("FROM "))
    return [tuple(line.split(maxsplit=1)) for line in lines[last:]]


def lay_out(folder):
    """The root of the image."""
    run(ROOT / "helm" / "image" / "lay-out", binaries(), folder)
    return folder


def oci_layout(folder, root, arguments):
    """An OCI layout with one image, `presence`, of the root and what the final stage says of it."""
    stage = final_stage()
    defaults = dict(pair.split("=") for name, pair in stage if name == "ARG")
    filled = {**defaults, **arguments}
    image = f"{folder}:presence"
    run("umoci", "init", "--layout", folder)
    run("umoci", "new", "--image", image)
    run("umoci", "insert", "--rootless", "--image", image, root, "/")
    settings = []
    for name, value in stage:
        value = re.sub(r"\$\{(\w+)\}", lambda found: filled[found[1]], value)
        if name == "LABEL":
            settings += [f"--config.label={label}={text}" for label, text in re.findall(r'(\S+?)="([^"]*)"', value)]
        elif name == "USER":
            settings.append(f"--config.user={value}")
        elif name == "EXPOSE":
            settings += [f"--config.exposedports={port}/tcp" for port in value.split()]
        elif name == "STOPSIGNAL":
            settings.append(f"--config.stopsignal={value}")
        elif name == "ENTRYPOINT":
            settings += [f"--config.entrypoint={word}" for word in json.loads(value)]
    run("umoci", "config", "--image", image, *settings)
    return folder


def mounted_root(root):
    """Arguments of bubblewrap for a read-only root, in which there are places to mount to."""
    places = [place for place in sorted(root.iterdir()) if place.name != "etc"] + sorted((root / "etc").iterdir())
    return [word for place in places for word in ("--ro-bind", place, f"/{place.relative_to(root)}")]


def sandboxed(root, binds, environment, command):
    """A command in a root, as the user of the image: unprivileged also outside of it."""
    privileges = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    whole = privileges if os.geteuid() == 0 else []
    whole += ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--as-pid-1", "--die-with-parent", "--clearenv"]
    whole += [*root, "--proc", "/proc", "--dev", "/dev"]
    for source, target in binds:
        whole += ["--ro-bind", source, target]
    for name, value in environment.items():
        whole += ["--setenv", name, value]
    return [str(word) for word in [*whole, "--remount-ro", "/", "--", *command]]
