"""Chunks that are fetched before anybody asks for them."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.seaweedmq.chain.files import ChainOptions
from kgw.backend.seaweedmq.chunks import STALLED_S, ChunkPlace, ChunkReader, ChunkSource
from kgw.backend.seaweedmq.entries.layouts import DecodedChunk
from kgw.backend.seaweedmq.filer import Chunk
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.errors import CorruptionError
from kgw.testing.clock import ManualClock
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = ChunkPlace(None, 0, Chunk("3,01", 0, 10, 0), 0, 1, 0)


class Gone(ChunkSource):
    """A source whose chunks are gone, once it may say so."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def load(self, file: Any) -> None:
        """There is nothing to load."""

    async def read(self, file: Any, chunk: int) -> bytes:
        await self.may_answer.wait()
        raise CorruptionError("chunk 3,01 is gone")


async def now(work: Callable[[], DecodedChunk]) -> DecodedChunk:
    """Do it in the loop."""
    return work()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_what_was_wanted_and_nobody_read_leaves_no_complaint(*, is_closed: bool) -> None:
    """Neither of a chunk that is gone, nor of one that a stop has given up."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    source = Gone()
    async with aclosing(ChunkReader(SeaweedMqOptions(), now, ManualClock())) as chunks:
        assert chunks.want(source, PLACE)
        await turns()
        if not is_closed:
            source.may_answer.set()
            await turns()
    await turns()
    gc.collect()
    assert [] == complaints


async def test_whoever_reads_what_was_wanted_is_told_what_is_wrong() -> None:
    """It is asked for once for both, and once more for whoever comes later."""
    source = Gone()
    source.may_answer.set()
    async with aclosing(ChunkReader(SeaweedMqOptions(), now, ManualClock())) as chunks:
        assert chunks.want(source, PLACE)
        for _ in range(2):
            with pytest.raises(CorruptionError, match="gone"):
                await chunks.get(source, PLACE)


class Hung(ChunkSource):
    """A source of which some chunks do not come until they may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_come: dict[int, asyncio.Event] = {}
        """Of chunks that come by themselves."""
        self.asked = 0

    async def load(self, file: Any) -> None:
        """There is nothing to load."""

    async def read(self, file: Any, chunk: int) -> bytes:
        self.asked += 1
        if chunk:
            await self.may_come.get(chunk, self.may_answer).wait()
        return b""


def _place(number: int, size_bytes: int = 1000) -> ChunkPlace:
    def decode(data: bytes, base_offset: int, end_offset: int) -> DecodedChunk:
        return DecodedChunk([], [], [], (), 0, 0)

    return ChunkPlace(None, number, Chunk(f"3,{number:02x}", 0, size_bytes, 0), 0, 1, 0, decode)


async def test_chunks_that_hang_leave_their_places_to_others() -> None:
    """As soon as they stall; and give back all that they have taken when they come."""
    clock, source = ManualClock(), Hung()
    options = SeaweedMqOptions(chunk_loads=2, chunk_load_bytes=2500)
    async with aclosing(ChunkReader(options, now, clock)) as chunks:
        hung = [asyncio.ensure_future(chunks.get(source, _place(number))) for number in range(1, 9)]
        healthy = asyncio.ensure_future(chunks.get(source, _place(0)))
        await turns()
        assert (2, False) == (source.asked, healthy.done())
        for _ in range(5):
            clock.advance(STALLED_S)
            await turns(30)
        assert (9, True) == (source.asked, healthy.done())
        source.may_answer.set()
        await asyncio.gather(*hung)
        assert {0} == chunks.used
        assert 0 == clock.pending


async def test_what_stalls_is_bounded() -> None:
    """The rest waits until something comes."""
    clock, source = ManualClock(), Hung()
    options = SeaweedMqOptions(chunk_loads=2, stalled_chunks=3, stalled_chunk_bytes=2000)
    async with aclosing(ChunkReader(options, now, clock)) as chunks:
        hung = [
            asyncio.ensure_future(chunks.get(source, _place(number))) for number in range(1, 30)
        ]
        for _ in range(10):
            await turns(30)
            clock.advance(STALLED_S)
        # Two have stalled, which are all that there is room for; four times two take their places.
        assert 2 + 4 * 2 == source.asked
        source.may_answer.set()
        await asyncio.gather(*hung)
        assert {0} == chunks.used


async def test_fifty_full_chunks_that_hang_hold_up_no_other() -> None:
    """With the usual limits, and as large as chunks become."""
    clock, source = ManualClock(), Hung()
    async with aclosing(ChunkReader(SeaweedMqOptions(), now, clock)) as chunks:
        places = [_place(number, ChainOptions().chunk_bytes) for number in range(1, 51)]
        hung = [asyncio.ensure_future(chunks.get(source, place)) for place in places]
        healthy = asyncio.ensure_future(chunks.get(source, _place(0, ChainOptions().chunk_bytes)))
        for _ in range(10):
            await turns(30)
            clock.advance(STALLED_S)
        assert (51, True) == (source.asked, healthy.done())
        source.may_answer.set()
        await asyncio.gather(*hung)
        assert {0} == chunks.used


async def test_what_has_stalled_leaves_its_place_as_soon_as_it_can() -> None:
    """There was no room for that when it stalled, but there is once others have come."""
    clock, source = ManualClock(), Hung()
    source.may_come[1] = asyncio.Event()
    options = SeaweedMqOptions(chunk_loads=1, stalled_chunks=1, chunk_load_bytes=1000)
    async with aclosing(ChunkReader(options, now, clock)) as chunks:
        hung = [asyncio.ensure_future(chunks.get(source, _place(number))) for number in (1, 2)]
        healthy = asyncio.ensure_future(chunks.get(source, _place(0)))
        for _ in range(5):
            await turns(30)
            clock.advance(STALLED_S)
        assert (2, False) == (source.asked, healthy.done())
        source.may_come[1].set()
        await hung[0]
        clock.advance(STALLED_S)
        await turns(30)
        assert (True, False) == (healthy.done(), hung[1].done())
        source.may_answer.set()
        await asyncio.gather(*hung)
        assert {0} == chunks.used
        assert 0 == clock.pending
