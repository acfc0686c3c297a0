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


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("error", [None, OSError("full")])
def test_one_ends_as_another_does(is_done: bool, error: Exception | None) -> None:
    """`then` calls at once or later, and `finish_as` takes over a result, or why there is none."""
    first: Completion[int] = Completion()
    second: Completion[int] = Completion()

    def end() -> None:
        first.error = error
        if error is None:
            first.result = 7
        first.finish()

    if is_done:
        end()
    first.then(second.finish_as)
    if not is_done:
        assert not second.is_done
        end()
    assert second.is_done
    assert error is second.error
    if error is None:
        assert 7 == second.result
