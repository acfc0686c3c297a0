"""The partitions that a request of a fetch session reads: those that may have something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from kgw.errors import ErrorCode
from kgw.partitions.reading import PartitionRead

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.partitions.fetch_sessions import FetchSession, SessionPartition, TopicKey
    from kgw.partitions.view import PartitionView
    from kgw.partitions.waits import FetchWait

FindView: TypeAlias = "Callable[[TopicKey, int], tuple[PartitionView | None, ErrorCode]]"
"""Returns a partition's view, or None and the error that says why there is none."""


class SessionParts:
    """The parts of one request of a session, for a `FetchRead`.

    `records` are theirs in the session, in the order of `parts`. Partitions that turn out to have
    nothing to say leave the session's `dirty`; the others say when they have.
    """

    __slots__ = ("_epoch", "_find", "_isolation", "parts", "records", "session")

    def __init__(self, session: FetchSession, find: FindView, isolation: int) -> None:
        """`find` returns views of the isolation level, which is the request's own."""
        self.session = session
        self.parts: list[PartitionRead] = []
        self.records: list[SessionPartition] = []
        self._find = find
        self._isolation = isolation
        self._epoch = session.epoch

    @property
    def is_answerable(self) -> bool:
        """Whether no later request has gone on with the session."""
        return self.session.epoch == self._epoch

    @property
    def is_over(self) -> bool:
        """Whether the session no longer goes by what this request finds."""
        return self.session.epoch != self._epoch or self.session.is_closed

    def collect(self) -> list[PartitionRead]:
        self.records = self.session.in_turn()
        self.parts = [self._part(record) for record in self.records]
        return self.parts

    def _part(self, record: SessionPartition) -> PartitionRead:
        view = cast("PartitionView | None", record.view)
        gone_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if view is None or view.topic.is_deleted or view.isolation != self._isolation:
            view, gone_code = self._find(record.topic, record.index)
            record.view = view
        return PartitionRead(
            view,
            record.offset,
            record.max_bytes,
            record.current_leader_epoch,
            record.last_fetched_epoch,
            gone_code,
        )

    def settle(self) -> None:
        """Leave partitions alone that have nothing to say: at their end, and that is known.

        What counts is how they stand now: a read from disk may have taken a while.
        """
        if self.is_over:
            return
        for record, part in zip(self.records, self.parts, strict=True):
            view = part.view
            if part.is_final or part.buffers or view is None or view.topic.is_deleted:
                continue
            bounds = view.bounds()
            if record.offset == bounds.end_offset and record.is_told(
                bounds.high_watermark, bounds.log_start_offset
            ):
                self.session.settle(record)

    def collect_more(self) -> None:
        known = set(self.records)
        for record in self.session.in_turn():
            if record not in known:
                self.records.append(record)
                self.parts.append(self._part(record))

    def listen(self, wait: FetchWait) -> None:
        for record in self.session.dirty:
            self.session.listen(record)
        self.session.wait = wait

    def ignore(self, wait: FetchWait) -> None:
        # Each record goes on listening for the session: a request that comes later hears of it.
        if self.session.wait is wait:
            self.session.wait = None
