"""Which offsets a partition has, and what becomes of one that it does not have. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kgw.errors import ErrorCode, KafkaError


class OffsetBounds(NamedTuple):
    """What can be read of a partition: from `earliest` on, below `latest`.

    `latest` is the high watermark, or the last stable offset for who reads what is committed. It is
    a valid position too: that of the next record.
    """

    earliest: int
    latest: int

    def __str__(self) -> str:
        return f"{self.earliest} to {self.latest}"


def is_in_range(offset: int, earliest: int, latest: int) -> bool:
    """Whether a reader may stand at `offset`: at a record that is there, or behind the last one.

    The rule of seeks, and of Fetch, where `latest` is the log's end: what lies between the high
    watermark and there is being written, and who asks for it asks too early, not out of range.
    """
    return earliest <= offset <= latest


class SeekOutOfRangeError(KafkaError):
    """A position that a partition does not have: says which it has."""

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
    """Records that are stored and cannot be read: says from where to where, if that is known.

    `end_offset` is the first offset behind them; None where nobody can tell.
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
