from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from kgw.backend.embedded.flush_timer import FlushTimer
from tests.backend.embedded.driver import DIRECT, KEY, OTHER_KEY, RELAXED, Driver

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


async def _at_once(function: Callable[[], _Result], /) -> _Result:
    return function()


async def test_a_log_is_noted_while_the_round_before_is_all_but_due() -> None:
    """A handle of uvloop that is less than half a millisecond away cannot say when it is due."""
    loop = asyncio.get_running_loop()
    begun: list[float] = []

    class Loop:
        """As much of uvloop's as the timer uses."""

        time = staticmethod(loop.time)
        create_task = staticmethod(loop.create_task)

        def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.Handle:
            begun.append(when_s)
            return loop.call_soon(callback)

    driver = Driver(DIRECT, RELAXED._replace(flush_interval_ms=0))
    logs = [driver.log(KEY), driver.log(OTHER_KEY)]
    with ThreadPoolExecutor(1) as executor:
        timer = FlushTimer(
            Loop(),  # type: ignore[arg-type]
            driver.store,
            _at_once,
            executor,
        )
        for log in logs:
            timer.note(log)
        assert 1 == len(begun)
        await timer.aclose()
