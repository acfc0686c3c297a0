"""OffsetCommit, key 8, versions 0 to 10: store the offsets of a group.

Behaviour:
- the offsets are durable before the answer; simultaneous commits of many groups share a flush.
  Commits take effect in the order in which they arrive, even overlapping commits of one member;
- members commit in their generation: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, and
  REBALANCE_IN_PROGRESS while the generation waits for its assignment. Any client may commit without
  a generation as long as the group has no members; this creates the group. A member of a group that
  does not exist gets ILLEGAL_GENERATION, from v9 on GROUP_ID_NOT_FOUND;
- offsets are stored by topic id and deleted with the topic. UNKNOWN_TOPIC_OR_PARTITION,
  UNKNOWN_TOPIC_ID; OFFSET_METADATA_TOO_LARGE. A negative offset is stored and returned like any
  other offset. Clients read it as no offset; kafkajs commits -1 and -2 to begin at the end or start
  of the log;
- the retention time in v2 to v4 is obeyed; other offsets expire when the group has been empty for
  `offsets.retention.minutes`;
- COORDINATOR_NOT_AVAILABLE if the offsets cannot be stored, NOT_COORDINATOR if another process has
  taken over the state: all offsets of the request were stored, or none.

v0 works like v1 without membership, as there is no ZooKeeper. v1: membership. v2: retention time.
v3: throttle time. v5: no retention time (KIP-211). v6: leader epochs (KIP-320). v7: static members
(KIP-345). v8: flexible (KIP-482). v9: KIP-848. v10: topic ids (KIP-848).
"""

from __future__ import annotations

from functools import partial
from struct import pack
from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.groups.requests import CommitRequest
from kgw.handlers.commits import CommitsOffsets, is_too_large
from kgw.handlers.rights import Rights
from kgw.offsets.block import LONGEST_METADATA, OffsetBlock
from kgw.protocol.messages.offset_commit import OffsetCommitResponse
from kgw.protocol.schema import EncodedItems
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.completion import Completion
    from kgw.offsets.topic_offsets import TopicChange
    from kgw.partitions.topics.topic import Topic
    from kgw.turns import StepBudget, Turns
    from kgw.types import TopicId

_STATIC_MEMBERS = 7
_FLEXIBLE = 8
_GROUP_ID_NOT_FOUND = 9

_SLICE = 1_000
"""The number of partitions after which a block may yield to the event loop."""
_SLICE_UNITS = 20
_PARTITIONS_PER_UNIT = 10
"""The work for a slice is that of 20 single offsets, plus one for each ten of its partitions."""


class OffsetCommit(CommitsOffsets):
    response_type = OffsetCommitResponse
    rights = Rights(group=AclOperation.READ, topic=AclOperation.READ)
    topic_ids_since = 10
    fewest_at_once = 16

    def start(self) -> None:
        super().start()
        self._blocks: dict[TopicId, OffsetBlock] = {}
        if self.request.retention_time_ms >= 0:
            self.retention_ms = self.request.retention_time_ms

    def look_at_all(
        self, topic: Topic, partitions: Sequence[Any], budget: StepBudget
    ) -> Turns[Callable[[ErrorCode], EncodedItems] | None]:
        """Combine the offsets of a topic into one block, if they can be stored so.

        A client that commits a thousand partitions sends the same metadata for each of them. In a
        block their offsets are stored and answered three times as fast (docs/decisions/0162).
        """
        topic_id = topic.topic_id
        metadata = partitions[0].committed_metadata
        limit = min(self.metadata_limit, LONGEST_METADATA)
        if (
            topic_id in self._blocks
            or topic_id in self.offsets
            or is_too_large(metadata or "", limit)
        ):
            return None
        seen: set[int] = set()
        columns: list[tuple[bytes, bytes, bytes]] = []
        for first in range(0, len(partitions), _SLICE):
            some = partitions[first : first + _SLICE]
            count, numbers = len(some), [one.partition_index for one in some]
            if (
                [one.committed_metadata for one in some].count(metadata) < count
                or not topic.has_partition(min(numbers))
                or not topic.has_partition(max(numbers))
            ):
                return None
            seen.update(numbers)
            columns.append(
                (
                    pack(f">{count}i", *numbers),
                    pack(f">{count}q", *[one.committed_offset for one in some]),
                    pack(f">{count}i", *[one.committed_leader_epoch for one in some]),
                )
            )
            if budget.spend(_SLICE_UNITS + count // _PARTITIONS_PER_UNIT):
                yield
        if len(seen) < len(partitions):
            return None
        indexes, offsets, leader_epochs = map(b"".join, zip(*columns, strict=True))
        block = self._blocks[topic_id] = OffsetBlock(
            indexes,
            offsets,
            leader_epochs,
            metadata or "",
            self.commit_ms,
            self.retention_ms,
            self.committed_s,
        )
        return partial(_answer, block, self.version)

    def act(self) -> Completion[ErrorCode]:
        request = self.request
        offsets: dict[TopicId, TopicChange] = {**self.offsets}
        for topic_id, block in self._blocks.items():
            # The request names the topic again, with newer offsets.
            again = self.offsets.get(topic_id)
            offsets[topic_id] = block if again is None else block.entries() | again
        return self.groups(request.group_id).commit(
            request.group_id,
            CommitRequest(
                request.member_id,
                request.group_instance_id if self.version >= _STATIC_MEMBERS else None,
                request.generation_id_or_member_epoch,
                offsets,
            ),
        )

    def in_words_of_version(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.version < _GROUP_ID_NOT_FOUND:
            return ErrorCode.ILLEGAL_GENERATION
        return code


def _answer(block: OffsetBlock, version: int, code: ErrorCode) -> EncodedItems:
    """Return the answers for a block: the index of each partition, and the error code."""
    # In flexible versions an element ends with empty tagged fields.
    answer_bytes = 7 if version >= _FLEXIBLE else 6
    answer = bytearray(len(block) * answer_bytes)
    for number in range(4):
        answer[number::answer_bytes] = block.partitions[number::4]
    codes: list[int] = []
    if code:
        for number, byte in enumerate(code.to_bytes(2, "big", signed=True), start=4):
            answer[number::answer_bytes] = bytes([byte]) * len(block)
        codes = [code] * len(block)
    return EncodedItems(len(block), [bytes(answer)], codes)
