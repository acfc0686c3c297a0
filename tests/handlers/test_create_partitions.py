from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import batch, call, create_topic, produce, topic_of

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend


def wanted(
    count: int, name: str = "orders", assignments: list[list[int]] | None = None
) -> dict[str, object]:
    """Return one topic of a request."""
    given = None if assignments is None else [{"broker_ids": one} for one in assignments]
    return {"name": name, "count": count, "assignments": given}


async def codes_of(
    gateway: InProcessGateway, *topics: dict[str, object], version: int = 3, **fields: object
) -> list[int]:
    """Send a request, and return the code of each topic."""
    response = await call(gateway, ApiKey.CREATE_PARTITIONS, version, topics=[*topics], **fields)
    return [one.error_code for one in response.results]


@pytest.mark.parametrize("version", range(4))
async def test_lets_a_topic_grow(backend: MemoryBackend, version: int) -> None:
    """New partitions are empty and writable, old ones keep their records, also after a restart."""
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway, partitions=2)
        await produce(gateway, batch(b"a"), index=1)
        assert [ErrorCode.NONE] == await codes_of(gateway, wanted(4), version=version)
        assert 0 == (await produce(gateway, batch(b"b"), index=3)).base_offset
        assert 1 == (await produce(gateway, batch(b"c"), index=1)).base_offset
    async with InProcessGateway(backend=backend) as gateway:
        topic = topic_of(gateway)
        assert [0, 2, 0, 1] == [one.log.end_offset for one in topic.partitions.values()]
        assert 4 == gateway.catalog.partition_count


async def test_cannot_shrink_nor_stay(gateway: InProcessGateway) -> None:
    """The count must exceed what is there."""
    await create_topic(gateway, partitions=3)
    for count in (3, 2, 0, -1):
        assert [ErrorCode.INVALID_PARTITIONS] == await codes_of(gateway, wanted(count))


async def test_limits() -> None:
    """The limits on partitions hold for growth as for new topics."""
    config = Config.of(topic_partitions_max=10, partitions_max=12)
    async with InProcessGateway(config) as gateway:
        await create_topic(gateway, "a", partitions=5)
        await create_topic(gateway, "b", partitions=5)
        assert [ErrorCode.INVALID_PARTITIONS] == await codes_of(gateway, wanted(11, "a"))
        assert [ErrorCode.POLICY_VIOLATION] == await codes_of(gateway, wanted(8, "a"))
        assert [ErrorCode.NONE] == await codes_of(gateway, wanted(7, "a"))


async def test_assignments(gateway: InProcessGateway) -> None:
    """One for each partition added, to this node alone."""
    await create_topic(gateway, partitions=1)
    for assignments in ([[0]], [[0], [1]], [[0], [0, 0]], [[0], [0], [0]], [[0], []]):
        assert [ErrorCode.INVALID_REPLICA_ASSIGNMENT] == await codes_of(
            gateway, wanted(3, assignments=assignments)
        )
    assert [ErrorCode.NONE] == await codes_of(gateway, wanted(3, assignments=[[0], [0]]))


async def test_unknown_and_repeated(gateway: InProcessGateway) -> None:
    """A topic that does not exist, and one that is named twice, do not grow."""
    topic = await create_topic(gateway)
    assert [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == await codes_of(gateway, wanted(2, "missing"))
    assert [ErrorCode.INVALID_REQUEST] == await codes_of(gateway, wanted(2), wanted(3))
    assert 1 == len(topic.partitions)


async def test_validate_only(gateway: InProcessGateway) -> None:
    """The same checks, and nothing changed."""
    topic = await create_topic(gateway)
    assert [ErrorCode.NONE] == await codes_of(gateway, wanted(2), validate_only=True)
    assert [ErrorCode.INVALID_PARTITIONS] == await codes_of(gateway, wanted(1), validate_only=True)
    assert 1 == len(topic.partitions)
