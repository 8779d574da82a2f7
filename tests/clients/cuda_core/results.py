"""Prints the results in files that pytest wrote (JUnit's format): one line for each test."""

import sys
import xml.etree.ElementTree as ElementTree


def outcome(case):
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


for path in sys.argv[1:]:
    for case in ElementTree.parse(path).iter("testcase"):
        # pytest counts the folder in or not, by what lies beside it.
        module = case.get("classname").removeprefix("tests.")
        print(f"{outcome(case)}\t{module}.{case.get('name')}")
