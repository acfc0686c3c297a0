from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import suppress
from threading import Event

import pytest

from kgw.state.sql.call_thread import CallThread


async def test_calls_are_made_one_after_the_other_in_their_order() -> None:
    """All in one thread that is not the loop's; each is answered with what it returns."""
    thread = CallThread("calls")
    made: list[tuple[int, int]] = []

    def call(number: int) -> int:
        made.append((number, threading.get_ident()))
        return -number

    answers = await asyncio.gather(*(thread.call(call, number) for number in range(20)))
    assert [-number for number in range(20)] == answers
    assert list(range(20)) == [number for number, _ in made]
    assert 1 == len({ident for _, ident in made} - {threading.get_ident()})
    thread.end()


async def test_what_a_call_raises_is_raised_where_it_is_awaited() -> None:
    """The thread goes on after it."""
    thread = CallThread("calls")

    def fail() -> None:
        raise ValueError("as told")

    with pytest.raises(ValueError, match="as told"):
        await thread.call(fail)
    assert 3 == await thread.call(len, "abc")
    thread.end()


async def test_a_call_whose_caller_was_cancelled_is_made_all_the_same() -> None:
    """What was given to the thread is done, as with any executor; nobody is told."""
    thread = CallThread("calls")
    may_go_on = Event()
    made: list[str] = []
    first = asyncio.ensure_future(thread.call(may_go_on.wait, 10))
    second = asyncio.ensure_future(thread.call(made.append, "second"))
    await asyncio.sleep(0)
    for one in (first, second):
        one.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    may_go_on.set()
    await thread.call(made.append, "third")
    assert ["second", "third"] == made
    thread.end()


async def test_a_thread_ends_after_the_calls_it_was_given() -> None:
    """Ending does not wait, and takes nothing back."""
    thread = CallThread("calls that end")
    answer = asyncio.ensure_future(thread.call(len, "abc"))
    await asyncio.sleep(0)
    thread.end()
    assert 3 == await answer
    for left in threading.enumerate():
        if left.name == "calls that end":
            await asyncio.to_thread(left.join, 10)
            assert not left.is_alive()


def test_a_loop_that_is_closed_is_told_nothing() -> None:
    """A process that gives up its loop in the middle of a call ends without a word."""
    may_go_on = Event()

    async def begin() -> CallThread:
        thread = CallThread("calls of a closed loop")
        call = asyncio.ensure_future(thread.call(may_go_on.wait, 10))
        await asyncio.sleep(0)
        call.cancel()
        return thread

    thread = asyncio.run(begin())
    may_go_on.set()
    thread.end()
    for one in threading.enumerate():
        if one.name == "calls of a closed loop":
            one.join(10)
            assert not one.is_alive()


async def test_a_call_that_raises_stop_iteration_is_answered() -> None:
    """No future takes that error: whoever waits gets another one, as from a coroutine."""
    thread = CallThread("calls")
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        await asyncio.wait_for(thread.call(next, iter(())), 10)
    assert isinstance(raised.value.__cause__, StopIteration)
    thread.end()


async def test_a_call_that_failed_keeps_nothing_of_what_it_was_given() -> None:
    """Once its error has been dealt with, and not when the garbage is collected next."""
    thread = CallThread("calls")

    class Given:
        pass

    def fail(_: Given) -> None:
        raise ValueError("as told")

    given = Given()
    left = weakref.ref(given)
    gc.disable()
    try:
        with suppress(ValueError):
            await thread.call(fail, given)
        del given
        # The thread has let go of the call before it makes the next one.
        await thread.call(len, "abc")
        assert left() is None
    finally:
        gc.enable()
    thread.end()
