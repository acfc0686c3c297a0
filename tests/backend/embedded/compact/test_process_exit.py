from __future__ import annotations

import pytest

from kgw.backend.embedded.compact.process_exit import ProcessExit

CHAINED = """noise before
Traceback (most recent call last):
  File "/somewhere/a.py", line 3, in f
    g()
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/somewhere/a.py", line 3, in f
    g()
  File "/somewhere/b.py", line 70, in g
    raise ValueError
ValueError: one
 and two
three
"""
ABORT = """Fatal Python error: _enter_buffered_busy: could not acquire lock
Python runtime state: finalizing (tstate=0x1)

Current thread 0x1 (most recent call first):
  <no Python frame>
"""


@pytest.mark.parametrize(
    ("status", "complaint", "kind", "expected"),
    [
        (1, CHAINED, "raised", "ValueError: one (b.py, line 70)"),
        (-6, CHAINED + ABORT, "killed", "killed by SIGABRT; ValueError: one (b.py, line 70)"),
        (
            -6,
            ABORT,
            "killed",
            "killed by SIGABRT; Fatal Python error: _enter_buffered_busy: could not acquire lock",
        ),
        (-9, "", "killed", "killed by SIGKILL, as the system does for want of memory"),
        (-33, "", "killed", "killed by signal 33"),
        (2, "", "exited", "exit status 2, without a word"),
        (2, "first\nlast\n", "exited", "exit status 2; last"),
        (1, "x" * 9000, "exited", "exit status 1; " + "x" * 500),
        (
            1,
            "Traceback (most recent call last):\nMemoryError",
            "raised",
            "MemoryError",
        ),
        (1, "Traceback (most recent call last):\n", "raised", "an exception that is not named"),
    ],
)
def test_an_ending_is_one_line_that_says_why(
    status: int, complaint: str, kind: str, expected: str
) -> None:
    """The exception and where it was raised before all else, and the signal's name."""
    ending = ProcessExit(status, complaint)
    assert expected == ending.describe()
    assert kind == ending.kind
