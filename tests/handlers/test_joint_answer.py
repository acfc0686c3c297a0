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
    """Return a topic of a commit. Its partitions are not alike, so that none is packed."""
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
async def test_a_packed_topic_that_is_named_again(
    gateway: InProcessGateway, *, is_known: bool
) -> None:
    """Both mentions are answered; what the last one says counts."""
    if is_known:
        await create_topic(gateway, partitions=40)
    alike = {
        "name": "orders",
        "partitions": [
            {"partition_index": index, "committed_offset": 5, "committed_metadata": ""}
            for index in range(40)
        ],
    }
    topics = [alike, named("orders", [3, 4], offset=9), alike | {"partitions": []}]
    response = await call(gateway, ApiKey.OFFSET_COMMIT, 8, group_id="group", topics=topics)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not is_known:
        assert [("orders", {unknown}, 42)] == codes(response)
        return
    assert [("orders", {0}, 40), ("orders", {0}, 2)] == codes(response)
    found = await fetch(gateway, [*range(40)])
    assert [5, 5, 5, 9, 9, *[5] * 35] == [one.committed_offset for one in found]
