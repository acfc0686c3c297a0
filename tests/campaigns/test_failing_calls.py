"""Which system calls are made to fail, and which have failed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.campaigns.failing_calls import Injection, Strike, choose, read_strikes

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
