"""DeleteRecords, key 21, versions 0 to 2: delete the records below an offset, for ever.

Behaviour:
- durable before it is answered: from then on, and after any crash, a Fetch below the new log start
  is OFFSET_OUT_OF_RANGE. Whole segments below it are removed after file.delete.delay.ms; the active
  segment is closed first if all its records are deleted, which Kafka does not do. Clients never see
  deleted records that remain in a segment;
- -1 is the high watermark; an offset at or below the log start changes nothing and succeeds; one
  above the high watermark, or another negative one, is OFFSET_OUT_OF_RANGE;
- the answer carries the log start;
- a topic that is only compacted is POLICY_VIOLATION: newer records replace its older ones. While
  it is being loaded with original offsets it is allowed, so that its log can start at the original
  offset;
- deleting records that kgw.archive.hold still holds for an archive is POLICY_VIOLATION: remove the
  setting first to delete them all the same;
- if a partition is named twice, its last offset counts, as in Kafka;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node;
- if a deletion is not durable when the timeout is over (5 s if the request names none), all
  partitions of the request are REQUEST_TIMED_OUT. The deletion goes on: asking again is harmless.

v0: KIP-107. v2: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import AnswerByPartition, Repeated
from kgw.metrics import count
from kgw.partitions.rules.retention import BY_REQUEST
from kgw.partitions.topics.hold import hold_of
from kgw.protocol.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsResponse
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.delete_records import DeleteRecordsPartition

HIGH_WATERMARK = -1


class DeleteRecords(AnswerByPartition):
    response_type = DeleteRecordsResponse
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
            # First: otherwise records that are appended meanwhile would keep the segment alive.
            await partition.close_active_segment()
            offset = log.high_watermark
            self._check_hold(partition, offset)
        removed = await partition.delete_before(offset)
        count(self.gateway.metrics.removed_records, BY_REQUEST, removed)
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=log.log_start_offset
        )

    def _check_hold(self, partition: Partition, offset: int) -> None:
        """Raise KafkaError POLICY_VIOLATION if an archive still reads below `offset`."""
        hold = hold_of(partition, self.gateway.catalog.committed)
        if hold is not None and offset > max(hold.offset, partition.log.log_start_offset):
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
