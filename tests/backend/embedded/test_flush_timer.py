from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from kgw.backend.embedded.flush_timer import FlushTimer
from kgw.backend.embedded.relaxed import FlushSchedule
from tests.backend.embedded.driver import DIRECT, KEY, OTHER_KEY, RELAXED, Driver

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

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


async def test_settings_that_change_together_are_obeyed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is due next is looked for among all that is unsynced: not again for each of many."""
    looked = 0
    next_due_s = FlushSchedule.next_due_s

    def counting(schedule: FlushSchedule) -> float | None:
        nonlocal looked
        looked += 1
        return next_due_s(schedule)

    monkeypatch.setattr(FlushSchedule, "next_due_s", counting)
    driver = Driver(DIRECT, RELAXED)
    with ThreadPoolExecutor(1) as executor:
        timer = FlushTimer(asyncio.get_running_loop(), driver.store, _at_once, executor)
        for count in (1, 2):
            for _ in range(10):
                timer.reschedule()
            await asyncio.sleep(0)
            assert count == looked
        await timer.aclose()
