"""Pending offsets: one group's offsets in open transactions. No I/O.

OffsetFetch does not return them; if stable offsets are required, their partitions get an error
(KIP-447). They become the group's committed offsets when their transaction is committed, and are
dropped when it is aborted. As in Kafka, the last commit to a partition counts, in whatever order
the transactions end: after a later commit, a pending offset only keeps its partition unstable.
Deleting a committed offset deletes the pending ones of the same partition, too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kgw.offsets.block import OffsetBlock
from kgw.offsets.committed import (
    NO_EXPIRY_MS,
    CommittedOffset,
    offset_stored_as,
    stored_offset,
)
from kgw.offsets.rows import partitions_in, pending_places_of, producer_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.offsets.rows import RowPlace
    from kgw.offsets.topic_offsets import OffsetChanges, TopicChange
    from kgw.types import TopicId

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_UNKNOWN_EPOCH: Final = -1
"""The producer epoch of a damaged row."""


class PendingOffset(NamedTuple):
    """An offset that a transaction commits to a partition when it ends."""

    order: int
    """Higher than the order of all earlier pending offsets of the group."""
    committed: CommittedOffset | None
    """None if there was a later commit: then the partition only remains unstable."""


class PendingCommit(NamedTuple):
    """Adds a producer's offsets to its transaction, which may already have others."""

    producer_id: int
    producer_epoch: int
    offsets: Mapping[TopicId, Mapping[int, CommittedOffset]]


class TransactionEnd(NamedTuple):
    """Ends a producer's transaction: its pending offsets are committed or dropped."""

    producer_id: int
    producer_epoch: int
    """The epoch of the marker.

    Pending offsets with a higher epoch belong to another transaction.
    """
    is_commit: bool


PendingChange: TypeAlias = PendingCommit | TransactionEnd


class PendingOffsets(NamedTuple):
    """The pending offsets of one producer's transaction, by topic and partition.

    Must not be changed.
    """

    producer_epoch: int
    topics: Mapping[TopicId, Mapping[int, PendingOffset]]

    @property
    def size(self) -> int:
        """The number of partitions with a pending offset."""
        return sum(map(len, self.topics.values()))

    def changes(self) -> OffsetChanges:
        """Return the changes to committed offsets if the transaction is committed."""
        return {
            topic_id: {
                partition: one.committed
                for partition, one in offsets.items()
                if one.committed is not None
            }
            for topic_id, offsets in self.topics.items()
        }


Touched: TypeAlias = "dict[TopicId, set[RowPlace]]"


class PendingTable:
    """The pending offsets of one group, by producer id.

    Contains only producers with pending offsets.
    """

    __slots__ = ("_next_order", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, PendingOffsets] = {}
        self._next_order = 0

    def __len__(self) -> int:
        return len(self._producers)

    def copy(self) -> PendingTable:
        """Return a copy that can be changed without changing this table."""
        copied = PendingTable()
        copied._producers = self._producers.copy()
        copied._next_order = self._next_order
        return copied

    def get(self, producer_id: int) -> PendingOffsets | None:
        """Return the pending offsets of a producer's transaction, or None."""
        return self._producers.get(producer_id)

    def items(self) -> Iterable[tuple[int, PendingOffsets]]:
        """Return every producer id with its pending offsets."""
        return self._producers.items()

    def topic_ids(self) -> set[TopicId]:
        """Return the topics with pending offsets."""
        return {topic_id for one in self._producers.values() for topic_id in one.topics}

    def partitions(self, topic_id: TopicId) -> frozenset[int]:
        """Return the unstable partitions of a topic, which have pending offsets."""
        return frozenset(
            partition
            for one in self._producers.values()
            for partition in one.topics.get(topic_id, ())
        )

    # --- changes: each returns the rows that change ----------------------------------------------

    def add(self, commit: PendingCommit) -> Touched:
        """Add offsets to a transaction."""
        producer_id, epoch, offsets = commit
        touched: Touched = {}
        before = self._producers.get(producer_id)
        if before is not None and before.producer_epoch > epoch:
            # The producer of this commit was fenced, and its transaction was aborted.
            return touched
        topics: dict[TopicId, Mapping[int, PendingOffset]] = {}
        if before is not None and before.producer_epoch in {epoch, _UNKNOWN_EPOCH}:
            topics.update(before.topics)
        elif before is not None:
            # A new epoch begins after the transaction of the previous epoch was committed or
            # aborted, so remaining offsets of that transaction cannot be committed any more.
            for topic_id, one in before.topics.items():
                _touch(touched, producer_id, topic_id, one)
        for topic_id, added in offsets.items():
            order = self._next_order
            self._next_order += 1
            topics[topic_id] = {
                **topics.get(topic_id, {}),
                **{partition: PendingOffset(order, one) for partition, one in added.items()},
            }
            _touch(touched, producer_id, topic_id, added)
        self._producers[producer_id] = PendingOffsets(epoch, topics)
        return touched

    def outdate(self, changes: OffsetChanges) -> Touched:
        """Apply later commits and deletions, which outdate or delete the pending offsets."""
        touched: Touched = {}
        for producer_id, one in list(self._producers.items()):
            after = {
                topic_id: _after(one.topics[topic_id], changes[topic_id])
                for topic_id in one.topics.keys() & changes.keys()
            }
            self._replace(producer_id, after, touched)
        return touched

    def end(self, end: TransactionEnd) -> tuple[OffsetChanges, Touched]:
        """End a transaction. Also return the changes to committed offsets."""
        ended = self._producers.get(end.producer_id)
        touched: Touched = {}
        if ended is None or ended.producer_epoch > end.producer_epoch:
            return {}, touched
        del self._producers[end.producer_id]
        for topic_id, offsets in ended.topics.items():
            _touch(touched, end.producer_id, topic_id, offsets)
        if not end.is_commit:
            return {}, touched
        for producer_id, one in list(self._producers.items()):
            after = {
                topic_id: _after_end(one.topics[topic_id], ended.topics[topic_id])
                for topic_id in one.topics.keys() & ended.topics.keys()
            }
            self._replace(producer_id, after, touched)
        return ended.changes(), touched

    def _replace(
        self,
        producer_id: int,
        after: Mapping[TopicId, Mapping[int, PendingOffset]],
        touched: Touched,
    ) -> None:
        """Replace a producer's pending offsets for some topics."""
        epoch, topics = self._producers[producer_id]
        for topic_id, offsets in after.items():
            changed = [
                one for one, before in topics[topic_id].items() if before != offsets.get(one)
            ]
            _touch(touched, producer_id, topic_id, changed)
        left = {topic_id: offsets for topic_id, offsets in {**topics, **after}.items() if offsets}
        if left:
            self._producers[producer_id] = PendingOffsets(epoch, left)
        else:
            del self._producers[producer_id]

    # --- rows ------------------------------------------------------------------------------------

    def row(self, topic_id: TopicId, place: RowPlace) -> bytes | None:
        """Return the content of a row, or None if it has no offsets."""
        found = self._producers.get(producer_of(place))
        offsets = {} if found is None else found.topics.get(topic_id, {})
        entries = [
            [partition, *_fields(offsets[partition])]
            for partition in partitions_in(place)
            if partition in offsets
        ]
        if found is None or not entries:
            return None
        return _ENCODER.encode([found.producer_epoch, entries]).encode()

    def load(
        self, topic_id: TopicId, place: RowPlace, epoch: int, offsets: Mapping[int, PendingOffset]
    ) -> None:
        """Add the offsets of a stored row."""
        producer_id = producer_of(place)
        before = self._producers.get(producer_id, PendingOffsets(epoch, {}))
        loaded = {**before.topics.get(topic_id, {}), **offsets}
        self._producers[producer_id] = PendingOffsets(
            max(epoch, before.producer_epoch), {**before.topics, topic_id: loaded}
        )
        for one in offsets.values():
            self._next_order = max(self._next_order, one.order + 1)

    def load_damage(self, topic_id: TopicId, place: RowPlace, mark: CommittedOffset) -> None:
        """Set `mark` as the pending offset of every partition in a damaged row's range.

        Its order is not known, so it counts as the latest: if the transaction is committed, the
        mark becomes the committed offset and the group gets an error.
        """
        unknown = PendingOffset(self._next_order, mark)
        self.load(topic_id, place, _UNKNOWN_EPOCH, dict.fromkeys(partitions_in(place), unknown))


_OUTDATED: Final = PendingOffset(-1, None)


def decode_pending(
    value: bytes, running_ms: int, now_s: float
) -> tuple[int, dict[int, PendingOffset]]:
    """Return a row's producer epoch and offsets, given the time of both clocks.

    Raises ValueError.
    """
    try:
        epoch, entries = json.loads(value)
        offsets = {}
        for partition, order, *fields in entries:
            committed = None
            if fields:
                offset, leader_epoch, commit_ms, metadata = fields
                age_s = max(0, running_ms - int(commit_ms)) / 1000
                committed = CommittedOffset(
                    offset_stored_as(int(offset)),
                    int(leader_epoch),
                    str(metadata),
                    int(commit_ms),
                    NO_EXPIRY_MS,
                    now_s - age_s,
                )
            offsets[int(partition)] = PendingOffset(int(order), committed)
        return int(epoch), offsets
    except TypeError as error:
        raise ValueError(f"not a row of pending offsets: {error}") from error


def _fields(one: PendingOffset) -> list[int | str]:
    committed = one.committed
    if committed is None:
        return [one.order]
    return [
        one.order,
        stored_offset(committed.offset),
        committed.leader_epoch,
        committed.commit_ms,
        committed.metadata,
    ]


def _after(before: Mapping[int, PendingOffset], change: TopicChange) -> Mapping[int, PendingOffset]:
    """Return a topic's pending offsets after a later commit or deletion."""
    if change is None:
        return {}
    if isinstance(change, OffsetBlock):
        return {**before, **dict.fromkeys(before.keys() & change.positions(), _OUTDATED)}
    after = dict(before)
    for partition in before.keys() & change.keys():
        if change[partition] is None:
            del after[partition]
        else:
            after[partition] = _OUTDATED
    return after


def _after_end(
    before: Mapping[int, PendingOffset], committed: Mapping[int, PendingOffset]
) -> Mapping[int, PendingOffset]:
    """Return a topic's pending offsets after another transaction committed offsets to the topic."""
    outdated = [
        partition
        for partition in before.keys() & committed.keys()
        if before[partition].order < committed[partition].order
    ]
    return {**before, **dict.fromkeys(outdated, _OUTDATED)} if outdated else before


def _touch(
    touched: Touched, producer_id: int, topic_id: TopicId, partitions: Iterable[int]
) -> None:
    places = pending_places_of(producer_id, partitions)
    if places:
        touched.setdefault(topic_id, set()).update(places)
