"""A group of appends on its way through the writer: what is in the segments, and what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgw.backend.embedded.files.pool import PooledFile
    from kgw.backend.embedded.log.journal import Redo
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import DurableMark, SegmentedLog
    from kgw.backend.embedded.write.append import Append


class Written:
    """A group that has been written, and what makes it durable."""

    __slots__ = ("by_journal", "by_log", "by_segment", "failed", "in_use")

    def __init__(self, by_log: dict[SegmentedLog, list[Append]]) -> None:
        self.by_log = by_log
        self.failed: dict[SegmentedLog, OSError] = {}
        """Logs to which it could not be written; what is there of it is to be taken back."""
        self.by_segment: list[SegmentedLog] = []
        """Logs whose last segment must be synced; a roll has synced those before it."""
        self.by_journal: list[SegmentedLog] = []
        """Logs that a sync of the journal makes durable."""
        self.in_use: list[tuple[Segment, PooledFile]] = []
        """Files that somebody else syncs."""

    @property
    def needs_sync(self) -> bool:
        """Whether anything must be synced before it is answered."""
        return bool(self.by_segment or self.by_journal)

    @property
    def syncs(self) -> list[list[SegmentedLog]]:
        """The logs that each sync makes durable: segment by segment, then the journal."""
        syncs = [[log] for log in self.by_segment]
        if self.by_journal:
            syncs.append(self.by_journal)
        return syncs


class Begun:
    """What one log's share of a group is, once it is in the segments."""

    __slots__ = ("before", "may_wait", "redos")

    def __init__(self, redos: list[Redo], before: DurableMark | None, *, may_wait: bool) -> None:
        self.redos = redos
        self.before = before
        self.may_wait = may_wait
