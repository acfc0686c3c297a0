from __future__ import annotations

import asyncio

from kgw.partitions.maintain.throttle import MAX_REST_S, REST, Throttle
from kgw.testing.clock import ManualClock


async def rest_after(clock: ManualClock, throttle: Throttle, work_s: float) -> float:
    """Work for so long; return how long the rest is."""
    clock.advance(work_s)
    resting = asyncio.ensure_future(throttle.step())
    await asyncio.sleep(0)
    rested_s = 0.0
    while not resting.done():
        clock.advance(0.001)
        rested_s += 0.001
        await asyncio.sleep(0)
    return rested_s


async def test_rests_are_longer_than_the_work() -> None:
    """Little work is added up; what took longer is followed by a rest in proportion."""
    clock = ManualClock()
    throttle = Throttle(clock)
    assert 0 == await rest_after(clock, throttle, 0)
    assert 0 == await rest_after(clock, throttle, 0.0008)
    assert abs(await rest_after(clock, throttle, 0.0004) - 0.0012 * REST) < 0.002
    assert 0 == await rest_after(clock, throttle, 0)


async def test_a_slow_disk_does_not_stop_the_round() -> None:
    """Rests have an upper limit."""
    clock = ManualClock()
    assert abs(await rest_after(clock, Throttle(clock), 5) - MAX_REST_S) < 0.002
