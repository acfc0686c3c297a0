"""What the tests of handlers share: batches, and requests of one topic or partition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from kgw.errors import ErrorCode
from kgw.partitions.view import Isolation, PartitionView
from kgw.protocol.codec import request_class
from kgw.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kgw.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kgw.records.batch import Compression, split_batches
from kgw.records.builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

    from kgw.partitions.topics.topic import Topic
    from kgw.partitions.view import Bounds
    from kgw.protocol.api_keys import ApiKey
    from kgw.protocol.schema import Struct
    from kgw.testing.gateway import InProcessGateway, PendingResponse

START_MS = 1_700_000_000_000
"""Where ManualClock's wall time begins."""


def request_of(api: ApiKey, **fields: Any) -> Any:
    """Return a request of an API; the structures in it are given as dictionaries."""
    return _filled(request_class(api), fields)


def _filled(struct: type[Struct], fields: dict[str, Any]) -> Struct:
    return struct(
        **{name: _value(struct.field_table[name].item, given) for name, given in fields.items()}
    )


def _value(item: str | type[Struct] | None, given: Any) -> Any:
    if isinstance(given, list):
        return [_value(item, one) for one in given]
    return _filled(item, given) if isinstance(item, type) and isinstance(given, dict) else given


async def call(gateway: InProcessGateway, api: ApiKey, version: int, **fields: Any) -> Any:
    """Send a request whose structures are given as dictionaries, and return the response."""
    return await gateway.request(request_of(api, **fields), version)


async def call_in_turns(
    gateway: InProcessGateway, api: ApiKey, version: int, *, least: int = 0, **fields: Any
) -> Any:
    """Do the same; the loop must have had so many turns for others meanwhile."""
    async with LoopTurns() as turns:
        response = await call(gateway, api, version, **fields)
    assert turns.count >= least
    return response


class LoopTurns:
    """Counts the turns that the loop gives to others while something is awaited."""

    def __init__(self) -> None:
        self.count = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


def batch(
    *values: bytes,
    timestamps_ms: Sequence[int] = (),
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = 0,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Return a batch as a producer sends it, of one record with the value b"v" unless told."""
    builder = BatchBuilder(
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
    )
    for index, value in enumerate(values or (b"v",)):
        timestamp_ms = timestamps_ms[index] if timestamps_ms else START_MS
        builder.add(value=value, timestamp_ms=timestamp_ms)
    return builder.build()


async def create_topic(
    gateway: InProcessGateway, name: str = "orders", partitions: int = 1, **configs: str
) -> Topic:
    """Create a topic; settings are given with underscores for dots."""
    response = await gateway.ask(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ]
        ),
        7,
        CreateTopicsResponse,
    )
    assert ErrorCode.NONE == response.topics[0].error_code, response.topics[0].error_message
    return topic_of(gateway, name)


def topic_of(gateway: InProcessGateway, name: str = "orders") -> Topic:
    """Return a topic that is there."""
    return gateway.catalog.topics[name]


def produce_request(
    records: bytes | bytearray | None,
    *,
    name: str = "orders",
    index: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    timeout_ms: int = 30_000,
) -> ProduceRequest:
    """Return a request with one batch for one partition."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=index, records=records)]
            )
        ],
    )


async def produced(pending: PendingResponse) -> PartitionProduceResponse:
    """Wait for the answer to a request with one batch, and return the partition's."""
    response = await pending.response()
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


async def produce(
    gateway: InProcessGateway,
    records: bytes | bytearray | None,
    *,
    name: str = "orders",
    index: int = 0,
    acks: int = -1,
    version: int = 9,
) -> PartitionProduceResponse:
    """Produce one batch and return the partition's answer."""
    request = produce_request(records, name=name, index=index, acks=acks)
    return await produced(gateway.start(request, version))


def fetch_request(
    offset: int = 0,
    *,
    name: str = "orders",
    index: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    isolation_level: int = 0,
) -> FetchRequest:
    """Return a request for one partition."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=current_leader_epoch,
                        last_fetched_epoch=last_fetched_epoch,
                    )
                ],
            )
        ],
    )


def fetch_many(
    indexes: Iterable[int],
    *,
    offset: int = 0,
    partition_max_bytes: int = 1 << 20,
    max_bytes: int = 0x7FFF_FFFF,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    """Return a request for several partitions of the topic "orders", in this order."""
    partitions = [
        FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        for index in indexes
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic="orders", partitions=partitions)],
    )


async def fetch(
    gateway: InProcessGateway, request: FetchRequest, version: int = 12
) -> PartitionData:
    """Send a request for one partition and return the partition's answer."""
    response = await gateway.ask(request, version, FetchResponse)
    return response.responses[0].partitions[0]


def offsets_in(data: PartitionData) -> list[tuple[int, int]]:
    """Return first and last offset of each batch in an answer."""
    assert isinstance(data.records, bytes | bytearray | memoryview)
    return [(one.base_offset, one.last_offset) for one in split_batches(data.records)]


def let_be_stable_below(last_stable_offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have readers of committed records see no further, as an open transaction will.

    Views say where what may be seen ends: nothing else has to change.
    """
    bounds = PartitionView.bounds

    def with_open_transaction(view: PartitionView) -> Bounds:
        is_committed = view.isolation is Isolation.READ_COMMITTED
        real = bounds(view)
        return real._replace(
            last_stable_offset=last_stable_offset,
            end_offset=last_stable_offset if is_committed else real.end_offset,
        )

    monkeypatch.setattr(PartitionView, "bounds", with_open_transaction)
