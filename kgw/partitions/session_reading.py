"""Reading for a fetch session: what may have changed is looked at, the rest says when it does."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, TypeAlias, cast

from kgw.errors import ErrorCode
from kgw.partitions.reading import FetchRead, PartitionRead
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.clock import Clock
    from kgw.partitions.answer_room import AnswerRoom
    from kgw.partitions.fetch_sessions import FetchSession, SessionPartition, TopicKey
    from kgw.partitions.partition import Partition
    from kgw.partitions.waits import FetchDeadlines

FindPartition: TypeAlias = "Callable[[TopicKey, int], tuple[Partition | None, ErrorCode]]"
"""Returns a partition, or None and the error that says why."""


class SessionRead(FetchRead):
    """One request of a session: reads the partitions that may have something to say.

    `records` are theirs in the session, in the order of `parts`. Partitions that turn out to have
    nothing to say leave the session's `dirty`.
    """

    __slots__ = ("_epoch", "_find", "_is_unread", "asked", "records", "session")

    def __init__(
        self,
        session: FetchSession,
        find: FindPartition,
        *,
        max_bytes: int,
        min_bytes: int,
        deadline_s: float,
        clock: Clock,
        deadlines: FetchDeadlines,
        room: AnswerRoom | None = None,
    ) -> None:
        super().__init__(
            [],
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            deadline_s=deadline_s,
            clock=clock,
            deadlines=deadlines,
            room=room,
        )
        self.records: list[SessionPartition] = []
        self.session = session
        self.asked = list(session.dirty)
        """What the request is about: the partitions that it names, and others that have changed."""
        self._find = find
        self._epoch = session.epoch
        self._is_unread = False

    def start(self) -> bool:
        # A consumer at the end asks at once for what comes next, and nothing has come yet.
        if not self._min_bytes or not all(map(_has_nothing_new, self.asked)):
            return super().start()
        for record in self.asked:
            self.session.settle(record)
        self.is_done = self._is_complete()
        if not self.is_done:
            self._wait_for_more()
        return self.is_done

    @property
    def is_answerable(self) -> bool:
        """Whether no later request has gone on with the session."""
        return self.session.epoch == self._epoch

    @property
    def is_current(self) -> bool:
        """Whether the session still goes by what this request finds."""
        return self.session.epoch == self._epoch and not self.session.is_closed

    def take(self) -> None:
        """Read what has come in this turn of the loop: to be called before `parts` are answered.

        One flush of the disk is heard of partition by partition; the first one has ended the wait.
        """
        if self._is_unread:
            self._is_unread = False
            if not self._read_hot():
                # What would have to come from the disk is left to the next request, and so is what
                # stands behind it: it has not been looked at.
                seen = [part.is_final or part.high_watermark != NO_OFFSET for part in self.parts]
                self.parts = [*compress(self.parts, seen)]
                self.records = [*compress(self.records, seen)]

    def stop(self) -> None:
        self._stop_waiting()
        super().stop()

    def _read_hot(self) -> bool:
        self._collect()
        is_read = super()._read_hot()
        if is_read:
            self._settle()
        return is_read

    async def _read_all(self) -> None:
        self._collect()
        await super()._read_all()
        self._settle()

    async def _read_missed(self) -> None:
        # Others may have become part of it.
        await self._read_all()

    def _has_missed(self) -> bool:
        read = set(self.records)
        return super()._has_missed() or any(one not in read for one in self.session.dirty)

    def _collect(self) -> None:
        self.records = self.session.in_turn()
        self.parts = [self._part(record) for record in self.records]

    def _part(self, record: SessionPartition) -> PartitionRead:
        partition = cast("Partition | None", record.partition)
        gone_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition is None or partition.topic.is_deleted:
            partition, gone_code = self._find(record.topic, record.index)
            record.partition = partition
        return PartitionRead(
            partition,
            record.offset,
            record.max_bytes,
            current_leader_epoch=record.current_leader_epoch,
            last_fetched_epoch=record.last_fetched_epoch,
            gone_code=gone_code,
        )

    def _settle(self) -> None:
        """Leave partitions alone that have nothing to say: at their end, and that is known.

        What counts is how they stand now: a read from disk may have taken a while.
        """
        if not self.is_current:
            return
        settle = self.session.settle
        for record, part in zip(self.records, self.parts, strict=True):
            partition = part.partition
            if part.is_final or part.buffers or partition is None or partition.topic.is_deleted:
                continue
            log = partition.log
            if (
                record.offset == log.high_watermark == record.told_high_watermark
                and log.log_start_offset == record.told_log_start_offset
            ):
                settle(record)

    def _is_complete(self) -> bool:
        if not self.is_current:
            return True
        if not self.parts:
            return self._min_bytes <= 0 or self._clock.monotonic_s() >= self._deadline_s
        return super()._is_complete()

    def _wait_for_more(self) -> None:
        session = self.session
        for record in session.dirty:
            session.listen(record)
        super()._wait_for_more()
        session.wait = self._wait

    def _heard(self) -> Sequence[Partition]:
        # Each record of the session listens to its own partition.
        return ()

    def _woken(self) -> None:
        self._stop_waiting()
        if self._wait is not None and self._wait.is_satisfied:
            self._is_unread = True
            self._finish()
        else:
            super()._woken()

    def _stop_waiting(self) -> None:
        if self.session.wait is self._wait:
            self.session.wait = None


def _has_nothing_new(record: SessionPartition) -> bool:
    """Whether the client stands at the end and knows where that is, so that reading finds nothing.

    What looks unusual at all is left to `PartitionRead.examine`.
    """
    partition = cast("Partition | None", record.partition)
    if partition is None or partition.topic.is_deleted:
        return False
    log = partition.log
    offset = record.offset
    leader_epoch = log.leader_epoch
    return (
        offset == log.high_watermark == record.told_high_watermark
        and log.log_start_offset == record.told_log_start_offset
        and record.current_leader_epoch in {-1, leader_epoch}
        and record.last_fetched_epoch in {-1, leader_epoch}
        and not log.is_in_gap(offset)
    )
