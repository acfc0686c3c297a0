from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.store import CheckpointPlan, Store
from kgw.errors import StorageError
from kgw.offsets.recovery import Checkpoint
from kgw.offsets.storage import CHECKPOINT_KIND, OffsetStorage
from kgw.state.base import Change, Row
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch
from kgw.types import PartitionKey, TopicId
from tests.backend.embedded.driver import KEY, OTHER_KEY, ROOT, SETTINGS, TOPIC, opened
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kgw.state.base import Row

GONE_KEY = PartitionKey(TopicId(bytes([9] * 16)), 0)
OPTIONS = EmbeddedOptions(min_free_bytes=0, journal_bytes=64 << 10)


async def test_a_checkpoint_by_size_comes_after_the_snapshots() -> None:
    """What the next start need not scan it need not replay either."""
    known: list[int] = []
    async with opened(options=OPTIONS._replace(checkpoint_bytes=5_000)) as backend:

        async def before_checkpoint() -> None:
            known.append(len(await backend.state.load(CHECKPOINT_KIND)))

        backend.before_checkpoint = before_checkpoint
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await log.append([make_batch([b"x" * 4_000])])
        await asyncio.sleep(0)
        assert [] == known
        await log.append([make_batch([b"x" * 4_000])])
        while not await backend.state.load(CHECKPOINT_KIND):
            await asyncio.to_thread(int)
    assert [0] == known


class NotingState(MemoryStateStore):
    """Notes that it is closed; it cannot be read while it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []
        self.is_failing = False

    async def load(self, kind: str) -> dict[str, Row]:
        if self.is_failing:
            raise StorageError("cannot be read")
        return await super().load(kind)

    async def aclose(self) -> None:
        self.steps.append("closed")


async def test_closing_waits_for_the_snapshots_before_a_checkpoint() -> None:
    """Whoever makes them has the state until then."""
    options = OPTIONS._replace(checkpoint_bytes=1_000)
    state = NotingState()
    backend = EmbeddedBackend(ROOT, options, fs=SimulatedFs(), state=state)
    await backend.open()
    has_begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def before_checkpoint() -> None:
        has_begun.set()
        await may_go_on.wait()
        state.steps.append("snapshots")

    backend.before_checkpoint = before_checkpoint
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await log.append([make_batch([b"x" * 4_000])])
    await has_begun.wait()
    closing = asyncio.ensure_future(backend.aclose())
    # More turns of the loop and of threads than closing has.
    for _ in range(100):
        await asyncio.to_thread(int)
    may_go_on.set()
    await closing
    assert ["snapshots", "closed"] == state.steps[:2]


async def test_a_start_that_cannot_read_its_checkpoints_lets_go_of_the_state() -> None:
    """Its database is closed, and the next try finds nothing in use."""
    state = NotingState()
    backend = EmbeddedBackend(ROOT, OPTIONS, fs=SimulatedFs(), state=state)
    state.is_failing = True
    with pytest.raises(StorageError, match="cannot be read"):
        await backend.open()
    assert ["closed"] == state.steps
    state.is_failing = False
    await backend.open()
    await backend.aclose()


def checkpoint(key: PartitionKey) -> Checkpoint:
    """Return a checkpoint at offset 7."""
    return Checkpoint(key.topic_id, key.partition, 0, 7, 0, 0, 0)


async def test_checkpoints_of_what_is_gone_are_removed(tmp_path: Path) -> None:
    """A crash, or a checkpoint made while a topic was deleted, may leave them behind."""
    backend = EmbeddedBackend(tmp_path / "data", OPTIONS)
    await backend.open()
    await backend.create_partition(KEY, TOPIC, SETTINGS)
    await backend.create_partition(OTHER_KEY, TOPIC, SETTINGS)
    storage = OffsetStorage(backend.state)
    await storage.save([checkpoint(GONE_KEY)])
    await backend.state.apply([Change(CHECKPOINT_KIND, "no partition's key", b"{}")])
    await backend.aclose()

    await backend.open()
    await backend.open_partition(KEY, TOPIC, SETTINGS)
    assert any("belongs to no partition" in problem for problem in backend.health.problems)
    await backend.forget_others()
    # Nobody has opened the other one: it may wait for adoption.
    kept = await OffsetStorage(backend.state).load()
    await backend.aclose()

    assert {KEY, OTHER_KEY} == set(kept.checkpoints)
    assert () == kept.unreadable_keys


@pytest.mark.damages_storage("a log is removed")
async def test_the_checkpoint_of_a_lost_log_is_kept(tmp_path: Path) -> None:
    """It is all that keeps its offsets from coming back."""
    async with opened(tmp_path / "data", OPTIONS) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await log.append([make_batch([b"x"] * 7)])
    await asyncio.to_thread(shutil.rmtree, tmp_path / "data" / "partitions" / str(KEY))

    for _ in range(2):
        async with opened(tmp_path / "data", OPTIONS) as backend:
            log = await backend.open_partition(KEY, TOPIC, SETTINGS)
            await backend.forget_others()
            assert 7 == log.end_offset


async def test_a_checkpoint_does_not_outlive_its_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is deleted while its checkpoint is made gets no row any more."""
    async with opened() as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await log.append([make_batch([b"x"])])
        real = Store.finish_checkpoint
        loop = asyncio.get_running_loop()

        def finish(store: Store, plan: CheckpointPlan) -> list[Checkpoint]:
            asyncio.run_coroutine_threadsafe(backend.delete_partition(KEY), loop).result()
            return real(store, plan)

        with monkeypatch.context() as deleting:
            deleting.setattr(Store, "finish_checkpoint", finish)
            await backend.checkpoint()
        assert {} == await backend.state.load(CHECKPOINT_KIND)


@pytest.mark.parametrize("ending", [StorageError, asyncio.CancelledError])
async def test_a_checkpoint_that_fails_leaves_nothing_behind(
    ending: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other rows are not written behind its back, and the next one notes all logs."""
    keys = {PartitionKey(KEY.topic_id, number) for number in range(3)}
    begun: list[Change] = []

    async def apply(changes: Sequence[Change]) -> None:
        begun.extend(changes)
        raise ending

    async with opened(options=OPTIONS._replace(checkpoints_per_turn=1)) as backend:
        for key in keys:
            log = await backend.create_partition(key, TOPIC, SETTINGS)
            await log.append([make_batch([b"x"])])
        with monkeypatch.context() as failing:
            failing.setattr(backend.state, "apply", apply)
            with pytest.raises(ending):
                await backend.checkpoint()
        assert 1 == len(begun)

        await backend.checkpoint()
        assert keys == set((await OffsetStorage(backend.state).load()).checkpoints)


async def test_a_database_that_changed_since_the_stop_is_not_trusted(tmp_path: Path) -> None:
    """A flipped bit in it would pass otherwise: its pages have no checksum of their own."""
    async with opened(tmp_path / "data", OPTIONS) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await log.append([make_batch([b"x"])])
    await asyncio.to_thread(flip_last_byte, tmp_path / "data" / "meta.sqlite")

    for is_changed in (True, False):
        async with opened(tmp_path / "data", OPTIONS) as backend:
            log = await backend.open_partition(KEY, TOPIC, SETTINGS)
            told = [one for one in backend.health.problems if "not as the last stop left" in one]
            assert (is_changed, 1, 1) == (bool(told), log.high_watermark, log.leader_epoch)


def flip_last_byte(path: Path) -> None:
    """Flip a bit that holds nothing, at the end of a page with room in it."""
    content = bytearray(path.read_bytes())
    place = content.rindex(bytes(64))
    content[place] ^= 1
    path.write_bytes(content)


async def test_disagreements_are_counted(tmp_path: Path) -> None:
    """A checkpoint ahead of its log is told by its kind; what every kill leaves behind is not."""
    async with opened(tmp_path / "data", OPTIONS) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await log.append([make_batch([b"x" * 400])])
        assert 0 == sum(backend.recovery_anomalies.values())
    (segment,) = (tmp_path / "data").rglob("*.log")
    segment.write_bytes(b"")
    async with opened(tmp_path / "data", OPTIONS) as backend:
        await backend.open_partition(KEY, TOPIC, SETTINGS)
        assert 1 == backend.recovery_anomalies["checkpoint-ahead"]
        assert "checkpoint-missing" not in backend.recovery_anomalies


async def test_a_bug_keeps_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a stop comes across, threads end and the directory can be opened again."""
    backend = EmbeddedBackend(tmp_path / "data", OPTIONS._replace(checkpoint_bytes=1_000))
    await backend.open()

    async def before_checkpoint() -> None:
        raise ZeroDivisionError("a first bug")

    def prepare_journal(_: Store) -> None:
        raise ZeroDivisionError("a second bug")

    backend.before_checkpoint = before_checkpoint
    monkeypatch.setattr(Store, "prepare_journal", prepare_journal)
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await log.append([make_batch([b"x" * 4_000])])
    with pytest.raises(ZeroDivisionError, match="a second bug"):
        await backend.aclose()
    assert any("a first bug" in one for one in backend.health.problems)
    with pytest.raises(StorageError, match="not open"):
        await backend.threads.run_in_flusher(int)
    monkeypatch.undo()
    async with opened(tmp_path / "data", OPTIONS) as again:
        assert 1 == (await again.open_partition(KEY, TOPIC, SETTINGS)).end_offset
