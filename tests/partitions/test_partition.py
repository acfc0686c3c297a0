from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.append import refused_append
from kgw.backend.memory import MemoryBackend
from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.append.producer_snapshot import decode_snapshot
from kgw.partitions.partition import most_grown
from kgw.partitions.topics.manager import TopicManager
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from tests import patience
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition


async def _partition(backend: MemoryBackend) -> Partition:
    await backend.open()
    manager = TopicManager(backend, Config.of(), ManualClock())
    return (await manager.create("orders", 1, {})).partitions[0]


def _records(sequence: int | None = None, producer_id: int = 7) -> memoryview:
    if sequence is None:
        return make_batch([b"v"], timestamps_ms=[-1]).buffer
    return make_batch(
        [b"v"],
        timestamps_ms=[-1],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    ).buffer


async def test_a_fence_is_lifted_while_others_keep_the_log_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Producers without ids, which never stop, must not keep those with ids out for ever."""
    backend = MemoryBackend()
    partition = await _partition(backend)
    stored = partition.admission.append(_records(0)).result
    assert stored is not None
    await stored
    backend.hold()
    busy = partition.admission.append(_records()).result
    assert busy is not None
    with monkeypatch.context() as failing:
        failed = refused_append(StorageError("full"))
        failing.setattr(type(partition.log), "append", lambda *_: failed)
        partition.admission.append(_records(1))
        with pytest.raises(KafkaError) as refused:
            partition.admission.append(_records(1))
        assert ErrorCode.KAFKA_STORAGE_ERROR == refused.value.code
    await turns(20)
    assert not busy.is_done
    again = partition.admission.append(_records(1))
    backend.release()
    assert again.result is not None
    assert 2 == (await again.result).base_offset
    assert 1 == (await busy).base_offset
    assert 0 == partition.admission.append(_records(0)).base_offset


async def test_a_retry_of_a_batch_in_flight_waits_for_the_very_same_result() -> None:
    """However often it is sent: nothing is added to what there is to be told."""
    backend = MemoryBackend()
    partition = await _partition(backend)
    backend.hold()
    results = [partition.admission.append(_records(0)).result for _ in range(3)]
    backend.release()
    assert results[0] is not None
    assert 0 == (await results[0]).base_offset
    assert [results[0]] * 3 == results
    assert 1 == partition.log.high_watermark


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
    result = partition.admission.append(_records()).result
    assert result is not None
    await result
    assert partition.log.size_bytes == partition.unsaved_bytes > 0
    await partition.save_snapshot()
    assert 0 == partition.unsaved_bytes
    await _append(partition, 0, 1)
    grown_bytes = partition.unsaved_bytes
    assert 0 < grown_bytes < partition.log.size_bytes
    # The next start knows it by what it has replayed.
    await partition.open()
    assert grown_bytes == partition.unsaved_bytes


async def test_a_snapshot_of_few_producers_waits_for_nobody() -> None:
    """Ten thousand partitions of a producer each would take two turns of the loop each."""
    partition = await _partition(MemoryBackend())
    await _append(partition, 0, 1)
    queue = asyncio.Lock()
    async with queue, asyncio.timeout(patience.seconds(10)):
        await partition.save_snapshot(queue)
    assert not partition.is_dirty


async def _begin_snapshot(partition: Partition) -> asyncio.Task[None]:
    """Return a snapshot of which one producer is packed, where that is a turn."""
    saving = asyncio.ensure_future(partition.save_snapshot(packed_per_turn=1))
    await turns(3)
    assert partition.producers.changed is not None
    return saving


MANY = 40
"""Producers whose snapshot is made in turns."""


async def _partition_of_many() -> Partition:
    partition = await _partition(MemoryBackend())
    for producer_id in range(MANY):
        await _append(partition, 0, producer_id)
    return partition


async def _append(partition: Partition, sequence: int, producer_id: int) -> int:
    result = partition.admission.append(_records(sequence, producer_id)).result
    assert result is not None
    return (await result).base_offset


async def test_a_snapshot_made_while_others_write_knows_what_comes_before_it() -> None:
    """All of it, and nothing of what comes after: a relaxed log may lose that."""
    partition = await _partition_of_many()
    saving = await _begin_snapshot(partition)
    for number, (producer_id, sequence) in enumerate([(0, 1), (50, 0), (19, 1)]):
        assert MANY + number == await _append(partition, sequence, producer_id)
    assert not saving.done()
    offset = MANY + 2
    while not saving.done():
        offset = await _append(partition, offset, 51)
    snapshot = await partition.log.load_snapshot()
    assert snapshot is not None
    assert MANY + 3 < snapshot.offset <= offset
    known = [one.entry for one in decode_snapshot(snapshot.data).producers]
    batches = {entry.producer_id: entry.batches for entry in known}
    assert snapshot.offset - 1 == batches.pop(51)[-1].base_offset
    assert [*range(MANY + 3)] == sorted(
        one.base_offset for known in batches.values() for one in known
    )
    assert partition.is_dirty


async def test_a_snapshot_waits_for_the_one_that_is_being_saved() -> None:
    """The later one would end the packing of the first, or be replaced by it."""
    partition = await _partition_of_many()
    first = await _begin_snapshot(partition)
    second = asyncio.ensure_future(partition.save_snapshot())
    await first
    assert not second.done()
    saved = await partition.log.load_snapshot()
    assert saved is not None
    assert MANY == saved.offset
    await second
    assert not partition.is_dirty


async def test_a_partition_that_was_given_up_saves_no_snapshot() -> None:
    """Its next owner may have saved a newer one."""
    partition = await _partition(MemoryBackend())
    await _append(partition, 0, 1)
    await partition.save_snapshot(is_last=True)
    await _append(partition, 1, 1)
    await partition.save_snapshot()
    snapshot = await partition.log.load_snapshot()
    assert snapshot is not None
    assert 1 == snapshot.offset


async def test_a_partition_that_was_given_up_deletes_no_records() -> None:
    """A start would not know the producers of the deleted batches."""
    partition = await _partition(MemoryBackend())
    await _append(partition, 0, 1)
    await partition.save_snapshot(is_last=True)
    await _append(partition, 1, 1)
    with pytest.raises(StorageError, match="is given up to another owner"):
        await partition.delete_before(2)
    assert 0 == partition.log.log_start_offset


async def test_a_last_snapshot_that_is_given_up_while_it_waits_bars_later_ones() -> None:
    """Its partition is released all the same."""
    partition = await _partition_of_many()
    first = await _begin_snapshot(partition)
    last = asyncio.ensure_future(partition.save_snapshot(is_last=True))
    await asyncio.sleep(0)
    last.cancel()
    await first
    await partition.save_snapshot()
    saved = await partition.log.load_snapshot()
    assert saved is not None
    assert MANY == saved.offset


async def test_no_snapshot_is_kept_of_a_state_that_came_into_doubt() -> None:
    """Its producers have been read from the log again; the next one is kept."""
    partition = await _partition_of_many()
    saving = await _begin_snapshot(partition)
    await partition.open()
    await saving
    assert await partition.log.load_snapshot() is None

    await partition.save_snapshot()
    assert await partition.log.load_snapshot() is not None


async def test_no_snapshot_is_kept_of_a_topic_that_went_meanwhile() -> None:
    """Its directory is being removed."""
    partition = await _partition_of_many()
    saving = await _begin_snapshot(partition)
    partition.topic.is_deleted = True
    await saving
    assert await partition.log.load_snapshot() is None
