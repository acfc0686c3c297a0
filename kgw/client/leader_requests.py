"""Requests to the leader of some partitions of a topic, and the results from their responses.

Each request uses the highest version that both sides support and that has the arguments. Every
function raises ClientError, and does not retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.client.errors import refuse
from kgw.client.values import (
    MAX_TIMESTAMP,
    REQUEST_TIMEOUT_MS,
    EpochRange,
    FetchedPartition,
    Produced,
)
from kgw.offsets.reader import FoundRecord
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kgw.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kgw.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Coroutine, Mapping

    from kgw.client.connection import Connection
    from kgw.client.values import TopicDescription
    from kgw.errors import ErrorCode
    from kgw.protocol.schema import Response
    from kgw.types import Buffer

# Lower versions of Produce and Fetch have older record formats, which this client cannot read.
_PRODUCE_MINIMUM = 3
_FETCH_MINIMUM = 4
# From these versions on, requests name topics by id, which a server without topic ids cannot
# answer.
_PRODUCE_BY_ID = 13
_PRODUCE_TRANSACTIONAL = 11
"""In versions up to this one, a partition must be added to a transaction before the first batch
(KIP-890)."""
_FETCH_BY_ID = 13


async def begin_produce(
    connection: Connection,
    topic: TopicDescription,
    partition: int,
    records: Buffer,
    *,
    acks: int,
    transactional_id: str | None = None,
) -> Coroutine[Any, Any, Produced]:
    """Send one batch and return an awaitable response; batches are sent in the order of calls."""
    limit = _PRODUCE_BY_ID - 1 if topic.topic_id == ZERO_TOPIC_ID else _PRODUCE_BY_ID
    if transactional_id is not None:
        limit = min(limit, _PRODUCE_TRANSACTIONAL)
    version = connection.spoken_version(ProduceRequest, _PRODUCE_MINIMUM, limit)
    message = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=REQUEST_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )
    await connection.writable()
    if acks == 0:
        connection.send_unanswered(message, version)
        return _unanswered()
    future = connection.send(message, version)
    return _produced(connection, future, topic.name, partition)


async def _unanswered() -> Produced:
    return Produced(-1, -1)


async def _produced(
    connection: Connection, future: Future[Response], topic: str, partition: int
) -> Produced:
    answer = await connection.answer(future, "Produce")
    if not isinstance(answer, ProduceResponse):
        raise TypeError("a Produce request was answered by something else")
    result = answer.responses[0].partition_responses[0]
    message = result.error_message
    if result.record_errors and result.record_errors[0].batch_index_error_message:
        message = result.record_errors[0].batch_index_error_message
    refuse(result.error_code, f"cannot produce to {topic} partition {partition}", message)
    return Produced(result.base_offset, result.log_append_time_ms)


async def fetch_from(
    connection: Connection,
    topic: TopicDescription,
    offsets: Mapping[int, int],
    *,
    max_wait_ms: int,
    max_bytes: int,
    partition_max_bytes: int,
    told: frozenset[ErrorCode],
    read_committed: bool,
) -> dict[int, FetchedPartition]:
    """Fetch from partitions of one leader, each at its offset.

    Errors whose codes are in `told` are returned, not raised.
    """
    limit = _FETCH_BY_ID - 1 if topic.topic_id == ZERO_TOPIC_ID else 0x7FFF
    version = connection.spoken_version(FetchRequest, _FETCH_MINIMUM, limit)
    message = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=1 if read_committed else 0,
        topics=[
            FetchTopic(
                topic=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for partition, offset in offsets.items()
                ],
            )
        ],
    )
    answer = await connection.ask(
        message,
        FetchResponse,
        version=version,
        wait_s=max_wait_ms / 1000,
    )
    refuse(answer.error_code, f"cannot fetch from {topic.name}")
    fetched = {}
    for result in (one for response in answer.responses for one in response.partitions):
        partition, records = result.partition_index, result.records
        if result.error_code not in told:
            refuse(
                result.error_code,
                f"cannot fetch from {topic.name} partition {partition} "
                f"at offset {offsets.get(partition)}",
            )
        fetched[partition] = FetchedPartition(
            partition,
            result.high_watermark,
            result.log_start_offset,
            # The decoded field is a view of the response, or None.
            records if isinstance(records, memoryview) else memoryview(b""),
            result.error_code,
            result.last_stable_offset,
            tuple((one.producer_id, one.first_offset) for one in result.aborted_transactions or ()),
        )
    return fetched


async def find_offsets(
    connection: Connection, timestamps: Mapping[int, int], topic: str, *, read_committed: bool
) -> dict[int, FoundRecord]:
    """Return each partition's first offset with its timestamp or a later one."""
    minimum = 2 if read_committed else 1
    if MAX_TIMESTAMP in timestamps.values():
        minimum = 7
    version = connection.spoken_version(ListOffsetsRequest, minimum)
    message = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if read_committed else 0,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=partition, timestamp=timestamp_ms)
                    for partition, timestamp_ms in timestamps.items()
                ],
            )
        ],
    )
    answer = await connection.ask(message, ListOffsetsResponse, version=version)
    found = {}
    for one in (one for answered in answer.topics for one in answered.partitions):
        refuse(
            one.error_code,
            f"cannot look up an offset of {topic} partition {one.partition_index}",
        )
        found[one.partition_index] = FoundRecord(one.offset, one.timestamp, one.leader_epoch)
    return found


async def find_epochs(
    connection: Connection, leader_epochs: Mapping[int, int], topic: str
) -> dict[int, EpochRange | None]:
    """Return for each partition the newest leader epoch up to the given one, and its end."""
    message = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(partition=partition, leader_epoch=leader_epoch)
                    for partition, leader_epoch in leader_epochs.items()
                ],
            )
        ]
    )
    answer = await connection.ask(
        message,
        OffsetForLeaderEpochResponse,
        # Version 0 returns no epoch.
        version=connection.spoken_version(OffsetForLeaderEpochRequest, 1),
    )
    found = {}
    for one in (one for answered in answer.topics for one in answered.partitions):
        refuse(one.error_code, f"cannot look up an epoch of {topic} partition {one.partition}")
        found[one.partition] = (
            EpochRange(one.leader_epoch, one.end_offset) if one.leader_epoch >= 0 else None
        )
    return found
