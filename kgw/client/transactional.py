"""A client's transactions: begin them, add partitions and offsets, and end them.

This uses the protocol of KIP-98: a client adds a partition to the transaction before it writes
there, and EndTxn keeps the producer epoch, so it can be sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kgw.client.coordinators import TRANSACTION, coordinator_connection
from kgw.client.errors import refuse
from kgw.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kgw.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kgw.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kgw.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kgw.client.client import AsyncClient
    from kgw.protocol.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound="Response")

_LAST_INIT: Final = 5
_LAST_ADD: Final = 3
"""The last version for clients; later ones are for brokers."""
_LAST_END: Final = 4
_LAST_OFFSETS: Final = 4


class TransactionalProducer(NamedTuple):
    """A producer with a transactional id. A newer producer with the same id fences it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionalClient:
    """Begins and ends transactions through an AsyncClient.

    Every method raises ClientError: ServerRefusedError with PRODUCER_FENCED or
    INVALID_PRODUCER_EPOCH if a newer producer has the id, or if the server has ended the
    transaction after its timeout.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def begin(self, transactional_id: str, *, timeout_ms: int) -> TransactionalProducer:
        """Return a new producer of a transactional id.

        The server aborts the open transaction of an older producer.
        """
        answer = await self._ask(
            transactional_id,
            InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            ),
            InitProducerIdResponse,
            _LAST_INIT,
            "cannot get a producer",
            lambda answer: answer.error_code,
        )
        return TransactionalProducer(transactional_id, answer.producer_id, answer.producer_epoch)

    async def add_partitions(
        self, producer: TransactionalProducer, topic: str, partitions: Iterable[int]
    ) -> None:
        """Add partitions to the transaction.

        Call it before sending the first batch to a partition.
        """

        def code(answer: AddPartitionsToTxnResponse) -> int:
            codes = [
                one.partition_error_code
                for told in answer.results_by_topic_v3_and_below
                for one in told.results_by_partition
            ]
            return next((one for one in codes if one), 0)

        await self._ask(
            producer.transactional_id,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=producer.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[*partitions])],
            ),
            AddPartitionsToTxnResponse,
            _LAST_ADD,
            f"cannot take partitions of {topic} into the transaction",
            code,
        )

    async def commit_offsets(
        self,
        producer: TransactionalProducer,
        group_id: str,
        offsets: Mapping[tuple[str, int], tuple[int, str]],
    ) -> None:
        """Add committed offsets of a group, with metadata, to the transaction."""
        await self._ask(
            producer.transactional_id,
            AddOffsetsToTxnRequest(**producer._asdict(), group_id=group_id),
            AddOffsetsToTxnResponse,
            _LAST_OFFSETS,
            f"cannot take group {group_id} into the transaction",
            lambda answer: answer.error_code,
        )
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), (offset, metadata) in offsets.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            **producer._asdict(),
            group_id=group_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

        async def commit() -> None:
            _, connection = await coordinator_connection(self._client, group_id)
            version = connection.spoken_version(TxnOffsetCommitRequest, 0, _LAST_OFFSETS)
            answer = await connection.ask(request, TxnOffsetCommitResponse, version=version)
            for told in answer.topics:
                for one in told.partitions:
                    refuse(
                        one.error_code,
                        f"cannot commit the offset of {told.name} partition {one.partition_index}",
                    )

        await self._client.retrying(commit)

    async def end(self, producer: TransactionalProducer, *, is_commit: bool) -> None:
        """Commit or abort the producer's transaction; the outcome is final when this returns.

        The same call can be repeated with success, unless the id has a newer producer.
        """
        await self._ask(
            producer.transactional_id,
            EndTxnRequest(**producer._asdict(), committed=is_commit),
            EndTxnResponse,
            _LAST_END,
            "cannot commit the transaction" if is_commit else "cannot abort the transaction",
            lambda answer: answer.error_code,
        )

    async def _ask(
        self,
        transactional_id: str,
        request: Request,
        response_type: type[ResponseT],
        last_version: int,
        what: str,
        code: Callable[[ResponseT], int],
    ) -> ResponseT:
        """Send a request to the coordinator of an id, with retries."""

        async def ask() -> ResponseT:
            _, connection = await coordinator_connection(
                self._client, transactional_id, TRANSACTION
            )
            version = connection.spoken_version(type(request), 0, last_version)
            answer = await connection.ask(request, response_type, version=version)
            refuse(code(answer), f"transactional id {transactional_id}: {what}")
            return answer

        return await self._client.retrying(ask)
