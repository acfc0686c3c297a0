"""Leaves out tests that a run before has passed: in CI those that scripts/coverage has traced.

`--passed-to FILE` lists what has passed, a node id a line; `--without FILE` leaves that out.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take both files."""
    group = parser.getgroup("run before")
    group.addoption("--passed-to", type=Path, metavar="FILE", help="list what passes there")
    group.addoption("--without", type=Path, metavar="FILE", help="leave out what it lists")


def pytest_configure(config: pytest.Config) -> None:
    """Begin the list anew; workers of xdist tell the process that started them."""
    file = config.getoption("--passed-to")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Passed(file))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what has passed."""
    file = config.getoption("--without")
    if file is None:
        return
    passed = set(file.read_text(encoding="utf-8").splitlines())
    left_out = [item for item in items if item.nodeid in passed]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.nodeid not in passed]


class _Passed:
    """Writes the list when all is over."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test as passed when its call has, and neither set-up nor teardown failed."""
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write it."""
        names = sorted(self._passed - self._failed)
        self._file.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
