"""Exit with 1 unless a JUnit report shows at least one test that really ran."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET


def main(report: str) -> int:
    """Reads the report; 0 when a test ran, else 1."""
    suites = ET.parse(report).getroot().iter("testsuite")  # noqa: S314 - pytest has just written it
    ran = sum(int(suite.get("tests", "0")) - int(suite.get("skipped", "0")) for suite in suites)
    if ran == 0:
        print("No test ran: every one was skipped or deselected.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
