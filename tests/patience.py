"""How patient tests are with a slow machine.

Limits against hanging are written for an idle machine with two cores. When a run begins, a little
work is timed: computation, switches between threads, syncs of a file. By how much that is slower
than on an idle machine, and how many programs per core wanted to run in the last minute, is the
factor of all limits: of pytest-timeout's (`hung.py`) and of what tests wait for. The processes
that they start have it from the environment. A machine may become busy later, so workers look
again now and then (`hung.py`), and so does a limit that is over, before it says so.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FACTOR = "TESTS_PATIENCE"
"""The variable of the environment."""

MOST = 20.0
_MEASURE_S = 0.35


# --- what tests ask ---


def look(at_least: float = 1.0) -> None:
    """Measure the factor, for this process and those that it starts from now on."""
    os.environ[FACTOR] = f"{max(at_least, measure()):.2f}"


def factor() -> float:
    """Return how many times as long as on an idle machine something may take now."""
    return _bounded(float(os.environ.get(FACTOR, "1")))


def seconds(idle_s: float) -> float:
    """Return a limit against hanging, of one that would be generous on an idle machine."""
    return idle_s * factor()


class Limit:
    """A limit against hanging for who looks again and again whether something has happened.

    Before it is over it looks at the machine: one that has become busy gets more time.
    """

    def __init__(
        self,
        idle_s: float,
        *,
        now_s: Callable[[], float] = time.monotonic,
        look: Callable[[], float] | None = None,
    ) -> None:
        """`look` measures the factor."""
        self._idle_s, self._now_s, self._look = idle_s, now_s, look or measured_beside
        self._began_s = now_s()
        self._factor = factor()

    @property
    def left_s(self) -> float:
        """How much there is left, as it stands; never less than nothing."""
        return max(0.0, self._began_s + self._idle_s * self._factor - self._now_s())

    @property
    def is_over(self) -> bool:
        """Whether the time is over, also by what the machine is like now."""
        if self.left_s == 0.0:
            self._factor = max(self._factor, self._look())
        return self.left_s == 0.0


# --- measuring ---


def _compute() -> None:
    total = 0
    for number in range(250_000):
        total ^= number * number


def _switch() -> None:
    ours, theirs = socket.socketpair()

    def answer() -> None:
        for _ in range(200):
            theirs.send(theirs.recv(1))

    with ours, theirs:
        thread = threading.Thread(target=answer, name="patience")
        thread.start()
        for _ in range(200):
            ours.send(b"x")
            ours.recv(1)
        thread.join()


def _sync() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4_096))
        file.flush()
        os.fsync(file.fileno())


# What each takes on an idle machine, somewhat rounded up.
WORKS: Mapping[Callable[[], None], float] = {_compute: 0.010, _switch: 0.003, _sync: 0.006}


def measure(
    works: Mapping[Callable[[], None], float] = WORKS,
    *,
    now_s: Callable[[], float] = time.perf_counter,
    load: Callable[[], float] = lambda: os.getloadavg()[0],
) -> float:
    """Time the works a few times, for less than half a second; return the factor.

    `load` is how many threads ran or wanted to, on average, in the last minute.
    """
    ends_s = now_s() + _MEASURE_S
    found: dict[Callable[[], None], list[float]] = {work: [] for work in works}
    for _ in range(5):
        for work, idle_s in works.items():
            began_s = now_s()
            work()
            found[work].append((now_s() - began_s) / idle_s)
        if now_s() > ends_s:
            break
    slowest = max(statistics.median(times) for times in found.values())
    return _bounded(max(slowest, load() / (os.cpu_count() or 1)))


def measured_beside() -> float:
    """Measure in a thread, for who may be in an event loop in which nothing is to block."""
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(measure()), name="patience")
    thread.start()
    thread.join()
    return found[0]


def _bounded(found: float) -> float:
    return min(max(found, 1.0), MOST)
