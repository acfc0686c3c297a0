"""What was taken from a log is noticed by what the state knows of its end."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NoReturn

import pytest

from kgw.backend.base import Recompressed
from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.chain import Chain, Settler
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.log.detail import decode_detail
from kgw.backend.seaweedmq.offline.losses import accept_losses, find_losses
from kgw.backend.seaweedmq.offline.opening import state_directory
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.backend.seaweedmq.topics.known_ends import KIND, KnownEnds
from kgw.errors import CorruptionError, StorageError
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import TOPIC
from kgw.state.memory import MemoryStateStore
from kgw.testing.backend_harness import KEY, SETTINGS
from kgw.testing.backend_harness import TOPIC as NAME
from kgw.testing.batches import make_batch, read_stored
from kgw.testing.filer import CallKind, MemoryFiler
from kgw.types import PartitionKey
from tests.backend.seaweedmq.damages import Damaged, without_last_chunk
from tests.backend.seaweedmq.namespaces import (
    ROW,
    Filers,
    fill,
    opened_namespace_state,
    reopened,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kgw.backend.seaweedmq.filer import FilerEntry
    from kgw.backend.seaweedmq.offline.losses import Loss

OTHER = PartitionKey(KEY.topic_id, 1)


def truncate(filers: Filers) -> None:
    """Remove every file of the partition, as `mq.topic.truncate` does."""
    filers.store.directories[filers.partition].clear()


async def losses(filers: Filers, *topics: str, accepts: bool = False) -> list[Loss]:
    """Return what is lost, and have it accepted."""
    namespace = filers.namespace()
    await namespace.filer.open()
    async with aclosing(namespace.filer):
        found = await find_losses(namespace, topics)
        if accepts:
            await accept_losses(namespace, found)
        return found


async def opening(backend: SeaweedMqBackend) -> str:
    """Return why the partition is not opened."""
    await backend.open()
    async with aclosing(backend):
        with pytest.raises(CorruptionError) as refused:
            await backend.open_partition(KEY, NAME, SETTINGS)
        assert KEY not in backend.partitions
        return str(refused.value)


async def test_a_truncated_partition_is_not_begun_anew() -> None:
    """It held records, says the state; the files are back once they are, and nothing else is."""
    filers = Filers()
    before = await fill(filers.backend())
    kept = dict(filers.store.directories[filers.partition])
    truncate(filers)
    said = await opening(filers.backend())
    assert "all files of partition" in said
    assert "the state has it end at 30" in said
    assert [filers.partition in said, "kgw log accept-loss" in said] == [True, True]
    (problem,) = await filers.problems()
    assert "it held records up to offset 30" in problem
    filers.store.directories[filers.partition].update(kept)
    assert before == await reopened(filers.backend())


async def test_a_directory_that_is_gone_is_no_new_partition() -> None:
    """Nor one whose topic's directory is gone: there may be a backup of it."""
    filers = Filers()
    await fill(filers.backend())
    filers.store.delete("/topics/kafka", NAME, is_recursive=True)
    assert f"topic {NAME}: all files of partition" in await opening(filers.backend())
    assert not [one for one in filers.store.directories if one.endswith("/0000-0031")]


async def test_what_was_noted_by_a_checkpoint_outlives_a_kill() -> None:
    """The state knows what was there at the last one."""
    filers = Filers()
    backend = filers.backend()
    await backend.open()
    log = await backend.create_partition(KEY, NAME, SETTINGS)
    await log.append([make_batch([b"a"])])
    await backend.checkpoint()
    await log.append([make_batch([b"b"])])
    await backend.abandon()
    truncate(filers)
    assert "the state has it end at 1" in await opening(filers.backend())


async def test_listings_that_fail_keep_no_end_from_being_noted() -> None:
    """A checkpoint looks for what others have done after that."""
    filers = Filers()
    filer = MemoryFiler(filers.store, filers.clock)
    state = ChainStateStore(filer, filers.clock, state_directory("kafka"))
    backend = SeaweedMqBackend(filer, "kafka", state, None, filers.clock)
    await backend.open()
    log = await backend.create_partition(KEY, NAME, SETTINGS)
    await log.append([make_batch([b"a"])])
    filer.fail_next(CallKind.LIST, times=100)
    with pytest.raises(StorageError):
        await backend.checkpoint()
    await backend.abandon()
    truncate(filers)
    assert "the state has it end at 1" in await opening(filers.backend())


async def test_a_partition_that_never_held_records_is_made_anew() -> None:
    """Nothing is lost: an adopted topic has such."""
    filers = Filers()
    await fill(filers.backend(), count=0)
    truncate(filers)
    backend = filers.backend()
    await backend.open()
    async with aclosing(backend):
        log = await backend.open_partition(KEY, NAME, SETTINGS)
        assert 0 == log.high_watermark
    assert [] == await losses(filers)


async def test_a_topic_of_the_same_name_begins_at_zero() -> None:
    """What is known goes with a deleted partition, at the next checkpoint or stop."""
    filers = Filers()
    await fill(filers.backend())
    backend = filers.backend()
    await backend.open()
    async with aclosing(backend):
        await backend.open_partition(KEY, NAME, SETTINGS)
        assert {str(KEY): b"30"} == await ends_in(backend)
        await backend.delete_partition(KEY)
        await backend.checkpoint()
        assert {} == await ends_in(backend)
        log = await backend.create_partition(KEY, NAME, SETTINGS)
        await log.append([make_batch([b"a"])])
        await backend.checkpoint()
        assert {str(KEY): b"1"} == await ends_in(backend)


async def ends_in(backend: SeaweedMqBackend) -> dict[str, bytes]:
    """Return the rows as they are stored."""
    return {key: row.value for key, row in (await backend.state.load(KIND)).items()}


class _Counting(MemoryStateStore):
    """A store that counts commits."""

    commits = 0

    async def apply(self, changes: Sequence[Change]) -> None:
        self.commits += 1
        await super().apply(changes)


async def test_rows_of_a_topic_that_is_gone_go_with_it() -> None:
    """Whoever deleted it was killed before the next checkpoint."""
    filers = Filers()
    await fill(filers.backend())
    backend = filers.backend()
    await backend.open()
    await backend.open_partition(KEY, NAME, SETTINGS)
    await backend.state.apply([Change(TOPIC, ROW.key, None)])
    await backend.delete_partition(KEY)
    await backend.abandon()
    async with opened_namespace_state(filers) as state:
        assert {str(KEY)} == set(await state.load(KIND))
    backend = filers.backend()
    await backend.open()
    async with aclosing(backend):
        await backend.forget_others()
        await backend.checkpoint()
        assert set() == set(await backend.state.load(KIND))


@pytest.mark.parametrize("left", ["a row", "a directory", "damage"])
async def test_rows_of_a_topic_that_is_not_gone_stay(
    monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """They are all that keeps offsets from being given twice."""
    filers = Filers()
    await fill(filers.backend())
    backend = filers.backend()
    await backend.open()
    if left != "a directory":
        filers.store.delete("/topics/kafka", NAME, is_recursive=True)
    if left != "a row":
        await backend.state.apply([Change(TOPIC, ROW.key, None)])
    async with aclosing(backend):
        with monkeypatch.context() as patch:
            if left == "damage":
                patch.setattr(backend.state, "load", _damaged)
            await backend.forget_others()
        await backend.checkpoint()
    async with opened_namespace_state(filers) as state:
        assert {str(KEY)} == set(await state.load(KIND))


async def _damaged(kind: str) -> NoReturn:
    raise DamagedRowsError(kind, {}, ["damaged"])


async def test_logs_that_have_not_grown_cost_no_commit() -> None:
    """Those that have share one."""
    state = _Counting()
    await state.open()
    ends = KnownEnds(state)
    for known in ({KEY: 5, OTHER: 7}, {KEY: 5, OTHER: 7}, {KEY: 0}, {}):
        await ends.save(known)
    assert 1 == state.commits
    again = KnownEnds(state)
    await again.open()
    await again.save({KEY: 5, OTHER: 7})
    assert 1 == state.commits


class _Unwritten(PartitionKey):
    """A key of which nobody needs the text."""

    def __str__(self) -> str:
        raise AssertionError("it was written")


async def test_logs_that_have_not_grown_cost_no_text() -> None:
    """Each checkpoint has all partitions, and most have not grown."""
    state = MemoryStateStore()
    await state.open()
    first = KnownEnds(state)
    await first.save({KEY: 5, OTHER: 7})
    again = KnownEnds(state)
    await again.open()
    await again.save({_Unwritten(*KEY): 5, _Unwritten(*OTHER): 6})
    assert 5 == again.of(_Unwritten(*KEY))


async def test_a_loss_that_is_accepted_is_behind_the_log() -> None:
    """No offset is given twice; readers of what is left skip what is lost."""
    damaged = Damaged()
    await damaged.begin()
    without_last_chunk(damaged)
    (loss,) = await losses(damaged)
    assert (NAME, 0, 24, 33, None) == (
        loss.topic,
        loss.partition,
        loss.end_offset,
        loss.lost_end,
        loss.obstacle,
    )
    assert [] == await losses(damaged, "another")
    assert await damaged.problems()
    assert [loss] == await losses(damaged, accepts=True)
    assert [] == await losses(damaged)
    assert [] == await damaged.problems()
    backend = damaged.backend()
    await backend.open()
    async with aclosing(backend):
        log = await backend.open_partition(KEY, NAME, SETTINGS)
        assert (0, 33) == (log.log_start_offset, log.high_watermark)
        assert 33 == (await log.append([make_batch([b"z"])])).base_offset
        # Who has read up to 33 learns that what follows is of another epoch.
        assert log.epoch_at(24) > log.epoch_at(23)
        stored = read_stored((await log.read(0, 1 << 20, 34)).buffers)
        assert [*range(24), 33] == [one.offset for one in stored]


async def test_a_log_that_is_lost_as_a_whole_begins_behind_it() -> None:
    """A reader that stands in it is told so, and goes by its own rule."""
    filers = Filers()
    await fill(filers.backend())
    truncate(filers)
    await losses(filers, accepts=True)
    assert [] == await filers.problems()
    backend = filers.backend()
    await backend.open()
    async with aclosing(backend):
        log = await backend.open_partition(KEY, NAME, SETTINGS)
        assert (30, 30) == (log.log_start_offset, log.high_watermark)
        assert 1 == log.leader_epoch
        assert 30 == (await log.append([make_batch([b"z"])])).base_offset


@pytest.mark.parametrize("lost_end", [31, (1 << 31) + 5])
async def test_a_loss_of_any_length_is_accepted(lost_end: int) -> None:
    """Of one record, and of more than one empty batch can stand for."""
    filers = Filers()
    await fill(filers.backend())
    async with opened_namespace_state(filers) as state:
        await state.apply([Change(KIND, str(KEY), b"%d" % lost_end)])
    await losses(filers, accepts=True)
    assert [] == await losses(filers)
    assert [] == await filers.problems()
    backend = filers.backend()
    await backend.open()
    async with aclosing(backend):
        log = await backend.open_partition(KEY, NAME, SETTINGS)
        assert lost_end == (await log.append([make_batch([b"z"])])).base_offset


class _KilledError(StorageError):
    """The command ends here."""


class _Killed(MemoryFiler):
    """A filer whose caller is killed after so many changes."""

    changes_left = 0

    async def create(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        self._count()
        await super().create(directory, entry)

    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        self._count()
        await super().update(directory, entry, expected)

    def _count(self) -> None:
        if not self.changes_left:
            raise _KilledError
        self.changes_left -= 1


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_loss_is_accepted_whole_however_often_the_command_was_killed(
    *, is_whole: bool
) -> None:
    """After each change; no gateway opens the log until it is as it is to be."""
    changes = 0
    while True:
        filers = Filers()
        await fill(filers.backend())
        if is_whole:
            truncate(filers)
        lost_end = 30 if is_whole else (1 << 31) + 35
        async with opened_namespace_state(filers) as state:
            await state.apply([Change(KIND, str(KEY), b"%d" % lost_end)])
        found = await losses(filers)
        assert found
        filer = _Killed(filers.store, filers.clock)
        filer.changes_left = changes
        await filer.open()
        try:
            await accept_losses(filers.namespace()._replace(filer=filer), found)
        except StorageError:
            assert not filer.changes_left
        else:
            break
        if await losses(filers):
            await opening(filers.backend())
            await losses(filers, accepts=True)
        assert [] == await losses(filers)
        assert [] == await filers.problems()
        backend = filers.backend()
        await backend.open()
        async with aclosing(backend):
            log = await backend.open_partition(KEY, NAME, SETTINGS)
            assert (lost_end if is_whole else 0) == log.log_start_offset
            assert 1 <= log.leader_epoch
            assert lost_end == (await log.append([make_batch([b"z"])])).base_offset
            assert log.epoch_at(lost_end) > 0
        changes += 1
    assert 5 < changes


async def test_what_else_is_known_of_a_log_outlives_an_accepted_loss() -> None:
    """How far it is compacted and recompressed, and the time of its last entry."""
    filers = Filers()
    await fill(filers.backend())
    known = Recompressed(10, 200, 100, 20)
    namespace = filers.namespace()
    await namespace.filer.open()
    settler = Settler(namespace.filer, filers.clock, filers.partition)
    chain = await Chain.take_over(settler, str(KEY).encode())
    before = decode_detail(chain.detail)
    later_ns = before.last_ts_ns + 10**18
    await chain.save_detail(
        before._replace(compacted_end=20, recompressed=known, last_ts_ns=later_ns).encode()
    )
    await chain.aclose()
    async with opened_namespace_state(filers) as state:
        await state.apply([Change(KIND, str(KEY), b"40")])
    await losses(filers, accepts=True)
    chain = await Chain.take_over(settler, str(KEY).encode())
    after = decode_detail(chain.detail)
    await chain.aclose()
    assert (20, known) == (after.compacted_end, after.recompressed)
    assert after.last_ts_ns > later_ns


async def test_files_without_a_leader_entry_are_no_loss_to_accept() -> None:
    """They are there, and a backup may have the entry: the obstacle says so, nothing is done."""
    filers = Filers()
    await fill(filers.backend())
    names = filers.store.directories[filers.partition]
    names.pop(LEADER)
    left = dict(names)
    (loss,) = await losses(filers, accepts=True)
    assert "it is gone" in (loss.obstacle or "")
    assert left == names


async def test_rows_that_cannot_be_read_are_told_of() -> None:
    """Less is known then; what can be read holds."""
    state = MemoryStateStore()
    await state.open()
    await state.apply([Change(KIND, str(KEY), b"5"), Change(KIND, str(OTHER), b"?")])
    ends = KnownEnds(state)
    await ends.open()
    assert (5, 0) == (ends.of(KEY), ends.of(OTHER))
    assert str(OTHER) in (ends.damage or "")


async def test_an_end_never_goes_back() -> None:
    """What has been noted holds until the partition is deleted, also while that is being stored."""
    state = MemoryStateStore()
    await state.open()
    ends = KnownEnds(state)
    await ends.save({KEY: 5, OTHER: 0})
    await ends.save({KEY: 4})
    assert 5 == ends.of(KEY)
    assert [b"5"] == [row.value for row in (await state.load(KIND)).values()]
    ends.forget(KEY)
    ends.forget(OTHER)
    for _ in range(2):
        # One of the same key that was created since is not forgotten with the one before.
        await ends.save({KEY: 2})
        assert [b"2"] == [row.value for row in (await state.load(KIND)).values()]
        assert 2 == ends.of(KEY)


class _Failing(MemoryStateStore):
    """A store that takes nothing of this kind."""

    async def apply(self, changes: Sequence[Change]) -> None:
        if any(change.kind == KIND for change in changes):
            raise StorageError("no")
        await super().apply(changes)


async def test_a_state_that_takes_nothing_keeps_no_stop_from_ending(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The logs are left in order all the same, and nothing is known that is not stored."""
    filers = Filers()
    backend = filers.backend()
    backend.state = _Failing()
    await backend.open()
    await backend.state.apply([Change(TOPIC, ROW.key, ROW.encode())])
    log = await backend.create_partition(KEY, NAME, SETTINGS)
    await log.append([make_batch([b"a"])])
    with pytest.raises(StorageError):
        await backend.checkpoint()
    await backend.aclose()
    assert "where the logs end was not noted in the state" in caplog.text
