from __future__ import annotations

import asyncio

from kgw.clock import SystemClock
from kgw.testing.clock import ManualClock


async def test_manual_clock_moves_when_told() -> None:
    """Monotonic and wall time move together, and calls are made at their own times, in order."""
    clock = ManualClock(monotonic_s=5.0, wall_ms=1000)
    seen: list[tuple[str, float]] = []
    clock.call_at(7.0, lambda: seen.append(("second", clock.monotonic_s())))
    clock.call_at(6.0, lambda: seen.append(("first", clock.monotonic_s())))
    clock.call_at(6.5, lambda: seen.append(("never", 0))).cancel()
    clock.call_at(9.0, lambda: seen.append(("later", 0)))
    assert 3 == clock.pending
    clock.advance(3)
    assert [("first", 6.0), ("second", 7.0)] == seen
    assert (8.0, 4000, 1) == (clock.monotonic_s(), clock.wall_ms(), clock.pending)


async def test_manual_clock_calls_what_is_due_already() -> None:
    """A time that has passed is now, but never before `call_at` has returned."""
    clock = ManualClock()
    seen: list[str] = []
    clock.call_at(clock.monotonic_s(), lambda: seen.append("due"))
    assert [] == seen
    await asyncio.sleep(0)
    assert ["due"] == seen


async def test_manual_clock_wakes_sleepers() -> None:
    """Sleepers wake at their times; one that is cancelled leaves nothing behind."""
    clock = ManualClock()
    start_s = clock.monotonic_s()
    sleeper = asyncio.ensure_future(clock.sleep_until(start_s + 2))
    cancelled = asyncio.ensure_future(clock.sleep_until(start_s + 2))
    await asyncio.sleep(0)
    clock.advance(1)
    await asyncio.sleep(0)
    assert not sleeper.done()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert 1 == clock.pending
    clock.advance(1)
    await sleeper
    await clock.sleep_until(start_s)


async def test_system_clock_calls_and_sleeps() -> None:
    """The real clock keeps the same contract."""
    clock = SystemClock()
    due = asyncio.Event()
    start_s = clock.monotonic_s()
    clock.call_at(start_s + 0.01, due.set)
    clock.call_at(start_s + 0.01, lambda: 1 // 0).cancel()
    await due.wait()
    await clock.sleep_until(start_s + 0.02)
    # libuv rounds to its millisecond.
    assert clock.monotonic_s() - start_s >= 0.018
