"""The durable committed offsets of one group, by topic. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.offsets.topic_offsets import TopicOffsets

if TYPE_CHECKING:
    from kgw.offsets.committed import CommittedOffset
    from kgw.offsets.pending import PendingTable
    from kgw.offsets.topic_offsets import OffsetChanges, TopicChange
    from kgw.types import TopicId

_NOTHING = TopicOffsets()


class OffsetTable:
    """Offsets by topic. Contains only topics with offsets."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[TopicId, TopicOffsets] = {}

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __contains__(self, topic_id: TopicId) -> bool:
        return topic_id in self._topics

    def get(self, topic_id: TopicId, partition: int) -> CommittedOffset | None:
        return self.topic(topic_id).get(partition)

    def topic_ids(self) -> list[TopicId]:
        """Return the topics with committed offsets."""
        return list(self._topics)

    def topic(self, topic_id: TopicId) -> TopicOffsets:
        """Return the committed offsets of a topic. Do not change them."""
        return self._topics.get(topic_id, _NOTHING)

    def replace(self, topic_id: TopicId, offsets: TopicOffsets) -> None:
        """Replace the offsets of a topic."""
        if offsets:
            self._topics[topic_id] = offsets
        else:
            self._topics.pop(topic_id, None)

    def apply(self, changes: OffsetChanges) -> None:
        """Apply changes, which must be durable."""
        for topic_id, change in changes.items():
            offsets = self.topic(topic_id).copy()
            offsets.change(change)
            self.replace(topic_id, offsets)

    def expired(
        self,
        now_s: float,
        empty_since_s: float,
        retention_s: float,
        pending: PendingTable | None = None,
    ) -> OffsetChanges:
        """Return the changes that delete the expired offsets of an empty group.

        An offset expires when the retention time has passed since its commit and since the group
        became empty; if the client set a retention time, that time after the commit. If the
        partition also has a `pending` offset, the offset is kept until the transaction has ended.
        """
        changes: dict[TopicId, TopicChange] = {}
        for topic_id, offsets in self._topics.items():
            gone = offsets.expired(now_s, empty_since_s, retention_s)
            unstable = pending.partitions(topic_id) if gone and pending else ()
            if unstable:
                gone = [partition for partition in gone if partition not in unstable]
            if gone:
                is_all = len(gone) == len(offsets) and not unstable
                changes[topic_id] = None if is_all else dict.fromkeys(gone)
        return changes
