"""Appending a batch that has to wait for its admission: what comes first, enters first.

A topic that is compacted takes no record without a key, one that refuses old timestamps must read
each of them, and one with kgw.validation=records takes none that is not what the header says; all
of it lies behind the codec. One with a compression.type has all of them in its codec. The message
sets of old clients have to become batches first. What is small is dealt with at once, what is large
in a thread, and whatever comes to the partition meanwhile waits behind it: a later batch of the
same producer must not enter first. The first batch of a transaction waits in the same queue for the
transaction's coordinator, and a marker for whatever came before it.
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

    from kgw.completion import Due
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits

ResultT = TypeVar("ResultT")

# So much is checked in the loop; a compressed batch of that size may become 1 MB.
RECORDS_IN_LOOP = 256
BYTES_IN_LOOP = 65_536
_COMPRESSED_BYTES_IN_LOOP = 4_096
_RECOMPRESSED_BYTES_IN_LOOP = 4_096

ENTERED_PER_TURN = 150
"""Of what has waited, before others have their turns: an append each."""


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
    """Whether `result` is a QueuedAppend, which may still be a refusal: a KafkaError."""


class QueuedAppend(Append):
    """What becomes of something that waits for its turn."""

    __slots__ = ("log_append_time_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.log_append_time_ms = NO_TIMESTAMP_MS
        """As in `Appended`, once this is done without an error: of a retry that of its first copy,
        which was not known when it came."""


class Recompressed:
    """How many batches came in another codec than their topic has, and their bytes."""

    __slots__ = ("batches", "bytes_after", "bytes_before")

    def __init__(self) -> None:
        self.batches = 0
        self.bytes_before = 0
        self.bytes_after = 0


class AppendCounts:
    """How many batches producers have appended, what is in them, and how large they are."""

    __slots__ = ("batches", "records", "size_bytes")

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.size_bytes = 0


class CheckThread:
    """One thread for the checks of all partitions, made at its first use.

    Checks are Python, so that several at a time would be no faster: each further thread takes the
    interpreter from the event loop for a while, and delays requests to other topics.
    """

    __slots__ = ("_executor", "recompressed")

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self.recompressed = Recompressed()
        """What came in another codec than its topic has."""

    def run(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Have work done after what came before it."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            from kgw.partitions.append.allocator import give_back_large_blocks

            # Before anything is unpacked here.
            self._executor = ThreadPoolExecutor(1, "kgw-checks", give_back_large_blocks)
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Let the thread end, when it has done what there is."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None


def is_prepared_at_once(batch: RecordBatch, rules: RecordRules) -> bool:
    """Whether the batch is small enough for `prepare_records` in the loop."""
    if batch.record_count > RECORDS_IN_LOOP:
        return False
    is_compressed = batch.compression is not Compression.NONE
    if rules.recompression is not None:
        # What a compressed one becomes, a slow codec may have to compress again.
        return not is_compressed and batch.size_bytes <= _RECOMPRESSED_BYTES_IN_LOOP
    return batch.size_bytes <= (_COMPRESSED_BYTES_IN_LOOP if is_compressed else BYTES_IN_LOOP)


def prepare_records(batch: RecordBatch, rules: RecordRules, limits: DecompressionLimits) -> None:
    """Have the records of a valid batch pass the rules, and be in the topic's codec afterwards.

    May take long, and is done in whichever thread: nobody else looks at the batch meanwhile. Raises
    as `unpack`, `validate_records` and `recompress`; the batch is as it was then.
    """
    # Most topics have no such rules, and their server needs no decompression.
    from kgw.records.reader import unpack

    payload = unpack(batch, limits)
    max_timestamp_ms = validate_records(batch, payload, rules)
    if rules.recompression is not None:
        from kgw.records.recompression import recompress

        recompress(batch, payload, max_timestamp_ms, rules.recompression, limits)


class _Waiting:
    """One thing in a queue."""

    __slots__ = ("behind", "due", "enter", "refusal", "result")

    def __init__(self, enter: Callable[[], Appended]) -> None:
        self.enter = enter
        self.result = QueuedAppend()
        self.due = 0
        """How much it waits for, beside those before it."""
        self.refusal: BaseException | None = None
        self.behind: _Waiting | None = None
        """What has come next."""


class CheckQueue:
    """What waits to enter one partition: for its own admission, or behind something that does."""

    __slots__ = ("_first", "_is_entering", "_last", "_thread")

    def __init__(self, thread: CheckThread) -> None:
        self._thread = thread
        self._first: _Waiting | None = None
        self._last: _Waiting | None = None
        self._is_entering = False

    @property
    def is_busy(self) -> bool:
        """Whether what comes now has to wait."""
        return self._first is not None

    def submit(
        self,
        enter: Callable[[], Appended],
        *,
        check: Callable[[], None] | None = None,
        verified: Due | None = None,
    ) -> QueuedAppend:
        """Call `enter` when all before it have had their turn, and it need not wait itself.

        `check` is run in the thread, and raises what refuses the batch; `verified` is waited for.
        It comes to what `enter` does, or the KafkaError that refuses the batch.
        """
        # First: where no thread can be started, nothing has come.
        checked = None if check is None else self._thread.run(check)
        one = _Waiting(enter)
        if self._last is None:
            self._first = one
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
        """Let in, in order, what waits for nothing any more."""
        if not self._is_entering:
            self._is_entering = True
            self._enter_some()

    def _enter_some(self) -> None:
        for _ in range(ENTERED_PER_TURN):
            first = self._first
            if first is None or first.due:
                self._is_entering = False
                return
            _enter(first)
            # Not before: what comes meanwhile must not overtake those behind it.
            self._first = first.behind
            if self._first is None:
                self._last = None
        asyncio.get_running_loop().call_soon(self._enter_some)


def _enter(one: _Waiting) -> None:
    result = one.result
    try:
        if one.refusal is not None:
            raise one.refusal
        appended = one.enter()
    except Exception as error:  # noqa: BLE001 - whoever waits for the answer deals with it
        if isinstance(error, KafkaError):
            # Where it was raised is of no interest, and would keep what a batch has become, and
            # this frame with the result, until the garbage is collected.
            error.__traceback__ = None
        result.error = error
        result.finish()
        return
    result.log_append_time_ms = appended.log_append_time_ms
    if appended.result is None:
        # A duplicate: where its first copy is, is all that is known.
        result.result = AppendResult(appended.base_offset, appended.base_offset, NO_LEADER_EPOCH)
        result.finish()
    else:
        appended.result.then(result.finish_as)
