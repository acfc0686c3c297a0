"""Large answers are made in turns: how many turns, and that the bytes are those of one turn."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers import encoding_turns
from kgw.handlers.encoding_turns import encode_in_turns
from kgw.protocol.codec import codec, encode_items
from kgw.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kgw.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kgw.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kgw.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kgw.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kgw.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kgw.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from kgw.protocol.schema import EncodedItems, Request, Response
from kgw.turns import StepBudget, finish
from tests.handlers.support import LoopTurns, create_topic
from tests.protocol.random_messages import all_versions, random_message

if TYPE_CHECKING:
    from kgw.protocol.schema import Struct
    from kgw.testing.gateway import InProcessGateway

GROUPS = 1100


async def commit(gateway: InProcessGateway, *, group_id: str) -> None:
    """Let a group commit an offset of the one partition that there is."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    request = OffsetCommitRequest(group_id=group_id, topics=[topic])
    response = await gateway.ask(request, 8, OffsetCommitResponse)
    assert ErrorCode.NONE == response.topics[0].partitions[0].error_code


def encode_arrays(found: Struct, response: type[Response], version: int) -> int:
    """Put encoded items in the place of every array that may have them; return how many."""
    changed = 0
    for name, field in type(found).field_table.items():
        items: Any = getattr(found, name)
        if field.kind != "array" or not field.present(version) or isinstance(field.item, str):
            continue
        for item in items or ():
            changed += encode_arrays(item, response, version)
        if field.may_be_encoded and items is not None and field.item is not None:
            encode = encode_items(response, field.item, version)
            middle = len(items) // 2
            pieces = [*encode(items[:middle]), *encode(items[middle:])]
            setattr(found, name, EncodedItems(len(items), pieces))
            changed += 1
    return changed


def test_encoded_items_are_the_same_bytes() -> None:
    """Wherever an array may be given as bytes, the answer is that of the structures themselves."""
    random = Random(6)
    seen = set()
    for message, version in all_versions():
        if not issubclass(message, Response):
            continue
        for _ in range(3):
            found = random_message(message, version, random)
            plain = codec(message, version).encode(found)
            if encode_arrays(found, message, version):
                seen.add(message.__name__)
                assert plain == codec(message, version).encode(found)
    assert {
        "CreateTopicsResponse",
        "DescribeConfigsResponse",
        "DescribeGroupsResponse",
        "DescribeTopicPartitionsResponse",
        "FetchResponse",
        "ListGroupsResponse",
        "MetadataResponse",
    } <= seen


@pytest.mark.parametrize(("count", "pieces"), [(0, 0), (3, 1), (4, 1), (5, 2), (12, 3)])
async def test_a_turn_ends_with_its_share(count: int, pieces: int) -> None:
    """No more items than the share are made and encoded at a time, and none is left out."""
    items = [ListedGroup(group_id=str(number)) for number in range(count)]
    made = await finish(encode_in_turns(ListGroupsResponse, items, 4, StepBudget(4)))
    assert (count, pieces) == (len(made), len(made.pieces))
    decoded = codec(ListGroupsResponse, 4)
    response = ListGroupsResponse(groups=made)
    assert items == decoded.decode(decoded.encode(response)).groups


async def test_settings_of_many_topics(gateway: InProcessGateway) -> None:
    """DescribeConfigs looks at some thirteen topics at a time."""
    await create_topic(gateway)
    resource = DescribeConfigsResource(resource_type=2, resource_name="orders")
    request = DescribeConfigsRequest(resources=[resource] * 130)
    async with LoopTurns() as turns:
        answer = await gateway.ask(request, 4, DescribeConfigsResponse)
    assert turns.count >= 9
    assert {(ErrorCode.NONE, "orders")} == {
        (one.error_code, one.resource_name) for one in answer.results
    }
    assert len({len(one.configs) for one in answer.results}) == 1
    assert len(answer.results) == 130


async def test_many_partitions(gateway: InProcessGateway) -> None:
    """DescribeTopicPartitions describes 400 partitions at a time, of one topic and of several."""
    await create_topic(gateway, "a", partitions=900)
    await create_topic(gateway, "b", partitions=900)
    request = DescribeTopicPartitionsRequest(response_partition_limit=1700)
    async with LoopTurns() as turns:
        answer = await gateway.ask(request, 0, DescribeTopicPartitionsResponse)
    assert turns.count >= 4
    assert [900, 800] == [len(topic.partitions) for topic in answer.topics]
    assert answer.next_cursor is not None
    assert ("b", 800) == (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


MULTIPLIED: list[tuple[Request, int, type[Response]]] = [
    (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name="orders")] * 50
        ),
        4,
        DescribeConfigsResponse,
    ),
    (MetadataRequest(topics=[MetadataRequestTopic(name="orders")] * 1000), 12, MetadataResponse),
    (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)] * 1000),
        8,
        OffsetFetchResponse,
    ),
    (
        OffsetFetchRequest(
            group_id="group",
            topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0] * 1000)],
        ),
        7,
        OffsetFetchResponse,
    ),
    (
        DescribeProducersRequest(
            topics=[TopicRequest(name="orders", partition_indexes=[0])] * 1000
        ),
        0,
        DescribeProducersResponse,
    ),
]


@pytest.mark.parametrize(
    ("request_", "version", "response"), MULTIPLIED, ids=lambda one: type(one).__name__
)
async def test_what_is_named_many_times_is_no_answer_without_end(
    gateway: InProcessGateway,
    monkeypatch: pytest.MonkeyPatch,
    request_: Request,
    version: int,
    response: type[Response],
) -> None:
    """Whoever asks for more than clients take loses the connection; a little less is answered."""
    await create_topic(gateway)
    await commit(gateway, group_id="group")
    answer = await gateway.ask(request_, version, response)
    size_bytes = len(codec(response, version).encode(answer))
    monkeypatch.setattr(encoding_turns, "MAX_ANSWER_BYTES", size_bytes)
    assert answer == await gateway.ask(request_, version, response)
    monkeypatch.setattr(encoding_turns, "MAX_ANSWER_BYTES", size_bytes // 4)
    with pytest.raises(ProtocolError, match="larger than"):
        await gateway.ask(request_, version, response)


async def test_a_group_that_is_named_twice_is_described_twice(gateway: InProcessGateway) -> None:
    """As in Kafka, and in the order of the request."""
    await create_topic(gateway)
    await commit(gateway, group_id="group")
    request = DescribeGroupsRequest(groups=["group", "none", "group"])
    answer = await gateway.ask(request, 5, DescribeGroupsResponse)
    assert ["group", "none", "group"] == [one.group_id for one in answer.groups]


@pytest.mark.slow
async def test_many_groups(gateway: InProcessGateway) -> None:
    """ListGroups looks at 500 groups at a time, DescribeGroups at 400."""
    await create_topic(gateway)
    names = [f"group-{number}" for number in range(GROUPS)]
    for name in names:
        await commit(gateway, group_id=name)
    async with LoopTurns() as turns:
        listed = await gateway.ask(ListGroupsRequest(), 4, ListGroupsResponse)
    assert turns.count >= 4
    assert sorted(names) == sorted(one.group_id for one in listed.groups)
    async with LoopTurns() as turns:
        filtered = await gateway.ask(
            ListGroupsRequest(states_filter=["Stable"]), 4, ListGroupsResponse
        )
    assert turns.count >= 2
    assert [] == filtered.groups
    async with LoopTurns() as turns:
        described = await gateway.ask(
            DescribeGroupsRequest(groups=names), 5, DescribeGroupsResponse
        )
    assert turns.count >= 2
    assert names == [one.group_id for one in described.groups]
