"""Replies: told of at once, to whoever waits."""

from __future__ import annotations

import asyncio

from kgw.groups.reply import Reply


def test_who_waits_is_told_at_once_in_their_order() -> None:
    """No turn of a loop lies between an answer and those who wait for it."""
    reply: Reply[int] = Reply(int)
    told: list[object] = []
    reply.when_done(lambda one: told.append((1, one)))
    reply.when_done(lambda one: told.append((2, one)))
    assert not reply.done()
    reply.set_result(7)
    assert [(1, reply), (2, reply)] == told
    assert reply.done()
    assert 7 == reply.result()


async def test_it_can_be_awaited_before_and_after() -> None:
    """Where speed does not count it is like a future, and who gives up waiting harms nobody."""
    reply: Reply[int] = Reply(int)

    async def wait() -> int:
        return await reply

    first, second = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    reply.set_result(7)
    assert 7 == await first
    assert second.cancelled()
    assert 7 == await reply
