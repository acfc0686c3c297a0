"""What is done later: told of at once, to whoever waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.completion import Completion, until_done

if TYPE_CHECKING:
    from collections.abc import Awaitable


def test_callbacks_run_in_their_order_once_it_is_done() -> None:
    """Whoever asked first is told first, from within `set_result`, and finds it done."""
    completion: Completion[int] = Completion()
    told: list[tuple[str, object, bool]] = []
    completion.when_done(lambda one: told.append(("first", one, completion.is_done)))
    completion.when_done(lambda one: told.append(("second", one, completion.is_done)))
    assert [] == told
    completion.set_result(7)
    assert [("first", completion, True), ("second", completion, True)] == told


async def test_it_can_be_awaited_before_and_after_it_is_done() -> None:
    """Awaiting gives the result, however late, and to everybody; who gives up harms nobody."""
    completion: Completion[int] = Completion()

    async def wait(what: Awaitable[object]) -> object:
        return await what

    first, impatient, last = (
        asyncio.ensure_future(wait(one)) for one in (completion, completion, until_done(completion))
    )
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.sleep(0)
    assert not first.done()
    completion.set_result(7)
    assert [7, None] == [await first, await last]
    assert impatient.cancelled()
    assert 7 == await completion
    await until_done(completion)


async def test_its_error_is_raised_where_it_is_awaited() -> None:
    """Not where it is waited for without asking what came of it."""
    completion: Completion[int] = Completion()
    completion.error = ValueError("full")
    completion.finish()
    await until_done(completion)
    with pytest.raises(ValueError, match="full"):
        await completion


def test_a_callback_that_fails_keeps_the_others_from_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Requests are answered one after the other: a bug in one answer must not silence the rest."""
    completion: Completion[int] = Completion()
    told: list[object] = []
    completion.when_done(lambda _: int("nothing"))
    completion.when_done(told.append)
    completion.set_result(7)
    assert [completion] == told
    assert "ValueError" in caplog.text
