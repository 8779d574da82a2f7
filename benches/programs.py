#!/usr/bin/env python3
"""Times programs under `pagewise run`, and says where their time goes.

usage: benches/programs.py [--repeat N] PAGEWISE -- COMMAND [ARGUMENT…] [-- COMMAND …]

For each command it prints the least wall time of N runs and their bytes and faults, from
`pagewise run --summary`. Then it samples one more run with `perf` and prints shares of its processor
time. A share is by the function that ran, not by its callers:

  interpreting  the executor of kernels (pagewise_ptx)
  faulting      the model of the driver and of the order of faults (pagewise_sim, others of pagewise)
  copying       moves and fills of bytes in the C library, and the contents of memory
  host faults   the simulator's part of genuine faults of the host
  kernel        Linux: page faults, userfaultfd, files
  program       the program itself, and its other libraries

Symbols are needed: build with CARGO_PROFILE_RELEASE_DEBUG=1. Without `perf` there are no shares.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

CLASSES = ("interpreting", "faulting", "copying", "host faults", "kernel", "program")


def split(arguments):
    """The options, and the commands, each after a `--`."""
    parts, current = [], []
    for argument in arguments:
        if argument == "--":
            parts.append(current)
            current = []
        else:
            current.append(argument)
    return parts[0] if parts else current, (parts[1:] + [current]) if parts else []


def class_of(library, symbol):
    if library.startswith("[") and "kernel" in library or symbol.startswith("[k]"):
        return "kernel"
    if any(word in symbol for word in ("memmove", "memcpy", "memset", "clear_page")):
        return "copying"
    if "pagewise_ptx" in symbol:
        return "interpreting"
    if any(word in symbol for word in ("pagewise_sim::arena", "pagewise_sim::contents")):
        return "copying"
    if any(word in symbol for word in ("host_faults", "pagewise_sim::faulting", "host_view")):
        return "host faults"
    if "pagewise" in symbol or "libcuda" in library or "libcudart" in library:
        return "faulting"
    return "program"


def run(pagewise, command, before=()):
    with tempfile.TemporaryDirectory() as folder:
        summary = os.path.join(folder, "summary.json")
        whole = [*before, pagewise, "run", "--summary", summary, "--", *command]
        started = time.monotonic()
        done = subprocess.run(whole, cwd=folder, capture_output=True, text=True, errors="replace")
        seconds = time.monotonic() - started
        if done.returncode:
            sys.exit(f"{command[0]}: status {done.returncode}: {done.stderr[-300:]}")
        with open(summary) as file:
            return seconds, json.load(file)


def shares(pagewise, command):
    """Shares of the samples by class."""
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        run(pagewise, command, ("perf", "record", "-q", "-F", "499", "-o", data, "--"))
        report = ["perf", "report", "-i", data, "--sort", "dso,symbol", "--field-separator", "\t"]
        text = subprocess.run(report, capture_output=True, text=True, errors="replace").stdout
    found = dict.fromkeys(CLASSES, 0.0)
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) >= 3 and not line.startswith("#"):
            found[class_of(fields[1], fields[2])] += float(fields[0].rstrip("%"))
    return found


def main():
    options, commands = split(sys.argv[1:])
    repeat = 1
    if options[:1] == ["--repeat"] and len(options) > 1:
        repeat, options = int(options[1]), options[2:]
    if len(options) != 1 or not all(commands) or not commands:
        sys.exit(__doc__)
    pagewise = os.path.abspath(options[0])
    has_perf = shutil.which("perf")
    print("| program | s | h2d MiB | d2h MiB | host faults | " + " | ".join(CLASSES) + " |")
    print("| " + " | ".join(["---"] * (5 + len(CLASSES))) + " |")
    total = 0.0
    for command in commands:
        runs = [run(pagewise, command) for _ in range(repeat)]
        seconds, summary = min(runs, key=lambda one: one[0])
        total += seconds
        found = shares(pagewise, command) if has_perf else None
        of_class = [f"{found[name]:.0f} %" if found else "" for name in CLASSES]
        mib = [f"{summary[way] / 2**20:.0f}" for way in ("h2d_bytes", "d2h_bytes")]
        row = [os.path.basename(command[0]), f"{seconds:.1f}", *mib, str(summary["cpu_faults"])]
        print("| " + " | ".join(row + of_class) + " |", flush=True)
    print(f"\nall: {total:.1f} s")


if __name__ == "__main__":
    main()
