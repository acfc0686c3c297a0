"""What every campaign shares: a seed that is printed, counts of what was injected, a verdict."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from kgw.backend.embedded.log import journal
from tests.data_directories import problems_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Parameters = ParamSpec("_Parameters")

_FAILURES_SHOWN = 40


@contextmanager
def checked_directory(parent: str | None = None) -> Iterator[Path]:
    """Give an empty directory; when the block is over the data directories in it are checked."""
    with tempfile.TemporaryDirectory(prefix="kgw-", dir=parent) as path:
        yield Path(path)
        # In a thread of its own, as the block may be in an event loop.
        with ThreadPoolExecutor(1) as threads:
            problems = threads.submit(problems_below, Path(path)).result()
        assert [] == problems


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Put something unsafe in place of an attribute: how a control breaks the code under test."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


class Report:
    """What one run of a campaign did and found. A run that injected too little has failed.

    Several threads may count and fail.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.kept: Path | None = None
        """Where is what a run that has failed may be judged by."""
        self._failed = 0
        self._lock = threading.Lock()
        self._started_s = time.monotonic()

    def count(self, what: str, number: int = 1) -> None:
        """Count something that was injected or checked."""
        with self._lock:
            self.counts[what] += number

    def fail(self, what: str) -> None:
        """Note something that must not be."""
        with self._lock:
            self._failed += 1
            if self._failed <= _FAILURES_SHOWN:
                self.failures.append(what)

    @property
    def failure_count(self) -> int:
        """How often `fail` was called."""
        return self._failed

    def add(self, part: Report) -> None:
        """Take over what another report of the same run counts and found."""
        for what, number in part.counts.items():
            self.count(what, number)
        for failure in part.failures:
            self.fail(f"{part.name}: {failure}")

    def expect_alarm(self, control: Report, what: str) -> None:
        """Fail unless the control, which breaks the code on purpose, has found that."""
        found = sum(what in failure for failure in control.failures)
        self.count("control_alarms", found)
        if not found:
            self.fail(f"control: nothing says {what!r}: {control}")

    def require(self, what: str, minimum: int) -> None:
        """Fail when something was done less often than stated."""
        if self.counts[what] < minimum:
            self.fail(f"{what}: only {self.counts[what]} of {minimum}")

    def __str__(self) -> str:
        figures = " ".join(f"{what}={number}" for what, number in sorted(self.counts.items()))
        elapsed_s = time.monotonic() - self._started_s
        verdict = f"FAILED ({self._failed})" if self._failed else "passed"
        lines = [f"{self.name} seed={self.seed} {figures} seconds={elapsed_s:.1f}: {verdict}"]
        lines += [f"  {failure}" for failure in self.failures]
        if self.kept is not None:
            lines.append(f"  kept in {self.kept}")
        return "\n".join(lines)

    def conclude(self) -> None:
        """Raise AssertionError with everything that was found unless the run has passed."""
        print(self, flush=True)
        if self._failed:
            raise AssertionError(str(self))


def replays(
    run: Callable[Concatenate[int, _Parameters], Report],
) -> Callable[Concatenate[int, _Parameters], Report]:
    """Let a campaign on a simulated disk be the same run for each seed, to the last byte."""

    def run_seeded(
        seed: int, /, *arguments: _Parameters.args, **named: _Parameters.kwargs
    ) -> Report:
        # The generations of journals, which nobody may guess.
        with replaced(journal, "urandom", Random(seed).randbytes):
            return run(seed, *arguments, **named)

    return run_seeded


def main(run: Callable[[int, bool], Report]) -> None:
    """Run a campaign from the command line: `--full` for full size, `--seed N` to replay."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="full size instead of the short form")
    parser.add_argument("--seed", type=int, default=None, help="replay the run of this seed")
    arguments = parser.parse_args()
    seed = time.time_ns() % 1_000_000 if arguments.seed is None else arguments.seed
    print(f"seed={seed}", flush=True)
    report = run(seed, arguments.full)
    print(report, flush=True)
    sys.exit(1 if report.failure_count else 0)
