"""What kgw.archive.hold keeps: nothing goes that a named group has not committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import Segmented
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.clock import SystemClock
from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.groups.requests import CommitRequest
from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset
from kgw.protocol.api_keys import ApiKey
from kgw.records.builder import BatchBuilder
from kgw.state.memory import MemoryStateStore
from kgw.testing.filer import FilerStore, MemoryFiler
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import START_MS, batch, call, create_topic, produce
from tests.simulated_fs import SimulatedFs
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.base import Backend

HOLD = {"kgw.archive.hold": "archive"}


async def commit(gateway: InProcessGateway, offset: int, group_id: str = "archive") -> None:
    """Commit from outside, as an archive does."""
    topic = gateway.catalog.topics["orders"]
    now_s = gateway.manual_clock.monotonic_s()
    one = CommittedOffset(offset, -1, "", START_MS, NO_EXPIRY_MS, now_s)
    request = CommitRequest("", None, -1, {topic.topic_id: {0: one}})
    assert ErrorCode.NONE is await gateway.groups.commit(group_id, request)


async def retained(gateway: InProcessGateway) -> int:
    """Have retention run; return where the partition begins then."""
    await gateway.log_manager.retain()
    partition = gateway.catalog.topics["orders"].partition(0)
    assert partition is not None
    return partition.log.log_start_offset


async def filled(gateway: InProcessGateway, **configs: str) -> None:
    """Create a topic with ten records in segments of a dozen batches at most."""
    await create_topic(gateway, partitions=1, **configs)
    for _ in range(10):
        await produce(gateway, batch())


@pytest.mark.parametrize(
    "limit", [{"retention.bytes": "0"}, {"retention.ms": "1"}, {"kgw.retention.offset": "99"}]
)
async def test_retention_stops_at_what_is_committed(limit: dict[str, str]) -> None:
    """Segments go whole; what goes by offset goes up to the hold."""
    async with InProcessGateway() as gateway:
        await filled(gateway, **HOLD, **limit)
        gateway.manual_clock.advance(60)
        assert 0 == await retained(gateway)
        assert 1 == gateway.metrics.held_partitions
        (problem,) = gateway.log_manager.problems
        assert "orders-0" in problem
        assert "group archive at offset 0" in problem
        await commit(gateway, 4)
        assert await retained(gateway) <= 4
        assert 1 == gateway.metrics.held_partitions
        await commit(gateway, 10)
        assert 10 == await retained(gateway)
        assert 0 == gateway.metrics.held_partitions
        assert () == gateway.log_manager.problems


def embedded() -> Backend:
    """Return a data directory on a simulated disk."""
    return EmbeddedBackend("/data", fs=SimulatedFs(), state=MemoryStateStore())


def seaweedmq() -> Backend:
    """Return a namespace on a filer in memory."""
    filer = MemoryFiler(FilerStore(), SystemClock())
    state = ChainStateStore(filer, SystemClock(), "/topics/.kgw/kafka/state")
    return SeaweedMqBackend(filer, "kafka", state)


@pytest.mark.parametrize("backend", [embedded, seaweedmq])
async def test_every_backend_is_held(backend: Callable[[], Backend]) -> None:
    """The hold is a bound above the backends; each removes what is below it."""
    async with InProcessGateway(backend=backend()) as gateway:
        await filled(gateway, **HOLD, **{"kgw.retention.offset": "99"})
        assert 0 == await retained(gateway)
        await commit(gateway, 4)
        assert 4 == await retained(gateway)
        await commit(gateway, 10)
        assert 10 == await retained(gateway)


async def test_the_lowest_of_several_groups_holds() -> None:
    """An archive that is behind is not passed by one that is not."""
    async with InProcessGateway() as gateway:
        await filled(gateway, **{"kgw.archive.hold": "one,two", "kgw.retention.offset": "99"})
        await commit(gateway, 7, "one")
        assert 0 == await retained(gateway)
        await commit(gateway, 3, "two")
        assert 3 == await retained(gateway)
        await commit(gateway, 9, "two")
        assert 7 == await retained(gateway)


async def test_a_deleted_or_damaged_offset_holds_everything() -> None:
    """Nobody knows how far the archive is."""
    async with InProcessGateway() as gateway:
        await filled(gateway, **HOLD, **{"kgw.retention.offset": "99"})
        await commit(gateway, 4)
        assert 4 == await retained(gateway)
        await commit(gateway, DAMAGED_OFFSET)
        assert 4 == await retained(gateway)
        await commit(gateway, 6)
        topic_id = gateway.catalog.topics["orders"].topic_id
        await gateway.groups.delete_offsets("archive", [(topic_id, 0)])
        assert 4 == await retained(gateway)


async def test_a_hold_beyond_the_end_removes_nothing_that_is_not_stable() -> None:
    """The last stable offset bounds retention as ever."""
    async with InProcessGateway() as gateway:
        await filled(gateway, **HOLD, **{"kgw.retention.offset": "99"})
        await commit(gateway, 1000)
        assert 10 == await retained(gateway)


async def test_what_is_held_is_not_cut_into_segments() -> None:
    """Neither DeleteRecords that is refused nor retention begins a segment for nothing."""
    # No run of its own: time passes in the middle of it, and it would rest until time passes again.
    config = Config.of(
        log_initial_task_delay_ms=1_000_000_000, log_retention_check_interval_ms=1_000_000_000
    )
    async with InProcessGateway(config, embedded()) as gateway:
        await filled(gateway, **HOLD, **{"retention.ms": "1"})
        for _ in range(3):
            answer = await call(
                gateway,
                ApiKey.DELETE_RECORDS,
                2,
                topics=[{"name": "orders", "partitions": [{"partition_index": 0, "offset": -1}]}],
                timeout_ms=1000,
            )
            assert ErrorCode.POLICY_VIOLATION == answer.topics[0].partitions[0].error_code
            await produce(gateway, batch())
            gateway.manual_clock.advance(60)
            assert 0 == await retained(gateway)
        log = gateway.catalog.topics["orders"].partitions[0].log
        assert isinstance(log, Segmented)
        assert 1 == len(await log.segments())


async def test_delete_records_is_refused_above_the_hold() -> None:
    """Up to the hold it does what it is asked; below the log start it changes nothing."""
    async with InProcessGateway() as gateway:
        await filled(gateway, **HOLD)
        await commit(gateway, 4)
        for offset, code, start in (
            (5, ErrorCode.POLICY_VIOLATION, -1),
            (-1, ErrorCode.POLICY_VIOLATION, -1),
            (4, ErrorCode.NONE, 4),
            (2, ErrorCode.NONE, 4),
        ):
            places = [{"partition_index": 0, "offset": offset}]
            answer = await call(
                gateway,
                ApiKey.DELETE_RECORDS,
                2,
                topics=[{"name": "orders", "partitions": places}],
                timeout_ms=1000,
            )
            (one,) = answer.topics[0].partitions
            assert (code, start) == (one.error_code, one.low_watermark)


async def test_compaction_stops_at_what_is_committed() -> None:
    """A segment that holds something that is not committed is not compacted."""
    async with InProcessGateway() as gateway:
        await create_topic(
            gateway, cleanup_policy="compact", segment_bytes="1024", kgw_archive_hold="archive"
        )
        for _ in range(40):
            builder = BatchBuilder()
            builder.add(key=b"key", value=b"v", timestamp_ms=START_MS)
            await produce(gateway, builder.build())
        partition = gateway.catalog.topics["orders"].partition(0)
        assert partition is not None
        compactor = gateway.log_manager.compactor
        assert 0 == (await compactor.measure(partition, START_MS)).dirty_bytes
        await commit(gateway, 20)
        dirtiness = await compactor.measure(partition, START_MS)
        assert dirtiness.dirty_bytes > 0
        assert 0 < dirtiness.upper_bound <= 20


async def test_offsets_of_a_holding_group_do_not_expire() -> None:
    """Those of another group, committed at the same time, do."""
    async with InProcessGateway() as gateway:
        await filled(gateway, **HOLD)
        await commit(gateway, 4)
        await commit(gateway, 4, "another")
        gateway.manual_clock.advance(400 * 86_400)
        await turns(200)
        groups = gateway.groups
        assert groups.offsets("another") is None
        assert groups.offsets("archive") is not None


async def test_held_after_a_restart() -> None:
    """Groups are there before retention runs for the first time."""
    async with InProcessGateway() as first:
        await filled(first, **HOLD, **{"kgw.retention.offset": "99"})
        await commit(first, 4)
        backend = first.gateway.backend
    async with InProcessGateway(backend=backend) as gateway:
        assert 4 == await retained(gateway)
