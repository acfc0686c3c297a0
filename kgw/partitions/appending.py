"""Appending a batch whose records have to be read: what comes first, enters first.

A topic that is compacted takes no record without a key, one that refuses old timestamps must read
each of them, and one with kgw.validation=records takes none that is not what the header says; all
of it lies behind the codec. The message sets of old clients have to become batches first. What is
small is dealt with at once, what is large in a thread, and whatever comes to the partition
meanwhile waits behind it: a later batch of the same producer must not enter first.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kgw.backend.append import Append, AppendResult
from kgw.records.batch import Compression
from kgw.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from asyncio import Future, Task
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from kgw.records.batch import RecordBatch

ResultT = TypeVar("ResultT")

# So much is checked in the loop; a compressed batch of that size may become 1 MB.
RECORDS_IN_LOOP = 256
BYTES_IN_LOOP = 65_536
_COMPRESSED_BYTES_IN_LOOP = 4_096


class Appended(NamedTuple):
    """What `append` did with a batch.

    `result` has the offset once it is done; it is None for a duplicate, whose `base_offset` is
    known.
    """

    result: Append | None
    base_offset: int
    log_append_time_ms: int
    """-1 unless the topic uses log append time."""
    is_undecided: bool = False
    """Whether `result` may still be a refusal: a KafkaError."""


class CheckThread:
    """One thread for the checks and conversions of all partitions, made at its first use.

    They are Python, so that several at a time would be no faster: each further thread takes the
    interpreter from the event loop for a while, and delays requests to other topics.
    """

    __slots__ = ("_executor",)

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def run(self, check: Callable[[], ResultT]) -> Future[ResultT]:
        """Have a check done after those that came before it."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, "kgw-checks")
        return asyncio.get_running_loop().run_in_executor(self._executor, check)

    def close(self) -> None:
        """Let the thread end, when it has done what there is."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None


def is_checked_at_once(batch: RecordBatch) -> bool:
    """Whether the batch is small enough to be checked in the loop."""
    if batch.record_count > RECORDS_IN_LOOP:
        return False
    if batch.compression is Compression.NONE:
        return batch.size_bytes <= BYTES_IN_LOOP
    return batch.size_bytes <= _COMPRESSED_BYTES_IN_LOOP


class CheckQueue:
    """The batches of one partition that are being checked, or wait behind one that is."""

    __slots__ = ("_last", "_tasks", "_thread")

    def __init__(self, thread: CheckThread) -> None:
        self._thread = thread
        self._last: Task[None] | None = None
        self._tasks: set[Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a batch that comes now has to wait."""
        return bool(self._tasks)

    def submit(
        self,
        batch: RecordBatch | Callable[[], RecordBatch],
        enter: Callable[[RecordBatch], Appended],
    ) -> Append:
        """Call `enter` with a batch when all before it have had their turn.

        What takes long is given as what checks or makes the batch, in the thread. It comes to what
        `enter` does, or the KafkaError that refuses the batch.
        """
        result = Append()
        due = self._thread.run(batch) if callable(batch) else batch
        task = asyncio.ensure_future(_enter_in_order(due, self._last, enter, result))
        self._last = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return result


async def _enter_in_order(
    due: Future[RecordBatch] | RecordBatch,
    before: Task[None] | None,
    enter: Callable[[RecordBatch], Appended],
    result: Append,
) -> None:
    try:
        try:
            batch = await due if isinstance(due, asyncio.Future) else due
        finally:
            if before is not None:
                await asyncio.wait((before,))
        appended = enter(batch)
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
