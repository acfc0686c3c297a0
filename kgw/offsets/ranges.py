"""The range of a partition's offsets, and the errors for an offset outside it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kgw.errors import ErrorCode, KafkaError


class OffsetBounds(NamedTuple):
    """The readable offsets of a partition: from `earliest` up to `latest`, exclusive.

    `latest` is the high watermark, or the last stable offset for read_committed. It is a valid
    position, too: the position of the next record.
    """

    earliest: int
    latest: int

    def __str__(self) -> str:
        return f"{self.earliest} to {self.latest}"


def is_in_range(offset: int, earliest: int, latest: int) -> bool:
    """Return whether `offset` is a readable offset, or the offset after the last one.

    Seeks and Fetch use this rule. For a Fetch, `latest` is the log end offset: an offset at or
    above the high watermark is being written, so the request is early, not out of range.
    """
    return earliest <= offset <= latest


class SeekOutOfRangeError(KafkaError):
    """A position outside a partition's range; the error states the range."""

    def __init__(self, partition: int, asked: int, bounds: OffsetBounds, why: str = "") -> None:
        if not why and is_in_range(asked, *bounds):
            why = "the records there were lost in an unclean stop"
        detail = f" ({why})" if why else ""
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"partition {partition} has no offset {asked}{detail}: it goes from "
            f"{bounds.earliest} to {bounds.latest}",
        )
        self.partition = partition
        self.asked = asked
        self.earliest = bounds.earliest
        self.latest = bounds.latest


class DamagedRangeError(KafkaError):
    """Stored records that cannot be read; the error states their offsets if they are known.

    `end_offset` is the first offset after them, or None if it is unknown.
    """

    def __init__(
        self, partition: int, start_offset: int, end_offset: int | None, why: str = ""
    ) -> None:
        extent = (
            f"from offset {start_offset} on"
            if end_offset is None
            else f"{start_offset} to {end_offset - 1}"
        )
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"partition {partition}: records {extent} are damaged{f': {why}' if why else ''}",
        )
        self.partition = partition
        self.start_offset = start_offset
        self.end_offset = end_offset
