"""What idempotent producers are told once a sync has failed, until the next start and after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.topics.manager import TopicManager
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from tests.simulated_fs import Fault, FaultKind, SimulatedFs

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition

OPTIONS = EmbeddedOptions(min_free_bytes=0)
SYNC_FAILS = Fault(FaultKind.EIO, 1, spared=frozenset({"open", "write"}))


async def append(partition: Partition, sequence: int) -> int:
    """Append one record of a producer; its offset."""
    batch = make_batch(
        [b"v"], timestamps_ms=[-1], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    appended = partition.admission.append(batch.buffer)
    return appended.base_offset if appended.result is None else (await appended.result).base_offset


async def refusal(partition: Partition, sequence: int) -> ErrorCode:
    """Append one record, which is refused; why."""
    with pytest.raises((KafkaError, StorageError)) as refused:
        await append(partition, sequence)
    assert isinstance(refused.value, KafkaError | StorageError)
    return refused.value.code


@pytest.mark.damages_storage("a sync fails")
async def test_no_gap_is_told_after_a_failed_sync() -> None:
    """What was refused may be there after a start, as here; a new epoch would store it again."""
    fs = SimulatedFs()
    fs.make_directory_durably("/data")
    state = MemoryStateStore()
    backend = EmbeddedBackend("/data", OPTIONS, fs=fs, state=state)
    await backend.open()
    manager = TopicManager(backend, Config.of(), ManualClock())
    topic = await manager.create("orders", 2, {})
    partition, other = (topic.partitions[number] for number in range(2))
    for known in (partition, other):
        assert 0 == await append(known, 0)
    fs.inject(SYNC_FAILS)
    for sequence in (1, 2, 1, 3):
        assert ErrorCode.KAFKA_STORAGE_ERROR is await refusal(partition, sequence)
        assert ErrorCode.KAFKA_STORAGE_ERROR is await refusal(other, sequence)
        for _ in range(10):
            await asyncio.sleep(0)  # for whoever reads the producers' state again
    await backend.abandon()

    backend = EmbeddedBackend("/data", OPTIONS, fs=fs, state=state)
    await backend.open()
    manager = TopicManager(backend, Config.of(), ManualClock())
    await manager.open()
    for number in range(2):
        known = manager.catalog.topics["orders"].partitions[number]
        assert [0, 1, 2, 3] == [await append(known, sequence) for sequence in range(4)]
    await backend.aclose()
