from __future__ import annotations

from asyncio import Lock, ensure_future, sleep
from typing import TYPE_CHECKING

import pytest

from kgw.turns import StepBudget, finish, in_turns, take_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kgw.turns import Turns


def work(turns: int, done: list[int]) -> Turns[str]:
    """Note each turn, and yield after all but the last."""
    for turn in range(turns):
        done.append(turn)
        if turn < turns - 1:
            yield
    return "result"


async def test_one_turn_is_answered_at_once() -> None:
    """Work that never yields has its result returned, and nothing to await."""
    done: list[int] = []
    assert "result" == in_turns(work(1, done))
    assert [0] == done


async def test_others_come_between_turns() -> None:
    """After each turn whoever waits for the loop is served before the next one."""
    done: list[int] = []
    seen: list[int] = []

    async def other() -> None:
        while len(done) < 4:
            seen.append(len(done))
            await sleep(0)

    answer = in_turns(work(4, done))
    assert [0] == done
    assert not isinstance(answer, str)
    task = ensure_future(other())
    assert "result" == await answer
    await task
    assert [1, 2, 3] == seen


async def test_works_of_one_queue_follow_each_other() -> None:
    """Each begins at once, so that a short one waits for nobody; the rest comes in order."""
    queue = Lock()
    done: list[list[int]] = [[], [], []]
    rests = [
        in_turns(work(turns, mine), queue) for turns, mine in zip((3, 3, 1), done, strict=True)
    ]
    assert [[0], [0], [0]] == done
    assert "result" == rests[2]
    first, second = [ensure_future(rest) for rest in rests[:2]]  # type: ignore[arg-type]
    assert "result" == await first
    assert 2 > len(done[1])
    assert "result" == await second
    assert not queue.locked()


async def test_errors_are_raised_where_the_work_is_awaited() -> None:
    """The first turn raises to its caller, later ones to whoever awaits."""

    def failing(turns: int) -> Turns[None]:
        for _ in range(turns):
            yield
        raise ValueError(turns)

    with pytest.raises(ValueError, match="0"):
        in_turns(failing(0))
    answer: Awaitable[None] | None = in_turns(failing(2))
    assert answer is not None
    with pytest.raises(ValueError, match="2"):
        await answer


async def test_finish_does_all_turns() -> None:
    """Work that has not begun can be finished as well."""
    done: list[int] = []
    assert "result" == await finish(work(3, done))
    assert [0, 1, 2] == done


async def test_the_first_turn_may_be_taken_at_once() -> None:
    """Work of one turn lets nobody come between; of the others each waits for the loop."""
    done: list[int] = []
    with pytest.raises(StopIteration, match="result"):
        take_turns(work(1, done)).send(None)
    assert "result" == await take_turns(work(3, done))
    assert [0, 0, 1, 2] == done


def test_share_ends_when_its_units_are_spent() -> None:
    """A turn is over with the unit that uses it up, and the next one is as long."""
    budget = StepBudget(3)
    assert [False, True, True, False] == [budget.spend(units) for units in (2, 1, 5, 1)]
