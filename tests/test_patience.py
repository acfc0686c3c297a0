"""How patient tests are: by a slow machine, which is a clock of these tests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests import patience

if TYPE_CHECKING:
    from collections.abc import Callable


class Machine:
    """Its works take what they are told; one runs after the other."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def measure(self, *takes_s: float, load: float = 0.0) -> float:
        """Measure works of a tenth of a second each."""

        def work(takes_s: float) -> None:
            self.now_s += takes_s

        works: dict[Callable[[], None], float] = {partial(work, one): 0.1 for one in takes_s}
        return patience.measure(works, now_s=self.now, load=lambda: load)


def test_an_idle_machine_has_the_limits_as_they_are_written() -> None:
    """One that is quicker has no smaller ones."""
    assert 1.0 == Machine().measure(0.1, 0.02)


def test_the_slowest_of_the_works_counts() -> None:
    """A disk that takes its time is as good a reason as a processor."""
    assert pytest.approx(3.0) == Machine().measure(0.1, 0.3)


def test_who_waits_for_processors_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as wanted to run in the last minute, for each core."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert 4.0 == Machine().measure(0.1, load=8.0)


def test_patience_ends() -> None:
    """What hangs is told in the end, however slow the machine is; and measuring is soon over."""
    machine = Machine()
    assert patience.MOST == machine.measure(1_000.0)
    assert 1_000.0 == machine.now_s


def test_a_limit_grows_with_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor comes with the environment, so that programs which tests start have it, too."""
    monkeypatch.setenv(patience.FACTOR, "2.5")
    assert 25.0 == patience.seconds(10)
    monkeypatch.delenv(patience.FACTOR)
    assert 10.0 == patience.seconds(10)


def test_a_limit_looks_at_the_machine_before_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has become busy meanwhile gets more time, one that stands idle does not."""
    monkeypatch.setenv(patience.FACTOR, "1")
    machine, factors = Machine(), [3.0, 3.0]
    limit = patience.Limit(10, now_s=machine.now, look=factors.pop)
    machine.now_s = 9.0
    assert (False, 1.0, 2) == (limit.is_over, limit.left_s, len(factors))
    machine.now_s = 12.0
    assert (False, 18.0, 1) == (limit.is_over, limit.left_s, len(factors))
    machine.now_s = 30.0
    assert (True, 0.0, 0) == (limit.is_over, limit.left_s, len(factors))


def test_measuring_beside_an_event_loop_measures() -> None:
    """The real machine, for once."""
    assert 1.0 <= patience.measured_beside() <= patience.MOST
