"""ListOffsets, key 2, versions 0 to 11: the offset of a time, and both ends of a partition.

Behaviour:
- each partition is one seek (`kgw.offsets.seeker`); those of a request are made side by side;
- -1 latest (the high watermark, or the last stable offset for read_committed), -2 earliest, -4
  earliest on local disk (= earliest): from memory, without waiting for a disk; -3 the first record
  with the greatest timestamp; -5 and -6 of remote storage, which there is none of: no offset;
- a time: the first record at or past it that the isolation level may see; no offset when all are
  older. Records count, whatever their batch's header says, and never those below the log start. A
  batch that cannot be decompressed within the limits is answered with its beginning;
- a partition whose look-up the storage has not answered when the request has taken 5 s, or its own
  timeout if that is less, is KAFKA_STORAGE_ERROR; the others are answered;
- a partition twice is INVALID_REQUEST for all of its mentions;
- an isolation level that there is none of is INVALID_REQUEST;
- leader epochs are checked (KIP-320); NOT_LEADER_OR_FOLLOWER for a partition of another node;
- v0 answers a list: the end and, where there is room for two, the beginning.

v1: by time (KIP-79). v2: isolation level (KIP-98). v4: leader epochs (KIP-320). v6: flexible
(KIP-482). v7: -3 (KIP-734). v8: -4 (KIP-405). v9: -5 (KIP-1005). v10: timeout for remote storage
(KIP-1075). v11: -6 (KIP-1023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, KgwError, StorageError
from kgw.handlers.places import answer_places
from kgw.offsets.reader import ts_ns_at
from kgw.offsets.seeker import OffsetSeeker, Seek, SeekKind
from kgw.partitions.read.reader import Lookups, PartitionReader
from kgw.partitions.topics.topic import why_missing
from kgw.partitions.view import check_isolation
from kgw.partitions.waits import STORAGE_S, storage_limit_s
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kgw.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Sequence

    from kgw.handlers.context import RequestContext
    from kgw.offsets.reader import Answers
    from kgw.offsets.seeker import SeekResult
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
    )

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_SEEKS = {
    LATEST: Seek(SeekKind.RESET_TO_LATEST),
    EARLIEST: Seek(SeekKind.RESET_TO_EARLIEST),
    MAX_TIMESTAMP: Seek(SeekKind.NEWEST_TS),
    EARLIEST_LOCAL: Seek(SeekKind.RESET_TO_EARLIEST),
}

_REMOTE = {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}

PARTITIONS_PER_TURN = 150
"""Those of one turn of the loop are looked up side by side (docs/decisions/0068)."""


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    check_isolation(request.isolation_level)
    # Clients give a whole request their own time-out, of 30 s: by then nobody reads the answer.
    own_s = min(STORAGE_S, storage_limit_s(request.timeout_ms))
    lookups = Lookups(context.gateway.clock, own_s)

    def answer(
        name: str, wanted: Sequence[ListOffsetsPartition], counts: Counter[tuple[str, int]]
    ) -> Awaitable[list[ListOffsetsPartitionResponse]]:
        return _answer_places(name, wanted, counts, lookups, context, request.isolation_level)

    topics = await answer_places(
        request,
        context,
        ListOffsetsResponse,
        ListOffsetsTopicResponse,
        PARTITIONS_PER_TURN,
        answer,
        are_side_by_side=True,
    )
    return ListOffsetsResponse(topics=topics)


def error_response(
    request: ListOffsetsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_failure(place.partition_index, code) for place in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _failure(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


async def _answer_places(
    name: str,
    wanted: Sequence[ListOffsetsPartition],
    counts: Counter[tuple[str, int]],
    lookups: Lookups,
    context: RequestContext,
    isolation: int,
) -> list[ListOffsetsPartitionResponse]:
    topic = context.gateway.catalog.get(name)
    codes = [_check(topic, place, counts[name, place.partition_index], context) for place in wanted]
    seeks = {
        place.partition_index: _SEEKS.get(place.timestamp)
        or Seek(SeekKind.EXACT_TS_NS, ts_ns_at(place.timestamp))
        for place, code in zip(wanted, codes, strict=True)
        if code is ErrorCode.NONE and place.timestamp not in _REMOTE
    }
    found: Answers[SeekResult] = {}
    if topic is not None and seeks:
        reader = PartitionReader(
            topic,
            context.gateway.fetch_deadlines,
            context.gateway.cold_reads,
            isolation=isolation,
            lookups=lookups,
        )
        found = await OffsetSeeker(reader).seek(seeks)
    return [
        _answer(topic, place, found[place.partition_index], context)
        if topic is not None and place.partition_index in seeks
        else _failure(place.partition_index, code)
        for place, code in zip(wanted, codes, strict=True)
    ]


def _check(
    topic: Topic | None, place: ListOffsetsPartition, count: int, context: RequestContext
) -> ErrorCode:
    """Return what is wrong with a question before anything is looked up."""
    if count > 1:
        return ErrorCode.INVALID_REQUEST
    timestamp = place.timestamp
    if timestamp < 0 and context.api_version < _SINCE.get(timestamp, 1 << 15):
        return ErrorCode.UNSUPPORTED_VERSION
    partition = None if topic is None else topic.partition(place.partition_index)
    if partition is None:
        return why_missing(topic, place.partition_index)
    try:
        partition.view().check_leader_epoch(place.current_leader_epoch)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _answer(
    topic: Topic,
    place: ListOffsetsPartition,
    found: SeekResult | KgwError,
    context: RequestContext,
) -> ListOffsetsPartitionResponse:
    index = place.partition_index
    if isinstance(found, KafkaError | StorageError):
        return _failure(index, found.code)
    if isinstance(found, KgwError):
        raise found
    if context.api_version == 0:
        return ListOffsetsPartitionResponse(
            partition_index=index, old_style_offsets=_old_style(found, place)
        )
    answer = ListOffsetsPartitionResponse(partition_index=index)
    if found.record is not None:
        answer.offset, answer.timestamp, leader_epoch = found.record
    elif place.timestamp in {LATEST, EARLIEST, EARLIEST_LOCAL}:
        answer.offset = found.offset
        leader_epoch = topic.partitions[index].view().epoch_at(found.offset)
    else:
        return answer
    answer.leader_epoch = leader_epoch if context.api_version >= 4 else NO_LEADER_EPOCH
    return answer


def _old_style(found: SeekResult, place: ListOffsetsPartition) -> list[int]:
    """Return what version 0 gives: offsets to begin at, the newest first, at most so many."""
    newest = found.offset
    offsets = [newest]
    if place.timestamp == LATEST and found.bounds.earliest < newest:
        offsets.append(found.bounds.earliest)
    return offsets[: max(0, place.max_num_offsets)]
