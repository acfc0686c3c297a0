from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.topics.manager import TopicManager
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from tests.simulated_disk import CrashMode
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition

OPTIONS = EmbeddedOptions(min_free_bytes=0, reserved_offsets=100, journal_append_bytes=0)


async def _append(partition: Partition, sequence: int) -> int:
    batch = make_batch(
        [b"v"], timestamps_ms=[-1], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    appended = partition.admission.append(batch.buffer)
    return appended.base_offset if appended.result is None else (await appended.result).base_offset


async def test_a_retry_of_a_lost_record_is_not_called_stored() -> None:
    """Neither by a snapshot that knows it, nor by offsets: the producer hears of the loss."""
    fs = SimulatedFs()
    fs.make_directory_durably("/data")
    state = MemoryStateStore()
    config = Config.of(flush_ms=3_600_000)
    backend = EmbeddedBackend("/data", OPTIONS, fs=fs, state=state)
    await backend.open()
    manager = TopicManager(backend, config, ManualClock())
    topic = await manager.create("orders", 1, {})
    partition = topic.partitions[0]
    assert 0 == await _append(partition, 0)
    await manager.configure(topic, lambda _: {"kgw.durability": "relaxed"})
    kept = 1
    while not backend.unsynced.size_bytes:
        kept = await _append(partition, kept)
        kept += 1
    lost = kept - 1
    assert lost + 1 == await _append(partition, lost + 1)
    await partition.save_snapshot()
    survivor = fs.power_loss(Random(1), CrashMode.NOTHING)
    await backend.abandon()

    backend = EmbeddedBackend("/data", OPTIONS, fs=survivor, state=state)
    await backend.open()
    manager = TopicManager(backend, config, ManualClock())
    await manager.open()
    recovered = manager.catalog.topics["orders"]
    partition = recovered.partitions[0]
    assert lost - 1 == await _append(partition, lost - 1)
    with pytest.raises(KafkaError) as refused:
        await _append(partition, lost + 2)
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER == refused.value.code
    assert 100 <= await _append(partition, lost)
    await backend.aclose()
