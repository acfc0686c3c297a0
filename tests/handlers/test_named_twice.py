"""Requests that name a topic or a partition twice, or a topic without partitions.

tests/differential has what Kafka answers to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.fetch import FetchResponse
from kgw.protocol.messages.produce import ProduceResponse
from tests.handlers.support import (
    batch,
    call,
    create_topic,
    fetch_many,
    offsets_in,
    produce,
    produce_request,
)

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway


async def test_produce_answers_a_topic_once(gateway: InProcessGateway) -> None:
    """Its mentions are one; a topic without partitions is left out; each batch is stored."""
    await create_topic(gateway, partitions=2)
    await create_topic(gateway, name="other")
    request = produce_request(batch(b"a"), index=0)
    for name, index in (("other", 0), ("orders", 1), ("orders", 0)):
        request.topic_data += produce_request(batch(b"b"), name=name, index=index).topic_data
    empty = produce_request(batch(b"c"), name="empty").topic_data[0]
    empty.partition_data = []
    request.topic_data.append(empty)
    response = await gateway.ask(request, 9, ProduceResponse)
    assert [("orders", [(0, 0), (1, 0), (0, 1)]), ("other", [(0, 0)])] == [
        (topic.name, [(one.index, one.base_offset) for one in topic.partition_responses])
        for topic in response.responses
    ]


async def test_fetch_answers_a_partition_once(gateway: InProcessGateway) -> None:
    """At its first place, from the offset that is said last."""
    await create_topic(gateway, partitions=2)
    for index in (0, 0, 1):
        await produce(gateway, batch(b"a"), index=index)
    request = fetch_many([0, 1, 0])
    request.topics[0].partitions[2].fetch_offset = 1
    assert [("orders", 0, [(1, 1)]), ("orders", 1, [(0, 0)])] == await _fetched(gateway, request)


async def test_fetch_leaves_topics_where_they_are(gateway: InProcessGateway) -> None:
    """Java's consumer names a topic again behind another: its partitions wait for their turns."""
    await create_topic(gateway, partitions=2)
    await create_topic(gateway, name="other")
    await produce(gateway, batch(b"a"), name="other")
    await produce(gateway, batch(b"b"), index=1)
    request = fetch_many([0])
    request.topics += fetch_many([0]).topics + fetch_many([1]).topics + fetch_many([]).topics
    request.topics[1].topic = "other"
    expected: Any = [("orders", 0, []), ("other", 0, [(0, 0)]), ("orders", 1, [(0, 0)])]
    assert expected == await _fetched(gateway, request)
    # As it would be repeated.
    assert expected == await _fetched(gateway, request)


async def test_markers_answer_a_partition_once(gateway: InProcessGateway) -> None:
    """For each producer; each marker is written, and those for no partition are left out."""
    topic = await create_topic(gateway)
    marker = {
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": "orders", "partition_indexes": [0]}],
    }
    empty = {**marker, "producer_id": 8, "topics": [{"name": "orders", "partition_indexes": []}]}
    markers = [marker, empty, {**empty, "topics": []}, marker]
    response = await call(gateway, ApiKey.WRITE_TXN_MARKERS, 1, markers=markers)
    assert [(7, [("orders", [(0, ErrorCode.NONE)])])] == [
        (
            one.producer_id,
            [
                (found.name, [(place.partition_index, place.error_code) for place in places])
                for found in one.topics
                for places in [found.partitions]
            ],
        )
        for one in response.markers
    ]
    assert 2 == topic.partitions[0].log.high_watermark


@pytest.mark.parametrize(
    ("api", "version"), [(ApiKey.OFFSET_COMMIT, 8), (ApiKey.TXN_OFFSET_COMMIT, 3)]
)
async def test_commits_answer_an_unknown_topic_once(
    gateway: InProcessGateway, api: ApiKey, version: int
) -> None:
    """Even without partitions, where one that exists is left out."""
    await create_topic(gateway)
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [
        {"name": "missing", "partitions": []},
        {"name": "orders", "partitions": []},
        {"name": "missing", "partitions": [partition]},
        {"name": "gone", "partitions": []},
    ]
    response = await call(gateway, api, version, group_id="group", topics=topics)
    assert [("missing", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]), ("gone", [])] == [
        (topic.name, [one.error_code for one in topic.partitions]) for topic in response.topics
    ]


async def test_refusals_of_batches_tell_where_the_partition_begins(
    gateway: InProcessGateway,
) -> None:
    """Unless Kafka finds them before it looks at the partition, or in the bytes of the batch."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a", b"b"))
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]
    await call(gateway, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=1_000)
    damaged = batch()
    damaged[-1] ^= 1
    answers = [
        await produce(gateway, records)
        for records in (batch(is_control=True), damaged, batch() + batch(), b"rubbish")
    ]
    assert [
        (ErrorCode.INVALID_RECORD, 1),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (ErrorCode.INVALID_RECORD, -1),
        (ErrorCode.INVALID_RECORD, -1),
    ] == [(one.error_code, one.log_start_offset) for one in answers]
    assert [[]] * 4 == [one.record_errors for one in answers]


async def _fetched(gateway: InProcessGateway, request: Any) -> list[Any]:
    response = await gateway.ask(request, 12, FetchResponse)
    return [
        (topic.topic, one.partition_index, offsets_in(one))
        for topic in response.responses
        for one in topic.partitions
    ]
