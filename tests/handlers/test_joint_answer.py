"""One action for many partitions: what is looked at again, and how often it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode
from kgw.handlers.offset_commit import OffsetCommit
from kgw.handlers.offset_delete import OffsetDelete
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.handlers.support import LoopTurns, call, create_topic, request_of
from tests.handlers.test_group_offsets import commit, fetch
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway

COUNT = 300
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\0"


@pytest.fixture
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some partitions are many."""
    monkeypatch.setattr(OffsetCommit, "per_turn", 10)
    monkeypatch.setattr(OffsetDelete, "per_turn", 10)


def named(name: str, indexes: Any, offset: int = 5) -> dict[str, Any]:
    """Return a topic of a commit. Its partitions have different metadata: they are no block."""
    return {
        "name": name,
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_metadata": "ab"[: 1 + index % 2],
            }
            for index in indexes
        ],
    }


def alike(name: str, indexes: range, offset: int = 5) -> dict[str, Any]:
    """Return a topic of a commit whose offsets are a block."""
    partitions = [{"partition_index": index, "committed_offset": offset} for index in indexes]
    return {"name": name, "partitions": partitions}


def codes(response: Any) -> list[tuple[str, set[int], int]]:
    """Return for each topic its name, the codes of its partitions, and how many these are."""
    return [
        (topic.name, {one.error_code for one in topic.partitions}, len(topic.partitions))
        for topic in response.topics
    ]


@pytest.mark.usefixtures("_short_turns")
async def test_a_topic_that_goes_between_turns_is_unknown(gateway: InProcessGateway) -> None:
    """The others are committed. Its offsets have been forgotten, and do not come back."""
    await create_topic(gateway, partitions=COUNT)
    await create_topic(gateway, "gone", partitions=COUNT)
    request = request_of(
        ApiKey.OFFSET_COMMIT,
        group_id="group",
        topics=[named("gone", range(COUNT)), named("orders", range(COUNT))],
    )
    pending = gateway.start(request, 8)
    assert not pending.done
    await gateway.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]), 6)
    async with LoopTurns() as turns:
        response = await pending.response()
    assert turns.count >= COUNT // OffsetCommit.per_turn
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [("gone", {unknown}, COUNT), ("orders", {0}, COUNT)] == codes(response)
    everything = await call(gateway, ApiKey.OFFSET_FETCH, 7, group_id="group", topics=None)
    assert ["orders"] == [topic.name for topic in everything.topics]


@pytest.mark.usefixtures("_short_turns")
async def test_a_topic_that_goes_while_its_block_is_made(gateway: InProcessGateway) -> None:
    """A block takes several turns, and is not stored if its topic is deleted between them."""
    count = 3_500
    topic = await create_topic(gateway, partitions=count)
    request = request_of(
        ApiKey.OFFSET_COMMIT, group_id="group", topics=[alike("orders", range(count))]
    )
    async with LoopTurns() as taken:
        assert [("orders", {0}, count)] == codes(await gateway.request(request, 8))
    # Four turns decode the request, four make the block.
    assert taken.count >= 12
    pending = gateway.start(request, 8)
    await gateway.topic_manager.delete(topic)
    assert not pending.done
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [("orders", {unknown}, count)] == codes(await pending.response())
    assert not gateway.groups.offsets("group")


@pytest.mark.usefixtures("_short_turns")
async def test_a_topic_that_goes_after_its_block_is_made(gateway: InProcessGateway) -> None:
    """Its block is dropped while the block of the next topic is being made."""
    count = 3_500
    gone = await create_topic(gateway, "gone", partitions=20)
    await create_topic(gateway, partitions=count)
    topics = [alike("gone", range(20)), alike("orders", range(count))]
    pending = gateway.start(request_of(ApiKey.OFFSET_COMMIT, group_id="group", topics=topics), 8)
    # Four turns decode the request, one makes the first block.
    await turns(6)
    assert not pending.done
    await gateway.topic_manager.delete(gone)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [("gone", {unknown}, 20), ("orders", {0}, count)] == codes(await pending.response())
    table = gateway.groups.offsets("group")
    assert table is not None
    assert [gateway.catalog.topics["orders"].topic_id] == [*table.topic_ids()]


@pytest.mark.usefixtures("_short_turns")
async def test_a_member_that_subscribes_between_turns_keeps_its_offsets(
    gateway: InProcessGateway,
) -> None:
    """It reads from them: nothing of its topic is deleted."""
    await create_topic(gateway, partitions=COUNT)
    assert [0] == await commit(gateway, {0: 7})
    topics = [
        {"name": "orders", "partitions": [{"partition_index": index} for index in range(COUNT)]}
    ]
    request = request_of(ApiKey.OFFSET_DELETE, group_id="group", topics=topics)
    pending = gateway.start(request, 0)
    assert not pending.done
    await call(
        gateway,
        ApiKey.JOIN_GROUP,
        0,
        group_id="group",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": SUBSCRIPTION}],
    )
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert [("orders", {subscribed}, COUNT)] == codes(await pending.response())
    (found,) = await fetch(gateway, [0])
    assert 7 == found.committed_offset


async def test_partitions_of_which_some_cannot_be_added(gateway: InProcessGateway) -> None:
    """Each is answered once then, as it has a code of its own."""
    await create_topic(gateway, partitions=2)
    topics = [{"name": "orders", "partitions": one} for one in ([0, 0], [1, 9, 0])]
    response = await call(gateway, ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_topics=topics)
    (topic,) = response.results_by_topic_v3_and_below
    not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(0, not_attempted), (1, not_attempted), (9, unknown)] == [
        (one.partition_index, one.partition_error_code) for one in topic.results_by_partition
    ]


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_block_whose_topic_is_named_again(
    gateway: InProcessGateway, *, is_known: bool
) -> None:
    """All mentions are answered; what the last one says of a partition counts."""
    if is_known:
        await create_topic(gateway, partitions=40)
    topics = [
        alike("orders", range(40)),
        alike("orders", range(16), 7),
        named("orders", [3, 4], offset=9),
        alike("orders", range(4, 24), 8),
        alike("orders", range(0)),
    ]
    response = await call(gateway, ApiKey.OFFSET_COMMIT, 8, group_id="group", topics=topics)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not is_known:
        assert [("orders", {unknown}, 78)] == codes(response)
        return
    assert [("orders", {0}, count) for count in (40, 16, 2, 20)] == codes(response)
    found = await fetch(gateway, [*range(40)])
    assert [7, 7, 7, 9, *[8] * 20, *[5] * 16] == [one.committed_offset for one in found]


async def test_a_block_after_single_offsets(gateway: InProcessGateway) -> None:
    """It counts, as it is the last mention."""
    await create_topic(gateway, partitions=40)
    topics = [named("orders", range(3)), alike("orders", range(2, 40), 9)]
    await call(gateway, ApiKey.OFFSET_COMMIT, 8, group_id="group", topics=topics)
    found = await fetch(gateway, [*range(40)])
    assert [5, 5, *[9] * 38] == [one.committed_offset for one in found]
