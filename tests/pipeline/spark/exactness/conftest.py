"""The campaign's report: a line for each run, and totals."""

from __future__ import annotations

import pytest

from tests.pipeline.spark.exactness.report import Report

_REPORT = pytest.StashKey[Report]()


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Report:
    """What the runs of this session say."""
    return pytestconfig.stash.setdefault(_REPORT, Report())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the report where there were runs."""
    report = config.stash.get(_REPORT, None)
    if report is not None and report.rows:
        terminalreporter.section("exactness")
        for line in report.lines():
            terminalreporter.write_line(line)
