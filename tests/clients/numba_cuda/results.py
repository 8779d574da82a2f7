"""Runs test modules of numba-cuda and writes one line for each test.

    results.py FILE MODULE ...
"""

import sys
import unittest


class Results(unittest.TextTestResult):
    """Notes each outcome as soon as there is one."""

    file = None

    def note(self, outcome, test):
        print(f"{outcome}\t{test.id()}", file=self.file, flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note("passed", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note("failed", test)

    def addError(self, test, err):
        super().addError(test, err)
        self.note("failed", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note("skipped", test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        # unittest calls neither addSuccess nor addFailure for a test with a subtest that failed.
        if err is not None:
            self.note("failed", test)


def main():
    """Runs the modules. A test starts processes that import this file, so nothing else does."""
    with open(sys.argv[1], "w", encoding="utf-8") as Results.file:
        names = [f"numba.cuda.tests.{module}" for module in sys.argv[2:]]
        suite = unittest.defaultTestLoader.loadTestsFromNames(names)
        unittest.TextTestRunner(resultclass=Results).run(suite)


if __name__ == "__main__":
    main()
