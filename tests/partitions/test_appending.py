from __future__ import annotations

import asyncio
import threading

import pytest

from kgw.completion import Completion
from kgw.partitions.append.appending import ENTERED_PER_TURN, Appended, CheckQueue, CheckThread
from kgw.types import NO_TIMESTAMP_MS


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


class TestCheckQueue:
    """What waits to enter a partition."""

    def submit(
        self, queue: CheckQueue, entered: list[int], number: int, verified: Completion[None] | None
    ) -> None:
        """Have a number entered, in its turn."""

        def enter() -> Appended:
            entered.append(number)
            return Appended(None, number, NO_TIMESTAMP_MS)

        queue.submit(enter, verified=verified)

    async def test_others_have_turns_while_many_enter(self) -> None:
        """A backlog enters in order, some at a time; what comes meanwhile goes behind it."""
        queue, entered = CheckQueue(CheckThread()), list[int]()
        verified = Completion[None]()
        count = 3 * ENTERED_PER_TURN
        for number in range(count):
            self.submit(queue, entered, number, None if number else verified)
        assert not entered
        verified.set_result(None)
        turns = 0
        while queue.first is not None:
            assert len(entered) <= (turns + 1) * ENTERED_PER_TURN
            self.submit(queue, entered, count + turns, None)
            await asyncio.sleep(0)
            turns += 1
        assert list(range(count + turns)) == entered
        assert turns >= 3

    async def test_it_goes_on_where_no_thread_could_be_started(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who has something to be checked hears of it; nobody behind waits for it."""

        def start(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        thread = CheckThread()
        queue, entered = CheckQueue(thread), list[int]()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError, match="new thread"):
                queue.submit(lambda: Appended(None, 0, NO_TIMESTAMP_MS), check=lambda: None)
        assert queue.first is None
        self.submit(queue, entered, 1, None)
        assert [1] == entered
        thread.close()
