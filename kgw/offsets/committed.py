"""Committed offsets of a group: a table by topic id and partition, stored rows, expiry. Pure.

A row of kind `group-offsets` holds up to sixteen neighbouring partitions of one topic in one group,
so that a client that commits a thousand partitions writes sixty rows, and one that commits one
partition rewrites a few hundred bytes. Topics go by id: one that is created again under its name
begins without committed offsets.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii as _quote
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kgw.types import TopicId, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

GROUP_OFFSETS = "group-offsets"
PARTITIONS_PER_ROW = 16
NO_EXPIRY_MS = -1
DAMAGED_OFFSET = -2
"""Stands where an offset was that cannot be read any more: its group must be told, not sent to
wherever it would begin without one. Stored like any other until it is committed or deleted."""


class CommittedOffset(NamedTuple):
    """How far a group has read a partition: the offset of the next record to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    """Wall time, for people and for the next start."""

    retention_ms: int
    """How long it is kept at most, by the client's wish (OffsetCommit 2 to 4); NO_EXPIRY_MS."""

    committed_s: float
    """Monotonic time: within a process a wall clock that jumps expires nothing."""


Place: TypeAlias = tuple[TopicId, int]
"""Topic id and partition."""

OffsetChanges: TypeAlias = "dict[Place, CommittedOffset | None]"
"""New offsets by place; None deletes."""


class OffsetTable:
    """The durable committed offsets of one group."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[TopicId, dict[int, CommittedOffset]] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._topics.values())

    def get(self, topic_id: TopicId, partition: int) -> CommittedOffset | None:
        partitions = self._topics.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def topics(self) -> Mapping[TopicId, Mapping[int, CommittedOffset]]:
        return self._topics

    def places(self) -> list[Place]:
        return [(topic_id, index) for topic_id, rows in self._topics.items() for index in rows]

    def apply(self, changes: OffsetChanges) -> None:
        """Take over what has become durable."""
        for (topic_id, partition), committed in changes.items():
            if committed is not None:
                self._topics.setdefault(topic_id, {})[partition] = committed
                continue
            partitions = self._topics.get(topic_id)
            if partitions is not None:
                partitions.pop(partition, None)
                if not partitions:
                    del self._topics[topic_id]

    def rows_after(
        self, group_id: str, changes: OffsetChanges
    ) -> Iterator[tuple[str, bytes | None]]:
        """Yield key and content of every row that changes touch; None for one that goes."""
        rows: dict[tuple[TopicId, int], dict[int, CommittedOffset | None]] = {}
        for (topic_id, partition), committed in changes.items():
            rows.setdefault((topic_id, partition // PARTITIONS_PER_ROW), {})[partition] = committed
        for (topic_id, number), changed in rows.items():
            merged = changed
            stored = self._topics.get(topic_id)
            if stored and len(changed) < PARTITIONS_PER_ROW:
                first = number * PARTITIONS_PER_ROW
                merged = {
                    partition: stored[partition]
                    for partition in range(first, first + PARTITIONS_PER_ROW)
                    if partition in stored
                }
                merged.update(changed)
            value = _encode(merged)
            yield row_key(group_id, topic_id, number), value

    def expired(self, now_s: float, empty_since_s: float, retention_s: float) -> list[Place]:
        """Return what a group that is empty need not keep any longer.

        Each offset is kept for the retention time from its commit or from when the group became
        empty, whichever is later; or for as long as its client asked, from the commit.
        """
        gone = []
        for topic_id, partitions in self._topics.items():
            for partition, one in partitions.items():
                if one.retention_ms != NO_EXPIRY_MS:
                    expires_s = one.committed_s + one.retention_ms / 1000
                else:
                    expires_s = max(one.committed_s, empty_since_s) + retention_s
                if expires_s <= now_s:
                    gone.append((topic_id, partition))
        return gone


def row_key(group_id: str, topic_id: TopicId, number: int) -> str:
    """Return a row's key: what has a fixed form first, for a group's id may hold anything."""
    return f"{format_uuid(topic_id)}/{number}/{group_id}"


def parse_row_key(key: str) -> tuple[str, TopicId]:
    """Return group and topic of a row's key. Raises ValueError for other text."""
    topic_id, number, group_id = key.split("/", 2)
    int(number)
    return group_id, TopicId(parse_uuid(topic_id))


def damaged_row(key: str, wall_ms: int, now_s: float) -> dict[Place, CommittedOffset]:
    """Return what takes the place of a row that cannot be read. Raises ValueError as the key's."""
    topic_id, number, _ = key.split("/", 2)
    damaged = CommittedOffset(DAMAGED_OFFSET, -1, "", wall_ms, NO_EXPIRY_MS, now_s)
    first = int(number) * PARTITIONS_PER_ROW
    return {
        (TopicId(parse_uuid(topic_id)), partition): damaged
        for partition in range(first, first + PARTITIONS_PER_ROW)
    }


def decode_row(
    topic_id: TopicId, value: bytes, wall_ms: int, now_s: float
) -> Iterable[tuple[Place, CommittedOffset]]:
    """Return a row's offsets, given what time it is on both clocks. Raises ValueError."""
    try:
        return [
            (
                (topic_id, int(partition)),
                CommittedOffset(
                    int(offset),
                    int(leader_epoch),
                    str(metadata),
                    int(commit_ms),
                    int(retention_ms),
                    now_s - max(0, wall_ms - int(commit_ms)) / 1000,
                ),
            )
            for partition, offset, leader_epoch, commit_ms, retention_ms, metadata in json.loads(
                value
            )
        ]
    except TypeError as error:
        raise ValueError(f"not a row of committed offsets: {error}") from error


def _encode(row: dict[int, CommittedOffset | None]) -> bytes | None:
    """Return a row's content, None when nothing is left of it.

    Formatted by hand: json.dumps, which takes a third longer, was a fifth of a commit of a thousand
    partitions.
    """
    entries = [
        f"[{partition},{offset},{leader_epoch},{commit_ms},{retention_ms},{_quote(metadata)}]"
        for partition, (offset, leader_epoch, metadata, commit_ms, retention_ms, _) in sorted(
            (partition, one) for partition, one in row.items() if one is not None
        )
    ]
    return f"[{','.join(entries)}]".encode() if entries else None
