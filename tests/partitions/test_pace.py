from __future__ import annotations

import asyncio

from kgw.partitions.pace import REST, Pace
from kgw.testing.clock import ManualClock


async def test_rests_are_longer_than_the_work() -> None:
    """Little work is added up; what took long is followed by a rest in proportion."""
    clock = ManualClock()
    pace = Pace(clock)
    await pace.step()
    clock.advance(0.001)
    await pace.step()
    clock.advance(0.004)
    resting = asyncio.ensure_future(pace.step())
    await asyncio.sleep(0)
    clock.advance(0.005 * REST - 0.001)
    await asyncio.sleep(0)
    assert not resting.done()
    clock.advance(0.001)
    await resting
    await pace.step()
