"""Reading several partitions for one Fetch: within its limits, and within one deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.completion import Completion
from kgw.errors import CorruptionError, ErrorCode, KafkaError, StorageError
from kgw.offsets.ranges import is_in_range
from kgw.partitions.emptied import read_on
from kgw.partitions.waits import FetchWait
from kgw.turns import Share
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import EpochEnd, ReadResult
    from kgw.clock import Clock
    from kgw.partitions.answer_room import AnswerRoom
    from kgw.partitions.partition import Partition
    from kgw.partitions.waits import FetchDeadlines
    from kgw.types import Buffer

# After that no further partition of a Fetch is read from the disk. A hundred clients that catch up
# wait for a few threads, and hold what they have read meanwhile.
_FROM_DISK_BYTES = 1 << 20
# Less room than this behind so much is given to nobody: each of a hundred partitions would be read
# for a batch that does not fit.
_LEAST_PART_BYTES = 64 << 10


PARTS_PER_TURN = 400
"""More are read a part at a time, as what comes from the disk; 3 us each."""
BATCHES_PER_TURN = 3_500
"""What is looked at batch by batch, 0.6 us each: no further part is read in a turn behind so many.
One part alone has 1,000, so that the usual four partitions of a client are served side by side."""


class PartitionRead:
    """One partition of a Fetch: what is asked of it, and what came of it.

    `gone_code` answers when the partition does not exist, or no longer.
    """

    __slots__ = (
        "buffers",
        "current_leader_epoch",
        "diverging",
        "error_code",
        "gone_code",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "partition",
    )

    def __init__(
        self,
        partition: Partition | None,
        offset: int,
        max_bytes: int,
        *,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        gone_code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.gone_code = gone_code
        self._clear()

    def _clear(self) -> None:
        self.error_code = ErrorCode.NONE
        self.high_watermark = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.diverging: EpochEnd | None = None
        self.buffers: list[Buffer] = []

    def fail(self, code: ErrorCode) -> None:
        self._clear()
        self.error_code = code

    def fail_with(self, error: StorageError) -> None:
        """Answer with what a failed read means.

        CORRUPT_MESSAGE makes clients tell their application, which can seek past the damage. After
        KAFKA_STORAGE_ERROR they would ask again for ever, and say nothing.
        """
        if self.partition is not None and self.partition.topic.is_deleted:
            self.fail(self.gone_code)
        elif isinstance(error, CorruptionError):
            self.fail(ErrorCode.CORRUPT_MESSAGE)
        else:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    @property
    def is_final(self) -> bool:
        """Whether waiting longer could not make this answer better."""
        return self.error_code is not ErrorCode.NONE or self.diverging is not None

    @property
    def is_outdated(self) -> bool:
        """Whether the partition no longer is what was found when it was examined."""
        partition = self.partition
        return partition is not None and (
            partition.topic.is_deleted
            or partition.log.high_watermark != self.high_watermark
            or partition.log.log_start_offset != self.log_start_offset
        )

    def examine(self) -> Partition | None:
        """Look at where the partition stands; return it when there is something to read.

        Sets bounds, error and divergence. An offset at the high watermark has nothing to read yet.
        """
        partition = self.partition
        if partition is None or partition.topic.is_deleted:
            self.fail(self.gone_code)
            return None
        log = partition.log
        self._clear()
        offset = self.offset
        if self.current_leader_epoch >= 0:
            try:
                partition.check_leader_epoch(self.current_leader_epoch)
            except KafkaError as error:
                self.fail(error.code)
                return None
        high_watermark = log.high_watermark
        self.high_watermark = high_watermark
        self.log_start_offset = log.log_start_offset
        if self.last_fetched_epoch >= 0 and self._diverges(partition):
            return None
        if offset >= high_watermark or offset < self.log_start_offset:
            if not is_in_range(offset, self.log_start_offset, log.end_offset):
                self.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return None
            partition = None
        if log.is_in_gap(offset):
            self.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return None
        return partition

    def _diverges(self, partition: Partition) -> bool:
        """Whether the client has records that are not in this log (KIP-595's check, for Fetch)."""
        end = partition.log.epoch_end(self.last_fetched_epoch)
        if end is None:
            self.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return True
        if end.leader_epoch < self.last_fetched_epoch or end.end_offset < self.offset:
            self.diverging = end
            return True
        return False


class FetchRead(Completion[None]):
    """One Fetch's reads, and its wait for more.

    `start` says whether the parts can be answered at once. If not, they can be when it `is_done`:
    enough bytes, an error, or the deadline. Disk reads count against the deadline too.
    The parts are in the order in which the client wants them served (KIP-74): each gets what the
    ones before it left of `max_bytes`, and the first batch of all comes whatever its size.

    Who waits is told in the turn of the loop in which the records have become durable.
    """

    __slots__ = (
        "_asked_min_bytes",
        "_batches",
        "_clock",
        "_deadline_s",
        "_deadlines",
        "_is_counted",
        "_is_full",
        "_max_bytes",
        "_min_bytes",
        "_reading_bytes",
        "_room",
        "_task",
        "_wait",
        "is_as_before",
        "may_repeat",
        "parts",
        "size_bytes",
    )

    def __init__(
        self,
        parts: Sequence[PartitionRead],
        *,
        max_bytes: int,
        min_bytes: int,
        deadline_s: float,
        clock: Clock,
        deadlines: FetchDeadlines,
        room: AnswerRoom | None = None,
        may_repeat: bool = False,
        is_counted: bool = False,
    ) -> None:
        """With a `room` what is not read in one turn gets no larger than that has room for.

        With `may_repeat` it goes on listening when it has ended empty, until `stop`. With
        `is_counted` what was read counts in the room until `stop`: the answer is made in turns.
        """
        super().__init__()
        self.result = None
        self.parts = parts
        self.size_bytes = 0
        self.may_repeat = may_repeat
        self.is_as_before = False
        """Whether it was repeated, and nothing had happened to the partitions."""
        self._max_bytes = max(0, max_bytes)
        self._asked_min_bytes = min_bytes
        # More than the answer may hold will never come together.
        self._min_bytes = min(min_bytes, self._max_bytes)
        self._deadline_s = deadline_s
        self._clock = clock
        self._deadlines = deadlines
        self._room = room
        self._batches = 0
        """How many batches were looked at one by one in this turn."""
        self._reading_bytes = 0
        self._is_counted = is_counted
        self._is_full = False
        """Whether a batch did not fit behind what is enough for an answer."""
        self._wait: FetchWait | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> bool:
        """Read what there is, and wait if that is not enough; whether it is."""
        is_read = len(self.parts) <= PARTS_PER_TURN and self._read_hot()
        if is_read and self._is_complete():
            self.is_done = True
        elif is_read:
            self._wait_for_more()
        else:
            self._task = asyncio.ensure_future(self._read_cold())
        return self.is_done

    def repeat(self, *, max_bytes: int, deadline_s: float) -> bool:
        """Do the same again, for a client that repeats a request that ended empty; as `start`.

        When nothing has happened to the partitions since, nothing is looked at.
        """
        self._max_bytes = max(0, max_bytes)
        self._min_bytes = min(self._asked_min_bytes, self._max_bytes)
        self._deadline_s = deadline_s
        self.is_done = False
        self._callbacks = None
        if self.is_resting and self._min_bytes > 0:
            self.is_as_before = True
            self._wait_for_more()
            return False
        self.stop()
        return self.start()

    @property
    def is_resting(self) -> bool:
        """Whether it has ended, and nothing has happened to the partitions since."""
        return self._wait is not None and self._wait.is_resting

    @property
    def may_restart(self) -> bool:
        """Whether the partitions are still those that a new look at the catalog would find."""
        for part in self.parts:
            partition = part.partition
            if partition is None or partition.topic.is_deleted:
                return False
        return True

    @property
    def is_empty(self) -> bool:
        """Whether an answer has neither records nor errors."""
        return not self.size_bytes and not any(part.is_final for part in self.parts)

    def empty_state(self) -> list[int] | None:
        """Return all that an answer without records and errors says; None for any other answer."""
        if self.size_bytes:
            return None
        state: list[int] = []
        for part in self.parts:
            if part.is_final:
                return None
            state += (part.high_watermark, part.log_start_offset)
        return state

    def stop(self) -> None:
        """Read and wait no longer: nobody wants the answer, or the same again."""
        self._drop_wait()
        if self._task is not None:
            self._task.cancel()
        self._count(0)
        self._callbacks = None

    def _is_complete(self) -> bool:
        if self.size_bytes >= self._min_bytes or not self.parts:
            return True
        for part in self.parts:
            if part.is_final:
                return True
        return self._clock.monotonic_s() >= self._deadline_s

    def _read_hot(self) -> bool:
        """Read all parts from memory; False when one of them needs the disk."""
        self.is_as_before = False
        self.size_bytes = 0
        self._is_full = False
        self._batches = 0
        for part in self.parts:
            partition = part.examine()
            if partition is None:
                continue
            limit = self._limit(part)
            if limit is None:
                continue
            try:
                result = partition.log.read_hot(part.offset, limit, part.high_watermark)
            except StorageError as error:
                part.fail_with(error)
                continue
            if result is not None:
                self._take(part, limit, result)
            elif not self._is_large:
                return False
        return True

    @property
    def _is_large(self) -> bool:
        """Whether the answer may leave with what it has: the rest is left to the next request."""
        return self.size_bytes >= max(_FROM_DISK_BYTES, self._min_bytes)

    async def _read_all(self) -> None:
        self.is_as_before = False
        self.size_bytes = 0
        self._is_full = False
        await self._read_some(self.parts)

    async def _read_missed(self) -> None:
        """Read again what has changed meanwhile: all would be read over and over."""
        missed = [part for part in self.parts if part.is_outdated]
        for part in missed:
            self.size_bytes -= sum(map(len, part.buffers))
        await self._read_some(missed)

    async def _read_some(self, parts: Sequence[PartitionRead]) -> None:
        self._count(self.size_bytes)
        self._bound()
        share = Share(PARTS_PER_TURN)
        for part in parts:
            if share.spend() or self._batches >= BATCHES_PER_TURN:
                self._batches = 0
                self._count(self.size_bytes)
                await asyncio.sleep(0)
                self._bound()
            partition = part.examine()
            if partition is None:
                continue
            limit = self._limit(part)
            if limit is None:
                continue
            log = partition.log
            try:
                result = log.read_hot(part.offset, limit, part.high_watermark)
                if result is None:
                    if self._is_large:
                        continue  # the next request: what waits for a disk holds little memory
                    if self.size_bytes and self._clock.monotonic_s() >= self._deadline_s:
                        continue  # the client has waited long enough, and gets something
                    limit = self._reserve(part)
                    result = await read_on(
                        log,
                        part.offset,
                        limit,
                        part.high_watermark,
                        at_least_one=not self.size_bytes,
                    )
            except StorageError as error:
                part.fail_with(error)
            else:
                if part.offset < log.log_start_offset:
                    # Removed meanwhile. Nothing read and no error would say that nothing is there.
                    part.examine()
                else:
                    self._take(part, limit, result)

    async def _read_cold(self) -> None:
        try:
            await self._read_all()
            while not self._is_complete() and self._has_missed():
                await self._read_missed()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            self._fail(error)
            return
        finally:
            # From here on the connection counts it: the answer leaves in this turn of the loop.
            # If it does not `_finish` goes on counting.
            self._count(0)
        self._finish_or_wait()

    def _has_missed(self) -> bool:
        """Whether anything has happened while others had their turns: nobody listened then."""
        return any(part.is_outdated for part in self.parts)

    def _reserve(self, part: PartitionRead) -> int:
        """Return how much of a part may be read from the disk now; it is counted as being read."""
        if self._bound():
            self._leave_rest()
        limit = max(0, min(part.max_bytes, self._max_bytes - self.size_bytes))
        self._count(self.size_bytes + limit)
        return limit

    def _bound(self) -> bool:
        """Make the answer no larger than there is room for now; whether that makes it smaller.

        When the request came there may have been more room: a hundred clients that come together
        wait for a few threads, or for each other's turns.
        """
        room = self._room
        if room is None or self.size_bytes + room.next_bytes >= self._max_bytes:
            return False
        self._max_bytes = self.size_bytes + room.next_bytes
        if self._max_bytes <= self._min_bytes:
            # Whole batches that fit are less than that, and waiting makes no more of them.
            self._min_bytes = min(self._min_bytes, 1)
        return True

    def _count(self, size_bytes: int) -> None:
        """Have so much count as being read: before others have their turns, and may read, too."""
        if self._room is not None:
            self._room.reading_bytes += size_bytes - self._reading_bytes
            self._reading_bytes = size_bytes

    def _limit(self, part: PartitionRead) -> int | None:
        """Return how many bytes a part may have; None when nothing is left for it."""
        left = self._max_bytes - self.size_bytes
        if self.size_bytes and (left <= 0 or self._is_full):
            return None
        if self.size_bytes and self._batches >= BATCHES_PER_TURN:
            self._leave_rest()
            return None
        if left < _LEAST_PART_BYTES and self._is_large:
            return None
        return max(0, min(part.max_bytes, left))

    def _take(self, part: PartitionRead, limit: int, result: ReadResult) -> None:
        """Keep what was read, unless it is a too large first batch and others came before it."""
        if result.size_bytes > limit and self.size_bytes:
            # Each of the others might be read for nothing, too: of 100 with batches of 1 MB, 90.
            # Not when it was this part's own limit that was too small.
            self._is_full = self._is_large and limit < part.max_bytes
            return
        part.buffers = result.buffers
        self.size_bytes += result.size_bytes
        self._batches += result.batches
        if result.is_cut:
            self._leave_rest()

    def _leave_rest(self) -> None:
        """Answer with what there is: there is more, and the next request gets it sooner."""
        self._min_bytes = min(self._min_bytes, 1)

    def _wait_for_more(self) -> None:
        wait = self._wait
        if wait is None:
            wait = self._wait = FetchWait(self._heard(), self._deadlines, self._woken)
        wait.begin(self._min_bytes - self.size_bytes, self._deadline_s)

    def _drop_wait(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            # And let go of it: the two know each other, and a thousand such pairs a second were
            # for the garbage collector, which stops everything for 5 ms at a time.
            wait.cancel()

    def _heard(self) -> Sequence[Partition]:
        """Return the partitions that the wait has to listen to."""
        return [part.partition for part in self.parts if part.partition is not None]

    def _woken(self) -> None:
        wait = self._wait
        if wait is not None and wait.expired and not wait.has_advanced:
            # The usual end of a long poll: what was read when it began is still the answer.
            self._finish_or_wait()
            return
        try:
            is_read = len(self.parts) <= PARTS_PER_TURN and self._read_hot()
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            self._fail(error)
            return
        if is_read:
            self._finish_or_wait()
        else:
            self._task = asyncio.ensure_future(self._read_cold())

    def _fail(self, error: Exception) -> None:
        self.error = error
        self._finish()

    def _finish_or_wait(self) -> None:
        expired = self._wait is not None and self._wait.expired
        if expired or self._is_complete():
            self._finish()
        else:
            self._wait_for_more()

    def _finish(self) -> None:
        if not self.may_repeat:
            self._drop_wait()
        if self._is_counted:
            self._count(self.size_bytes)
        self.finish()
