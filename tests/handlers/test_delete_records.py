from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import (
    batch,
    call,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    produce,
    produce_request,
)

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend


async def delete(
    gateway: InProcessGateway, *places: tuple[str, int, int], version: int = 2
) -> list[tuple[int, int]]:
    """Ask for (topic, partition, offset) each; return code and low watermark of each partition."""
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "offset": offset}]}
        for name, index, offset in places
    ]
    response = await call(gateway, ApiKey.DELETE_RECORDS, version, topics=topics, timeout_ms=1000)
    return [
        (one.error_code, one.low_watermark) for topic in response.topics for one in topic.partitions
    ]


async def filled(gateway: InProcessGateway, records: int = 5) -> None:
    """Create a topic with so many batches of one record."""
    await create_topic(gateway)
    for _ in range(records):
        await produce(gateway, batch())


@pytest.mark.parametrize("version", range(3))
async def test_moves_the_log_start_for_ever(backend: MemoryBackend, version: int) -> None:
    """What lies below is out of range at once and after a restart; the rest is as it was."""
    async with InProcessGateway(backend=backend) as gateway:
        await filled(gateway)
        assert [(0, 3)] == await delete(gateway, ("orders", 0, 3), version=version)
        below = await fetch(gateway, fetch_request(2))
        assert ErrorCode.OFFSET_OUT_OF_RANGE == below.error_code
        assert 3 == (await fetch(gateway, fetch_request(3))).log_start_offset
    async with InProcessGateway(backend=backend) as gateway:
        below = await fetch(gateway, fetch_request(2))
        assert ErrorCode.OFFSET_OUT_OF_RANGE == below.error_code
        assert [(3, 3), (4, 4)] == offsets_in(await fetch(gateway, fetch_request(3)))
        assert 5 == (await produce(gateway, batch())).base_offset


async def test_minus_one_is_the_high_watermark(gateway: InProcessGateway) -> None:
    """Everything goes; the next record gets the next offset."""
    await filled(gateway)
    assert [(0, 5)] == await delete(gateway, ("orders", 0, -1))
    assert 5 == (await produce(gateway, batch())).base_offset
    assert {"request": 5} == gateway.metrics.removed_records


async def test_below_the_log_start_nothing_changes(gateway: InProcessGateway) -> None:
    """A lower offset succeeds and says where the log begins."""
    await filled(gateway)
    assert [(0, 4)] == await delete(gateway, ("orders", 0, 4))
    assert [(0, 4)] == await delete(gateway, ("orders", 0, 1))
    assert {"request": 4} == gateway.metrics.removed_records


async def test_what_is_not_there_cannot_be_deleted(gateway: InProcessGateway) -> None:
    """Above the high watermark, negative, unknown: each partition has its own answer."""
    await filled(gateway)
    out_of_range = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert [out_of_range, unknown, unknown] == await delete(
        gateway, ("orders", 0, 6), ("orders", 1, 0), ("missing", 0, 0)
    )
    assert [out_of_range] == await delete(gateway, ("orders", 0, -2))
    assert 0 == (await fetch(gateway, fetch_request(0))).log_start_offset


async def test_what_is_not_committed_is_out_of_range(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """Records that are still being written cannot be deleted."""
    await filled(gateway, 1)
    backend.hold()
    pending = gateway.start(produce_request(batch()), 9)
    assert [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)] == await delete(gateway, ("orders", 0, 2))
    assert [(0, 1)] == await delete(gateway, ("orders", 0, -1))
    backend.release()
    await pending.response()


async def test_of_a_partition_twice_the_last_counts(gateway: InProcessGateway) -> None:
    """It is answered once, and what was said of it before deletes nothing, as in Kafka."""
    await filled(gateway)
    assert [(0, 1)] == await delete(gateway, ("orders", 0, 5), ("orders", 0, 1))
    assert 1 == (await fetch(gateway, fetch_request(1))).log_start_offset


async def test_a_long_poll_on_what_goes_is_answered(gateway: InProcessGateway) -> None:
    """A Fetch that waits for more bytes than there are ends when its records are deleted."""
    await filled(gateway)
    poll = gateway.start(fetch_request(1, max_wait_ms=60_000, min_bytes=1 << 20), 12)
    assert not poll.done
    assert [(0, 5)] == await delete(gateway, ("orders", 0, -1))
    response = await poll.response()
    assert ErrorCode.OFFSET_OUT_OF_RANGE == response.responses[0].partitions[0].error_code  # type: ignore[union-attr]


async def test_a_failing_disk_is_a_storage_error(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is promised that is not durable."""
    from kgw.backend.memory import MemoryPartitionLog
    from kgw.errors import StorageError

    await filled(gateway)

    async def fail(self: MemoryPartitionLog, offset: int) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(MemoryPartitionLog, "drop_before", fail)
    assert [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] == await delete(gateway, ("orders", 0, 3))
