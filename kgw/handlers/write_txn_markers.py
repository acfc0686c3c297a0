"""WriteTxnMarkers, key 27, versions 1 and 2: end transactions in partitions, without a coordinator.

Behaviour:
- for administrators: `kafka-transactions abort` and `kgw transactions abort` use it to end
  transactions that no coordinator ends. The gateway's own coordinator needs no such requests;
- a client needs ALTER or CLUSTER_ACTION on the cluster. Without access rules any client that
  reaches a listener may send it, like DeleteTopics and AlterConfigs;
- answered when the markers are durable, also in relaxed topics, and readers see their effect. A
  marker is also written for a producer without an open transaction, which fences its older epochs;
- INVALID_PRODUCER_EPOCH for an epoch below the partition's epoch of the producer, and with
  transaction version 2 also if a later transaction is open; TRANSACTION_COORDINATOR_FENCED for a
  coordinator epoch below that of the last marker;
- answered once for each producer, topic and partition: the last marker counts;
- INVALID_REQUEST for a producer id, producer epoch or coordinator epoch below zero (a broker fails
  with UNKNOWN_SERVER_ERROR, or stores the marker), and for a coordinator epoch that no coordinator
  has reached: the partition would then refuse all markers of the real coordinator;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node;
  KAFKA_STORAGE_ERROR, after which the marker may be stored or not; writing it twice is harmless.

v1: flexible (KIP-482). v2: transaction version (KIP-1228).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import made
from kgw.handlers.parts import AnswerByPartition, Api
from kgw.handlers.rights import NO_RIGHTS, Rights
from kgw.partitions.append.transactions import TransactionMarker
from kgw.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kgw.security.acls.terms import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from kgw.backend.append import Append
    from kgw.handlers.context import RequestContext
    from kgw.partitions.topics.topic import Topic


class WriteTxnMarkers(Api):
    response_type = WriteTxnMarkersResponse
    rights = Rights(
        any_of=(
            (AclOperation.ALTER, ResourceType.CLUSTER),
            (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
        )
    )
    parts = {"markers": "markers", "topics": "topics", "partitions": "partition_indexes"}

    def check_rights(self) -> None:
        if not self.may_on_cluster(AclOperation.ALTER, quiet=True):
            self.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    async def answer(self) -> WriteTxnMarkersResponse:
        """Write the markers; answer once for each producer, topic and partition, as Kafka does."""
        asked: Any = [*_topics_of(self.request.markers)]
        markers = _Markers(WritableTxnMarker(topics=asked), self.context)
        written: Any = await made(markers.answer())
        answers: dict[int, dict[str, dict[int, WritableTxnMarkerPartitionResult]]] = {}
        for named, topic in zip(asked, written.topics, strict=True):
            for one in topic.partitions:
                topics = answers.setdefault(named.marker.producer_id, {})
                # The last marker counts.
                topics.setdefault(named.name, {})[one.partition_index] = one
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


class _MarkedTopic(NamedTuple):
    """A topic of a marker: the partitions to write it to."""

    name: str
    partition_indexes: Sequence[int]
    marker: TransactionMarker


class _Markers(AnswerByPartition):
    """Writes markers to partitions, in the order of the request."""

    response_type = WritableTxnMarkerResult
    rights = NO_RIGHTS  # `WriteTxnMarkers` asks
    request_type = WritableTxnMarker
    parts = {"topics": "topics", "partitions": "partition_indexes"}
    # Making and appending a marker takes about 20 us.
    per_turn = 100
    waits = True

    def __init__(self, request: WritableTxnMarker, context: RequestContext) -> None:
        super().__init__(request, context)
        owned = self.gateway.placement.ownerships
        self._coordinator_epoch = max(
            (one.transactions.coordinator_epoch for one in owned), default=0
        )

    def begin(self, topic: Topic | None, named: _MarkedTopic, index: int) -> Any:
        partition = None if topic is None else topic.partition(index)
        if partition is None:
            raise self.missing(topic, named, index)
        marker = named.marker
        # `kafka-transactions abort` sends the coordinator epoch of the last marker. It is higher
        # than this node's if the state store was restored from an older copy and the clock was set
        # back.
        coordinator_epoch = self._coordinator_epoch
        known = partition.producers.get(marker.producer_id)
        if known is not None:
            coordinator_epoch = max(coordinator_epoch, known.coordinator_epoch)
        if (
            marker.producer_id < 0
            or marker.producer_epoch < 0
            or not 0 <= marker.coordinator_epoch <= coordinator_epoch
        ):
            is_fenced = known is not None and marker.producer_epoch < known.producer_epoch
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.INVALID_REQUEST
            )
        return _Written(partition.admission.append_marker(marker), index)


class _Written(NamedTuple):
    """A marker whose append was submitted; awaiting it returns the answer.

    A task would cost more.
    """

    append: Append
    partition_index: int

    def __await__(self) -> Generator[object, None, WritableTxnMarkerPartitionResult]:
        yield from self.append.__await__()
        return WritableTxnMarkerPartitionResult(partition_index=self.partition_index)


def _topics_of(markers: Sequence[WritableTxnMarker]) -> Iterator[_MarkedTopic]:
    """Yield the topics of all markers."""
    for asked in markers:
        marker = TransactionMarker(
            asked.producer_id,
            asked.producer_epoch,
            asked.coordinator_epoch,
            asked.transaction_result,
            asked.transaction_version,
        )
        for topic in asked.topics:
            yield _MarkedTopic(topic.name, topic.partition_indexes, marker)
