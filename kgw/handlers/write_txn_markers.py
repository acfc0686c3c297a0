"""WriteTxnMarkers, key 27, versions 1 and 2: end transactions in partitions, without a coordinator.

Behaviour:
- for administrators: `kafka-transactions abort` and `kgw transactions abort` end with it what no
  coordinator ends. The gateway's own coordinator writes its markers without requests;
- in a broker it needs permission for the cluster. There is no authorisation here yet: whoever
  reaches a listener may send it, as DeleteTopics and AlterConfigs;
- answered when the markers are durable, also in relaxed topics, and readers see their effect. A
  producer without an open transaction gets one all the same, which fences its older epochs;
- INVALID_PRODUCER_EPOCH for an epoch below the one that the partition knows, or, from a transaction
  of version 2, for one that has a later transaction open; TRANSACTION_COORDINATOR_FENCED for a
  coordinator epoch below the one of the last marker;
- answered once for each producer, topic and partition, whose last marker counts;
- INVALID_REQUEST for a producer id, producer epoch or coordinator epoch below zero (a broker fails
  with UNKNOWN_SERVER_ERROR, or stores the marker), and for a coordinator epoch that no coordinator
  has reached: the partition would refuse all markers of the one that there is;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node;
  KAFKA_STORAGE_ERROR, after which the marker may be stored or not: twice is harmless.

v1: flexible (KIP-482). v2: transaction version (KIP-1228).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kgw.completion import until_done
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.append.transactions import TransactionMarker
from kgw.partitions.topics.topic import why_missing
from kgw.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kgw.turns import Share

if TYPE_CHECKING:
    from kgw.backend.append import Append
    from kgw.handlers.context import RequestContext
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest

MARKERS_PER_TURN = 100
"""To make a marker and append it takes about 20 us."""


class _Pending(NamedTuple):
    """A marker on its way to the disk, and the answer that waits for it."""

    answer: WritableTxnMarkerPartitionResult
    partition: Partition
    result: Append


async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    # As in Kafka each producer, topic and partition is answered once, and none without partitions.
    answers: dict[int, dict[str, dict[int, WritableTxnMarkerPartitionResult]]] = {}
    pending: list[_Pending] = []
    share = Share(MARKERS_PER_TURN)
    coordinator_epoch = context.gateway.transactions.coordinator_epoch
    for wanted in request.markers:
        marker = TransactionMarker(
            wanted.producer_id,
            wanted.producer_epoch,
            wanted.coordinator_epoch,
            wanted.transaction_result,
            wanted.transaction_version,
        )
        for named in wanted.topics:
            for index in named.partition_indexes:
                # Looked up each time: others have had their turns.
                topic = context.gateway.catalog.get(named.name)
                answer = _submit(marker, topic, index, pending, coordinator_epoch)
                topics = answers.setdefault(wanted.producer_id, {})
                topics.setdefault(named.name, {})[index] = answer
                if share.spend():
                    await asyncio.sleep(0)
    for one in pending:
        if not one.result.is_done:
            await until_done(one.result)
        _fill_in(one, context)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(name=name, partitions=[*partitions.values()])
                    for name, partitions in topics.items()
                ],
            )
            for producer_id, topics in answers.items()
        ]
    )


def error_response(
    request: WriteTxnMarkersRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_failure(wanted, code) for wanted in request.markers])


def _failure(wanted: WritableTxnMarker, code: ErrorCode) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=wanted.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in wanted.topics
        ],
    )


def _submit(
    marker: TransactionMarker,
    topic: Topic | None,
    index: int,
    pending: list[_Pending],
    coordinator_epoch: int,
) -> WritableTxnMarkerPartitionResult:
    """Append a marker to one partition, or say why not. `coordinator_epoch` is this node's own."""
    answer = WritableTxnMarkerPartitionResult(partition_index=index)
    partition = None if topic is None else topic.partition(index)
    if partition is None:
        answer.error_code = why_missing(topic, index)
        return answer
    # What the last marker had is what `kafka-transactions abort` goes by. It is beyond this node's
    # where the state store was restored from an older copy, and the clock was set back.
    known = partition.producers.get(marker.producer_id)
    if known is not None:
        coordinator_epoch = max(coordinator_epoch, known.coordinator_epoch)
    if (
        marker.producer_id < 0
        or marker.producer_epoch < 0
        or not 0 <= marker.coordinator_epoch <= coordinator_epoch
    ):
        is_fenced = known is not None and marker.producer_epoch < known.producer_epoch
        answer.error_code = (
            ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.INVALID_REQUEST
        )
        return answer
    try:
        pending.append(_Pending(answer, partition, partition.append_marker(marker)))
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _fill_in(pending: _Pending, context: RequestContext) -> None:
    """Fill in what became of a marker."""
    answer, partition, result = pending
    error = result.error
    if error is None:
        return
    if partition.topic.is_deleted:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif isinstance(error, KafkaError | StorageError):
        answer.error_code = error.code
    else:
        context.gateway.report_internal_error("WRITE_TXN_MARKERS", error)
        answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
