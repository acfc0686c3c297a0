"""Queries of transactions and of the producers in partitions, and abort markers (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.client.coordinators import TRANSACTION, coordinator_connection
from kgw.client.errors import ClientError, refuse
from kgw.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kgw.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kgw.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kgw.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kgw.client.client import AsyncClient
    from kgw.client.connection import Connection

ALL: Final = -1
"""A minimum duration that selects transactions of any age."""
_DURATIONS, _PATTERNS = 1, 2
_IDLE: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""The states without a current transaction."""


class TransactionSummary(NamedTuple):
    """A transactional id in the list of ids."""

    transactional_id: str
    coordinator: int
    """The id of the coordinator's node."""
    producer_id: int
    state: str


class TransactionDetails(NamedTuple):
    """A transactional id, and its current transaction."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """When the current transaction began; -1 without one."""
    partitions: tuple[tuple[str, int], ...]
    """The transaction's partitions that do not have its marker yet."""


class PartitionProducer(NamedTuple):
    """A producer as a partition knows it; -1 means unknown."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int
    """The first offset of the producer's open transaction; -1 without one."""


class TransactionClient:
    """Queries transactions, and aborts them, through an AsyncClient. Raises ClientError."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = ALL,
        pattern: str | None = None,
    ) -> list[TransactionSummary]:
        """Return the transactional ids of all nodes that pass the filters, sorted by id.

        Raises UnsupportedApiError if the server does not support a given filter by age (KIP-994) or
        by regular expression (KIP-1152).
        """
        minimum = _PATTERNS if pattern else _DURATIONS if longer_than_ms >= 0 else 0
        request = ListTransactionsRequest(
            state_filters=[*states],
            producer_id_filters=[*producer_ids],
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

        async def ask_all() -> list[TransactionSummary]:
            found = []
            for broker in (await self._client.cluster()).brokers:
                connection = await self._client.connection_to(broker.host, broker.port)
                answer = await connection.ask(
                    request,
                    ListTransactionsResponse,
                    version=connection.spoken_version(ListTransactionsRequest, minimum),
                )
                refuse(answer.error_code, "cannot list transactions")
                if answer.unknown_state_filters:
                    unknown = ", ".join(answer.unknown_state_filters)
                    raise ClientError(f"the server knows no transactions in state {unknown}")
                found += [
                    TransactionSummary(
                        one.transactional_id, broker.node_id, one.producer_id, one.transaction_state
                    )
                    for one in answer.transaction_states
                ]
            return found

        return sorted(await self._client.retrying(ask_all, is_undone=True))

    async def describe(self, transactional_id: str) -> TransactionDetails:
        """Return the state of a transactional id and of its current transaction.

        Raises ServerRefusedError TRANSACTIONAL_ID_NOT_FOUND if no coordinator knows it.
        """

        async def describe() -> tuple[int, TransactionState]:
            node_id, connection = await coordinator_connection(
                self._client, transactional_id, TRANSACTION
            )
            answer = await connection.ask(
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                DescribeTransactionsResponse,
            )
            (found,) = answer.transaction_states
            refuse(found.error_code, f"cannot describe transactional id {transactional_id}")
            return node_id, found

        node_id, found = await self._client.retrying(describe, is_undone=True)
        return TransactionDetails(
            transactional_id,
            node_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            # Servers still report the start of an id's last transaction.
            -1 if found.transaction_state in _IDLE else found.transaction_start_time_ms,
            tuple(sorted((one.topic, index) for one in found.topics for index in one.partitions)),
        )

    async def producers(
        self, topic: str, partitions: Iterable[int]
    ) -> dict[int, list[PartitionProducer]]:
        """Return the producers that each partition knows, sorted by producer id."""
        asked = dict.fromkeys(partitions, 0)

        async def ask_all() -> dict[int, list[PartitionProducer]]:
            found: dict[int, list[PartitionProducer]] = {}
            for connection, part in (await self._client.by_leader(topic, asked)).items():
                found |= await _producers(connection, topic, part)
            return found

        return dict(sorted((await self._client.retrying(ask_all)).items()))

    async def abort(self, topic: str, partition: int, producer: PartitionProducer) -> None:
        """Write an abort marker to a partition, for a producer's open transaction.

        The marker is durable when this returns; the coordinator is not involved. Retried only if
        nothing was done.

        Raises ServerRefusedError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the
        partition knows a newer producer or marker.
        """
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            # Without an earlier marker, use the lowest epoch, which no coordinator's epoch is
            # below.
            coordinator_epoch=max(0, producer.coordinator_epoch),
        )

        async def write() -> None:
            for connection in await self._client.by_leader(topic, {partition: 0}):
                answer = await connection.ask(
                    WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse
                )
                for one in answer.markers:
                    for told in one.topics:
                        for result in told.partitions:
                            refuse(result.error_code, f"cannot abort in {topic}-{partition}")

        await self._client.retrying(write, is_undone=True)


async def _producers(
    connection: Connection, topic: str, partitions: Mapping[int, int]
) -> dict[int, list[PartitionProducer]]:
    answer = await connection.ask(
        DescribeProducersRequest(
            topics=[TopicRequest(name=topic, partition_indexes=[*partitions])]
        ),
        DescribeProducersResponse,
    )
    found = {}
    for one in (one for told in answer.topics for one in told.partitions):
        what = f"cannot describe the producers of {topic}-{one.partition_index}"
        refuse(one.error_code, what, one.error_message)
        found[one.partition_index] = sorted(
            PartitionProducer(
                state.producer_id,
                state.producer_epoch,
                state.last_sequence,
                state.last_timestamp,
                state.coordinator_epoch,
                state.current_txn_start_offset,
            )
            for state in one.active_producers
        )
    return found
