"""The stored form of committed offsets: rows by topic, row name and group. Pure.

A row of kind `group-offsets` holds up to sixteen neighbouring partitions of one topic in one group,
so that a commit of one partition rewrites a few hundred bytes. Its name is the number of this group
of sixteen. A row of kind `group-offset-block` holds an `OffsetBlock`, a commit to many partitions;
its name contains the first and the last partition. A row of kind `group-pending-offsets` holds the
pending offsets of one producer's transaction in sixteen neighbouring partitions; its name is their
number and the producer's id.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Final, TypeAlias

from kgw.offsets.committed import CommittedOffset, offset_stored_as, stored_offset
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS
from kgw.types import TopicId, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PARTITIONS_PER_ROW: Final = 16
OFFSET_KINDS: Final = frozenset({GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS})

RowPlace: TypeAlias = tuple[str, str]
"""The kind of a row, and its name among the rows of one topic in one group."""


def places_of(partitions: Iterable[int]) -> set[RowPlace]:
    """Return the rows that hold the single offsets of partitions."""
    return {(GROUP_OFFSETS, str(partition // PARTITIONS_PER_ROW)) for partition in partitions}


def pending_places_of(producer_id: int, partitions: Iterable[int]) -> set[RowPlace]:
    """Return the rows that hold the pending offsets of partitions in a producer's transaction."""
    return {
        (PENDING_OFFSETS, f"{partition // PARTITIONS_PER_ROW}-{producer_id}")
        for partition in partitions
    }


def producer_of(place: RowPlace) -> int:
    """Return the producer id of a row of kind `group-pending-offsets`. Raises ValueError."""
    return int(place[1].partition("-")[2])


def row_key(group_id: str, topic_id: TopicId, place: RowPlace) -> str:
    """Return a row's key. The group's id comes last, as it may contain any character."""
    return f"{format_uuid(topic_id)}/{place[1]}/{group_id}"


def parse_row_key(kind: str, key: str) -> tuple[str, TopicId, RowPlace]:
    """Return the group, topic and row from a key. Raises ValueError for other text."""
    topic_id, place, group_id = key.split("/", 2)
    partitions_in((kind, place))
    return group_id, TopicId(parse_uuid(topic_id)), (kind, place)


def partitions_in(place: RowPlace) -> range:
    """Return a range that contains a row's partitions. Raises ValueError for an invalid name."""
    kind, text = place
    if kind == OFFSET_BLOCK:
        first, last = text.split("-")
        return range(int(first), int(last) + 1)
    if kind == PENDING_OFFSETS:
        producer_of(place)
        text = text.partition("-")[0]
    begin = int(text) * PARTITIONS_PER_ROW
    return range(begin, begin + PARTITIONS_PER_ROW)


def encode_row(offsets: Mapping[int, CommittedOffset]) -> bytes | None:
    """Return the content of a row of single offsets; None to delete it, if it has no offsets."""
    # Written without `json`, whose setup takes longer than encoding a short row.
    entries = [
        f"[{partition},{offset if offset >= 0 else stored_offset(offset)},{leader_epoch},"
        f"{commit_ms},{retention_ms},{quote(metadata)}]"
        for partition, (offset, leader_epoch, metadata, commit_ms, retention_ms, _) in sorted(
            offsets.items()
        )
    ]
    return f"[{','.join(entries)}]".encode() if entries else None


def decode_row(value: bytes, running_ms: int, now_s: float) -> dict[int, CommittedOffset]:
    """Return a row's offsets, given the time of both clocks. Raises ValueError."""
    try:
        return {
            int(partition): CommittedOffset(
                offset_stored_as(int(offset)),
                int(leader_epoch),
                str(metadata),
                int(commit_ms),
                int(retention_ms),
                now_s - max(0, running_ms - int(commit_ms)) / 1000,
            )
            for partition, offset, leader_epoch, commit_ms, retention_ms, metadata in json.loads(
                value
            )
        }
    except TypeError as error:
        raise ValueError(f"not a row of committed offsets: {error}") from error
