from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn, TypeVar

from kgw.backend.embedded.failures import NoThreadError
from kgw.backend.embedded.flush_timer import FlushTimer
from kgw.backend.embedded.helpers import Helpers
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
    helpers = Helpers(1, "kgw-test")
    timer = FlushTimer(
        Loop(),  # type: ignore[arg-type]
        driver.store,
        _at_once,
        helpers,
    )
    for log in logs:
        timer.note(log)
    assert 1 == len(begun)
    await timer.aclose()
    helpers.shutdown()


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
    helpers = Helpers(1, "kgw-test")
    timer = FlushTimer(asyncio.get_running_loop(), driver.store, _at_once, helpers)
    for count in (1, 2):
        for _ in range(10):
            timer.reschedule()
        await asyncio.sleep(0)
        assert count == looked
    await timer.aclose()


async def test_it_is_known_while_a_round_waits_for_the_disk() -> None:
    """Who writes in the event loop leaves that to a thread meanwhile."""
    driver = Driver(DIRECT, RELAXED._replace(flush_interval_ms=0))
    driver.append(b"asks for a reservation")
    driver.append(b"unsynced")
    helpers = Helpers(1, "kgw-test")
    timer = FlushTimer(asyncio.get_running_loop(), driver.store, _at_once, helpers)
    seen: list[bool] = []

    def observe(call: str, _path: str) -> None:
        if call == "fdatasync":
            seen.append(timer.is_syncing)

    driver.fs.on_operation = observe
    timer.note(driver.log())
    while driver.store.relaxed.unsynced_bytes:  # noqa: ASYNC110 - it is due within a few turns
        await asyncio.sleep(0)
    await timer.aclose()
    helpers.shutdown()
    assert ([True], False) == (seen, timer.is_syncing)


async def test_what_no_thread_can_be_had_for_is_synced_by_the_flusher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Appends wait for it, and no record stays unsynced for longer than was promised."""

    def refuse(_: object) -> NoReturn:
        raise NoThreadError("no thread")

    driver = Driver(DIRECT, RELAXED._replace(flush_interval_ms=0))
    driver.append(b"asks for a reservation")
    driver.append(b"unsynced")
    log = driver.log()
    assert driver.store.relaxed.unsynced_bytes > 0
    helpers = Helpers(1, "kgw-test")
    monkeypatch.setattr(helpers, "submit", refuse)
    timer = FlushTimer(asyncio.get_running_loop(), driver.store, _at_once, helpers)
    timer.note(log)
    while driver.store.relaxed.unsynced_bytes:  # noqa: ASYNC110 - it is due within a few turns
        await asyncio.sleep(0)
    await timer.aclose()
    assert driver.store.failure is None
    driver.lose_power()
    assert [b"asks for a reservation", b"unsynced"] == driver.values()
