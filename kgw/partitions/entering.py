"""Batches whose records are looked at before they enter, in the order in which they came.

A topic that is compacted takes no record without a key, one that refuses old timestamps must read
each of them, and one with kgw.validation=records takes none that is not what the header says; all
of it lies behind the codec. Small batches are walked at once, large ones in a
thread, and whatever comes to the partition meanwhile waits behind them: a later batch of the same
producer must not enter first.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.append import Append, AppendResult
from kgw.partitions.validation import RecordRules, validate_records
from kgw.records.batch import Compression
from kgw.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from asyncio import Future, Task
    from collections.abc import Callable

    from kgw.partitions.appended import Appended
    from kgw.partitions.walker import Walker
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits

# So much is walked in the loop, in some 0.2 ms; a compressed batch of that size may become 1 MB.
_RECORDS_IN_LOOP = 256
_BYTES_IN_LOOP = 65_536
_COMPRESSED_BYTES_IN_LOOP = 4_096


def is_walked_at_once(batch: RecordBatch) -> bool:
    """Whether the batch is small enough to be walked in the loop."""
    if batch.record_count > _RECORDS_IN_LOOP:
        return False
    if batch.compression is Compression.NONE:
        return batch.size_bytes <= _BYTES_IN_LOOP
    return batch.size_bytes <= _COMPRESSED_BYTES_IN_LOOP


class Entrance:
    """The batches of one partition that are being walked, or wait behind one that is."""

    __slots__ = ("_last", "_tasks", "_walker")

    def __init__(self, walker: Walker) -> None:
        self._walker = walker
        self._last: Task[None] | None = None
        self._tasks: set[Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a batch that comes now has to wait."""
        return bool(self._tasks)

    def submit(
        self,
        batch: RecordBatch,
        rules: RecordRules | None,
        limits: DecompressionLimits,
        enter: Callable[[], Appended],
    ) -> Append:
        """Call `enter` when the batch has passed the rules and all before it have had their turn.

        It comes to what `enter` does, or the KafkaError that refuses the batch.
        """
        result = Append()
        walk = (
            None
            if rules is None
            else self._walker.run(partial(validate_records, batch, rules, limits))
        )
        task = asyncio.ensure_future(_take_turn(walk, self._last, enter, result))
        self._last = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return result


async def _take_turn(
    walk: Future[None] | None,
    before: Task[None] | None,
    enter: Callable[[], Appended],
    result: Append,
) -> None:
    try:
        try:
            if walk is not None:
                await walk
        finally:
            if before is not None:
                await asyncio.wait((before,))
        appended = enter()
    except Exception as error:  # noqa: BLE001 - whoever waits for the answer deals with it
        result.error = error
        result.finish()
        return
    if appended.result is None:
        # A duplicate: where its first copy is, is all that is known.
        result.result = AppendResult(appended.base_offset, appended.base_offset, NO_LEADER_EPOCH)
        result.finish()
    elif appended.result.is_done:
        _copy(result, appended.result)
    else:
        appended.result.when_done(partial(_copy, result))


def _copy(result: Append, done: Append) -> None:
    result.error = done.error
    if done.error is None:
        result.result = done.result
    result.finish()
