"""Appends batches that need a check first, in the order in which they arrived.

A compacted topic refuses records without a key, a topic that refuses old timestamps must read each
of them, and a topic with kgw.validation=records refuses records that contradict their batch header;
for all these checks the payload must be decompressed. A topic with a compression.type stores all
batches in that codec. Message sets of old clients are first converted to batches. Small batches are
checked in the event loop, large ones in a thread. Batches that arrive meanwhile wait in the queue,
since a later batch of the same producer must not enter first. The first batch of a transaction
waits in the same queue for the transaction's coordinator, and a marker waits there for the batches
before it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kgw.backend.append import Append, AppendResult
from kgw.errors import KafkaError
from kgw.partitions.append.validation import RecordRules, validate_records
from kgw.records.batch import Compression
from kgw.types import NO_LEADER_EPOCH, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from kgw.completion import AnyCompletion
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits

ResultT = TypeVar("ResultT")

# Larger batches are checked in a thread. A compressed batch of 4 KB may have 1 MB uncompressed.
RECORDS_IN_LOOP = 256
BYTES_IN_LOOP = 65_536
_COMPRESSED_BYTES_IN_LOOP = 4_096
_RECOMPRESSED_BYTES_IN_LOOP = 4_096

ENTERED_PER_TURN = 150
"""Queued batches that enter in one turn of the event loop. Each is one append."""


class Appended(NamedTuple):
    """The outcome of `append`.

    `result` gets the offset; it is None for a duplicate, whose `base_offset` is known.
    """

    result: Append | None
    base_offset: int
    log_append_time_ms: int
    """-1 unless the topic uses log append time."""
    is_undecided: bool = False
    """Whether `result` is a QueuedAppend, which may still be refused with a KafkaError."""


class QueuedAppend(Append):
    """The result of a batch or marker that waits in a `CheckQueue`."""

    __slots__ = ("log_append_time_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.log_append_time_ms = NO_TIMESTAMP_MS
        """As in `Appended`; valid after success.

        A retry gets the time of its first copy, which was not known when the retry arrived.
        """


class RecompressionCounts:
    """Counts of batches that were sent in another codec than their topic's, and their bytes."""

    __slots__ = ("batches", "bytes_after", "bytes_before")

    def __init__(self) -> None:
        self.batches = 0
        self.bytes_before = 0
        self.bytes_after = 0


class AppendCounts:
    """Counts of the batches, records and bytes that producers have appended."""

    __slots__ = ("batches", "records", "size_bytes")

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.size_bytes = 0


class CheckThread:
    """One thread for the checks of all partitions, started at its first use.

    Checks are Python code, so several threads would not be faster: each further thread would take
    the interpreter from the event loop and delay requests to other topics.
    """

    __slots__ = ("_executor", "recompressed")

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self.recompressed = RecompressionCounts()
        """Batches that the thread has compressed again in their topic's codec."""

    def run(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Run `work` in the thread, after the work that was passed in before."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            from kgw.partitions.append.allocator import give_back_large_blocks

            # Set the allocator's limits before anything is decompressed.
            self._executor = ThreadPoolExecutor(1, "kgw-checks", give_back_large_blocks)
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Let the thread end after the work that was passed in."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None


def is_prepared_at_once(batch: RecordBatch, rules: RecordRules) -> bool:
    """Return whether the batch is small enough for `prepare_records` to run in the event loop."""
    if batch.record_count > RECORDS_IN_LOOP:
        return False
    is_compressed = batch.compression is not Compression.NONE
    if rules.recompression is not None:
        # The decompressed payload may be large, and a slow codec would have to compress it again.
        return not is_compressed and batch.size_bytes <= _RECOMPRESSED_BYTES_IN_LOOP
    return batch.size_bytes <= (_COMPRESSED_BYTES_IN_LOOP if is_compressed else BYTES_IN_LOOP)


def prepare_records(batch: RecordBatch, rules: RecordRules, limits: DecompressionLimits) -> None:
    """Check the records of a valid batch, and compress them in the topic's codec if it has one.

    This may take long, and may run in any thread, as no other code uses the batch meanwhile. Raises
    as `unpack`, `validate_records` and `recompress`; the batch is then unchanged.
    """
    # Imported here: most topics have no such rules, and need no decompression.
    from kgw.records.reader import unpack

    payload = unpack(batch, limits)
    max_timestamp_ms = validate_records(batch, payload, rules)
    if rules.recompression is not None:
        from kgw.records.recompression import recompress

        recompress(batch, payload, max_timestamp_ms, rules.recompression, limits)


class _Waiting:
    """A batch or marker in a queue."""

    __slots__ = ("behind", "due", "enter", "refusal", "result")

    def __init__(self, enter: Callable[[], Appended]) -> None:
        self.enter = enter
        self.result = QueuedAppend()
        self.due = 0
        """How many of its check and its verification are still running."""
        self.refusal: BaseException | None = None
        self.behind: _Waiting | None = None
        """The next one in the queue."""


class CheckQueue:
    """The batches and markers that wait to enter one partition, in order.

    Each waits for its own check or verification, or for those queued before it.
    """

    __slots__ = ("_is_entering", "_last", "_thread", "first")

    def __init__(self, thread: CheckThread) -> None:
        self._thread = thread
        self.first: _Waiting | None = None
        """The next one to enter. If it is not None, a batch that arrives now has to wait."""
        self._last: _Waiting | None = None
        self._is_entering = False

    def submit(
        self,
        enter: Callable[[], Appended],
        *,
        check: Callable[[], None] | None = None,
        verified: AnyCompletion | None = None,
    ) -> QueuedAppend:
        """Call `enter` after the check, the verification, and all earlier entries of the queue.

        `check` runs in the thread, and raises an error to refuse the batch; `verified` is awaited.
        The result is the result of `enter`, or the KafkaError that refuses the batch.
        """
        # First, so that the batch is not queued if no thread can be started.
        checked = None if check is None else self._thread.run(check)
        one = _Waiting(enter)
        if self._last is None:
            self.first = one
        else:
            self._last.behind = one
        self._last = one
        if checked is not None:
            one.due += 1
            checked.add_done_callback(partial(self._checked, one))
        if verified is not None and not verified.is_done:
            one.due += 1
            verified.when_done(partial(self._verified, one))
        self._go_on()
        return one.result

    def _checked(self, one: _Waiting, check: Future[None]) -> None:
        one.refusal = check.exception()
        one.due -= 1
        self._go_on()

    def _verified(self, one: _Waiting, _: object) -> None:
        one.due -= 1
        self._go_on()

    def _go_on(self) -> None:
        """Let the batches enter whose checks are finished, in order."""
        if not self._is_entering:
            self._is_entering = True
            self._enter_some()

    def _enter_some(self) -> None:
        for _ in range(ENTERED_PER_TURN):
            first = self.first
            if first is None or first.due:
                self._is_entering = False
                return
            _enter(first)
            # Only after `_enter`: a batch that `enter` submits must not overtake the queued ones.
            self.first = first.behind
            if self.first is None:
                self._last = None
        asyncio.get_running_loop().call_soon(self._enter_some)


def _enter(one: _Waiting) -> None:
    result = one.result
    try:
        if one.refusal is not None:
            raise one.refusal
        appended = one.enter()
    except Exception as error:  # noqa: BLE001 - passed to the waiters of the result
        if isinstance(error, KafkaError):
            # Without this the traceback would keep this frame and the decompressed batch alive
            # until the garbage collector runs.
            error.__traceback__ = None
        result.error = error
        result.finish()
        return
    result.log_append_time_ms = appended.log_append_time_ms
    if appended.result is None:
        # A duplicate: only the offset of its first copy is known.
        result.result = AppendResult(appended.base_offset, appended.base_offset, NO_LEADER_EPOCH)
        result.finish()
    else:
        appended.result.then(result.finish_as)
