#!/usr/bin/env bash
# Hostile calls of every symbol that the simulated driver exports: 1,000,000 from 8 threads, then a
# short run under valgrind. Fails if a call crashes, panics or hangs, if memory grows, or if valgrind
# finds an error. Takes some minutes; options go to the first run, such as `--seed 7`.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --package pagewise-fuzz --bin attack
folder=${CARGO_TARGET_DIR:-target}/debug
# The attackers call functions that are not implemented, and the driver names each of them.
export PAGEWISE_DRIVER="log=off ${PAGEWISE_DRIVER:-}"
"$folder/attack" symbols --calls 1000000 --threads 8 "$@"

if command -v valgrind >/dev/null; then
    fuzz/valgrind.sh
else
    echo "valgrind is missing: its run is left out" >&2
fi
