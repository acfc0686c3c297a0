"""The partitions of one Fetch: the partitions in the request, or of its session.

`NamedParts` and `SessionParts` have the same interface for reading and for waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from kgw.backend.base import ReadResult
from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.view import Bounds
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.base import EpochEnd
    from kgw.errors import StorageError
    from kgw.partitions.read.fetch_sessions import FetchSession, SessionPartition, TopicKey
    from kgw.partitions.view import AbortedRange, PartitionView
    from kgw.partitions.waits import FetchWait
    from kgw.types import Buffer

FindView: TypeAlias = (
    "Callable[[TopicKey, int, PartitionView | None], tuple[PartitionView | None, ErrorCode]]"
)
"""Finds the view of a partition from its topic, its index, and its previously known view."""

# An enum's attribute is slow to look up.
_NONE: Final = ErrorCode.NONE
_NO_BOUNDS: Final = Bounds(NO_OFFSET, NO_OFFSET, NO_OFFSET, NO_OFFSET)


class PartitionRead:
    """One partition of a Fetch: the request's fields and the result.

    If there is no view, `gone_code` is the error: the partition does not exist, or is on another
    node.
    """

    __slots__ = (
        "_aborted_from",
        "bounds",
        "buffers",
        "current_leader_epoch",
        "denied_code",
        "diverging",
        "error_code",
        "gone_code",
        "last_fetched_epoch",
        "max_bytes",
        "next_offset",
        "offset",
        "view",
    )

    def __init__(
        self,
        view: PartitionView | None,
        offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        gone_code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ) -> None:
        self.view = view
        self.offset = offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.gone_code = gone_code
        self.denied_code: ErrorCode | None = None
        """The error for a client that has lost the right to read while it waited."""
        self.error_code = _NONE
        self.bounds = _NO_BOUNDS
        self.diverging: EpochEnd | None = None
        self.buffers: list[Buffer] = []
        self.next_offset = offset
        """The offset after the last record that was read."""
        self._aborted_from = 0

    def fail(self, code: ErrorCode) -> None:
        self.bounds = _NO_BOUNDS
        self.diverging = None
        self.buffers = []
        self.error_code = code

    def fail_with(self, error: StorageError) -> None:
        """Set the error of a failed read, or `gone_code` if the partition is gone."""
        gone_code = None if self.view is None else self.view.presence.gone_code
        if gone_code is not None:
            self.fail(gone_code)
        else:
            self.fail(error.code)

    @property
    def is_final(self) -> bool:
        """Whether a longer wait cannot change this answer."""
        return self.error_code is not _NONE or self.diverging is not None

    @property
    def is_examined(self) -> bool:
        """Whether the part has bounds or an error, as `examine` or `fail` has been called."""
        return self.bounds is not _NO_BOUNDS or self.error_code is not _NONE

    @property
    def is_outdated(self) -> bool:
        """Whether the partition's bounds or presence have changed since `examine`."""
        view = self.view
        if view is None or view.presence.gone_code is not None:
            return self.error_code is _NONE
        return view.bounds() != self.bounds

    def examine(self) -> PartitionView | None:
        """Set bounds, error and divergence. Return the view if there are records to read.

        There are none at the end of the visible records.
        """
        view = self.view
        if view is None:
            self.fail(self.gone_code)
            return None
        if self.denied_code is not None:
            self.fail(self.denied_code)
            return None
        if view.presence.gone_code is not None:
            self.fail(view.presence.gone_code)
            return None
        self.error_code = _NONE
        self.diverging = None
        self.buffers = []
        offset = self.offset
        if self.current_leader_epoch >= 0:
            try:
                view.check_leader_epoch(self.current_leader_epoch)
            except KafkaError as error:
                self.fail(error.code)
                return None
        self._aborted_from = view.aborted_from
        bounds = self.bounds = view.bounds()
        if self.last_fetched_epoch >= 0 and self._diverges(view):
            return None
        if not view.is_readable(offset, bounds):
            self.fail(ErrorCode.OFFSET_OUT_OF_RANGE)
            return None
        return view if offset < bounds.end_offset else None

    def take(self, result: ReadResult, aborted_from: int | None = None) -> None:
        """Set the records of a read.

        `aborted_from` is the view's value from before the read; None if `examine` was called just
        before.
        """
        self.buffers = result.buffers
        self.next_offset = result.next_offset
        if aborted_from is not None:
            self._aborted_from = aborted_from

    @property
    def had(self) -> tuple[ReadResult, int]:
        """The records with their `aborted_from`, so that they can be restored after `examine`."""
        size_bytes = sum(map(len, self.buffers))
        return ReadResult(self.buffers, size_bytes, self.next_offset), self._aborted_from

    def aborted(self) -> Sequence[AbortedRange]:
        """Return the aborted transactions that a read_committed reader must skip.

        If aborted records were deleted since the read, their transactions are unknown: the records
        of the read are dropped, and the next request reads again.
        """
        view = self.view
        if view is None or not self.buffers:
            return ()
        if self.offset < view.aborted_from != self._aborted_from:
            self.buffers = []
            return ()
        return view.aborted(self.offset, self.next_offset)

    def _diverges(self, view: PartitionView) -> bool:
        """Return whether the client has records that this log lacks (KIP-595, for Fetch)."""
        end = view.epoch_end(self.last_fetched_epoch)
        if end is None:
            self.fail(ErrorCode.OFFSET_OUT_OF_RANGE)
            return True
        if end.leader_epoch < self.last_fetched_epoch or end.end_offset < self.offset:
            self.diverging = end
            return True
        return False


class NamedParts:
    """The partitions of a request without a session."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[PartitionRead]) -> None:
        self._parts = parts

    def listen(self, wait: FetchWait) -> None:
        for part in self._parts:
            if part.view is not None:
                part.view.listen(wait)

    def ignore(self, wait: FetchWait) -> None:
        for part in self._parts:
            if part.view is not None:
                part.view.ignore(wait)


class SessionParts:
    """The parts of one request of a session, for a `FetchRead`.

    `entries` are the session's own partitions, in the order of `parts`. A partition without news is
    removed from the session's `dirty`, and added again when it changes.
    """

    __slots__ = (
        "_epoch",
        "_find_view",
        "entries",
        "parts",
        "session",
    )

    def __init__(self, session: FetchSession, find_view: FindView) -> None:
        """`find_view` comes from the request: requests of a session may see different records."""
        self.session = session
        self.parts: list[PartitionRead] = []
        self.entries: list[SessionPartition] = []
        self._find_view = find_view
        self._epoch = session.epoch

    @property
    def is_answerable(self) -> bool:
        """Whether the session has got no later request."""
        return self.session.epoch == self._epoch

    @property
    def is_over(self) -> bool:
        """Whether this request may no longer change the session."""
        return not self.is_answerable or self.session.is_closed

    def collect(self) -> list[PartitionRead]:
        """Return the partitions to read now."""
        self.entries = self.session.in_line()
        self.parts = [self._part(entry) for entry in self.entries]
        return self.parts

    def _part(self, entry: SessionPartition) -> PartitionRead:
        known = entry.view
        view, gone_code = self._find_view(entry.topic, entry.index, known)
        if view is not known:
            if known is not None:
                known.ignore(entry)
            entry.view = view
        return PartitionRead(
            view,
            entry.offset,
            entry.max_bytes,
            entry.current_leader_epoch,
            entry.last_fetched_epoch,
            gone_code,
        )

    def settle(self) -> None:
        """Remove partitions from `dirty` that the client has read to the end, with known bounds.

        The current bounds count, as a read from disk may have taken a while.
        """
        if self.is_over:
            return
        for entry, part in zip(self.entries, self.parts, strict=True):
            view = part.view
            if part.is_final or part.buffers:
                continue
            if view is None or view.presence.gone_code is not None:
                continue
            bounds = view.bounds()
            # Below the high watermark, a request of the other isolation level might find records.
            if entry.offset == bounds.end_offset == bounds.high_watermark and entry.is_told(
                bounds.high_watermark, bounds.log_start_offset
            ):
                self.session.settle(entry)

    def collect_more(self) -> None:
        """Add partitions that have become dirty meanwhile."""
        known = set(self.entries)
        for entry in self.session.in_line():
            if entry not in known:
                self.entries.append(entry)
                self.parts.append(self._part(entry))

    def listen(self, wait: FetchWait) -> None:
        for entry in self.session.dirty:
            self.session.listen(entry)
        self.session.wait = wait

    def ignore(self, wait: FetchWait) -> None:
        # Each entry continues to listen for the session, so that a later request learns of changes.
        if self.session.wait is wait:
            self.session.wait = None
