"""Exit with 1 unless a JUnit report shows at least one test that really ran."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree  # noqa: S405 - reads a file that pytest has just written


def main(report: str) -> int:
    suites = ElementTree.parse(report).getroot().iter("testsuite")  # noqa: S314 - see above
    ran = sum(int(suite.get("tests", "0")) - int(suite.get("skipped", "0")) for suite in suites)
    if ran == 0:
        print("No test ran: every one was skipped or deselected.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
