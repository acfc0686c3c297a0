"""One partition's log start, high watermark, durable end and next offset. Pure.

Always: log start <= high watermark <= next offset, and durable end <= next offset. Durable records
are committed, so the high watermark is never below the durable end. It is higher only in a relaxed
log, which commits records when they are written. Log start, high watermark and durable end never
decrease; the next offset decreases only over offsets that no client has seen (see
docs/native-offsets.md, rules 2-6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.errors import KgwError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_OFFSET: Final = (1 << 63) - 1
"""The largest int64; it can be a next offset but is itself never assigned."""


class OffsetInvariantError(KgwError):
    """A bug of kgw: an offset would be assigned twice, move back or be visible too early.

    Nothing has changed when it is raised.
    """


class PartitionOffsetManager:
    """Owns the next offset, durable end, high watermark and log start offset of one partition."""

    __slots__ = ("durable_end", "high_watermark", "log_start_offset", "next_offset")

    def __init__(self, log_start_offset: int = 0, next_offset: int | None = None) -> None:
        """Start with `next_offset`. All offsets below it are durable and committed.

        Raises OffsetInvariantError unless 0 <= log_start_offset <= next_offset.
        """
        end = log_start_offset if next_offset is None else next_offset
        if not 0 <= log_start_offset <= end <= MAX_OFFSET:
            raise OffsetInvariantError(f"no log runs from {log_start_offset} to {end}")
        # Any caller may read these; only the methods change them.
        self.log_start_offset = log_start_offset
        """The first offset that can be read."""
        self.high_watermark = end
        """The end offset of the committed records, which consumers see. Never goes back."""
        self.durable_end = end
        """The end offset of the records that survive a power loss. Never goes back."""
        self.next_offset = end
        """The next offset to be assigned."""

    def __repr__(self) -> str:
        return (
            f"<PartitionOffsetManager start={self.log_start_offset} "
            f"high_watermark={self.high_watermark} durable_end={self.durable_end} "
            f"next={self.next_offset}>"
        )

    def assign(self, count: int) -> int:
        """Reserve `count` consecutive offsets and return the first.

        Raises OffsetInvariantError for a count below one or past the largest int64.
        """
        base_offset = self.next_offset
        if count < 1 or base_offset + count > MAX_OFFSET:
            raise OffsetInvariantError(f"cannot assign {count} offsets from {base_offset}")
        self.next_offset = base_offset + count
        return base_offset

    def assign_many(self, counts: Iterable[int]) -> list[int]:
        """Reserve consecutive ranges of these sizes, or none. Return the first offset of each.

        Raises as `assign` does.
        """
        base_offsets: list[int] = []
        next_offset = self.next_offset
        for count in counts:
            if count < 1 or next_offset + count > MAX_OFFSET:
                raise OffsetInvariantError(f"cannot assign {count} offsets from {next_offset}")
            base_offsets.append(next_offset)
            next_offset += count
        self.next_offset = next_offset
        return base_offsets

    def advance_durable(self, end: int) -> bool:
        """Mark all offsets below `end` as durable and committed.

        Return whether the high watermark moved.

        Raises OffsetInvariantError if `end` is below the durable end or above the next offset.
        """
        if not self.durable_end <= end <= self.next_offset:
            raise OffsetInvariantError(
                f"durable end cannot go from {self.durable_end} to {end} "
                f"with {self.next_offset} next"
            )
        self.durable_end = end
        # There is one copy of the log: durable records are committed. Replicas would need another
        # step for the high watermark.
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def advance_written(self, end: int) -> bool:
        """Mark offsets below `end` as committed, durable or not. Return whether any is new.

        For a relaxed log. The offsets below `end` must be reserved: a power loss may remove the
        records, but their offsets are never assigned to other records. Raises OffsetInvariantError
        if `end` is below the high watermark or above the next offset.
        """
        if not self.high_watermark <= end <= self.next_offset:
            raise OffsetInvariantError(
                f"high watermark cannot go from {self.high_watermark} to {end} "
                f"with {self.next_offset} next"
            )
        moved = end > self.high_watermark
        self.high_watermark = end
        return moved

    def rewind(self, next_offset: int) -> None:
        """Give up the assigned offsets from `next_offset` on, after an append that failed.

        The caller, which owns the log, makes sure that they were neither committed nor
        acknowledged. Raises OffsetInvariantError below the high watermark or above the next offset.
        """
        if not self.high_watermark <= next_offset <= self.next_offset:
            raise OffsetInvariantError(
                f"cannot rewind to {next_offset}: high watermark {self.high_watermark}, "
                f"next {self.next_offset}"
            )
        self.next_offset = next_offset

    def raise_log_start(self, offset: int) -> bool:
        """Raise the log start offset to `offset`.

        Return whether it moved. A lower offset has no effect.

        Raises OffsetInvariantError above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetInvariantError(
                f"log start cannot be {offset}, above the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        return True
