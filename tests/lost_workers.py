"""A test whose process is lost is run again, once, by another process; a plug-in of pytest.

With several processes (pytest-xdist) one may end in the middle of a test: killed for memory, or by
`hung.py`, which on a machine that stands still cannot know what is slow from what hangs. That is
the run's fault, unless it happens to the same test again: then the test has failed. Without several
processes the run itself ends, and its exit code is no success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from typing import Protocol

    class Scheduler(Protocol):
        """What pytest-xdist shares the tests with."""

        def mark_test_pending(self, item: str) -> None:
            """Have a test run once more."""


LOST = "lost"


def pytest_configure(config: pytest.Config) -> None:
    """Watch the processes, from the one that has started them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_LostWorkers())


class _LostWorkers:
    def __init__(self) -> None:
        self._tests: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(
        self, crashitem: str, report: pytest.TestReport, sched: Scheduler
    ) -> None:
        """Have the test run again, unless it has been."""
        if crashitem not in self._tests:
            self._tests.append(crashitem)
            report.outcome = LOST  # type: ignore[assignment]
            sched.mark_test_pending(crashitem)

    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """Count it by itself: it has neither passed nor failed."""
        if report.outcome != LOST:
            return None
        return LOST, "L", ("LOST", {"yellow": True})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say whose fault it was."""
        if self._tests:
            terminalreporter.section("lost processes")
            terminalreporter.write_line(
                "A process of this run ended in the middle of each of these tests. They were run"
                " again by another one, and only what happened then counts:"
            )
            for name in self._tests:
                terminalreporter.write_line(name)
