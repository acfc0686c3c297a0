from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.append import refused_append
from kgw.backend.memory import MemoryBackend
from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.catalog import TopicCatalog
from kgw.partitions.partition import most_grown
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition


async def _partition(backend: MemoryBackend) -> Partition:
    await backend.open()
    catalog = TopicCatalog(backend, Config.of(), ManualClock())
    return (await catalog.create("orders", 1, {})).partitions[0]


def _records(sequence: int | None = None) -> memoryview:
    if sequence is None:
        return make_batch([b"v"], timestamps_ms=[-1]).buffer
    return make_batch(
        [b"v"], timestamps_ms=[-1], producer_id=7, producer_epoch=0, base_sequence=sequence
    ).buffer


async def test_a_fence_is_lifted_while_others_keep_the_log_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Producers without ids, which never stop, must not keep those with ids out for ever."""
    backend = MemoryBackend()
    partition = await _partition(backend)
    stored = partition.append(_records(0)).result
    assert stored is not None
    await stored
    backend.hold()
    busy = partition.append(_records()).result
    assert busy is not None
    with monkeypatch.context() as failing:
        failed = refused_append(StorageError("full"))
        failing.setattr(type(partition.log), "append", lambda *_: failed)
        partition.append(_records(1))
        with pytest.raises(KafkaError) as refused:
            partition.append(_records(1))
        assert ErrorCode.KAFKA_STORAGE_ERROR == refused.value.code
    for _ in range(20):
        await asyncio.sleep(0)
    assert not busy.is_done
    again = partition.append(_records(1))
    backend.release()
    assert again.result is not None
    assert 2 == (await again.result).base_offset
    assert 1 == (await busy).base_offset
    assert 0 == partition.append(_records(0)).base_offset


class _Grown:
    """A partition, as far as it is asked how much it has grown."""

    def __init__(self, unsaved_bytes: int) -> None:
        self.unsaved_bytes = unsaved_bytes


@pytest.mark.parametrize(
    ("count", "leave_bytes", "expected"),
    [(64, 1, 64), (100, 0, 100), (100, 1000, 90), (100, 10_000, 64), (100, 4999, 64)],
)
def test_snapshots_of_many_partitions_are_of_those_that_have_grown_the_most(
    count: int, leave_bytes: int, expected: int
) -> None:
    """Few are all; of many so many that the others leave no more to replay than they may."""
    partitions = [_Grown(100) for _ in range(count - 1)]
    partitions.insert(50, _Grown(500))
    chosen = most_grown(partitions, leave_bytes)  # type: ignore[arg-type]
    assert expected == len(chosen)
    assert partitions[50] in chosen  # type: ignore[comparison-overlap]


async def test_a_partition_knows_what_it_has_grown_by_since_its_snapshot() -> None:
    """Nothing right after it; all of it where there was none."""
    partition = await _partition(MemoryBackend())
    result = partition.append(_records()).result
    assert result is not None
    await result
    assert partition.log.size_bytes == partition.unsaved_bytes > 0
    await partition.save_snapshot()
    assert 0 == partition.unsaved_bytes
