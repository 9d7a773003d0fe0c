"""The image: from one list of files, without a shell, unprivileged; what its configuration and bill of materials say."""

import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from image import ROOT, USER, binaries, final_stage, lay_out, mounted_root, oci_layout, run, sandboxed

VERSION, REVISION = "1.2.3", "0123abc"


@pytest.fixture(scope="module")
def folder():
    made = pathlib.Path(tempfile.mkdtemp(prefix="presence-image-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def layout(folder, root):
    return oci_layout(folder / "oci", root, {"VERSION": VERSION, "REVISION": REVISION})


@pytest.fixture(scope="module")
def unpacked(folder, layout):
    """The image as a node has it: unpacked from its layers."""
    run("umoci", "unpack", "--rootless", "--image", f"{layout}:presence", folder / "bundle")
    root = folder / "bundle" / "rootfs"
    (folder / "bundle").chmod(0o755)
    return root


def config_of(layout):
    return json.loads(run("skopeo", "inspect", "--config", f"oci:{layout}:presence"))["config"]


def files_of(root):
    return sorted(f"/{path.relative_to(root)}" for path in root.rglob("*") if not path.is_dir())


def test_the_dockerfile_copies_what_the_list_lays_out_and_nothing_else():
    stage = final_stage()
    assert stage[0] == ("FROM", "scratch")
    assert [value for name, value in stage if name in {"COPY", "ADD", "RUN"}] == ["--from=build /rootfs /"]
    assert "helm/image/lay-out target/release /rootfs" in (ROOT / "Dockerfile").read_text()


def test_hadolint_has_nothing_to_say():
    program = pathlib.Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_configuration_of_the_image(layout):
    config = config_of(layout)
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["/usr/local/bin/presence"] and not config.get("Cmd")
    assert config["ExposedPorts"].keys() == {"4701/tcp", "4702/tcp", "4711/tcp", "4712/tcp"}
    assert config["StopSignal"] == "SIGTERM"
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert labels == {
        "title": "presence", "description": "Who is here: presence-core, presence-edge and presence", "licenses": "Apache-2.0",
        "version": VERSION, "revision": REVISION,
    }  # fmt: skip


def test_it_has_the_files_of_the_list_and_the_libraries_that_it_names(unpacked):
    lines = [line.split() for line in (ROOT / "helm" / "image" / "files").read_text().splitlines() if line[0] != "#"]
    listed = sorted(line[2] for line in lines if line[0] != "library")
    libraries = [line[1] for line in lines if line[0] == "library"]
    found = files_of(unpacked)
    others = [file for file in found if file not in listed]
    assert [file for file in found if file in listed] == listed
    assert len(others) == len(libraries)
    assert all(any(pathlib.Path(file).name.startswith(library) for library in libraries) for file in others)


def test_nobody_can_write_or_gain_anything_there(unpacked):
    for path in unpacked.rglob("*"):
        mode = path.lstat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH | stat.S_IWGRP), path
    names = {pathlib.Path(file).name for file in files_of(unpacked)}
    assert not names & {"sh", "bash", "busybox", "apt", "dpkg", "curl", "wget"}


def test_the_same_files_are_laid_out_to_the_same_layer(folder, layout):
    again = oci_layout(folder / "again", lay_out(folder / "root-again"), {"VERSION": VERSION, "REVISION": REVISION})

    def layers(of):
        return json.loads(run("skopeo", "inspect", "--raw", f"oci:{of}:presence"))["layers"]

    assert layers(again) == layers(layout)


def test_the_bill_of_materials_names_what_is_inside(unpacked):
    text = (unpacked / "usr/share/doc/presence/sbom.cdx.json").read_text()
    mistake = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    assert mistake is None, str(mistake)[:200]
    bom = json.loads(text)
    names = {component["name"] for component in bom["components"]}
    assert {
        "presence",
        "presence-core",
        "presence-edge",
        "tokio",
        "rustls",
        "fastwebsockets",
        "redis",
        "libc6",
        "libgcc-s1",
    } <= names
    assert not names & {"presence-tests", "proptest", "tonic-prost-build"}, "tests and what builds are not inside"
    references = [component["bom-ref"] for component in bom["components"]]
    assert len(set(references)) == len(references) and references == sorted(references)
    locked = (ROOT / "Cargo.lock").read_text()
    for component in bom["components"]:
        assert component["purl"] == component["bom-ref"] and component["version"]
        if component["purl"].startswith("pkg:cargo/"):
            assert f'name = "{component["name"]}"\nversion = "{component["version"]}"' in locked
            assert component["licenses"][0]["expression"]


@pytest.mark.parametrize("program", ["presence", "presence-core", "presence-edge"])
def test_each_binary_starts_in_it(unpacked, program):
    words = sandboxed(mounted_root(unpacked), [], {}, [f"/usr/local/bin/{program}", "--help"])
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stdout.startswith(("The presence", "Presence")), done.stdout + done.stderr


def test_inside_nothing_can_be_written_and_nobody_is_root(unpacked, folder):
    # Keys are the one thing that a binary writes.
    refused = subprocess.run(
        sandboxed(mounted_root(unpacked), [], {}, ["/usr/local/bin/presence", "keys", "/etc/keys"]),
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert refused.returncode != 0 and "ead-only" in refused.stderr, refused.stderr
    if os.geteuid() == 0:
        secret = folder / "secret"
        secret.write_text("of root")
        secret.chmod(0o400)
        command = ["/usr/local/bin/presence-core", "--check", "--jwks", "/etc/secret"]
        words = sandboxed(mounted_root(unpacked), [(secret, "/etc/secret")], {}, command)
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
        assert done.returncode == 64 and "ermission denied" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "change", [("library libm.so.6\n", "", "libm.so.6 is not in"), ("library ld", "library libz.so.1\nlibrary ld", "libz.so.1")]
)
def test_a_library_more_or_less_than_the_list_has_is_refused(tmp_path, change):
    old, new, told = change
    shutil.copytree(ROOT / "helm" / "image", tmp_path / "helm" / "image")
    listed = tmp_path / "helm" / "image" / "files"
    text = listed.read_text().replace(old, new)
    # Only libraries are looked at here; the rest of the list is of the repository.
    listed.write_text("\n".join(line for line in text.splitlines() if line.startswith("library")))
    (tmp_path / "helm" / "image" / "sbom").write_text("#!/bin/sh\n")
    command = [tmp_path / "helm" / "image" / "lay-out", binaries(), tmp_path / "root"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and told in done.stderr, done.stderr
