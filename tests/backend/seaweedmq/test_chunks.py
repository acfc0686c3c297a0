"""Chunks that are fetched before anybody asks for them."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.seaweedmq.chunks import ChunkPlace, ChunkReader, ChunkSource
from kgw.backend.seaweedmq.filer import Chunk
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.errors import CorruptionError
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.seaweedmq.layouts import DecodedChunk

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
    async with aclosing(ChunkReader(SeaweedMqOptions(), now)) as chunks:
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
    async with aclosing(ChunkReader(SeaweedMqOptions(), now)) as chunks:
        assert chunks.want(source, PLACE)
        for _ in range(2):
            with pytest.raises(CorruptionError, match="gone"):
                await chunks.get(source, PLACE)
