"""Exit with 1 unless one of some JUnit reports shows a test that really ran."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET


def main(reports: list[str]) -> int:
    """Read the reports; return 0 if a test ran, else 1."""
    if not any(map(tests_of, reports)):
        print("No test ran: every one was skipped or deselected.", file=sys.stderr)
        return 1
    return 0


def tests_of(report: str) -> int:
    """Return the number of tests of a report that ran."""
    suites = ET.parse(report).getroot().iter("testsuite")  # noqa: S314 - pytest has just written it
    return sum(int(suite.get("tests", "0")) - int(suite.get("skipped", "0")) for suite in suites)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
