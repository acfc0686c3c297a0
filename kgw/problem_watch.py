"""Checks for problems regularly, so that the log and the metrics show them without probes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kgw.errors import KgwError
from kgw.logs import EventLogger
from kgw.problems import USUAL, ReportedReasons, count_by_reason, is_ready

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.clock import Clock
    from kgw.metrics import Metrics
    from kgw.problems import Problem

LOOKS_EVERY_S: Final = 5.0
"""The interval of the checks, for problems that no request shows, such as a full disk."""
_LOOK_WAITS_S: Final = 1.0
"""How long a check of the storage may take, so that a hanging disk does not block a probe.

After that, the results of the last check are used.
"""

_log = EventLogger(__name__)


class ProblemWatch:
    """Checks for problems every few seconds and for each probe, and logs those that are new."""

    def __init__(
        self,
        look: Callable[[], Awaitable[None]],
        find: Callable[[], list[Problem]],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`look` updates the problems of the storage; `find` returns all known problems."""
        self._ask = look
        self._find = find
        self._clock = clock
        self._metrics = metrics
        self._told = ReportedReasons()

    async def look(self) -> list[Problem]:
        """Check the storage, and return the current problems."""
        with suppress(KgwError, TimeoutError):
            async with asyncio.timeout(_LOOK_WAITS_S):
                await self._ask()
        return self.tell()

    def tell(self) -> list[Problem]:
        """Return the known problems, update their metrics, and log those that began or ended."""
        problems = self._find()
        began, over = self._told.step(problems)
        for problem in began:
            if not problem.reason.is_told_at_once:
                write = _log.warning if problem.reason.refuses else _log.info
                write("problem", reason=problem.reason.name, detail=problem.text)
        for reason in over:
            _log.info("problem is over", reason=reason.name)
        metrics = self._metrics
        metrics.problem_reasons = counts = count_by_reason(problems)
        metrics.problems = len(problems) - sum(counts[reason.name] for reason in USUAL)
        metrics.ready = int(is_ready(problems))
        return problems

    async def run(self) -> None:
        """Check at each interval, for ever."""
        while True:
            await self.look()
            await self._clock.sleep_until(self._clock.monotonic_s() + LOOKS_EVERY_S)
