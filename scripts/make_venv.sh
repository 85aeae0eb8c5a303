#!/bin/sh
# Makes .venv in the checkout: this package, editable, with everything pinned in requirements/dev.txt.
# What is missing is said in one line; whatever else goes wrong stands in .venv/install.log.
set -u

# Settings of the surrounding shell that would lead packages past the environment.
unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER PIP_CONSTRAINT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

fail() {
    echo "otel_gym: $*" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

has_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

# The python that PYTHON names, else the first of these that runs, is new enough and can make an environment.
find_python() {
    candidates=${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}
    without_venv=
    for candidate in $candidates; do
        is_new_enough "$candidate" || continue
        if has_venv "$candidate"; then
            echo "$candidate"
            return
        fi
        without_venv=${without_venv:-$candidate}
    done
    [ -z "$without_venv" ] ||
        fail "$without_venv has no venv module: install it (Debian and Ubuntu: apt-get install python3-venv)"
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is no Python 3.11 or newer"
    python3 --version >/dev/null 2>&1 || fail "python3 is missing: install Python 3.11 or newer"
    fail "$(python3 --version 2>&1) is too old: install Python 3.11 or newer, or give one as PYTHON=…"
}

make_environment() {
    rm -rf .venv
    "$1" -m venv .venv || fail "$1 -m venv .venv failed: see the lines above"
}

# What pip says where it gets no answer; "from versions: none" is how a refused connection ends.
unreachable='from versions: none|NewConnectionError|NameResolutionError|ConnectTimeoutError|ProxyError|Max retries exceeded'

install() {
    .venv/bin/python -m pip install --progress-bar off "$@" >>.venv/install.log 2>&1 && return
    if grep -qE "$unreachable" .venv/install.log; then
        fail "no packages from the registry: is it reachable from here, and is pip configured for it? (.venv/install.log)"
    fi
    tail -n 5 .venv/install.log >&2
    fail "the installation failed: see .venv/install.log"
}

python=$(find_python) || exit 1
if ! { [ -x .venv/bin/python ] && is_new_enough .venv/bin/python && .venv/bin/python -m pip --version; } >/dev/null 2>&1; then
    echo "otel_gym: making .venv with $("$python" --version 2>&1)"
    make_environment "$python"
fi
echo "otel_gym: installing into .venv (once, and again when the requirements change)"
: >.venv/install.log
install -r requirements/dev.txt
# The pins hold what pyproject.toml asks for, so nothing is resolved here; pip check says if that is no longer true.
install --no-deps --no-build-isolation -e .
.venv/bin/python -m pip check >>.venv/install.log 2>&1 || {
    tail -n 5 .venv/install.log >&2
    fail "requirements/dev.txt does not hold what pyproject.toml asks for: write it anew (make pins)"
}
install --no-deps --upgrade --target .venv/peers -r requirements/peers.txt
touch .venv/installed
