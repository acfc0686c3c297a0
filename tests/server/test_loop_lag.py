from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from kgw.logs import LOG_INTERVAL_S
from kgw.metrics import TIME_BUCKETS_S, Metrics
from kgw.server.loop_lag import LOOK_INTERVAL_S, WARN_S, LoopLag
from kgw.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Timer


class LateClock(ManualClock):
    """A clock of a loop that comes to its timers late."""

    late_s = 0.0

    def call_at(self, monotonic_s: float, callback: Callable[[], object]) -> Timer:
        return super().call_at(monotonic_s + self.late_s, callback)

    def look(self, late_s: float) -> None:
        """Let the look that was armed be done, and the next one be late."""
        self.late_s = late_s
        self.advance(LOOK_INTERVAL_S)
        self.late_s = 0.0


def test_each_look_is_counted() -> None:
    """A loop on time counts in the first bucket, a late one where it belongs."""
    clock, metrics = LateClock(), Metrics()
    LoopLag(clock, metrics).start()
    clock.advance(LOOK_INTERVAL_S)
    assert 1 == metrics.loop_lag.counts[0]
    clock.look(late_s=0.03)
    clock.advance(LOOK_INTERVAL_S + 0.03)
    assert 1 == metrics.loop_lag.counts[TIME_BUCKETS_S.index(0.05)]
    assert [pytest.approx(0.03)] * 2 == [metrics.loop_lag.sum_s, metrics.loop_lag_max_s]


def test_a_loop_that_is_very_late_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """One line says how late and how much processor time was used; a flood is kept back."""
    clock, metrics = LateClock(), Metrics()
    LoopLag(clock, metrics).start()

    def be_late(cpu_s: float) -> None:
        clock.look(late_s=WARN_S)
        clock.used_cpu_s += cpu_s
        clock.advance(LOOK_INTERVAL_S + WARN_S)

    with caplog.at_level(logging.WARNING):
        be_late(0.2)
        be_late(0.2)
        clock.advance(LOG_INTERVAL_S)
        be_late(0.0)
    said = [getattr(record, "kgw_fields", {}) for record in caplog.records]
    assert [
        {"lag_ms": 250, "cpu_ms": 200},
        {"lag_ms": 250, "cpu_ms": 0, "and_before_it": 1},
    ] == said


def test_nothing_is_left_after_close() -> None:
    """A measurement that was ended has no timer."""
    clock = ManualClock()
    loop_lag = LoopLag(clock, Metrics())
    loop_lag.start()
    assert clock.pending == 1
    loop_lag.close()
    assert clock.pending == 0
