"""Append: what becomes of batches on their way into a log."""

from __future__ import annotations

import asyncio

import pytest

from kgw.backend.append import Append, AppendResult, refused_append
from kgw.errors import StorageError

RESULT = AppendResult(3, 4, 0)


def test_callbacks_run_in_their_order_once_it_is_done() -> None:
    """Whoever asked first is told first, from within `finish`, and finds it done."""
    append = Append()
    told: list[tuple[str, bool]] = []
    append.when_done(lambda one: told.append(("first", one.is_done)))
    append.when_done(lambda one: told.append(("second", one.is_done)))
    assert [] == told
    append.result = RESULT
    append.finish()
    assert [("first", True), ("second", True)] == told


async def test_it_can_be_awaited_before_and_after_it_is_done() -> None:
    """Awaiting gives the result, however late, and to everybody."""
    append = Append()
    waiting = [asyncio.ensure_future(append) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    append.result = RESULT
    append.finish()
    assert [RESULT, RESULT, RESULT] == [await append, *[await one for one in waiting]]


async def test_its_error_is_raised_where_it_is_awaited() -> None:
    """A refusal is done at once; awaiting raises why."""
    append = refused_append(StorageError("full"))
    assert append.is_done
    with pytest.raises(StorageError, match="full"):
        await append


async def test_giving_up_waiting_leaves_the_append_alone() -> None:
    """One who waits may be cancelled; the others still get the result."""
    append = Append()
    impatient = asyncio.ensure_future(append)
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    append.result = RESULT
    append.finish()
    assert RESULT == await append


def test_a_callback_that_fails_keeps_the_others_from_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Appends are answered one after the other: a bug in one answer must not silence the rest."""
    append = Append()
    told: list[Append] = []
    append.when_done(lambda _: int("nothing"))
    append.when_done(told.append)
    append.result = RESULT
    append.finish()
    assert [append] == told
    assert "ValueError" in caplog.text
