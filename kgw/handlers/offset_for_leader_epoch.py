"""OffsetForLeaderEpoch, key 23, versions 0 to 4: the offset at which a leader epoch ended.

Behaviour:
- the answer is the newest epoch that is not above the requested one, and its end offset (for the
  current epoch: the log end offset); epoch -1 and offset -1 if the log has no such epoch;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node;
- the client's own leader epoch is checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH).

v1: the epoch found (KIP-279). v2: the client's leader epoch (KIP-320). v3: replica id (KIP-392),
which has no effect. v4: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.parts import AnswerByPartition
from kgw.handlers.rights import Rights
from kgw.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
)
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition


class OffsetForLeaderEpoch(AnswerByPartition):
    response_type = OffsetForLeaderEpochResponse
    rights = Rights(topic=AclOperation.DESCRIBE, or_cluster=AclOperation.CLUSTER_ACTION)
    per_turn = 400

    def part(
        self, topic: Topic, partition: Partition, asked: OffsetForLeaderPartition
    ) -> EpochEndOffset:
        view = partition.view()
        view.check_leader_epoch(asked.current_leader_epoch)
        end = view.epoch_end(asked.leader_epoch)
        if end is None:
            return EpochEndOffset(partition=asked.partition)
        return EpochEndOffset(
            partition=asked.partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset
        )
