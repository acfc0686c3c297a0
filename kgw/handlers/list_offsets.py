"""ListOffsets, key 2, versions 0 to 11: the offset at a time, the first and the last one.

Behaviour:
- each partition takes one lookup; a request runs a few lookups at the same time;
- -1 latest (the high watermark, or the last stable offset for read_committed), -2 earliest, -4
  earliest on local disk (= earliest): from memory, without waiting for a disk; -3 the first record
  with the greatest timestamp; -5 and -6 concern remote storage, which does not exist here: no
  offset;
- a timestamp: the first record at or after it that is visible at the isolation level; no offset if
  all records are older. The timestamps of records count, not those of batch headers; records below
  the log start are left out. If a batch cannot be decompressed within the limits, the answer is its
  first offset;
- KAFKA_STORAGE_ERROR for a partition whose lookup takes longer than 5 s, or than the timeout of the
  request if that is shorter; other partitions are answered;
- a partition that is named twice is INVALID_REQUEST;
- an unknown isolation level is INVALID_REQUEST;
- leader epochs are checked (KIP-320); NOT_LEADER_OR_FOLLOWER for a partition of another node;
- v0 answers with a list: the end offset and, if the client asks for two offsets, the first one.

v1: by time (KIP-79). v2: isolation level (KIP-98). v4: leader epochs (KIP-320). v6: flexible
(KIP-482). v7: -3 (KIP-734). v8: -4 (KIP-405). v9: -5 (KIP-1005). v10: timeout for remote storage
(KIP-1075). v11: -6 (KIP-1023).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import AnswerByPartition, Repeated
from kgw.handlers.rights import Rights
from kgw.partitions.read.lookups_by_time import Lookups
from kgw.partitions.view import check_isolation
from kgw.partitions.waits import STORAGE_S, storage_limit_s
from kgw.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.partitions.view import PartitionView
    from kgw.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_LEADER_EPOCHS = 4
_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_REMOTE = {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}
_ENDS = {LATEST, EARLIEST, EARLIEST_LOCAL}


class ListOffsets(AnswerByPartition):
    response_type = ListOffsetsResponse
    rights = Rights(topic=AclOperation.DESCRIBE)
    repeated = Repeated.REFUSED
    waits = True
    per_turn = 150

    def __init__(self, request: ListOffsetsRequest, context: RequestContext) -> None:
        check_isolation(request.isolation_level)
        super().__init__(request, context)
        # Clients give up a whole request after 30 s: the answer must come earlier.
        own_s = min(STORAGE_S, storage_limit_s(request.timeout_ms))
        self._lookups = Lookups(context.gateway.clock, own_s)

    def begin(self, topic: Topic | None, named: Any, asked: ListOffsetsPartition) -> Any:
        timestamp = asked.timestamp
        if timestamp < 0 and self.version < _SINCE.get(timestamp, 1 << 15):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return super().begin(topic, named, asked)

    def part(self, topic: Topic, partition: Partition, asked: ListOffsetsPartition) -> Any:
        view = partition.view(self.request.isolation_level)
        view.check_leader_epoch(asked.current_leader_epoch)
        if asked.timestamp in _REMOTE:
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        if asked.timestamp not in _ENDS:
            return self._look_up(topic, view, asked)
        bounds = view.bounds()
        is_latest = asked.timestamp == LATEST
        offset = bounds.end_offset if is_latest else bounds.log_start_offset
        if self.version == 0:
            offsets = [offset]
            if is_latest and bounds.log_start_offset < offset:
                offsets.append(bounds.log_start_offset)
            return _old_style(asked, offsets)
        return self._found(asked, offset, -1, view.epoch_at(offset))

    async def _look_up(
        self, topic: Topic, view: PartitionView, asked: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        """Find a record by time. Raises KafkaError, StorageError."""
        limits = topic.config.decompression_limits
        if asked.timestamp == MAX_TIMESTAMP:
            find = partial(view.find_max_timestamp, limits)
        else:
            find = partial(view.find_by_time, asked.timestamp, limits)
        found = await self._lookups.run(find)
        if self.version == 0:
            return _old_style(asked, [view.bounds().end_offset if found is None else found.offset])
        if found is None:
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        return self._found(asked, *found)

    def _found(
        self, asked: ListOffsetsPartition, offset: int, timestamp_ms: int, leader_epoch: int
    ) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, offset=offset, timestamp=timestamp_ms
        )
        if self.version >= _LEADER_EPOCHS:
            answer.leader_epoch = leader_epoch
        return answer


def _old_style(asked: ListOffsetsPartition, offsets: list[int]) -> ListOffsetsPartitionResponse:
    """Return the answer of version 0: up to the requested number of offsets, newest first."""
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        old_style_offsets=offsets[: max(0, asked.max_num_offsets)],
    )
