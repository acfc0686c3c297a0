from __future__ import annotations

import asyncio
import threading

import pytest

from kgw.partitions.appending import CheckThread


async def test_walks_are_done_one_after_the_other_in_one_thread() -> None:
    """However many wait; what one of them raises is raised to who asked for it."""
    thread = CheckThread()
    threads: list[str] = []
    order: list[int] = []

    def walk(number: int) -> None:
        threads.append(threading.current_thread().name)
        order.append(number)
        if number == 3:
            raise ValueError(number)

    walks = [thread.run(lambda number=number: walk(number)) for number in range(9)]  # type: ignore[misc]
    with pytest.raises(ValueError, match="3"):
        await asyncio.gather(*walks)
    await asyncio.gather(*walks, return_exceptions=True)
    assert list(range(9)) == order
    assert 1 == len(set(threads))
    thread.close()
