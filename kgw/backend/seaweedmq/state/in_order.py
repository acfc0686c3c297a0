"""Runs several calls at once, and yields their results in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterable

ResultT = TypeVar("ResultT")


async def in_order(
    calls: Iterable[Coroutine[None, None, ResultT]], at_once: int
) -> AsyncGenerator[ResultT]:
    """Yield the result of each call, in order, with up to `at_once` calls running.

    If a call raises an error, the error is raised instead of its result, and later calls are
    cancelled. A caller that does not consume all results must close the generator (`aclosing`).
    """
    loop = asyncio.get_running_loop()
    tasks: deque[asyncio.Task[ResultT]] = deque()
    try:
        for call in calls:
            tasks.append(loop.create_task(call))
            if len(tasks) == at_once:
                yield await tasks.popleft()
        while tasks:
            yield await tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
