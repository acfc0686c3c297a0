"""The agent: whoever connects talks with its program, kills it, starts it again."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.system.agent import Agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Conversation:
    """A connection to the agent of a program."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, line: str) -> Any:
        """Send a line and return the answer."""
        self._writer.write(line.encode() + b"\n")
        return json.loads(await self._reader.readline())

    async def tell_agent(self, what: str) -> Any:
        """Send what is for the agent."""
        return await self.say(json.dumps({"agent": what}))


@asynccontextmanager
async def running(command: list[str]) -> AsyncIterator[tuple[Agent, Conversation]]:
    """An agent, its program, and a connection to it."""
    agent = Agent(command)
    await agent.start()
    server = await asyncio.start_server(agent.serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield agent, Conversation(reader, writer)
    finally:
        writer.close()
        server.close()
        await agent.end(signal.SIGKILL)
        await agent.hang_up()


async def test_lines_are_handed_on_both_ways() -> None:
    """One answer for each, in order."""
    async with running(["cat"]) as (_, conversation):
        assert {"do": 1} == await conversation.say('{"do": 1}')
        assert {"do": 2} == await conversation.say('{"do": 2}')


async def test_a_killed_program_is_started_again() -> None:
    """Meanwhile the agent answers that it does not run."""
    async with running(["cat"]) as (_, conversation):
        running_once = {"running": True, "starts": 1, "exit": None}
        assert running_once == await conversation.tell_agent("status")
        assert {} == await conversation.tell_agent("kill")
        killed = {"running": False, "starts": 1, "exit": -signal.SIGKILL}
        assert killed == await conversation.tell_agent("status")
        assert {"error": "its program does not run"} == await conversation.say("{}")
        assert {} == await conversation.tell_agent("start")
        assert {"do": 1} == await conversation.say('{"do": 1}')


async def test_a_program_that_ends_without_an_answer_is_an_error() -> None:
    """Whoever asked does not wait for ever."""
    async with running(["head", "--bytes=1"]) as (_, conversation):
        assert "error" in await conversation.say('{"do": 1}')


async def test_nobody_waits_for_a_program_that_has_just_ended() -> None:
    """Its output ends before its exit code is known; a question in between is answered as well."""
    async with running(["true"]) as (_, conversation):
        for _attempt in range(20):
            assert "error" in await conversation.say('{"do": 1}')


async def test_an_end_gives_the_exit_code() -> None:
    """Asked to end, a program that does not mind ends by the signal."""
    async with running(["cat"]) as (agent, _):
        assert -signal.SIGTERM == await agent.end(signal.SIGTERM)


async def test_a_program_that_has_just_ended_needs_no_signal() -> None:
    """It may be gone before asyncio knows: then there is nobody to be told."""
    async with running(["sh", "-c", "read line; echo $$; exec sleep 0.1"]) as (agent, conversation):
        state = Path(f"/proc/{await conversation.say('{}')}/stat")
        with suppress(OSError):
            # The loop has no turn meanwhile. Where asyncio looks after children in a thread, that
            # takes the dead one away; else it stays, and takes signals.
            dead = 0
            while dead < 10_000:
                dead += ") Z " in state.read_text()
        assert 0 == await agent.end(signal.SIGTERM)


@pytest.mark.parametrize(
    ("line", "answer"),
    [("nonsense", "not JSON"), ('{"agent": "dance"}', "no such thing: dance")],
)
async def test_what_it_does_not_understand_is_an_error(line: str, answer: str) -> None:
    """The program gets none of it."""
    async with running(["cat"]) as (_, conversation):
        assert {"error": answer} == await conversation.say(line)
