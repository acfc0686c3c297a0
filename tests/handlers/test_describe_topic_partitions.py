from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.handlers.authorized_operations import TOPIC_OPERATIONS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.describe_topic_partitions import Cursor
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import call, create_topic

if TYPE_CHECKING:
    from collections.abc import Sequence


async def describe(
    gateway: InProcessGateway,
    names: Sequence[str] = (),
    *,
    limit: int = 2000,
    cursor: Cursor | None = None,
) -> Any:
    """Return one page."""
    return await call(
        gateway,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


async def test_describes_in_the_order_of_names(gateway: InProcessGateway) -> None:
    """Whatever the order of the request; an empty list asks for everything."""
    topic = await create_topic(gateway, "b", partitions=2)
    await create_topic(gateway, "a")
    for names in (("b", "a"), ("a", "b", "a"), ()):
        response = await describe(gateway, names)
        assert [("a", 1), ("b", 2)] == [(one.name, len(one.partitions)) for one in response.topics]
        assert None is response.next_cursor
    described = response.topics[1]
    assert topic.topic_id == described.topic_id
    assert TOPIC_OPERATIONS == described.topic_authorized_operations
    partition = described.partitions[1]
    assert (1, 0, 0, [0], [0], []) == (
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        partition.replica_nodes,
        partition.isr_nodes,
        partition.eligible_leader_replicas,
    )


async def test_missing_topics(gateway: InProcessGateway) -> None:
    """Each name gets its own answer."""
    await create_topic(gateway, "b")
    response = await describe(gateway, ("c", "b", "a/a"))
    assert [
        ("a/a", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("b", ErrorCode.NONE),
        ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ] == [(one.name, one.error_code) for one in response.topics]


async def test_pages(gateway: InProcessGateway) -> None:
    """Following the cursor gives every partition once, for every page size."""
    for name, partitions in (("a", 3), ("b", 1), ("c", 5), ("d", 2)):
        await create_topic(gateway, name, partitions=partitions)
    everything = [
        (name, index)
        for name, count in (("a", 3), ("b", 1), ("c", 5), ("d", 2))
        for index in range(count)
    ]
    for limit in range(1, 13):
        seen: list[tuple[str | None, int]] = []
        cursor: Cursor | None = None
        while True:
            response = await describe(gateway, limit=limit, cursor=cursor)
            page = [
                (topic.name, partition.partition_index)
                for topic in response.topics
                for partition in topic.partitions
            ]
            assert len(page) <= limit
            seen += page
            cursor = response.next_cursor
            if cursor is None:
                break
        assert everything == seen


async def test_server_limits_the_page() -> None:
    """max.request.partition.size.limit holds, whatever the client asks for."""
    async with InProcessGateway(Config.of(max_request_partition_size_limit=2)) as gateway:
        await create_topic(gateway, partitions=3)
        response = await describe(gateway, limit=100)
        assert 2 == len(response.topics[0].partitions)
        assert Cursor(topic_name="orders", partition_index=2) == response.next_cursor


async def test_impossible_pages(gateway: InProcessGateway) -> None:
    """A cursor before the beginning, or at a topic that was not named, is INVALID_REQUEST."""
    await create_topic(gateway)
    for cursor in (
        Cursor(topic_name="orders", partition_index=-1),
        Cursor(topic_name="never", partition_index=0),
    ):
        response = await describe(gateway, ("orders",), cursor=cursor)
        assert ErrorCode.INVALID_REQUEST == response.topics[0].error_code


async def test_every_page_has_a_partition(gateway: InProcessGateway) -> None:
    """A limit of nothing is taken as 1, as in Kafka: else a client would ask for ever."""
    await create_topic(gateway, partitions=2)
    for limit in (0, -1):
        response = await describe(gateway, limit=limit)
        assert [0] == [one.partition_index for one in response.topics[0].partitions]
        assert Cursor(topic_name="orders", partition_index=1) == response.next_cursor
