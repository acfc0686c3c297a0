"""A test whose process is lost is run again, once, by another process; a plug-in of pytest.

With several processes (pytest-xdist) one may end in the middle of a test: killed for memory, or by
`hung.py`, which on a machine that stands still cannot know what is slow from what hangs. That is
the run's fault, unless it happens to the same test again: then the test has failed. Without several
processes the run itself ends, and its exit code is no success. Nor is it when so many processes
were lost that pytest-xdist starts no more, and tests are left that nobody has run.
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
        self._ended: set[str] = set()
        self._left = 0
        self._has_lost = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object | None) -> None:
        """Note that a process is lost, be it between two tests."""
        if error is not None:
            self._has_lost = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(
        self, crashitem: str, report: pytest.TestReport, sched: Scheduler
    ) -> None:
        """Have the test run again, unless it has been."""
        if crashitem not in self._tests:
            self._tests.append(crashitem)
            report.outcome = LOST  # type: ignore[assignment]
            sched.mark_test_pending(crashitem)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests are over: those with a teardown, or that have failed with a process."""
        if report.outcome != LOST and report.when not in {"setup", "call"}:
            self._ended.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Have the run fail when what is lost has left tests that were not run to their end."""
        if self._has_lost:
            self._left = session.testscollected - len(self._ended)
        if self._left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

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
                "A process of this run ended in the middle of each of these tests. Only what"
                " happens when another process runs them again counts:"
            )
            for name in self._tests:
                terminalreporter.write_line(name)
        if self._left:
            terminalreporter.write_line(
                f"Processes were lost, and {self._left} tests were not run to their end.", red=True
            )
