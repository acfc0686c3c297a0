"""Measures the delay of the event loop four times a second, while the process runs.

A measurement is one timer: all of them take 0.05 % of a core. A delay of d seconds is detected with
a probability of 4 d, and a random part of it is measured, so frequent delays show within seconds.
The setting `kgw.debug.slow.callback.ms` shows which code causes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.logs import EventLogger, QuietLog

if TYPE_CHECKING:
    from kgw.clock import Clock, Timer
    from kgw.metrics import Metrics

_log = EventLogger(__name__)

LOOK_INTERVAL_S = 0.25

WARN_S = 0.25
"""Delays of this length are logged. Shorter delays are common on a busy machine."""


class LoopLag:
    """Checks whether the loop is on time, and counts its delays.

    Called in the event loop's thread only.
    """

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._quiet = QuietLog(_log)
        self._timer: Timer | None = None
        self._due_s = 0.0
        self._cpu_s = 0.0

    def start(self) -> None:
        """Measure until `close`."""
        self._arm()

    def close(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._cpu_s = self._clock.cpu_s()
        self._due_s = self._clock.monotonic_s() + LOOK_INTERVAL_S
        self._timer = self._clock.call_at(self._due_s, self._look)

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        lag_s = max(0.0, now_s - self._due_s)
        metrics = self._metrics
        metrics.loop_lag.observe(lag_s)
        metrics.loop_lag_max_s = max(metrics.loop_lag_max_s, lag_s)
        if lag_s >= WARN_S:
            # Processor time shows whether this process was busy or did not get a processor.
            fields = {
                "lag_ms": round(lag_s * 1000),
                "cpu_ms": round((self._clock.cpu_s() - self._cpu_s) * 1000),
            }
            self._quiet.warning("the event loop was late", "", now_s, fields)
        self._arm()
