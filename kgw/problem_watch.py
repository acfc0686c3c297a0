"""Looking for what is wrong, so that the log and the metrics tell of it without being asked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kgw.errors import KgwError
from kgw.logs import EventLogger
from kgw.problems import USUAL, Told, count_by_reason, is_ready

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.clock import Clock
    from kgw.metrics import Metrics
    from kgw.problems import Problem

LOOKS_EVERY_S: Final = 5.0
"""What nobody's request brings to light, such as the room on the disk, is seen within that."""
_LOOK_WAITS_S: Final = 1.0
"""A disk that hangs must not keep a probe waiting: what was seen last is told then."""

_log = EventLogger(__name__)


class ProblemWatch:
    """Looks every few seconds, and whenever somebody asks; tells the log what has changed."""

    def __init__(
        self,
        look: Callable[[], Awaitable[None]],
        find: Callable[[], list[Problem]],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`look` asks the storage for what changes by itself; `find` says all that is known."""
        self._ask = look
        self._find = find
        self._clock = clock
        self._metrics = metrics
        self._told = Told()

    async def look(self) -> list[Problem]:
        """Return what is wrong now."""
        with suppress(KgwError, TimeoutError):
            async with asyncio.timeout(_LOOK_WAITS_S):
                await self._ask()
        return self.tell()

    def tell(self) -> list[Problem]:
        """Return what is wrong as far as is known, and log what has begun and what is over."""
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
        """Look again and again."""
        while True:
            await self.look()
            await self._clock.sleep_until(self._clock.monotonic_s() + LOOKS_EVERY_S)
