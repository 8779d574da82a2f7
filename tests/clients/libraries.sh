# Sourced by the scripts of clients: a folder with the simulated libraries under the names of
# NVIDIA's, first on the loader's path; and Python's packages.
#
# PAGEWISE_LIBRARIES names a folder that holds the libraries already, and CLIENTS_BUILT what cargo has
# built of them and of the command; otherwise they are built here.
# CLIENTS_KEPT names a folder that keeps packages and builds for the next run; otherwise they go when
# the script ends.

# The status of a script that cannot have its client.
unavailable=75

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
clients=$repository/tests/clients
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kept=${CLIENTS_KEPT:-$work/kept}
mkdir -p "$kept"

# Builds the libraries and the command, unless they are built.
build() {
    built=${CLIENTS_BUILT:-${CARGO_TARGET_DIR:-$repository/target}/debug}
    [ -z "${CLIENTS_BUILT:-}" ] || return 0
    (cd "$repository" && cargo build --quiet --locked --package pagewise-driver \
        --package pagewise-nvml --package pagewise-cudart-13 --package pagewise-cli)
    CLIENTS_BUILT=$built
}

if [ -z "${PAGEWISE_LIBRARIES:-}" ]; then
    build
    PAGEWISE_LIBRARIES=$work/libraries
    mkdir "$PAGEWISE_LIBRARIES"
    ln -s "$built/libpagewise_driver.so" "$PAGEWISE_LIBRARIES/libcuda.so.1"
    ln -s "$built/libpagewise_driver.so" "$PAGEWISE_LIBRARIES/libcuda.so"
    ln -s "$built/libpagewise_nvml.so" "$PAGEWISE_LIBRARIES/libnvidia-ml.so.1"
    ln -s "$built/libpagewise_cudart_13.so" "$PAGEWISE_LIBRARIES/libcudart.so.13"
fi

# Ends the script, because its client cannot be had.
absent() {
    echo "skipped: $1"
    exit $unavailable
}

# Installs packages of Python that all clients share, unless these are there already.
python_with() {
    local installed
    installed=$kept/python/installed-$(echo "$* ${PIP_CONSTRAINT:-}" | cksum | cut -d ' ' -f 1)
    python=$kept/python/bin/python
    [ ! -e "$installed" ] || return 0
    python3 -m venv "$kept/python" &&
        "$python" -m pip install --quiet --disable-pip-version-check "$@" && touch "$installed" ||
        absent "the registry does not give $*"
}

# From here on programs find the simulated libraries first.
use_libraries() {
    export LD_LIBRARY_PATH=$PAGEWISE_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    # Tests that fill a device take as much of the host: 2 GiB are enough for all of them.
    export PAGEWISE_DRIVER="memory=2GiB ${PAGEWISE_DRIVER:-}"
}
