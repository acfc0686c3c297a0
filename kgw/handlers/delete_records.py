"""DeleteRecords, key 21, versions 0 to 2: let partitions begin later, for ever.

Behaviour:
- durable before it is answered: a Fetch below the new start is OFFSET_OUT_OF_RANGE from then on,
  and after any crash. The bytes of whole segments below it go, after file.delete.delay.ms; the
  active one is closed first where all of it is deleted, which Kafka does not do. What is left is
  never shown;
- -1 is the high watermark; an offset at or below the log start changes nothing and succeeds; one
  above the high watermark, or another negative one, is OFFSET_OUT_OF_RANGE;
- the answer carries the log start;
- a topic that is compacted only is POLICY_VIOLATION: its records go when newer ones replace them;
  while it is loaded with original offsets it is not, so that it can begin where they do;
- an offset above what kgw.archive.hold holds is POLICY_VIOLATION: who means it takes the setting
  away first;
- of a partition that is named twice the last offset counts, as in Kafka;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node;
- what is not durable when the timeout is over, 5 s where it says none, is REQUEST_TIMED_OUT for all
  partitions of the request, and goes on: to ask again is harmless.

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
            # First: what is appended meanwhile does not keep all that was there before.
            await partition.close_active_segment()
            offset = log.high_watermark
            self._check_hold(partition, offset)
        removed = await partition.delete_before(offset)
        count(self.gateway.metrics.removed_records, BY_REQUEST, removed)
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=log.log_start_offset
        )

    def _check_hold(self, partition: Partition, offset: int) -> None:
        """Raise KafkaError POLICY_VIOLATION where an archive has yet to read records below."""
        hold = hold_of(partition, self.gateway.catalog.committed)
        if hold is not None and offset > max(hold.offset, partition.log.log_start_offset):
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
