# Sourced by the scripts of clients: a folder with the simulated driver under the names of NVIDIA's
# libraries, first on the loader's path.
#
# PAGEWISE_LIBRARIES names a folder that holds them already; otherwise they are built here.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
clients=$repository/tests/clients
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "${PAGEWISE_LIBRARIES:-}" ]; then
    (cd "$repository" && cargo build --quiet --package pagewise-driver --package pagewise-nvml)
    built=${CARGO_TARGET_DIR:-$repository/target}/debug
    PAGEWISE_LIBRARIES=$work/libraries
    mkdir "$PAGEWISE_LIBRARIES"
    ln -s "$built/libpagewise_driver.so" "$PAGEWISE_LIBRARIES/libcuda.so.1"
    ln -s "$built/libpagewise_driver.so" "$PAGEWISE_LIBRARIES/libcuda.so"
    ln -s "$built/libpagewise_nvml.so" "$PAGEWISE_LIBRARIES/libnvidia-ml.so.1"
fi
export LD_LIBRARY_PATH=$PAGEWISE_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Tests that fill a device take as much of the host: 2 GiB are enough for all of them.
export PAGEWISE_DRIVER="memory=2GiB ${PAGEWISE_DRIVER:-}"
