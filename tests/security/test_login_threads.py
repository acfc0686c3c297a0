"""The threads that check passwords: how many clients may wait, and what their end leaves."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kgw.errors import ProtocolError
from kgw.security.login_threads import LoginThreads
from kgw.security.sasl.exchange import Work


async def test_too_many_logins_at_once_are_refused() -> None:
    """There is room again when others are done, or their client has gone."""
    threads, gate = LoginThreads(most_waiting=3), threading.Event()
    try:
        waiting = [asyncio.ensure_future(threads.check(Work(gate.wait))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ProtocolError, match="3 logins are being checked already"):
            await threads.check(Work(gate.wait))
        waiting[2].cancel()
        await asyncio.gather(waiting[2], return_exceptions=True)
        waiting[2] = asyncio.ensure_future(threads.check(Work(gate.wait)))
        gate.set()
        assert [True] * 3 == await asyncio.gather(*waiting)
        assert await threads.check(Work(gate.wait))
    finally:
        gate.set()
        threads.close()


async def test_logins_of_one_server_do_not_delay_those_of_another() -> None:
    """Each server has threads of its own."""
    busy, free, gate = LoginThreads(most_waiting=2), LoginThreads(), threading.Event()
    try:
        waiting = [asyncio.ensure_future(busy.check(Work(gate.wait))) for _ in range(2)]
        assert "done" == await free.check(Work(lambda: "done"))
        assert not any(one.done() for one in waiting)
    finally:
        gate.set()
        await asyncio.gather(*waiting)
        busy.close()
        free.close()


async def test_what_has_begun_is_done_when_the_threads_are_closed() -> None:
    """The end of a server waits for no password, and a later one is refused."""
    threads, gate = LoginThreads(), threading.Event()
    begun = asyncio.ensure_future(threads.check(Work(gate.wait)))
    await asyncio.sleep(0)
    threads.close()
    with pytest.raises(ProtocolError, match="has ended"):
        await threads.check(Work(gate.wait))
    gate.set()
    assert await begun
