"""DeleteRecords, key 21, versions 0 to 2: delete the records below an offset.

Behaviour:
- the new log start offset is durable before the answer: a Fetch below it is OFFSET_OUT_OF_RANGE,
  also after a crash. Segments that are completely below it are removed after file.delete.delay.ms.
  If all records of the active segment are deleted, it is closed first; Kafka does not do this.
  Clients never see deleted records that remain in a segment;
- offset -1 means the high watermark; an offset at or below the log start changes nothing and is no
  error; an offset above the high watermark, or another negative offset, is OFFSET_OUT_OF_RANGE;
- the answer has the log start offset;
- POLICY_VIOLATION for a topic that is only compacted: newer records replace its older ones. It is
  allowed while the topic is loaded with original offsets, so that the log can start at its original
  offset;
- POLICY_VIOLATION if kgw.archive.hold keeps the records for an archive; to delete them all the
  same, remove the setting first;
- if a partition is named twice, its last offset counts, as in Kafka;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node;
- if a deletion is not durable within the timeout (5 s if the request has none), all partitions of
  the request get REQUEST_TIMED_OUT. The deletion continues, and a second request is harmless.

v0: KIP-107. v2: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import AnswerByPartition, Repeated
from kgw.handlers.rights import Rights
from kgw.metrics import count
from kgw.partitions.rules.retention import BY_REQUEST
from kgw.partitions.topics.hold import hold_of
from kgw.protocol.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsResponse
from kgw.security.acls.terms import AclOperation
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.delete_records import DeleteRecordsPartition

HIGH_WATERMARK = -1


class DeleteRecords(AnswerByPartition):
    response_type = DeleteRecordsResponse
    rights = Rights(topic=AclOperation.DELETE)
    refused_values = {"low_watermark": NO_OFFSET}
    repeated = Repeated.LAST
    waits = True
    per_turn = 100
    turn_by_turn = True

    async def part(
        self, topic: Topic, partition: Partition, asked: DeleteRecordsPartition
    ) -> DeleteRecordsPartitionResult:
        log = partition.log
        if topic.is_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        loading = topic.config.loading
        if not topic.config.deletes and not (loading is not None and loading.keeps_offsets):
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        is_all = asked.offset == HIGH_WATERMARK
        offset = log.high_watermark if is_all else asked.offset
        if not 0 <= offset <= log.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self._check_hold(partition, offset)
        if is_all and offset > log.log_start_offset:
            # Before the deletion: otherwise records that are appended meanwhile would keep the
            # segment.
            await partition.close_active_segment()
            offset = log.high_watermark
            self._check_hold(partition, offset)
        removed = await partition.delete_before(offset)
        count(self.gateway.metrics.removed_records, BY_REQUEST, removed)
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=log.log_start_offset
        )

    def _check_hold(self, partition: Partition, offset: int) -> None:
        """Raise KafkaError POLICY_VIOLATION if an archive still needs records below `offset`."""
        hold = hold_of(partition, self.gateway.catalog.committed)
        if hold is not None and offset > max(hold.offset, partition.log.log_start_offset):
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
