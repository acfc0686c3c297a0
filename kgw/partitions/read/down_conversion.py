"""Converts batches of format 2 to messages of formats 0 and 1, for old clients.

The log holds only batches of format 2. Large answers are converted in the thread that also checks
records, so that they do not block the event loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode
from kgw.partitions.append.appending import BYTES_IN_LOOP, RECORDS_IN_LOOP
from kgw.partitions.read.answer_room import AnswerBudget
from kgw.partitions.read.reading import FetchRead
from kgw.records.batch import COMPRESSION_MASK, split_batches
from kgw.records.conversion import to_messages
from kgw.turns import StepBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.partitions.append.appending import CheckThread
    from kgw.partitions.read.cold_reads import ColdReads
    from kgw.partitions.read.fetch_parts import PartitionRead
    from kgw.partitions.read.reading import FetchTimes
    from kgw.partitions.waits import RequestDeadlines
    from kgw.records.conversion import Messages
    from kgw.records.limits import DecompressionLimits
    from kgw.types import Buffer


class OldFetch(NamedTuple):
    """A Fetch request of an old record format, with the objects that answer it."""

    magic: int
    budget: AnswerBudget
    """The limit of the first read, and of the messages."""
    times: FetchTimes
    deadlines: RequestDeadlines
    cold_reads: ColdReads
    thread: CheckThread
    limits: DecompressionLimits


async def read_messages(parts: Sequence[PartitionRead], fetch: OldFetch) -> None:
    """Read partitions as `FetchRead` does, and convert the records to messages.

    Control batches and empty batches have no messages: the read continues after them, and waits for
    more records. After an answer without messages the client would fetch the same offset for ever.
    The answer's first message is included whatever its size.
    """
    budget = fetch.budget
    max_bytes, min_bytes = budget.max_bytes, budget.min_bytes
    taken_bytes = 0
    left = list(parts)
    while True:
        read = FetchRead(left, budget, fetch.times, fetch.deadlines, fetch.cold_reads)
        try:
            if not read.is_done:
                await read
            read.read_latest()
            # Counted in `reading_bytes` while other requests run.
            budget.count()
            unspoken: list[PartitionRead] = []
            share = StepBudget(BYTES_IN_LOOP)
            for part in left:
                if not part.buffers:
                    continue
                if share.spend(sum(map(len, part.buffers))):
                    await asyncio.sleep(0)
                room_bytes = max(0, min(part.max_bytes, max_bytes - taken_bytes))
                messages = await _convert(part, room_bytes, fetch, at_least_one=not taken_bytes)
                part.buffers = messages.parts
                taken_bytes += messages.size_bytes
                if messages.code is not ErrorCode.NONE:
                    part.fail(messages.code)
                elif not messages.parts and not messages.is_cut:
                    part.offset = messages.next_offset
                    unspoken.append(part)
        finally:
            read.stop()
            budget.stop_counting()
        if not unspoken:
            return
        if taken_bytes or any(part.is_final for part in parts):
            left, min_bytes = unspoken, 0
        budget = AnswerBudget(max_bytes - taken_bytes, min_bytes, budget.room)


async def _convert(
    part: PartitionRead, max_bytes: int, fetch: OldFetch, *, at_least_one: bool
) -> Messages:
    """Convert the records of a partition to messages, as many as fit the answer."""
    convert = partial(
        to_messages,
        part.buffers,
        fetch.magic,
        part.offset,
        max_bytes,
        fetch.limits,
        at_least_one=at_least_one,
    )
    return convert() if _is_little(part.buffers) else await fetch.thread.run(convert)


def _is_little(buffers: Sequence[Buffer]) -> bool:
    """Return whether the batches are few and small enough to be converted in the event loop."""
    if sum(map(len, buffers)) > BYTES_IN_LOOP:
        return False
    batches = [batch for buffer in buffers for batch in split_batches(buffer)]
    return (
        not any(batch.attributes & COMPRESSION_MASK for batch in batches)
        and sum(batch.record_count for batch in batches) <= RECORDS_IN_LOOP
    )
