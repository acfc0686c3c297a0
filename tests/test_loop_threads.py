from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def resolve_an_awaited_future(loop: asyncio.AbstractEventLoop) -> None:
    """Schedule what waits for a future, as its result comes."""
    future = loop.create_future()
    future.add_done_callback(print)
    future.set_result(None)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda loop: loop.call_soon(print),
        lambda loop: loop.call_later(9, print),
        resolve_an_awaited_future,
    ],
    ids=["call_soon", "call_later", "set_result"],
)
async def test_another_thread_schedules_nothing(
    schedule: Callable[[asyncio.AbstractEventLoop], object],
) -> None:
    """The loop may sleep, and would not notice: there is call_soon_threadsafe."""
    loop = asyncio.get_running_loop()
    with pytest.raises(RuntimeError, match="Non-thread-safe operation"):
        await asyncio.to_thread(schedule, loop)


async def test_another_thread_may_wake_the_loop() -> None:
    """By the call that is made for it."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    await asyncio.to_thread(loop.call_soon_threadsafe, done.set)
    await done.wait()
