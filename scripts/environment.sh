# Makes .venv with Headrace in it, compiled; sourced by the other scripts, which then use $python.
# Does nothing where all of it is there already. Never touches anything outside the checkout but Debian's packages.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
python=$PWD/.venv/bin/python

# install_debian PACKAGE... : as root, else say what to do.
install_debian() {
    if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
        echo "missing: please install these packages (or their like): $*" >&2
        exit 1
    fi
    echo "installing Debian packages: $*" >&2
    apt-get update -qq >&2 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# What a C extension for the Python found as python3 needs.
install_build_tools() {
    local missing=()
    command -v python3 >/dev/null || missing+=(python3)
    command -v gcc >/dev/null || missing+=(gcc libc6-dev)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    python3 -c 'import os, sysconfig as s, sys; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' \
        2>/dev/null || missing+=(python3-dev)
    [ ${#missing[@]} -eq 0 ] || install_debian "${missing[@]}"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed" >&2; exit 1; }
}

# Install again only when something that is compiled or depended upon has changed.
install_headrace() {
    local stamp
    stamp=$(cat pyproject.toml setup.py common/kernels/*.py | sha256sum)
    [ "$(cat .venv/stamp 2>/dev/null)" = "$stamp" ] && return
    install_build_tools
    [ -x "$python" ] || python3 -m venv .venv
    echo "installing Headrace into .venv (some minutes, most of it compiling)" >&2
    if ! "$python" -m pip install --disable-pip-version-check --editable '.[test]' >.venv/install.log 2>&1; then
        tail -n 40 .venv/install.log >&2
        echo "installing failed; all of it is in .venv/install.log" >&2
        exit 1
    fi
    echo "$stamp" >.venv/stamp
}

install_headrace
