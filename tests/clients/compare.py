"""Compares the results of a client's tests with the list of those that are expected to fail.

    compare.py EXPECTED < RESULTS

A result is a line: `passed`, `failed` or `skipped`, a tab, and the test's name. The list has a line
`at least N` for the number of tests that pass, and for each expected failure a line with the test's
name, a tab and the reason. A name that ends with `*` stands for all tests that begin so. The status
is 1 if another test fails, or fewer pass. A listed test that passes is named, so that its line can
go: versions of the client differ.
"""

import sys


def read_expected(path):
    least, reasons = 0, {}
    with open(path, encoding="utf-8") as lines:
        for line in map(str.rstrip, lines):
            if not line or line.startswith("#"):
                continue
            if line.startswith("at least "):
                least = int(line.removeprefix("at least "))
                continue
            name, reason = line.split("\t", 1)
            reasons[name] = reason
    return least, reasons


def reason_of(name, reasons):
    for pattern, reason in reasons.items():
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return reason
    return None


def main():
    least, reasons = read_expected(sys.argv[1])
    results = [line.rstrip("\n").split("\t", 1) for line in sys.stdin]
    passed = [name for outcome, name in results if outcome == "passed"]
    failed = [name for outcome, name in results if outcome == "failed"]
    skipped = len(results) - len(passed) - len(failed)
    unexpected = [name for name in failed if reason_of(name, reasons) is None]
    for name in failed:
        reason = reason_of(name, reasons)
        print(f"{'failed' if reason is None else 'as expected'}  {name}  {reason or ''}".rstrip())
    for name in passed:
        if name in reasons:
            print(f"passes now  {name}: its line in {sys.argv[1]} can go")
    print(
        f"{len(passed)} passed, {len(failed)} failed ({len(unexpected)} of them unexpected), "
        f"{skipped} skipped"
    )
    if len(passed) < least:
        print(f"expected at least {least} to pass")
    return 1 if unexpected or len(passed) < least else 0


if __name__ == "__main__":
    sys.exit(main())
