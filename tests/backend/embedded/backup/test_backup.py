"""Backups of a directory: what is in them, what is copied again, and what is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event, current_thread
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.base import CompactionJob, LogSettings, Snapshot
from kgw.backend.embedded import layout
from kgw.backend.embedded.backup import filling, restoring, taking
from kgw.backend.embedded.backup.backup_directory import UNFINISHED_SUFFIX, BackupDirectory
from kgw.backend.embedded.backup.control import SOCKET_NAME
from kgw.backend.embedded.backup.copying import Copier
from kgw.backend.embedded.backup.manifest import (
    MANIFEST_NAME,
    ManifestError,
    decode_manifest,
    encode_manifest,
)
from kgw.backend.embedded.backup.restoring import EPOCHS_SKIPPED
from kgw.backend.embedded.backup.stage import held_stage, noted_as_stopped
from kgw.backend.embedded.backup.taking import Wishes
from kgw.backend.embedded.backup.view import BackupView
from kgw.backend.embedded.files.fs import RealFile, RealFs
from kgw.backend.embedded.log.side import ENTRY_BYTES
from kgw.backend.embedded.offline.check import check_data_dir
from kgw.clock import SystemClock
from kgw.errors import CorruptionError, DataDirectoryError, DiskFullError, StorageError
from kgw.state.base import Change
from kgw.state.kinds import TOPIC as TOPIC_KIND
from kgw.state.kinds import TOPIC_CREATION
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.types import TopicId, format_uuid
from tests import patience
from tests.backend.embedded.backup.site import (
    CLUSTER_ID,
    OPTIONS,
    SETTINGS,
    TOPIC,
    Clock,
    Site,
    key,
    segments_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from kgw.backend.embedded.backup.manifest import Manifest
    from kgw.records.batch import RecordBatch

COPIES = Wishes(is_copied=True)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A served directory with a topic."""
    site = Site(tmp_path)
    await site.create()
    yield site
    await site.backend.aclose()


# --- what is in a backup -------------------------------------------------------------------------


@pytest.mark.parametrize("wishes", [Wishes(), COPIES], ids=["links", "copies"])
async def test_a_restored_directory_has_all_that_was_answered(site: Site, wishes: Wishes) -> None:
    """Records at their offsets, groups where they stood, ids as they were; and it is whole."""
    values = [await site.fill(30, partition=number) for number in range(2)]
    await site.commit("readers", 30)
    taken = await site.take(wishes)
    await site.append(b"too late")
    assert (1, 2, None) == (taken.topics, taken.partitions, taken.parent)
    assert bool(taken.linked_bytes) is (not wishes.is_copied)
    assert [] == await site.verify()

    restored = await site.restore()
    assert [] == await check_data_dir(str(restored.data_dir))
    await restored.open()
    assert values == [await restored.values(number) for number in range(2)]
    stored = await restored.backend.state.load(TOPIC_KIND)
    assert await site.backend.state.load(TOPIC_KIND) == stored
    (committed,) = (await restored.backend.state.load("group-offsets")).values()
    assert b'[[0,30,-1,0,-1,""]]' == committed.value
    assert () == restored.backend.health.problems
    await restored.backend.aclose()


async def test_leader_epochs_and_producer_ids_go_on_where_none_has_been(site: Site) -> None:
    """Clients of the old directory are told that its end is gone, and no id is given twice."""
    await site.fill(3)
    old_epoch = site.log().leader_epoch
    await site.take()
    for _ in range(3):
        await site.append(b"lost")
        await site.backend.abandon()
        await site.open()
    assert old_epoch + 3 == site.log().leader_epoch

    restored = await site.restore()
    await restored.open()
    log = restored.log()
    assert old_epoch + EPOCHS_SKIPPED < log.leader_epoch
    end = log.epoch_end(site.log().leader_epoch)
    assert end is not None
    # Whoever has read more under an epoch of the old directory asks, and is told where it ended.
    assert (old_epoch, 3) == (end.leader_epoch, end.end_offset)
    assert 3 == (await restored.append(b"new")).base_offset
    assert old_epoch == log.epoch_at(2)
    assert log.leader_epoch == log.epoch_at(3)
    assert {} == await restored.backend.state.load("producer-ids")
    await restored.backend.aclose()


async def test_a_stopped_directory_is_backed_up_without_a_server(site: Site) -> None:
    """Its clean checkpoints say where the logs end."""
    values = await site.fill(20)
    await site.backend.aclose()
    await site.take()
    assert [20, 0] == [log.end_offset for log in (await site.manifest()).logs]
    assert values == await site.restored_values()


@pytest.mark.damages_storage("a log is as a crash has left it")
async def test_a_stopped_directory_with_a_log_that_was_not_opened_is_backed_up(site: Site) -> None:
    """Its checkpoint is that of the crash before: the records themselves say where it ends."""
    values = await site.fill(20)
    await site.backend.abandon()
    await site.backend.open()
    await site.backend.aclose()
    await site.take()
    assert [20, 0] == [log.end_offset for log in (await site.manifest()).logs]
    assert values == await site.restored_values()


async def test_a_directory_of_a_killed_server_is_refused_without_one(site: Site) -> None:
    """Its journal may hold what its segments lack: a start mends it first."""
    await site.append(b"value")
    await site.backend.abandon()
    with pytest.raises(DataDirectoryError, match="was not stopped in order"):
        await site.take()
    assert not (site.data_dir / layout.STAGES_DIRECTORY).exists()


async def test_what_is_not_synced_yet_of_a_relaxed_log_is_in_it(site: Site) -> None:
    """It was answered, and read by groups."""
    site.log().configure(LogSettings(is_relaxed=True, flush_interval_ms=1 << 40))
    # The first of them are synced: nothing is answered before offsets are reserved.
    while not site.backend.unsynced.size_bytes:
        values = await site.fill(1)
    await site.take()
    restored = await site.restore()
    await restored.open()
    assert values == await restored.values()
    assert () == restored.backend.health.problems
    await restored.backend.aclose()


async def test_the_state_and_the_logs_are_of_one_instant(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is appended and committed while files are being linked is in neither."""
    await site.fill(3)
    await site.commit("readers", 3)
    link = vars(filling)["write_stage"]
    loop = asyncio.get_running_loop()

    async def go_on() -> None:
        await site.fill(40)
        await site.commit("readers", 43)
        await site.backend.state.apply([Change(TOPIC_KIND, "gone", b"{}")])

    def link_later(*arguments: Any) -> None:
        asyncio.run_coroutine_threadsafe(go_on(), loop).result(patience.seconds(30))
        link(*arguments)

    monkeypatch.setattr(filling, "write_stage", link_later)
    await site.take()
    (segment,) = (await site.manifest()).logs[0].segments
    # An entry for each batch: those in the file, those in memory, and none that came later.
    assert segment.side is not None
    assert 3 * ENTRY_BYTES == segment.side.size_bytes
    restored = await site.restore()
    await restored.open()
    assert 3 == restored.log().high_watermark
    (committed,) = (await restored.backend.state.load("group-offsets")).values()
    assert b'[[0,3,-1,0,-1,""]]' == committed.value
    assert "gone" not in await restored.backend.state.load(TOPIC_KIND)
    await restored.backend.aclose()


async def test_no_commit_comes_between_the_logs_and_the_state(site: Site) -> None:
    """A committed offset may not be newer than the record before it."""
    events: list[str] = []
    committing: list[asyncio.Task[None]] = []

    async def commit() -> None:
        await site.backend.state.apply([Change("a-kind", "key", b"value")])
        events.append("committed")

    async def cut() -> None:
        committing.append(asyncio.create_task(commit()))
        # Each waits for the disk, as the commit does.
        for _ in range(20):
            await site.append(b"value")
        events.append("cut")

    store = site.backend.state
    assert isinstance(store, SqliteStateStore)
    await store.copy_to(str(site.path / "copy.sqlite"), cut)
    await committing[0]
    assert ["cut", "committed"] == events


@pytest.mark.parametrize("delay_ms", [0, 60_000])
async def test_what_is_removed_meanwhile_is_in_it_and_is_gone_then(
    site: Site, monkeypatch: pytest.MonkeyPatch, delay_ms: int
) -> None:
    """Retention, deletion of records and of a whole topic wait for milliseconds."""
    site.log().configure(SETTINGS._replace(delete_delay_ms=delay_ms))
    values = [await site.fill(30, partition=number) for number in range(2)]
    bases = segments_of(site)
    _while_linking(
        site,
        monkeypatch,
        lambda: asyncio.gather(site.log(0).drop_before(25), site.backend.delete_partition(key(1))),
    )
    await site.take()
    assert [one for one in bases if one >= 20][-1] in segments_of(site)
    assert bases[0] not in segments_of(site)
    assert not (site.data_dir / f"partitions/{key(1)}").exists()
    assert not (site.data_dir / f"partitions/{key(1)}.deleted").exists()

    restored = await site.restore()
    await restored.open()
    assert values == [await restored.values(number) for number in range(2)]
    await restored.backend.aclose()


async def test_what_is_removed_while_a_backup_fails_is_gone_all_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its delay, like everything that is removed."""
    site.log().configure(SETTINGS._replace(delete_delay_ms=60_000))
    await site.fill(30)
    later: list[tuple[list[str], int]] = []
    monkeypatch.setattr(site.backend, "remove_later", lambda *one: later.append(one))

    def fail(*_: object) -> None:
        raise StorageError("no links")

    monkeypatch.setattr(filling, "write_stage", fail)
    _while_linking(site, monkeypatch, lambda: site.log().drop_before(25))
    with pytest.raises(DataDirectoryError, match="no links"):
        await site.take()
    ((paths, delay_ms),) = [one for one in later if one[0]]
    assert 60_000 == delay_ms
    directory = site.data_dir / f"partitions/{key(0)}"
    aside = {str(one) for one in directory.iterdir() if one.name.endswith(".deleted")}
    assert aside
    assert aside == set(paths)


async def test_no_append_waits_while_directories_of_deleted_topics_are_removed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones take long."""
    await site.fill(30, partition=1)
    threads: list[str] = []
    remove_tree = RealFs.remove_tree

    def remove(fs: RealFs, path: str) -> None:
        threads.append(current_thread().name)
        remove_tree(fs, path)

    monkeypatch.setattr(RealFs, "remove_tree", remove)
    _while_linking(site, monkeypatch, lambda: site.backend.delete_partition(key(1)))
    await site.take()
    assert ["kgw-io"] == [name.rpartition("_")[0] for name in threads]
    assert not (site.data_dir / f"partitions/{key(1)}.deleted").exists()


async def test_what_compaction_exchanges_meanwhile_is_one_or_the_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exchange waits until each file has its second name."""
    log = site.segmented()
    for number in range(30):
        await log.append([_keyed(b"key", b"%04d" % number + bytes(100))])
    await log.roll()
    records = await site.records()
    compacting: list[asyncio.Task[object]] = []

    async def begin() -> None:
        job = CompactionJob(30, 0, 0)
        compacting.append(asyncio.create_task(log.compact(job)))
        for _ in range(100):
            await asyncio.sleep(0)

    _while_linking(site, monkeypatch, begin)
    await site.take()
    await compacting[0]
    assert len(records) > len(await site.records())
    restored = await site.restore()
    await restored.open()
    assert records == await restored.records()
    await restored.backend.aclose()


async def test_no_segment_is_exchanged_while_files_get_second_names(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name would be another segment's; whoever wants to waits."""
    events: list[str] = []
    exchanging: list[asyncio.Task[None]] = []

    async def begin() -> None:
        exchange = site.backend.threads.run_between_checkpoints(lambda: events.append("exchanged"))
        exchanging.append(asyncio.create_task(exchange))
        # The flusher answers others meanwhile.
        for _ in range(3):
            await site.append(b"value")
        events.append("linking")

    _while_linking(site, monkeypatch, begin)
    await site.take()
    await exchanging[0]
    assert ["linking", "exchanged"] == events


async def test_a_directory_whose_partitions_are_not_open_yet_is_waited_for(site: Site) -> None:
    """A start opens them one by one; one that does not come to an end is told."""
    await site.fill(3)
    await site.backend.aclose()
    await site.backend.open()
    loop = asyncio.get_running_loop()

    def open_them() -> None:
        if site.clock.slept_s > 1:
            for number in range(2):
                opening = site.backend.open_partition(key(number), TOPIC, SETTINGS)
                asyncio.run_coroutine_threadsafe(opening, loop).result(patience.seconds(30))

    with pytest.raises(DataDirectoryError, match="has not opened 2 partitions yet: try again"):
        await site.take()
    site.clock.slept_s = 0
    site.clock.when_sleeping = open_them
    assert 2 == (await site.take()).partitions


async def test_a_server_that_is_starting_is_asked_seldom_and_copies_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more to do then than ever: commits would wait for each copy of the state."""
    await site.fill(3)
    await site.backend.aclose()
    await site.backend.open()
    asked: list[str] = []
    fill_stage = site.backend.fill_stage

    async def fill(stage: str) -> None:
        asked.append(stage)
        await fill_stage(stage)

    async def copy_to(*_: object) -> None:
        raise AssertionError("copied")

    monkeypatch.setattr(site.backend, "fill_stage", fill)
    monkeypatch.setattr(SqliteStateStore, "copy_to", copy_to)
    with pytest.raises(DataDirectoryError, match="has not opened 2 partitions yet: try again"):
        await site.take()
    assert 60 <= site.clock.slept_s < 70
    assert 5 < len(asked) <= 20
    assert not (site.data_dir / layout.STAGES_DIRECTORY).exists()


async def test_a_creation_that_had_just_begun_is_forgotten(site: Site) -> None:
    """Of it there is nothing that a start could undo; one that has logs is left to the start."""
    begun = [format_uuid(bytes([9]) * 16), format_uuid(key(0).topic_id)]
    await site.backend.state.apply([Change(TOPIC_CREATION, one, b"{}") for one in begun])
    await site.take()
    restored = await site.restore()
    await restored.open()
    assert [begun[1]] == list(await restored.backend.state.load(TOPIC_CREATION))
    await restored.backend.aclose()


@pytest.mark.damages_storage("a directory has another one's files")
async def test_directories_of_no_topic_are_told(site: Site) -> None:
    """They are not in it, as no start opens them."""
    shutil.copytree(
        site.data_dir / f"partitions/{key(0)}",
        site.data_dir / f"partitions/{key(0)._replace(topic_id=TopicId(bytes(16)))}",
    )
    await site.backend.aclose()
    await site.open()
    taken = await site.take()
    assert (1, 2) == (taken.unclaimed, taken.partitions)
    await site.backend.aclose()
    taken = await site.take()
    assert (1, 2) == (taken.unclaimed, taken.partitions)


@pytest.mark.parametrize("is_open", [True, False], ids=["just begun", "after a restart"])
async def test_a_growth_that_was_interrupted_keeps_nobody_waiting(
    site: Site, *, is_open: bool
) -> None:
    """Its directories are there before the topic has their partitions; no start opens them."""
    values = await site.fill(3)
    await site.backend.create_partitions([key(2), key(3)], TOPIC, SETTINGS)
    if not is_open:
        await site.backend.abandon()
        await site.open()
    for _ in range(2):
        taken = await site.take()
        assert (2, 2) == (taken.unclaimed, taken.partitions)
        assert 0 == site.clock.slept_s
        # And once more without a server.
        await site.backend.aclose()
    assert [] == await site.verify()
    restored = await site.restore()
    await restored.open()
    assert values == await restored.values()
    assert () == restored.backend.health.problems
    await restored.backend.aclose()


@pytest.mark.damages_storage("a segment cannot be read")
async def test_a_partition_that_cannot_be_opened_is_named_at_once(site: Site) -> None:
    """Nobody waits for it, and a backup without it is none. One that was opened later is in it."""
    await site.fill(3)
    await site.backend.aclose()
    (base,) = segments_of(site)
    path = site.data_dir / f"partitions/{key(0)}/{layout.segment_stem(base)}.log"
    path.rename(site.path / "aside")
    path.mkdir()
    await site.backend.open()
    await site.backend.open_partition(key(1), TOPIC, SETTINGS)
    with pytest.raises(StorageError):
        await site.backend.open_partition(key(0), TOPIC, SETTINGS)
    with pytest.raises(DataDirectoryError, match=f"would lack partition {key(0)}.*directory"):
        await site.take()
    assert 0 == site.clock.slept_s
    path.rmdir()
    (site.path / "aside").rename(path)
    await site.backend.open_partition(key(0), TOPIC, SETTINGS)
    assert 2 == (await site.take()).partitions


# --- what is copied again ------------------------------------------------------------------------


@pytest.mark.parametrize("wishes", [Wishes(), COPIES], ids=["links", "copies"])
async def test_a_second_backup_reads_only_what_is_new(site: Site, wishes: Wishes) -> None:
    """Of sealed segments nothing, of the one that grows its end; each can do without the other."""
    first_values = await site.fill(30)
    first = await site.take(wishes)
    site.clock.read_bytes = 0
    second_values = await site.fill(1)
    second = await site.take(wishes)
    assert first.name == second.parent
    state_bytes = (await site.manifest()).state.size_bytes
    assert second.copied_bytes < state_bytes + 1_000
    assert site.clock.read_bytes < state_bytes + 1_000
    assert site.files(first.name)[3].stat().st_ino == site.files(second.name)[3].stat().st_ino
    assert [] == await site.verify()

    for name, values in ((first.name, first_values), (second.name, second_values)):
        restored = await site.restore(name, to=name)
        await restored.open()
        assert values == await restored.values()
        await restored.backend.aclose()
    assert [first.name] == await asyncio.to_thread(site.place.prune, 1)
    assert [] == await site.verify()
    restored = await site.restore(to="after")
    await restored.open()
    assert second_values == await restored.values()
    await restored.backend.aclose()


async def test_a_snapshot_that_has_not_changed_is_in_the_second_backup_too(site: Site) -> None:
    """It is shared, or copied where there are no hard links; without it the backup is damaged."""
    await site.fill(20)
    await site.log().save_snapshot(_snapshot(12))
    for wishes in (Wishes(), Wishes(), COPIES):
        await site.take(wishes)
        assert [12] == list((await site.manifest()).logs[0].snapshots)
    assert [] == await site.verify()


@pytest.mark.damages_storage("a side file is removed")
async def test_a_side_file_that_is_gone_is_made_of_what_is_in_memory(site: Site) -> None:
    """Its entries are those of batches that the journal has."""
    site.backend.prepare()
    await site.backend.threads.maintain(int)
    await site.append(b"value")
    (path,) = (site.data_dir / layout.PARTITIONS_DIRECTORY / str(key(0))).glob("*.checksums")
    path.unlink()
    await site.take()
    assert [] == await site.verify()
    (segment,) = (await site.manifest()).logs[0].segments
    assert segment.side is not None
    assert ENTRY_BYTES == segment.side.size_bytes


async def test_many_backups_of_a_segment_that_grows(site: Site) -> None:
    """It is kept in pieces, also once it is sealed."""
    for _ in range(5):
        await site.fill(2)
        await site.take(COPIES)
    log = (await site.manifest()).logs[0]
    assert max(len(segment.pieces) for segment in log.segments) > 1
    assert [] == await site.verify()
    restored = await site.restore()
    await restored.open()
    assert await site.values() == await restored.values()
    await restored.backend.aclose()


async def test_a_segment_does_not_become_ever_more_pieces(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each backup links all of them, and each check opens them, one after the other."""
    monkeypatch.setattr(taking, "MOST_PIECES", 3)
    site.log().configure(SETTINGS._replace(segment_bytes=1 << 20))
    pieces: list[int] = []
    for number in range(8):
        await site.append(b"%d" % number)
        await site.take(COPIES)
        if number == 2:
            await site.take(COPIES)  # of one that has not grown nothing is copied again
        pieces.append(len((await site.manifest()).logs[0].segments[0].pieces))
    assert [1, 2, 3, 1, 2, 3, 1, 2] == pieces
    assert [] == await site.verify()

    manifest = await site.manifest()
    view = BackupView(site.place.backup_path(manifest.name), manifest)
    segment = next(iter(site.data_dir.glob(f"partitions/{key(0)}/*.log")))

    def read() -> tuple[int, bytes]:
        file = view.open(f"/partitions/{key(0)}/{segment.name}")
        try:
            before = len(list(Path("/proc/self/fd").iterdir()))
            content = b"".join(file.pread(1, at) for at in range(file.size()))
            assert b"" == file.read_once(1, file.size())
            return len(list(Path("/proc/self/fd").iterdir())) - before, content
        finally:
            file.close()

    assert (1, segment.read_bytes()[: view.file_size(f"/partitions/{key(0)}/{segment.name}")]) == (
        await asyncio.to_thread(read)
    )


async def test_the_newest_backup_is_found_without_reading_all(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name, also among those of one second; one that is damaged does not count."""
    names = []
    for _ in range(12):
        names.append((await site.take()).name)
        site.clock.now_s -= 1
    assert names[-1].endswith("-12")
    decoded: list[str] = []

    def decode(content: bytes) -> Manifest:
        manifest = decode_manifest(content)
        decoded.append(manifest.name)
        return manifest

    monkeypatch.setattr("kgw.backend.embedded.backup.backup_directory.decode_manifest", decode)
    for name in (names[0], names[1]):
        shutil.rmtree(site.place.backup_path(name))
    assert names[-1] == (await site.take()).parent
    assert names[-1:] == decoded
    newest = await site.manifest()
    assert newest.name.endswith("-13")
    (Path(site.place.backup_path(newest.name)) / MANIFEST_NAME).write_bytes(b"")
    assert names[-1] == (await site.manifest()).name


async def test_after_a_crash_the_segment_that_grows_is_copied_as_a_whole(site: Site) -> None:
    """Its end may have been cut and written anew."""
    await site.fill(2)
    await site.take(COPIES)
    await site.backend.abandon()
    await site.open()
    await site.fill(1)
    await site.take(COPIES)
    (segment,) = (await site.manifest()).logs[0].segments
    assert [0] == [piece.position for piece in segment.pieces]


async def test_after_an_orderly_stop_it_goes_on(site: Site) -> None:
    """Nothing was cut."""
    await site.fill(2)
    await site.take(COPIES)
    await site.backend.aclose()
    await site.open()
    await site.fill(1)
    await site.take(COPIES)
    (segment,) = (await site.manifest()).logs[0].segments
    assert 2 == len(segment.pieces)


async def test_a_directory_that_was_set_back_shares_nothing_that_differs(site: Site) -> None:
    """By a snapshot of the file system, say: its files are the same, and have other content."""
    await site.fill(2)
    await site.backend.aclose()
    (path,) = (site.data_dir / f"partitions/{key(0)}").glob("*.log")
    before = path.read_bytes()
    kept = site.path / "kept"
    shutil.copytree(site.data_dir, kept)
    await site.open()
    await site.append(b"one way" + bytes(100))
    await site.take(COPIES)
    await site.backend.aclose()

    for one in kept.rglob("*"):
        if one.is_file() and one.suffix != ".sock":
            (site.data_dir / one.relative_to(kept)).write_bytes(one.read_bytes())
    assert before == path.read_bytes()
    await site.open()
    await site.append(b"another" + bytes(100))
    await site.append(b"and on")
    values = await site.values()
    await site.take(COPIES)
    assert [] == await site.verify()
    assert values == await site.restored_values()


async def test_a_clock_that_goes_back_does_not_make_a_backup_the_oldest(site: Site) -> None:
    """It is the newest: it stays, the next one goes on from it, and it is what is restored."""
    first = await site.take()
    second = await site.take()
    site.clock.now_s -= 3_600
    await site.append(b"value")
    third = await site.take(Wishes(keep=2))
    assert [first.name] == list(third.pruned)
    assert second.name == third.parent
    assert [second.name, third.name] == list(await site.entries())
    assert third.name == (await site.manifest()).name
    # Not even one that is named as the oldest.
    assert [] == await asyncio.to_thread(site.place.prune, 1, second.name)
    fourth = await site.take(Wishes(keep=1))
    assert third.name == fourth.parent
    assert {fourth.name: None} == await site.entries()


async def test_what_an_earlier_backup_has_lost_is_copied_again(site: Site) -> None:
    """A file that is gone; with other content in its place nothing is shared silently."""
    values = await site.fill(30)
    first = await site.take(COPIES)
    gone = next(one for one in site.files(first.name) if one.suffix == ".log")
    gone.unlink()
    await site.take(COPIES)
    assert [f"{gone.relative_to(site.place.path)}: is missing"] == await site.verify()
    assert values == await site.restored_values()


async def test_a_full_backup_shares_nothing(site: Site) -> None:
    """Damage of one is not the other's."""
    await site.fill(30)
    first = await site.take(COPIES)
    second = await site.take(COPIES._replace(is_full=True))
    assert second.parent is None
    shared = {one.stat().st_ino for one in site.files(first.name)} & {
        one.stat().st_ino for one in site.files(second.name)
    }
    assert set() == shared


async def test_files_that_a_backup_shares_are_never_written_again(site: Site) -> None:
    """By appends, a crash, a start, compaction: a link would change with the file."""
    await site.fill(30)
    taken = await site.take()
    before = {one: one.read_bytes() for one in site.files(taken.name)}
    await site.fill(30)
    await site.backend.abandon()
    await site.open()
    await site.segmented().compact(CompactionJob(50, 0, 0))
    await site.fill(10)
    await site.backend.aclose()
    assert before == {one: one.read_bytes() for one in site.files(taken.name)}


async def test_where_there_are_no_hard_links_it_copies(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some file systems of a network."""
    values = await site.fill(30)

    def refuse(target: Path, source: str) -> None:
        if str(target).startswith(site.place.path):
            raise PermissionError(1, "Operation not permitted", str(target))
        os.link(source, target)

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    await site.take()
    second = await site.take()
    assert 0 == second.linked_bytes
    assert values == await site.restored_values()


async def test_a_rate_is_kept(site: Site) -> None:
    """Time is an argument."""
    await site.fill(30)
    taken = await site.take(COPIES._replace(rate=10_000))
    logs_bytes = taken.size_bytes - (await site.manifest()).state.size_bytes
    assert logs_bytes / 10_000 * 0.9 < site.clock.slept_s <= taken.size_bytes / 10_000


# --- what was interrupted ------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [False, True], ids=["interrupted", "killed"])
async def test_an_interrupted_backup_is_no_backup_and_leaves_nothing_for_long(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """Its room is given back at once, or by the next one; the one before it stays."""
    await site.fill(3)
    first = await site.take()
    await site.fill(30)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("kgw.backend.embedded.backup.taking.encode_manifest", interrupt)
        if is_killed:
            patched.setattr("kgw.backend.embedded.backup.taking.rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            await site.take()
    problems = await site.entries()
    assert problems.pop(first.name) is None
    assert ["it was not finished"] * is_killed == list(problems.values())
    assert first.name == (await site.manifest()).name
    assert not (site.data_dir / layout.STAGES_DIRECTORY).exists()
    second = await site.take()
    assert [is_killed] == [bool(second.left_over)]
    assert all(name.endswith(UNFINISHED_SUFFIX) for name in second.left_over)
    assert {first.name: None, second.name: None} == await site.entries()


async def test_a_file_that_is_missing_while_it_is_copied_is_told_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for a server that does not listen yet."""

    def miss(*_: object) -> str:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "a file")

    with monkeypatch.context() as patched:
        patched.setattr(Copier, "copy", miss)
        with pytest.raises(FileNotFoundError, match="a file"):
            await site.take()
    assert 0 == site.clock.slept_s
    assert {} == await site.entries()


async def test_what_a_killed_backup_has_left_in_the_directory_is_removed(site: Site) -> None:
    """Its files take room: by the next backup, and by the next start. One that runs is spared."""
    stages = site.data_dir / layout.STAGES_DIRECTORY

    def leave() -> None:
        (stages / "left").mkdir(parents=True)
        (stages / "left" / "holder.lock").touch()

    await asyncio.to_thread(leave)
    await site.take()
    assert not stages.exists()
    await site.backend.aclose()
    await asyncio.to_thread(leave)
    holding = held_stage(str(site.data_dir))
    held = await asyncio.to_thread(holding.__enter__)
    assert [Path(held)] == list(stages.iterdir())
    await asyncio.to_thread(leave)
    await site.open()
    assert [Path(held)] == list(stages.iterdir())
    await asyncio.to_thread(holding.__exit__, None, None, None)
    assert not stages.exists()


async def test_a_server_waits_for_a_backup_of_its_stopped_directory(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has the lock for as long as it gives files second names: a supervisor may start it."""
    values = await site.fill(3)
    await site.backend.aclose()
    is_waiting, is_filled, events = Event(), Event(), list[str]()
    fill = taking.fill_stopped
    loop = asyncio.get_running_loop()
    starting: list[Future[None]] = []

    def fill_slowly(root: str, stage: str) -> None:
        starting.append(asyncio.run_coroutine_threadsafe(site.open(), loop))
        assert is_waiting.wait(patience.seconds(30))
        fill(root, stage)
        events.append("filled")
        is_filled.set()

    def sleep(_: float) -> None:
        is_waiting.set()
        assert is_filled.wait(patience.seconds(30))

    monkeypatch.setattr(taking, "fill_stopped", fill_slowly)
    monkeypatch.setattr("kgw.backend.embedded.opening.sleep", sleep)
    tools = site.clock.tools._replace(give_way=lambda: events.append("gives way"))
    monkeypatch.setattr(Clock, "tools", tools)
    await site.take()
    await asyncio.wrap_future(starting[0])
    assert ["filled", "gives way"] == events
    assert values == await site.values()


async def test_a_server_waits_for_no_other_server_and_not_for_ever(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that one is being backed up. A backup that holds on to the lock is one, too."""
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    class Time(SystemClock):
        def monotonic_s(self) -> float:
            return now_s

    monkeypatch.setattr("kgw.backend.embedded.opening.sleep", sleep)
    other = type(site.backend)(site.data_dir, OPTIONS, clock=Time())
    with ExitStack() as held:

        async def enter(context: AbstractContextManager[Any]) -> Any:
            return await asyncio.to_thread(held.enter_context, context)

        stage = await enter(held_stage(str(site.data_dir)))
        with pytest.raises(DataDirectoryError, match="in use by another process"):
            await other.open()
        assert 0 == now_s
        await enter(noted_as_stopped(stage))
        with pytest.raises(DataDirectoryError, match="in use by another process"):
            await other.open()
        assert 30 <= now_s < 31
        await asyncio.to_thread(held.close)


async def test_a_server_that_goes_away_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backup is not finished, and nothing of it counts."""
    await site.fill(3)
    fill = filling.fill_stage

    async def stop_first(*arguments: Any) -> None:
        asyncio.get_running_loop().create_task(site.backend.aclose())
        await asyncio.sleep(patience.seconds(30))
        await fill(*arguments)

    monkeypatch.setattr(filling, "fill_stage", stop_first)
    with pytest.raises(DataDirectoryError, match=r"went away|is closed|not open"):
        await site.take()


async def test_a_half_restored_directory_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a server and by the next restore, wherever it was interrupted."""
    await site.fill(3)
    await site.take()

    async def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "finish_state", interrupt)
        with pytest.raises(KeyboardInterrupt):
            await site.restore()
    half = Site(site.path)
    half.data_dir = site.path / "restored"
    half.backend = type(site.backend)(half.data_dir, OPTIONS)
    with pytest.raises(DataDirectoryError, match="is half restored from a backup"):
        await half.open()
    with pytest.raises(DataDirectoryError, match="is half restored: remove it"):
        await site.restore()


@pytest.mark.parametrize("where", ["place", "backup"])
async def test_backups_are_not_served(site: Site, where: str) -> None:
    """A server would write to files that others share."""
    taken = await site.take()
    path = site.place.path if where == "place" else site.place.backup_path(taken.name)
    backend = type(site.backend)(path, OPTIONS)
    with pytest.raises(DataDirectoryError, match="has backups, which are not served"):
        await backend.open()


# --- damage --------------------------------------------------------------------------------------


async def test_a_changed_bit_in_any_file_is_found_and_nothing_is_restored(site: Site) -> None:
    """In each file, the manifest among them."""
    await site.fill(12)
    await site.log().save_snapshot(_snapshot(12))
    taken = await site.take(COPIES)
    files = site.files(taken.name)
    assert {".log", ".checksums", ".state", ".sqlite", ".json"} == {one.suffix for one in files}
    for number, path in enumerate(files):
        content = path.read_bytes()
        if not content:
            continue
        for position in {0, len(content) // 2, len(content) - 1}:
            changed = bytearray(content)
            changed[position] ^= 1 << number % 8
            path.write_bytes(changed)
            (problem,) = await site.verify()
            if path.name == MANIFEST_NAME:
                assert f"{taken.name}: the manifest fails its checksum" == problem
            else:
                name = path.relative_to(site.place.path)
                assert f"{name}: fails its checksum" == problem
            to = f"restored-{number}-{position}"
            with pytest.raises((CorruptionError, DataDirectoryError), match="checksum"):
                await site.restore(taken.name, to=to)
        path.write_bytes(content)
    assert [] == await site.verify()


async def test_files_that_are_missing_short_or_too_many_are_found(site: Site) -> None:
    """By their names."""
    await site.fill(3)
    taken = await site.take(COPIES)
    log = next(one for one in site.files(taken.name) if one.suffix == ".log" and one.stat().st_size)
    content = log.read_bytes()
    name = log.relative_to(site.place.path)
    log.write_bytes(content[:-1])
    assert [f"{name}: has {len(content) - 1} bytes, and had {len(content)}"] == await site.verify()
    with pytest.raises(CorruptionError, match="and had"):
        await site.restore(to="short")
    log.unlink()
    assert [f"{name}: is missing"] == await site.verify()
    log.write_bytes(content)
    (log.parent / "more").touch()
    assert [f"{name.parent}/more: is not in the manifest"] == await site.verify()


@pytest.mark.damages_storage("a log is damaged before it is backed up")
async def test_damage_that_was_there_before_is_found_by_the_logs_own_check(site: Site) -> None:
    """Its checksum in the manifest is right: a batch is not."""
    await site.fill(30)
    bases = segments_of(site)
    path = site.data_dir / f"partitions/{key(0)}/{layout.segment_stem(bases[0])}.log"
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    await site.take(COPIES)
    problems = await site.verify()
    assert 1 == len(problems), problems
    assert "offsets 0 to 0 are damaged" in problems[0]


@pytest.mark.damages_storage("rows of the state are damaged before it is backed up")
@pytest.mark.parametrize("kind", [TOPIC_CREATION, "group-offsets"])
async def test_rows_that_were_damaged_before_are_found(site: Site, kind: str) -> None:
    """Of each kind: a restore, or a start of what it made, would stumble upon them."""
    await site.fill(3)
    await site.commit("readers", 3)
    await site.backend.state.apply([Change(TOPIC_CREATION, format_uuid(bytes(16)), b"{}")])
    await site.backend.aclose()

    def damage() -> None:
        database = sqlite3.connect(site.data_dir / layout.STATE_NAME)
        with closing(database), database:
            changed = "UPDATE state_entry SET checksum = checksum + 1 WHERE kind = ?"
            assert 1 == database.execute(changed, (kind,)).rowcount

    await asyncio.to_thread(damage)
    await site.open()
    taken = await site.take()
    (problem,) = await site.verify()
    assert problem.startswith(f"{taken.name}/{layout.STATE_NAME}: 1 damaged {kind} rows: ")
    if kind == TOPIC_CREATION:
        with pytest.raises(StorageError, match="1 damaged topic-creation rows"):
            await site.restore()
        # It is told before anything long was done.
        assert not list(site.path.glob("restored/partitions/*/*.log"))


@pytest.mark.damages_storage("a partition's directory is lost before it is backed up")
async def test_a_partition_that_a_topic_lacks_is_found(site: Site) -> None:
    """A start of what is restored would make it anew, and empty."""
    await site.fill(3)
    await site.backend.aclose()
    await asyncio.to_thread(shutil.rmtree, site.data_dir / f"partitions/{key(1)}")
    taken = await site.take()
    (problem,) = await site.verify()
    assert problem.startswith(f"{taken.name}/partitions: topic {TOPIC} ")
    assert problem.endswith("has no directory of 1 partitions, the first of them 1")


async def test_every_changed_byte_of_a_manifest_is_found(site: Site) -> None:
    """It has a checksum of its own, as its last line."""
    await site.fill(3)
    await site.take()
    content = encode_manifest(await site.manifest())
    assert (await site.manifest()) == decode_manifest(content)
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0x20
        with pytest.raises(ManifestError):
            decode_manifest(bytes(changed))
    for end in (0, 1, len(content) // 2, len(content) - 1):
        with pytest.raises(ManifestError):
            decode_manifest(content[:end])


# --- refusals ------------------------------------------------------------------------------------


async def test_a_place_within_the_directory_is_refused(site: Site) -> None:
    """Also by a link."""
    link = site.path / "link"
    link.symlink_to(site.data_dir)
    for path in (site.data_dir, site.data_dir / "backups", link / "backups"):
        site.place = BackupDirectory(str(path))
        with pytest.raises(DataDirectoryError, match="is within"):
            await site.take()


async def test_a_place_of_something_else_is_refused(site: Site) -> None:
    """Nothing is put beside files that are no backups."""
    other = Path(site.place.path)
    other.mkdir()
    (other / "letters").mkdir()
    with pytest.raises(DataDirectoryError, match=r"is not empty, and no place of backups.*letters"):
        await site.take()


async def test_a_place_whose_note_cannot_be_read_is_refused(site: Site) -> None:
    """It is not known whose backups are there; the path is named."""
    (Path(site.place.path) / "kgw-backups.json").mkdir(parents=True)
    with pytest.raises(DataDirectoryError, match=r"kgw-backups\.json: Is a directory"):
        site.place.cluster_id()


async def test_a_place_of_another_cluster_is_refused(site: Site) -> None:
    """Each cluster has its own."""
    Path(site.place.path).mkdir()
    await asyncio.to_thread(site.place.begin, "another")
    with pytest.raises(
        DataDirectoryError, match=f"has backups of cluster another, not of {CLUSTER_ID}"
    ):
        await site.take()


async def test_a_place_without_room_is_refused_before_anything_is_copied(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is filled to the end by a backup serves nobody."""
    await site.fill(3)
    monkeypatch.setattr(RealFs, "free_bytes", lambda *_: 100)
    with pytest.raises(DiskFullError, match="has room for 100 bytes, and the backup takes"):
        await site.take()
    assert {} == await site.entries()
    monkeypatch.undo()
    await site.take()
    monkeypatch.setattr(RealFs, "free_bytes", lambda *_: 100)
    with pytest.raises(DiskFullError, match="has room for 100 bytes, and the backup has"):
        await site.restore()


@pytest.mark.parametrize("is_served", [True, False], ids=["served", "stopped"])
async def test_what_the_server_keeps_free_stays_free(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, is_served: bool
) -> None:
    """On its own file system: below it producers are refused."""
    await site.backend.aclose()
    options = OPTIONS._replace(min_free_bytes=64 << 20)
    site.backend = type(site.backend)(site.data_dir, options)
    await site.open()
    await site.fill(3)
    if not is_served:
        await site.backend.aclose()
    monkeypatch.setattr(RealFs, "free_bytes", lambda *_: 64 << 20)
    with pytest.raises(DiskFullError, match="its server keeps 67108864 free"):
        await site.take(COPIES)
    assert {} == await site.entries()
    monkeypatch.setattr(RealFs, "free_bytes", lambda *_: 65 << 20)
    await site.take(COPIES)


async def test_the_name_of_a_new_place_is_durable(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With those above it that are made: a power loss would take all backups with one of them."""
    synced: list[str] = []
    sync_directory = RealFs.sync_directory

    def sync(fs: RealFs, path: str) -> None:
        synced.append(path)
        sync_directory(fs, path)

    monkeypatch.setattr(RealFs, "sync_directory", sync)
    site.place = BackupDirectory(str(site.path / "above" / "place"))
    await site.take()
    assert {str(site.path), str(site.path / "above")} <= set(synced)
    assert 0o700 == Path(site.place.path).stat().st_mode & 0o777


async def test_two_backups_to_one_place_do_not_meet(site: Site) -> None:
    """The second one is refused while the first is made."""
    await site.take()
    with (
        site.place.locked(),
        pytest.raises(DataDirectoryError, match="is in use by another backup"),
    ):
        await site.take()


async def test_a_directory_whose_state_is_elsewhere_is_refused(site: Site) -> None:
    """Its records alone would be no backup."""
    await site.backend.aclose()
    (site.data_dir / layout.STATE_PLACE_NAME).write_bytes(
        layout.encode_small({"url": "postgresql://somewhere/kgw", "identity": "x"})
    )
    with pytest.raises(DataDirectoryError, match="is in postgresql://somewhere/kgw"):
        await site.take()


async def test_a_state_in_memory_is_refused(site: Site) -> None:
    """By the server, in words that the backup passes on."""
    from kgw.state.memory import MemoryStateStore

    site.backend.state, state = MemoryStateStore(), site.backend.state
    with pytest.raises(DataDirectoryError, match="is not in the directory"):
        await site.take()
    site.backend.state = state


async def test_a_directory_into_which_records_were_copied_is_refused_with_what_to_do(
    site: Site,
) -> None:
    """It was not stopped by a server, which has never been there."""
    await site.backend.aclose()
    (site.data_dir / layout.CLEAN_NAME).rename(site.data_dir / layout.COPIED_NAME)
    with pytest.raises(DataDirectoryError, match=r"since records were copied.*start and stop one"):
        await site.take()
    await site.open()
    await site.backend.aclose()
    assert 2 == (await site.take()).partitions


@pytest.mark.damages_storage("a disk fails")
async def test_a_server_whose_disk_has_failed_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were refused may be in its segments; a start takes care of them."""
    values = await site.fill(3)

    def fail(_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(RealFile, "fdatasync", fail)
        with pytest.raises(StorageError):
            await site.append(b"refused")
    with pytest.raises(DataDirectoryError, match=r"nothing is written.*start the server again"):
        await site.take()
    assert not (site.data_dir / layout.STAGES_DIRECTORY).exists()
    await site.backend.aclose()
    await site.open()
    await site.take()
    restored = await site.restore()
    await restored.open()
    assert values == (await restored.values())[: len(values)]
    await restored.backend.aclose()


async def test_what_is_no_data_directory_is_refused(site: Site) -> None:
    """Nor is a place without backups one."""
    await site.backend.aclose()
    site.data_dir, data_dir = site.path / "nothing", site.data_dir
    with pytest.raises(DataDirectoryError, match=r"is not a data directory: no format\.json"):
        await site.take()
    site.data_dir = data_dir
    with pytest.raises(DataDirectoryError, match="is no place of backups"):
        await site.entries()
    await site.take()
    with pytest.raises(DataDirectoryError, match="has no backup 2026"):
        await site.manifest("2026")


async def test_a_restore_spares_what_is_there(site: Site) -> None:
    """Only an empty directory is taken, and none within the place."""
    await site.take()
    (site.path / "restored").mkdir()
    (site.path / "restored" / "file").touch()
    with pytest.raises(DataDirectoryError, match="is not empty: it has file"):
        await site.restore()
    with pytest.raises(DataDirectoryError, match="is within"):
        await site.restore(to="place/here")
    (site.path / "restored" / "file").unlink()
    await site.restore()


@pytest.mark.parametrize("byte", [0, 20])
async def test_a_damaged_note_of_the_place_is_told(site: Site, byte: int) -> None:
    """It says whose backups these are."""
    await site.take()
    path = Path(site.place.path) / "kgw-backups.json"
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataDirectoryError, match="is damaged"):
        await site.take()


# --- the socket ----------------------------------------------------------------------------------


async def test_a_long_path_has_a_socket(tmp_path: Path) -> None:
    """An address has room for 107 bytes; directories of tests and containers are longer."""
    site = Site(tmp_path / ("long" * 30))
    await site.create()
    await site.append(b"value")
    await site.take()
    await site.backend.aclose()
    assert not (site.data_dir / SOCKET_NAME).exists()


async def test_a_file_system_without_sockets_serves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup says why there is none."""
    import socket

    class NoSockets(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(1, "Operation not permitted")

    site = Site(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("kgw.backend.embedded.backup.control.socket.socket", NoSockets)
        await site.create()
    with pytest.raises(DataDirectoryError, match="which does not answer"):
        await site.take()
    await site.backend.aclose()


@pytest.mark.parametrize("request_line", [b"\n", b"[]\n", b'{"stage": ".."}\n', b"\xff\n", b""])
async def test_what_is_no_request_harms_nobody(site: Site, request_line: bytes) -> None:
    """Nothing outside of stages is touched."""
    path = f"{site.data_dir}/{SOCKET_NAME}"
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request_line)
    writer.write_eof()
    answer = await reader.readline()
    assert b'"error": "' in answer
    writer.close()
    await site.append(b"goes on")
    await site.take()


def _while_linking(site: Site, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Have something done between the instant of the backup and the second names of files."""
    link = vars(filling)["write_stage"]
    loop = asyncio.get_running_loop()

    async def run() -> None:
        await work()  # type: ignore[misc]

    def link_later(*arguments: Any) -> None:
        asyncio.run_coroutine_threadsafe(run(), loop).result(patience.seconds(30))
        link(*arguments)

    monkeypatch.setattr(filling, "write_stage", link_later)


def _keyed(record_key: bytes, value: bytes) -> RecordBatch:
    from kgw.testing.batches import make_batch

    return make_batch([value], keys=[record_key])


def _snapshot(offset: int) -> Snapshot:
    return Snapshot(offset, b"what producers have")
