"""Transactions over the embedded backend: restarts, power loss in relaxed topics, compaction."""

from __future__ import annotations

from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import Segmented
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.completion import Completion
from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.metrics import Metrics
from kgw.partitions.append.transactions import TransactionMarker
from kgw.partitions.maintain.compactor import Compactor
from kgw.partitions.topics.manager import TopicManager
from kgw.partitions.view import AbortedRange, Isolation
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from tests.partitions.committed import committed_records
from tests.partitions.producers import produced
from tests.simulated_disk import CrashMode
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.partitions.partition import Partition
    from kgw.records.batch import RecordBatch

OPTIONS = EmbeddedOptions(min_free_bytes=0, reserved_offsets=100, journal_append_bytes=0)
CONFIG = Config.of(flush_ms=3_600_000)


def allowed(_: RecordBatch) -> Completion[ErrorCode]:
    """Say that a transaction has the partition."""
    completion: Completion[ErrorCode] = Completion()
    completion.set_result(ErrorCode.NONE)
    return completion


class Producer:
    """A producer that writes in transactions of the second version: each end raises its epoch."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0

    async def write(self, partition: Partition, *values: bytes) -> int:
        """Append batches of a record each; return the last one's offset."""
        offset = -1
        for value in values:
            batch = produced(
                value,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                is_transactional=True,
            )
            result = partition.admission.append(batch, verify=allowed).result
            assert result is not None
            offset = (await result).base_offset
            self.sequence += 1
        return offset

    async def end(self, partition: Partition, *, is_commit: bool) -> int:
        """Append the marker; return its offset."""
        self.epoch, self.sequence = self.epoch + 1, 0
        marker = TransactionMarker(self.producer_id, self.epoch, 0, is_commit, 2)
        return (await partition.admission.append_marker(marker)).base_offset


@asynccontextmanager
async def opened(
    backend: EmbeddedBackend, **configs: str
) -> AsyncIterator[tuple[TopicManager, Partition]]:
    """Open a backend with one partition, which is created if it is not there; close it in order."""
    await backend.open()
    manager = TopicManager(backend, CONFIG, ManualClock())
    await manager.open()
    named = {name.replace("_", "."): value for name, value in configs.items()}
    topic = manager.catalog.get("orders") or await manager.create("orders", 1, named)
    try:
        yield manager, topic.partitions[0]
    finally:
        await backend.aclose()


@pytest.mark.parametrize("saves", [True, False])
async def test_a_restart_finds_what_is_open_and_what_was_aborted(
    tmp_path: Path, *, saves: bool
) -> None:
    """In the snapshot or, from whole control batches, in the log."""
    state = MemoryStateStore()
    first, second = Producer(1), Producer(2)
    async with opened(EmbeddedBackend(str(tmp_path / "data"), state=state)) as (_, partition):
        await first.write(partition, b"aborted")
        await second.write(partition, b"open")
        await first.end(partition, is_commit=False)
        if saves:
            await partition.save_snapshot()
    async with opened(EmbeddedBackend(str(tmp_path / "data"), state=state)) as (_, partition):
        view = partition.view(Isolation.READ_COMMITTED)
        assert (1, 3) == (view.bounds().last_stable_offset, view.bounds().high_watermark)
        assert [AbortedRange(1, 0)] == [*view.aborted(0, 3)]
        await second.end(partition, is_commit=True)
        assert [(1, b"open")] == await committed_records(partition, 1)


async def test_an_aborted_record_stays_hidden_after_a_restart(tmp_path: Path) -> None:
    """Also from who reads before the beginning of another transaction that was aborted sooner."""
    state = MemoryStateStore()
    first, second = Producer(1), Producer(2)
    async with opened(EmbeddedBackend(str(tmp_path / "data"), state=state)) as (_, partition):
        await second.write(partition, b"aborted", b"aborted")
        await first.write(partition, b"aborted")
        await first.end(partition, is_commit=False)
        await second.end(partition, is_commit=False)
        await partition.save_snapshot()
    async with opened(EmbeddedBackend(str(tmp_path / "data"), state=state)) as (_, partition):
        view = partition.view(Isolation.READ_COMMITTED)
        assert [AbortedRange(2, 0)] == [*view.aborted(0, 2)]
        assert [] == await committed_records(partition, 1)


async def test_no_power_loss_undoes_the_end_of_a_transaction() -> None:
    """In a relaxed topic, where it takes what is not synced: the open transaction of the other."""
    fs = SimulatedFs()
    fs.make_directory_durably("/data")
    state = MemoryStateStore()
    backend = EmbeddedBackend("/data", OPTIONS, fs=fs, state=state)
    await backend.open()
    manager = TopicManager(backend, CONFIG, ManualClock())
    topic = await manager.create("orders", 1, {"kgw.durability": "relaxed"})
    partition = topic.partitions[0]
    ended, lost = Producer(1), Producer(2)
    number = 0
    while not backend.unsynced.size_bytes:
        # The first appends of a log have no reservation, and are made durable.
        await ended.write(partition, b"%d" % number)
        number += 1
    await ended.end(partition, is_commit=False)
    unsynced = backend.unsynced
    assert 0 == unsynced.size_bytes
    end_offset = partition.log.end_offset
    await lost.write(partition, b"lost")
    await partition.save_snapshot()
    assert backend.unsynced.size_bytes
    survivor = fs.power_loss(Random(1), CrashMode.NOTHING)
    await backend.abandon()

    backend = EmbeddedBackend("/data", OPTIONS, fs=survivor, state=state)
    async with opened(backend) as (_, partition):
        bounds = partition.view(Isolation.READ_COMMITTED).bounds()
        # What is lost is a gap, and holds nobody back.
        assert bounds.high_watermark == bounds.last_stable_offset >= end_offset
        assert [AbortedRange(1, 0)] == [*partition.view().aborted(0, end_offset)]
        assert [] == await committed_records(partition, 1 << 20)
        assert [1] == partition.producers.ids()
        await ended.write(partition, b"committed")
        await ended.end(partition, is_commit=True)
        (kept,) = await committed_records(partition, 1 << 20)
        assert b"committed" == kept[1]


@pytest.mark.slow
async def test_compaction_removes_what_was_aborted_and_later_its_markers(tmp_path: Path) -> None:
    """In a process of its own, which is told what was aborted; readers keep the same throughout."""
    backend = EmbeddedBackend(str(tmp_path / "data"), state=MemoryStateStore())
    configs = {"cleanup_policy": "compact", "delete_retention_ms": "1000"}
    async with opened(backend, **configs) as (manager, partition):
        producer = Producer(1)
        await producer.write(partition, b"a", b"b")
        await producer.end(partition, is_commit=True)
        await producer.write(partition, b"a", b"c")
        await producer.end(partition, is_commit=False)
        expected = [(0, b"a"), (1, b"b")]
        assert expected == await committed_records(partition, 1)
        clock = ManualClock()
        log = partition.log
        assert isinstance(log, Segmented)

        def raise_bug(error: BaseException) -> None:
            raise error

        compactor = Compactor(manager.catalog, clock, Metrics(), lambda: CONFIG, raise_bug)
        controls: list[int] = []
        for value in (b"d", b"e", b"f"):
            await producer.write(partition, value)
            await producer.end(partition, is_commit=True)
            expected.append((log.end_offset - 2, value))
            await log.roll()
            clock.advance(1)
            now_ms = clock.wall_ms()
            dirtiness = await compactor.measure(partition, now_ms)
            await compactor.compact(partition, dirtiness.upper_bound, now_ms)
            assert not partition.view().aborted(0, log.end_offset)
            assert expected == await committed_records(partition, 1)
            assert expected == await committed_records(partition, 1 << 20)
            controls.append(
                sum([batch.is_control async for batch in log.replay(log.log_start_offset)])
            )
        # The marker of the abort goes in the second run; the others have their records.
        assert [3, 3, 4] == controls
