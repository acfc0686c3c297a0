"""Which tests reach which line of the folders to be changed: a pytest plugin, and what it writes.

Run with `-p tests.campaigns.mutations.reached`, `REACHED` naming the file to be written and
`REACHED_UNDER` the folders. Where several processes share the tests, each writes a file of its own:
its name goes behind that of the file.
Everything that a test brings about counts as reached by it, other tasks and threads too; what a
process of its own does is not seen.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import coverage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

_ROOT: Final = Path(__file__).resolve().parents[3]


class Reached(NamedTuple):
    """What a run of all tests has shown."""

    lines: dict[str, dict[int, list[str]]]
    """The tests that reach each line of each module, by its path."""
    seconds: dict[str, float]
    """How long each test took."""


def node_of(nodeid: str) -> str:
    """Return a test's name without its parameters: they are tried together."""
    return nodeid.partition("[")[0]


class _Recorder:
    def __init__(self, path: Path, folders: Sequence[str]) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}
        self._coverage = coverage.Coverage(
            data_file=None,
            config_file=False,
            source=[str(_ROOT / folder) for folder in folders],
            context="import",
        )
        self._coverage.start()
        self._trace = sys.gettrace()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if sys.gettrace() is not self._trace:
            # Some tests trace calls themselves to bring races about.
            sys.settrace(self._trace)
        self._coverage.switch_context(node_of(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        node = node_of(report.nodeid)
        self._seconds[node] = self._seconds.get(node, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {
            str(Path(path).relative_to(_ROOT)): data.contexts_by_lineno(path)
            for path in data.measured_files()
        }
        self._path.write_text(json.dumps({"lines": lines, "seconds": self._seconds}))


def pytest_configure(config: pytest.Config) -> None:
    """Begin before any module of kgw is imported; the process that shares tests out has none."""
    path = os.environ["REACHED"]
    if hasattr(config, "workerinput"):
        path += f".{config.workerinput['workerid']}"
    elif config.getoption("numprocesses", None):
        return
    folders = os.environ["REACHED_UNDER"].split(os.pathsep)
    config.pluginmanager.register(_Recorder(Path(path), folders), "reached")


def read(paths: Sequence[Path]) -> Reached:
    """Read what the plugin has written, in one run or in several of some tests each."""
    reached = Reached({}, {})
    for path in paths:
        found = json.loads(path.read_text())
        reached.seconds.update(found["seconds"])
        for module, by_line in found["lines"].items():
            lines = reached.lines.setdefault(module, {})
            for line, tests in by_line.items():
                lines.setdefault(int(line), []).extend(tests)
    return reached
