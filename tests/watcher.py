"""A process beside pytest that ends it when a test has not ended by its last deadline.

Reads a line for each test from standard input: the seconds that it has, and its name; an empty one
when it has ended. It shares no interpreter with the test, so that nothing the test does holds it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

# Between the signal that has the stacks printed and the one that nothing outlives.
_DUMP_S = 5.0


def watch(pid: int) -> None:
    """Return when pytest has ended, by itself or not."""
    deadline_s: float | None = None
    rest = name = b""
    while True:
        left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        if not select.select([0], [], [], left_s)[0]:
            break
        data = os.read(0, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            seconds, _, name = lines[-1].partition(b" ")
            deadline_s = time.monotonic() + float(seconds) if seconds else None
    text = b"\nTimeout: %s hangs and cannot be interrupted: its process ends here.\n" % name
    for number, wait_s in ((signal.SIGABRT, _DUMP_S), (signal.SIGKILL, 0.0)):
        if os.getppid() != pid:
            return
        os.write(2, text)
        text = b""
        # pytest has Python print the stacks of all threads at SIGABRT.
        os.kill(pid, number)
        select.select([0], [], [], wait_s)


if __name__ == "__main__":
    # Ctrl-C is for pytest, whose end is the end of standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch(int(sys.argv[1]))
