"""Which system calls are made to fail, and which have failed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.campaigns.failing_calls import (
    Injection,
    Script,
    Strike,
    choose,
    judge,
    read_strikes,
)
from tests.campaigns.support import Report
from tests.findings import unplanted

if TYPE_CHECKING:
    from pathlib import Path

TRACE = """\
11 1.5 fdatasync(7</d/0.journal>) = -1 EIO (Input/output error) (INJECTED)
11 2.5 fdatasync(7</d/0.log> <unfinished ...>
12 2.6 fdatasync(8</d/1.log> <unfinished ...>
11 2.7 <... fdatasync resumed>) = 0
12 2.8 <... fdatasync resumed>) = -1 EIO (Input/output error) (INJECTED)
13 2.9 io_setup(64, 0x7ffe) = -1 ENOSYS (Function not implemented) (INJECTED)
11 3.0 io_setup(64 <unfinished ...>
12 3.1 fsync(9</d/x> <unfinished ...>
11 3.2 <... io_setup resumed>0x7ffe) = -1 ENOSYS (Function not implemented) (INJECTED)
14 3.5 rename("/d/a.tmp", "/d/a") = -1 EIO (Input/output error) (INJECTED)
"""


def test_a_quarter_of_the_failures_are_syncs_that_are_made() -> None:
    """A thread syncs some dozen times in a run: a later failure would strike nothing."""
    random = Random(1)
    chosen = [choose(random) for _ in range(1_000)]
    assert sum(one.call == "fdatasync" and one.nth <= 30 for one in chosen) >= 250


def test_syncs_that_fail_are_made_by_threads(tmp_path: Path) -> None:
    """What the kernel does by itself cannot be made to fail."""
    command = Injection("fdatasync", "EIO", 3, persistent=False).command(["kgw"], tmp_path)
    assert "inject=io_setup:error=ENOSYS" in command


def test_a_call_during_which_another_thread_calls_has_failed_too(tmp_path: Path) -> None:
    """The trace tells its beginning and its end in two lines.

    The end belongs to the call that the thread began last: the sync of `0.log` has not failed
    because the thread's next call did.
    """
    trace = tmp_path / "trace"
    trace.write_text(TRACE)
    expected = [
        Strike(1.5, "fdatasync", "/d/0.journal"),
        Strike(2.8, "fdatasync", "/d/1.log"),
        Strike(3.5, "rename", "/d/a.tmp"),
    ]
    assert expected == read_strikes(trace)


SYNC = Strike(2.0, "fdatasync", "/d/0.log")
JUDGED: dict[str, tuple[list[Strike], list[float], int, str, list[str]]] = {
    "nothing failed": ([], [1.0, 3.0], 0, "fdatasync", []),
    "nothing was acknowledged later": ([SYNC], [1.0, 2.0], 0, "fdatasync", []),
    "something else failed": ([Strike(2.0, "rename", "/d/a")], [3.0], 0, "rename", []),
    "a sync of names failed": ([Strike(2.0, "fdatasync", "/d")], [3.0], 0, "fdatasync", []),
    "reads failed as they were made to": ([], [], 2, "pread64", []),
    "acknowledged later": (
        [SYNC, SYNC._replace(time_s=5.0)],
        [1.0, 3.0, 4.0],
        0,
        "fdatasync",
        ["place: 2 acknowledged after a failed sync"],
    ),
    "acknowledged after a failed sync of a journal": (
        [SYNC._replace(path="/d/7.journal")],
        [3.0],
        0,
        "fdatasync",
        ["place: 1 acknowledged after a failed sync"],
    ),
    "reads failed for nothing": ([SYNC], [], 2, "fdatasync", ["place: 2 reads failed"]),
}


@pytest.mark.parametrize("what", JUDGED)
def test_what_is_answered_while_calls_fail_is_judged(what: str) -> None:
    """Each thing that is wrong alone, by its name."""
    strikes, answered_s, failed_reads, call, said = JUDGED[what]
    report = Report("failing calls", 1)
    script = Script(report, Random(1))
    script.answered = [(at_s, 0, 0) for at_s in answered_s]
    script.failed_reads = failed_reads
    judge(report, "place", script, strikes, Injection(call, "EIO", 1, persistent=False))
    assert said == report.failures


def test_everything_that_is_said_of_answers_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    assert [] == unplanted([judge], [one for *_, said in JUDGED.values() for one in said])
