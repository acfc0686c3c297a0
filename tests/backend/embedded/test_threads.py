"""What the event loop, the flusher and the other threads of a backend do beside each other."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import weakref
from threading import Barrier, Event, Thread
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import LogSettings, Snapshot
from kgw.backend.embedded import partition_log
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.files.durability import replace_all_durably
from kgw.backend.embedded.files.pool import LEAST_DESCRIPTORS
from kgw.backend.embedded.log import log_state
from kgw.backend.embedded.log.journal import FILE_NAMES
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.recover import rebuilding
from kgw.backend.embedded.write.flusher import nothing
from kgw.errors import DataDirectoryError, StorageError
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch, read_stored
from kgw.types import PartitionKey
from tests import patience
from tests.backend.embedded.driver import (
    DIRECT,
    KEY,
    OTHER_KEY,
    RELAXED,
    SETTINGS,
    TOPIC,
    opened,
)
from tests.simulated_fs import Fault, FaultKind, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.backend.base import PartitionLog
    from kgw.backend.embedded.files.fs import FileSystem


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[EmbeddedBackend]:
    """An open backend on a real disk, without a journal, with one thread that reads."""
    async with opened(tmp_path / "data", DIRECT._replace(io_threads=1)) as backend:
        yield backend


@pytest.fixture
async def log(backend: EmbeddedBackend) -> PartitionLog:
    """An empty strict partition."""
    return await backend.create_partition(KEY, TOPIC, SETTINGS)


async def test_nothing_is_kept_of_a_long_task_that_has_ended(backend: EmbeddedBackend) -> None:
    """A server that compacts for months would otherwise fill its memory with ended runs."""

    class Report:
        pass

    async def work() -> Report:
        return Report()

    kept = weakref.ref(await backend.run_until_closed(work()))
    await asyncio.sleep(0)
    gc.collect()
    assert kept() is None


async def test_other_partitions_are_written_while_a_side_file_is_rebuilt(
    backend: EmbeddedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped bit beside an old segment of one must not stop all; who reads it waits once."""
    log = await backend.create_partition(KEY, TOPIC, LogSettings(segment_bytes=200))
    other = await backend.create_partition(OTHER_KEY, TOPIC, SETTINGS)
    for number in range(6):
        await log.append([make_batch([b"%d" % number + b"v" * 100])])
    path = tmp_path / "data/partitions" / str(PartitionKey(*KEY)) / f"{0:020d}.checksums"
    damaged = bytearray(path.read_bytes())
    damaged[3] ^= 1
    path.write_bytes(damaged)
    may_go_on = Event()
    rebuild_side, rebuilds = rebuilding.rebuild_side, 0

    def rebuild_slowly(*arguments: object) -> None:
        nonlocal rebuilds
        rebuilds += 1
        may_go_on.wait()
        rebuild_side(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rebuilding, "rebuild_side", rebuild_slowly)
    reads = [asyncio.ensure_future(log.read(0, 10, 6)) for _ in range(2)]
    while not rebuilds:
        await other.append([make_batch([b"meanwhile"])])
    reads.append(asyncio.ensure_future(log.read(0, 10, 6)))
    await asyncio.sleep(0)
    # Behind it in the only thread that reads: it has found the damage before that is mended.
    await backend.threads.run_in_io(int)
    may_go_on.set()
    for read in await asyncio.gather(*reads):
        assert [0] == [record.offset for record in read_stored(read.buffers)]
    assert 1 == rebuilds


def _hold_notes(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Have the state of logs written only once the event is set."""
    may_go_on = Event()

    def write(fs: FileSystem, contents: dict[str, bytes]) -> None:
        may_go_on.wait()
        replace_all_durably(fs, contents)

    monkeypatch.setattr(log_state, "replace_all_durably", write)
    return may_go_on


async def test_appends_are_answered_while_a_log_start_is_noted(
    backend: EmbeddedBackend, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes three syncs; a thousand partitions from which something is removed take seconds."""
    for value in (b"a", b"b", b"c"):
        await log.append([make_batch([value])])
    may_go_on = _hold_notes(monkeypatch)
    drop = asyncio.ensure_future(log.drop_before(2))
    result = await log.append([make_batch([b"d"])])
    assert 3 == result.base_offset
    assert 0 == log.log_start_offset
    may_go_on.set()
    await drop
    assert 2 == log.log_start_offset


async def test_a_log_start_of_a_partition_that_goes_fails_alone(
    backend: EmbeddedBackend, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is renamed under the hands of the thread that notes it."""
    other = await backend.create_partition(OTHER_KEY, TOPIC, SETTINGS)
    await log.append([make_batch([b"a"])])
    may_go_on = _hold_notes(monkeypatch)
    drop = asyncio.ensure_future(log.drop_before(1))
    await asyncio.sleep(0)
    await backend.delete_partition(KEY)
    may_go_on.set()
    with pytest.raises(StorageError):
        await drop
    assert backend.health.writable
    await other.append([make_batch([b"b"])])


async def _reserved(log: PartitionLog, backend: EmbeddedBackend) -> None:
    """Append until the reservation is there, so that appends are answered before they are durable.

    Each append waits for the flusher's thread, which gives the others their turn.
    """
    while not backend.unsynced.size_bytes:
        await log.append([make_batch([b"x"])])


async def _durable(backend: EmbeddedBackend) -> None:
    while backend.unsynced.size_bytes:
        await backend.threads.run_in_flusher(int)


async def test_the_timer_has_relaxed_logs_synced(backend: EmbeddedBackend) -> None:
    """Without another append, and while strict partitions go on."""
    settings = RELAXED._replace(flush_interval_ms=1)
    relaxed = await backend.create_partition(KEY, TOPIC, settings)
    strict = await backend.create_partition(OTHER_KEY, TOPIC, SETTINGS)
    for _ in range(3):
        await _reserved(relaxed, backend)
        appends = [log.append([make_batch([b"v"])]) for log in (relaxed, strict)]
        await asyncio.gather(*appends)
        await _durable(backend)
    assert 0 == backend.unsynced.size_bytes
    await backend.aclose()
    assert (0, 0.0) == backend.unsynced


@pytest.mark.parametrize("changed", [SETTINGS, RELAXED._replace(flush_interval_ms=1)])
async def test_changed_settings_hold_for_what_is_unsynced(
    backend: EmbeddedBackend, changed: LogSettings
) -> None:
    """Without another append: a topic that became strict does not wait for the old interval."""
    settings = RELAXED._replace(flush_interval_ms=1 << 40)
    log = await backend.create_partition(KEY, TOPIC, settings)
    await _reserved(log, backend)
    assert backend.unsynced.size_bytes
    log.configure(changed)
    await _durable(backend)
    assert not backend.unsynced.size_bytes


async def test_what_is_unsynced_is_counted_and_synced_by_an_orderly_stop(
    backend: EmbeddedBackend,
) -> None:
    """The clean marker vouches for all of it, whatever the interval."""
    settings = RELAXED._replace(flush_interval_ms=3_600_000)
    log = await backend.create_partition(KEY, TOPIC, settings)
    await _reserved(log, backend)
    assert backend.unsynced.size_bytes > 0
    assert backend.unsynced.age_s >= 0
    end_offset = log.high_watermark
    await backend.aclose()
    await backend.open()
    log = await backend.open_partition(KEY, TOPIC, settings)
    assert (0, end_offset, end_offset) == (log.leader_epoch, log.high_watermark, log.end_offset)


async def test_a_flush_that_fails_stops_the_directory(tmp_path: Path) -> None:
    """Readiness turns off, what is at risk is said, and no other round is tried."""
    fs = SimulatedFs()
    backend = EmbeddedBackend("/data", DIRECT, fs=fs, state=MemoryStateStore())
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, RELAXED._replace(flush_interval_ms=60_000))
    await _reserved(log, backend)
    spared = frozenset({"open", "read", "write", "free_bytes", "rename", "sync_directory"})
    fs.inject(Fault(FaultKind.EIO, 1, spared=spared))
    # Due only now: a round that had begun before would have left nothing to fail.
    log.configure(RELAXED._replace(flush_interval_ms=1))
    while backend.health.writable:
        await backend.threads.run_in_flusher(int)
    # Waits for the round: it says what is at risk after it has turned readiness off.
    await backend.aclose()
    problems = "; ".join(backend.health.problems)
    assert "the data directory has failed" in problems
    assert "have been answered and are not durable" in problems
    assert not fs.exists("/data/clean.json")


async def test_a_full_journal_file_does_not_wait_for_long_maintenance(tmp_path: Path) -> None:
    """Until it may be used again each group syncs its segments: a compaction takes minutes."""
    options = EmbeddedOptions(journal_bytes=16 << 10, min_free_bytes=0)
    async with opened(tmp_path / "data", options) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await backend.threads.maintain(nothing)  # behind the making of the journal
        first_file = tmp_path / "data" / "journal" / FILE_NAMES[0]
        end = Event()
        long = asyncio.ensure_future(backend.threads.maintain(end.wait))
        headers: set[bytes] = set()
        # Three frames fill a file, and the other one is full before this one is used again.
        for _ in range(8):
            await log.append([make_batch([b"value"])])
            await backend.threads.note(nothing)
            headers.add(first_file.read_bytes()[:100])
        end.set()
        await long
    assert len(headers) > 1


async def test_a_start_does_not_wait_for_a_new_journal(tmp_path: Path) -> None:
    """Its files are written once everything is open, or a partition is made: commits would wait."""
    async with opened(tmp_path / "data", EmbeddedOptions(journal_bytes=16 << 10)) as backend:
        await backend.threads.maintain(nothing)
        assert not list((tmp_path / "data" / "journal").iterdir())
        backend.prepare()
        backend.prepare()
        await backend.threads.maintain(nothing)
        assert 2 == len(list((tmp_path / "data" / "journal").iterdir()))


@pytest.mark.parametrize("name", ["kgw-io", "kgw-notes", "kgw-flusher"])
async def test_a_start_without_enough_threads_is_refused_and_leaves_nothing_open(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system is asked for all of them at once; the directory can be opened again."""
    start = Thread.start

    def refuse(thread: Thread) -> None:
        if thread.name.startswith(name):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", refuse)
        with pytest.raises(DataDirectoryError, match="not enough threads"):
            await EmbeddedBackend(tmp_path / "data", DIRECT).open()
    async with opened(tmp_path / "data"):
        pass


async def test_a_start_without_enough_descriptors_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is missing, and how to have more."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (LEAST_DESCRIPTORS - 1, 4096))
    with pytest.raises(DataDirectoryError, match="ulimit -n"):
        await EmbeddedBackend(tmp_path / "data", DIRECT).open()


async def test_snapshots_of_several_partitions_are_saved_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes two syncs, and a stop saves one of every partition."""
    both = Barrier(2)
    monkeypatch.setattr(partition_log, "save_snapshot", lambda *_: both.wait(patience.seconds(5)))
    async with opened() as backend:
        logs = [await backend.create_partition(key, TOPIC, SETTINGS) for key in (KEY, OTHER_KEY)]
        await asyncio.gather(*(log.save_snapshot(Snapshot(0, b"state")) for log in logs))


async def test_snapshots_of_one_partition_are_saved_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when the caller of the first is cancelled meanwhile."""
    begun, go_on = Event(), Event()
    steps: list[object] = []

    def save(_: object, snapshot: Snapshot) -> None:
        steps.append(snapshot.data)
        begun.set()
        go_on.wait(patience.seconds(5))
        steps.append(snapshot.data)

    monkeypatch.setattr(partition_log, "save_snapshot", save)
    async with opened() as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        first = asyncio.ensure_future(log.save_snapshot(Snapshot(0, b"first")))
        await asyncio.to_thread(begun.wait, 5)
        first.cancel()
        second = asyncio.ensure_future(log.save_snapshot(Snapshot(0, b"second")))
        await asyncio.wait({first})
        await backend.threads.run_in_io(nothing)
        go_on.set()
        await second
    assert [b"first", b"first", b"second", b"second"] == steps


async def test_a_stop_gives_the_interpreter_its_switch_interval_back() -> None:
    """It is the process's, in which a gateway may be one part."""
    before_s = sys.getswitchinterval()
    async with opened():
        assert before_s != sys.getswitchinterval()
    assert before_s == sys.getswitchinterval()


async def test_what_comes_after_the_end_is_refused(
    backend: EmbeddedBackend, log: PartitionLog
) -> None:
    """Nobody waits for a thread that has ended."""
    await log.append([make_batch([b"a"])])
    await backend.aclose()
    with pytest.raises(StorageError, match="not open"):
        await log.drop_before(1)
    with pytest.raises(StorageError, match="not open"):
        await log.load_snapshot()
