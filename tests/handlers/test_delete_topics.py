from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from tests.handlers.support import batch, call, create_topic, fetch, fetch_request, produce

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend
    from kgw.testing.gateway import InProcessGateway


async def delete(gateway: InProcessGateway, *names: str, version: int = 6) -> list[Any]:
    """Delete by name, and return the results."""
    if version >= 6:
        return await delete_states(gateway, *[{"name": name} for name in names])
    response = await call(gateway, ApiKey.DELETE_TOPICS, version, topic_names=[*names])
    return [*response.responses]


async def delete_states(gateway: InProcessGateway, *topics: dict[str, Any]) -> list[Any]:
    """Delete by name or id, and return the results."""
    response = await call(gateway, ApiKey.DELETE_TOPICS, 6, topics=[*topics])
    return [*response.responses]


@pytest.mark.parametrize("version", range(7))
async def test_deletes_topic_and_records(
    gateway: InProcessGateway, backend: MemoryBackend, version: int
) -> None:
    """Nothing is left, and a topic created again under the name begins at 0 with another id."""
    topic = await create_topic(gateway, partitions=3)
    await produce(gateway, batch(b"a"))
    (result,) = await delete(gateway, "orders", version=version)
    assert ("orders", ErrorCode.NONE) == (result.name, result.error_code)
    assert {} == gateway.catalog.topics
    assert {} == dict(backend.partitions)
    assert 0 == gateway.catalog.partition_count
    data = await fetch(gateway, fetch_request())
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == data.error_code
    again = await create_topic(gateway)
    assert topic.topic_id != again.topic_id
    assert 0 == (await produce(gateway, batch(b"b"))).base_offset


async def test_by_id(gateway: InProcessGateway) -> None:
    """Version 6 takes ids as well; unknown ones are UNKNOWN_TOPIC_ID, with a null name."""
    topic = await create_topic(gateway)
    unknown = bytes(range(16))
    results = await delete_states(gateway, {"topic_id": topic.topic_id}, {"topic_id": unknown})
    assert [
        ("orders", topic.topic_id, ErrorCode.NONE),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ] == [(one.name, one.topic_id, one.error_code) for one in results]


async def test_unknown_and_repeated(gateway: InProcessGateway) -> None:
    """What does not exist is not deleted, and what is named twice is not either."""
    topic = await create_topic(gateway)
    (result,) = await delete(gateway, "missing")
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == result.error_code
    results = await delete_states(
        gateway,
        {"name": "orders"},
        {"topic_id": topic.topic_id},
        {"name": "orders", "topic_id": topic.topic_id},
        {},
    )
    assert [ErrorCode.INVALID_REQUEST] * 4 == [one.error_code for one in results]
    assert gateway.catalog.get("orders") is topic


async def test_concurrent_deletes(gateway: InProcessGateway) -> None:
    """One of them deletes the topic, the others learn that it is gone."""
    await create_topic(gateway)
    results = await asyncio.gather(*(delete(gateway, "orders") for _ in range(5)))
    codes = sorted(ErrorCode(one.error_code) for (one,) in results)
    assert [ErrorCode.NONE] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4 == codes
