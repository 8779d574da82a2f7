#!/usr/bin/env bash
# Hostile calls of every symbol that the simulated driver exports, under valgrind's memcheck: 2,000
# from 2 threads. Fails if valgrind finds an error, or if a call panics or hangs. Takes two minutes;
# options go to the attack, such as `--calls 20000`.
#
# The host's accesses are declared ones here. valgrind does not know userfaultfd, and runs one thread
# at a time: a thread that waits in a fault keeps the threads that would service it from running.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --package pagewise-fuzz --bin attack
folder=${CARGO_TARGET_DIR:-target}/debug
export PAGEWISE_DRIVER="log=off ${PAGEWISE_DRIVER:-} host_faults=declared"
# A call takes a thousand times as long there.
valgrind --quiet --error-exitcode=9 --max-stackframe=4000000 \
    "$folder/attack" symbols --calls 2000 --threads 2 --call-limit 600 "$@"
