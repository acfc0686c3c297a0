from __future__ import annotations

import asyncio

from kgw.testing.moving_clock import MovingClock


async def test_what_falls_due_has_run_when_time_has_moved() -> None:
    """Calls in the order of their times, those that they make due too, and what they begin."""
    clock = MovingClock()
    now_s = clock.monotonic_s()
    seen: list[str] = []

    async def work() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        seen.append("worked after 100 turns")

    tasks = []
    clock.call_at(now_s + 20, lambda: seen.append("second"))
    clock.call_at(now_s + 10, lambda: seen.append("first"))
    clock.call_at(now_s + 15, lambda: seen.append("never")).cancel()
    clock.call_at(now_s + 9_000, lambda: seen.append("later")).cancel()
    clock.call_at(now_s + 30, lambda: tasks.append(asyncio.ensure_future(work())))
    clock.call_at(now_s + 25, lambda: clock.call_at(now_s + 26, lambda: seen.append("fourth")))
    await clock.put_forward(60)
    assert ["first", "second", "fourth", "worked after 100 turns"] == seen


async def test_sleepers_wake_and_have_done_their_work() -> None:
    """One that sleeps again is asleep; what runs regularly runs once however long the jump is."""
    clock = MovingClock()
    runs: list[float] = []

    async def run_regularly() -> None:
        while True:
            await clock.sleep_until(clock.monotonic_s() + 60)
            await asyncio.to_thread(lambda: None)
            runs.append(round(clock.ahead_s))

    task = asyncio.ensure_future(run_regularly())
    await asyncio.sleep(0)
    for seconds in (59, 2, 86_400):
        await clock.put_forward(seconds)
    assert [61, 86_461] == runs
    task.cancel()
    await asyncio.wait([task])


async def test_time_runs_by_itself_and_moves_once() -> None:
    """Wall and monotonic time by as much; what has passed is no reason to sleep."""
    clock = MovingClock()
    before_s, before_ms = clock.monotonic_s(), clock.wall_ms()
    await clock.put_forward(1000)
    assert 1000 == clock.ahead_s
    assert 1000 <= clock.monotonic_s() - before_s < 1100
    assert 1_000_000 <= clock.wall_ms() - before_ms < 1_100_000
    await clock.sleep_until(before_s + 1000)
    await clock.sleep_until(clock.monotonic_s() + 0.001)


async def test_nothing_is_called_when_all_is_cancelled() -> None:
    """A broker that has ended leaves no timer behind."""
    clock = MovingClock()
    seen: list[str] = []
    clock.call_at(clock.monotonic_s() + 5, lambda: seen.append("called"))
    clock.cancel_all()
    await clock.put_forward(10)
    assert [] == seen
