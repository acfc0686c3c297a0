"""Who writes: the event loop what is small and waits for nothing, a thread all else."""

from __future__ import annotations

import asyncio
import errno
import os
from random import Random
from threading import current_thread
from typing import TYPE_CHECKING, NoReturn

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.failures import SyncNotTriedError
from kgw.backend.embedded.files.kernel_sync import KernelSyncs
from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
from kgw.backend.embedded.write.flusher import TOGETHER_ELSEWHERE_S, TOGETHER_S
from kgw.errors import DiskFullError, StorageError
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from kgw.testing.faults import Fault, FaultKind, SimulatedFs
from kgw.testing.simulated_disk import CrashMode
from tests.backend.embedded.driver import (
    DIRECT,
    JOURNALED,
    KEY,
    OTHER_KEY,
    RELAXED,
    SETTINGS,
    TOPIC,
    Driver,
)
from tests.backend.embedded.flushing import append_first, asleep, open_held, until_due

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.backend.base import PartitionLog
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.write.append import Append
    from kgw.backend.embedded.write.written import Written
    from kgw.clock import Clock
    from kgw.records.batch import RecordBatch

_UNTIMED = RELAXED._replace(flush_interval_ms=3_600_000)


async def test_a_strict_append_is_answered_once_the_kernel_has_synced_it() -> None:
    """Not before: what is written by the loop is shown to nobody until then."""
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    append = log.append([make_batch([b"a"])])
    await until_due(syncs)
    assert (1, 2, False) == (log.high_watermark, log.end_offset, append.is_done)
    syncs.finish()
    assert (2, True, None) == (log.high_watermark, append.is_done, append.error)
    await backend.aclose()
    assert syncs.is_closed


async def test_the_loop_has_the_journal_synced_beside_a_segment() -> None:
    """A group may need both: the segment of a log with unsynced records, the journal for others."""
    fs = SimulatedFs()
    backend, syncs = await open_held(fs)
    settings = _UNTIMED._replace(flush_interval_messages=2)
    behind = await backend.create_partition(KEY, TOPIC, settings)
    strict = await backend.create_partition(OTHER_KEY, TOPIC, SETTINGS)
    await append_first(backend, strict)
    await _reserved(backend, behind)
    await asleep(backend)
    appends = [log.append([make_batch([b"answered"])]) for log in (strict, behind)]
    await until_due(syncs)
    synced = {file.path.rpartition(".")[2] for file in syncs.files}
    syncs.finish()
    assert [(True, None)] * 2 == [(append.is_done, append.error) for append in appends]
    left = Driver(JOURNALED, settings, fs.power_loss(Random(0), CrashMode.NOTHING))
    for log, append in zip((strict, behind), appends, strict=True):
        values = left.values(log.key)
        assert append.result.last_offset + 1 == len(values)
        assert b"answered" == values[-1]
    assert {"log", "journal"} == synced
    await backend.aclose()


async def test_what_comes_during_a_sync_shares_the_next_one() -> None:
    """Each group gathers while the one before it is synced, and answers keep their order."""
    backend, syncs = await open_held()
    logs = [await backend.create_partition(key, TOPIC, SETTINGS) for key in (KEY, OTHER_KEY)]
    for log in logs:
        await append_first(backend, log)
    answered: list[int] = []
    for number in range(5):
        append = logs[number % 2].append([make_batch([b"%d" % number])])
        append.when_done(lambda _, number=number: answered.append(number))  # type: ignore[misc]
        if number == 1:
            await until_due(syncs)
    syncs.finish()
    assert [0, 1] == answered
    syncs.finish()
    assert [0, 1, 2, 3, 4] == answered
    await backend.aclose()


async def test_a_sync_of_the_kernel_that_fails_is_final() -> None:
    """The append fails, nothing is written any more, and no other sync is tried."""
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    append = log.append([make_batch([b"a"])])
    await until_due(syncs)
    syncs.finish(OSError(errno.EIO, "gone"))
    with pytest.raises(StorageError, match="gone"):
        await append
    assert 1 == log.high_watermark
    assert not backend.health.writable
    with pytest.raises(StorageError):
        await log.append([make_batch([b"b"])])
    assert syncs.done is None
    await backend.aclose()


@pytest.mark.parametrize("size", [1, JOURNALED.journal_append_bytes + 1])
async def test_a_kernel_that_takes_no_syncs_is_not_asked_again(size: int) -> None:
    """The group that has been written is synced by the thread, and every one after it.

    Whether the journal is to be synced, or the segment, which the thread may use again.
    """
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    syncs.refusal = OSError(errno.EINVAL, "what is that?")
    for number in range(3):
        assert 1 + number == (await log.append([make_batch([bytes(size)])])).base_offset
    assert syncs.is_closed
    assert any("threads do it" in problem for problem in backend.health.problems)
    await backend.aclose()


async def test_a_group_of_which_another_syncs_a_file_is_left_to_the_thread() -> None:
    """All of its files, those too that the loop had taken already: nobody else would sync them."""
    backend, syncs = await open_held(options=DIRECT)
    logs = [await backend.create_partition(key, TOPIC, SETTINGS) for key in (KEY, OTHER_KEY)]
    for log in logs:
        await append_first(backend, log)
    second = logs[1]
    assert isinstance(second, EmbeddedPartitionLog)
    segment = second._log.segments[-1]
    other = segment.begin_sync()
    assert other is not None
    appends = [log.append([make_batch([b"a"])]) for log in logs]
    for _ in range(5):
        await asyncio.sleep(0)
    assert (None, [False, False]) == (syncs.done, [append.is_done for append in appends])
    segment.end_sync(other, None)
    assert [1, 1] == [(await append).base_offset for append in appends]
    assert () == backend.health.problems
    await backend.aclose()


async def test_other_work_of_the_flusher_waits_for_the_sync_of_the_loop() -> None:
    """One at a time changes segments, whoever that is."""
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    append = log.append([make_batch([b"a"])])
    await until_due(syncs)
    rolled = asyncio.ensure_future(log.roll())  # type: ignore[attr-defined]
    behind = log.append([make_batch([b"b"])])
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not rolled.done()
    syncs.finish()
    await rolled
    assert (1, 2) == ((await append).base_offset, (await behind).base_offset)
    await backend.aclose()


async def _reserved(backend: EmbeddedBackend, log: PartitionLog) -> None:
    assert isinstance(log, EmbeddedPartitionLog)
    while log._log.durable is None:
        await log.append([make_batch([b"x"])])
        await backend.run_in_flusher(int)
    # More may be on its way, when these appends were many.
    while log._log.is_reserving:  # noqa: ASYNC110 - the state of a thread
        await asyncio.sleep(0.001)


async def _relaxed(
    options: EmbeddedOptions = JOURNALED, clock: Clock | None = None
) -> tuple[EmbeddedBackend, PartitionLog, SimulatedFs]:
    fs = SimulatedFs()
    backend = EmbeddedBackend("/data", options, fs=fs, state=MemoryStateStore(), clock=clock)
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, _UNTIMED)
    assert backend._preparing is not None
    await backend._preparing
    await _reserved(backend, log)
    await asleep(backend)
    return backend, log, fs


async def test_a_relaxed_append_that_comes_alone_is_done_when_it_returns() -> None:
    """It waits for nothing, and all else holds by then: shown, announced, cached."""
    backend, log, _ = await _relaxed()
    await asyncio.sleep(0.001)
    announced: list[int] = []
    log.on_advance = lambda end_offset, _: announced.append(end_offset)
    end_offset = log.end_offset
    append = log.append([make_batch([b"a"])])
    assert (True, None) == (append.is_done, append.error)
    assert end_offset == append.result.base_offset
    assert [end_offset + 1] == announced
    hot = log.read_hot(end_offset, 1_000, end_offset + 1)
    assert hot is not None
    assert end_offset + 1 == hot.next_offset
    await backend.aclose()


async def test_relaxed_appends_of_one_turn_are_written_with_one_call() -> None:
    """The first few may go ahead; a hundred calls would cost more than a turn of the loop."""
    backend, log, fs = await _relaxed()
    writes: list[str] = []
    fs.on_operation = lambda call, path: writes.append(path) if call == "write" else None
    batches = [make_batch([b"%d" % number]) for number in range(100)]
    appends = [log.append([batch]) for batch in batches]
    for append in appends:
        await append
    fs.on_operation = None
    assert len([path for path in writes if path.endswith(".log")]) <= 20
    await backend.aclose()


async def test_what_comes_right_behind_a_relaxed_append_waits_for_more() -> None:
    """It was there before, and was looked at meanwhile, however long the one before it took."""
    backend, log, fs = await _relaxed()
    assert backend._flusher is not None
    clock = backend._flusher._clock = ManualClock()
    backend._flusher._last_append_s = clock.monotonic_s() - 1.0
    fs.on_operation = lambda call, _: clock.advance(0.001) if call == "write" else None
    assert log.append([make_batch([b"alone"])]).is_done
    fs.on_operation = None
    clock.advance(TOGETHER_S / 2)
    behind = log.append([make_batch([b"behind"])])
    assert not behind.is_done
    await behind
    clock.advance(TOGETHER_S * 2)
    assert log.append([make_batch([b"later"])]).is_done
    clock.advance(TOGETHER_S * 2)
    # The last one was to another log.
    backend._flusher._last_log = None
    behind = log.append([make_batch([b"elsewhere"])])
    assert not behind.is_done
    await behind
    clock.advance(TOGETHER_ELSEWHERE_S * 2)
    backend._flusher._last_log = None
    assert log.append([make_batch([b"later"])]).is_done
    await backend.aclose()


@pytest.mark.parametrize("what", ["written", "answered"])
async def test_only_a_slow_write_sends_what_follows_to_the_thread(what: str) -> None:
    """The disk has work enough then; an answer that takes long says nothing of it."""
    backend, log, fs = await _relaxed()
    assert backend._flusher is not None
    clock = backend._flusher._clock = ManualClock()
    backend._flusher._last_append_s = clock.monotonic_s() - 1.0
    if what == "written":
        fs.on_operation = lambda call, _: clock.advance(0.02) if call == "write" else None
    else:
        log.on_advance = lambda *_: clock.advance(0.02)
    assert log.append([make_batch([b"slow"])]).is_done
    fs.on_operation = log.on_advance = None
    clock.advance(0.02)
    later = log.append([make_batch([b"later"])])
    assert (what == "answered") == later.is_done
    await later
    await backend.aclose()


async def test_a_large_relaxed_append_is_left_to_the_thread() -> None:
    """The loop has others to serve."""
    backend, log, fs = await _relaxed()
    writers: set[str] = set()
    fs.on_operation = lambda call, _: (
        writers.add(current_thread().name) if call == "write" else None
    )
    await log.append([make_batch([bytes(JOURNALED.quick_bytes)])])
    fs.on_operation = None
    assert {"kgw-flusher"} == writers
    await backend.aclose()


async def test_many_small_appends_are_written_in_the_loop_in_several_turns() -> None:
    """A thread would have to get the interpreter back after each; others are served in between."""
    options = JOURNALED._replace(quick_bytes=4096, journal_append_bytes=1024)
    # Its time stands still: no write is slow, and none comes alone.
    backend, log, fs = await _relaxed(options, ManualClock())
    writers: list[str] = []
    fs.on_operation = lambda call, _: (
        writers.append(current_thread().name) if call == "write" else None
    )
    batch = bytes(options.journal_append_bytes // 2)
    count = 3 * options.quick_bytes // len(batch)
    appends = [log.append([make_batch([batch])]) for _ in range(count)]
    done: set[int] = set()
    while not all(append.is_done for append in appends):
        await asyncio.sleep(0)
        done.add(sum(append.is_done for append in appends))
    fs.on_operation = None
    assert {"MainThread"} == set(writers)
    assert len(done) >= 3
    assert [*range(appends[0].result.base_offset, log.end_offset)] == [
        append.result.base_offset for append in appends
    ]
    await backend.aclose()


async def test_appends_that_are_large_and_many_are_left_to_the_thread() -> None:
    """What costs is their bytes, which are written beside the loop."""
    backend, log, fs = await _relaxed(clock=ManualClock())
    writers: set[str] = set()
    fs.on_operation = lambda call, _: (
        writers.add(current_thread().name) if call == "write" else None
    )
    batches = [make_batch([bytes(JOURNALED.quick_bytes // 2)]) for _ in range(4)]
    await asyncio.gather(*(log.append([batch]) for batch in batches))
    fs.on_operation = None
    assert "kgw-flusher" in writers
    await backend.aclose()


async def _stored(log: PartitionLog, batch: RecordBatch) -> type[Exception] | None:
    """Append a batch; return the kind of error that refused it."""
    try:
        await log.append([batch])
    except StorageError as error:
        return type(error)
    return None


async def test_what_is_kept_free_stays_free_of_small_appends() -> None:
    """The loop counts what it writes: the state store has what is left to itself."""
    fs = SimulatedFs()
    options = JOURNALED._replace(min_free_bytes=1 << 20)
    backend = EmbeddedBackend("/data", options, fs=fs, state=MemoryStateStore())
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, _UNTIMED)
    # The journal's files take room, too.
    assert backend._preparing is not None
    await backend._preparing
    await _reserved(backend, log)
    await asleep(backend)
    fs.capacity_bytes -= fs.free_bytes("/data") - options.min_free_bytes - 2 * options.quick_bytes
    # Written by the thread, which asks the disk.
    await log.append([make_batch([bytes(options.quick_bytes)])])
    await asleep(backend)
    batches = [make_batch([bytes(options.quick_bytes // 10)]) for _ in range(40)]
    outcomes = [await _stored(log, batch) for batch in batches]
    assert DiskFullError in outcomes
    assert fs.free_bytes("/data") >= options.min_free_bytes
    await backend.aclose()


async def test_a_write_in_the_loop_that_fails_gives_its_offset_to_the_next() -> None:
    """As one in the thread; the log goes on."""
    backend, log, fs = await _relaxed()
    await asyncio.sleep(0.001)
    end_offset = log.end_offset
    fs.inject(Fault(FaultKind.ENOSPC, 1))
    append = log.append([make_batch([b"a"])])
    with pytest.raises(StorageError):
        await append
    fs.inject(None)
    assert end_offset == (await log.append([make_batch([b"b"])])).base_offset
    await backend.aclose()


def _note_threads(
    backend: EmbeddedBackend, fs: SimulatedFs, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], set[str]]:
    """Return who writes groups, and who waits for the disk, from now on."""
    writers: list[str] = []
    waiting: set[str] = set()
    write = backend._store.write

    def note(group: list[Append], refusal: StorageError | None) -> Written:
        writers.append(current_thread().name)
        return write(group, refusal)

    def operation(call: str, _: str) -> None:
        if call in {"truncate", "fdatasync"}:
            waiting.add(current_thread().name)

    monkeypatch.setattr(backend._store, "write", note)
    fs.on_operation = operation
    return writers, waiting


async def test_a_write_in_the_loop_that_fails_is_taken_back_by_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To truncate a file and to sync it is to wait, for another who syncs it, too."""
    backend, log, fs = await _relaxed()
    await asyncio.sleep(0.001)
    writers, waiting = _note_threads(backend, fs, monkeypatch)
    fs.inject(Fault(FaultKind.EIO, 1))
    assert await _stored(log, make_batch([b"a"])) is StorageError
    assert (["MainThread"], {"kgw-flusher"}) == (writers, waiting)
    await backend.aclose()


async def test_the_others_of_a_group_are_answered_though_one_write_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread syncs them once it has taken back what failed."""
    fs = SimulatedFs()
    backend, syncs = await open_held(fs)
    logs = [await backend.create_partition(key, TOPIC, SETTINGS) for key in (KEY, OTHER_KEY)]
    for log in logs:
        await append_first(backend, log)
    writers, waiting = _note_threads(backend, fs, monkeypatch)
    fs.inject(Fault(FaultKind.EIO, 1))
    appends = [log.append([make_batch([b"a"])]) for log in logs]
    with pytest.raises(StorageError):
        await appends[0]
    assert 1 == (await appends[1]).base_offset
    assert (["MainThread"], {"kgw-flusher"}) == (writers, waiting)
    assert syncs.done is None
    assert [1, 2] == [log.end_offset for log in logs]
    await backend.aclose()


async def test_the_kernel_syncs_files_and_says_what_went_wrong(tmp_path: Path) -> None:
    """A descriptor that cannot be synced is told apart from one that was."""
    from kgw.backend.embedded.files.real_fs import RealFs

    loop = asyncio.get_running_loop()
    try:
        syncs = KernelSyncs(loop, 4)
    except OSError as error:
        pytest.skip(f"not here: {error}")
    fs = RealFs()
    files = [fs.open(str(tmp_path / name), create=True) for name in "ab"]
    for file in files:
        file.pwrite((b"content",), 0)
    for _ in range(3):
        done: asyncio.Future[list[OSError | None]] = loop.create_future()
        syncs.sync(files, done.set_result)
        assert [None, None] == await done
    os.close(files[1].fileno())
    done = loop.create_future()
    syncs.sync(files, done.set_result)
    outcomes = await done
    assert outcomes[0] is None
    assert isinstance(outcomes[1], OSError)
    with pytest.raises(OSError, match="Bad file descriptor"):
        syncs.sync(files[1:], done.set_result)
    files[0].close()
    syncs.close()


async def test_strict_appends_are_stored_through_the_kernels_syncs(tmp_path: Path) -> None:
    """On a real disk, if the kernel can: everything is there after a start without a clean stop."""
    backend = EmbeddedBackend(tmp_path / "data", JOURNALED)
    await backend.open()
    backend.prepare()
    assert backend._preparing is not None
    await backend._preparing
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    for number in range(50):
        appends = [log.append([make_batch([b"%d-%d" % (number, n)])]) for n in range(3)]
        for append in appends:
            await append
    await backend.abandon()
    await backend.open()
    log = await backend.open_partition(KEY, TOPIC, SETTINGS)
    assert 150 == log.high_watermark
    await backend.aclose()


async def test_what_the_kernel_does_not_take_of_a_set_is_synced_by_the_thread() -> None:
    """Nothing has happened to those files: that they are few, or memory is, breaks no directory."""
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    append = log.append([make_batch([b"a"])])
    await until_due(syncs)
    done, syncs.done = syncs.done, None
    assert done is not None
    done([SyncNotTriedError(errno.EAGAIN, "not that many")] * len(syncs.files))
    assert 1 == (await append).base_offset
    assert syncs.is_closed
    assert backend.health.writable
    assert 2 == (await log.append([make_batch([b"b"])])).base_offset
    await backend.aclose()


async def test_a_checkpoint_waits_for_a_group_that_the_kernel_has_not_synced() -> None:
    """The thread syncs what is written before it does what came later.

    A checkpoint between the two would say that the next record lies behind the group.
    """
    fs = SimulatedFs()
    backend, syncs = await open_held(fs)
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    append = log.append([make_batch([b"a"])])
    await until_due(syncs)
    checkpoint = asyncio.ensure_future(backend.checkpoint())
    await asyncio.sleep(0)
    done, syncs.done = syncs.done, None
    assert done is not None
    done([SyncNotTriedError(errno.EAGAIN, "not that many")] * len(syncs.files))
    await append
    await checkpoint
    for value in (b"b", b"c", b"d"):
        await log.append([make_batch([value])])

    after = EmbeddedBackend("/data", JOURNALED, fs=fs.clone(), state=backend.state)
    await after.open()
    reopened = await after.open_partition(KEY, TOPIC, SETTINGS)
    assert 5 == reopened.high_watermark
    assert [] == [problem for problem in after.health.problems if "damaged" in problem]
    await after.aclose()
    await backend.aclose()


async def test_a_sync_that_failed_beside_one_not_tried_is_final() -> None:
    """No other sync may make the group look durable."""
    backend, syncs = await open_held()
    logs = [await backend.create_partition(key, TOPIC, SETTINGS) for key in (KEY, OTHER_KEY)]
    for log in logs:
        await append_first(backend, log)
    size = JOURNALED.journal_append_bytes + 1
    appends = [log.append([make_batch([bytes(size)])]) for log in logs]
    await until_due(syncs)
    assert 2 == len(syncs.files)
    done, syncs.done = syncs.done, None
    assert done is not None
    done([OSError(errno.EIO, "gone"), SyncNotTriedError(errno.EAGAIN, "not that many")])
    for append in appends:
        with pytest.raises(StorageError, match="gone"):
            await append
    assert not backend.health.writable
    await backend.aclose()


async def test_a_reservation_that_ends_while_the_loop_writes_is_no_fault_of_the_kernel() -> None:
    """The thread syncs what may no longer be answered unsynced, and nobody is told of a problem."""
    backend, log, fs = await _relaxed(clock=ManualClock())
    other = await backend.create_partition(OTHER_KEY, TOPIC, _UNTIMED)
    await _reserved(backend, other)
    await asleep(backend)
    assert isinstance(other, EmbeddedPartitionLog)
    relaxed, other_log = backend._store.relaxed, other._log
    writers: list[str] = []

    def end_reservation(call: str, path: str) -> None:
        if call == "write" and path.endswith(".log"):
            fs.on_operation = None
            writers.append(current_thread().name)
            # As a thread does, some time after the log was strict. If one reserved anew, these
            # appends would be answered unsynced.
            relaxed.reserve_soon = lambda *_: None
            relaxed.reserve(other_log, 0)

    fs.on_operation = end_reservation
    appends = [one.append([make_batch([b"a"])]) for one in (log, other)]
    for append in appends:
        await append
    assert ["MainThread"] == writers
    assert other.end_offset == other_log.durable_end
    assert () == backend.health.problems
    await backend.aclose()


@pytest.mark.parametrize("place", ["sync", "begin_syncs"])
async def test_a_bug_on_the_way_to_the_kernel_leaves_the_group_to_the_thread(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever for a set that was never begun."""
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    monkeypatch.setattr(syncs if place == "sync" else backend._store, place, _broken)
    assert 1 == (await log.append([make_batch([b"a"])])).base_offset
    assert 2 == (await log.append([make_batch([b"b"])])).base_offset
    await backend.aclose()


def _broken(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("place", ["complete_group", "take_quick_group", "settle"])
async def test_a_bug_while_a_group_is_written_or_answered_fails_it(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error for those appends and for all after them; silence for none."""
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    monkeypatch.setattr(backend._store, place, _broken)
    appends = [log.append([make_batch([b"%d" % number])]) for number in range(3)]
    if place != "take_quick_group":
        await until_due(syncs)
        syncs.finish()
    with pytest.raises(StorageError, match="a bug"):
        await appends[0]
    for append in appends[1:]:
        with pytest.raises(StorageError):
            await append
    with pytest.raises(StorageError, match="a bug"):
        await log.append([make_batch([b"c"])])
    assert not backend.health.writable
    monkeypatch.undo()
    await backend.aclose()


async def test_who_fails_to_take_news_of_an_advance_keeps_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The records are stored: they are answered, and the fault is logged."""
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    log.on_advance = _broken
    append = log.append([make_batch([b"a"])])
    await until_due(syncs)
    syncs.finish()
    assert 1 == (await append).base_offset
    assert "told of an advance, it failed" in caplog.text
    assert backend.health.writable
    log.on_advance = None
    await backend.aclose()


async def test_asking_whether_the_disk_has_room_needs_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the loop writes after some megabytes is not written by the thread for that alone."""
    fs = SimulatedFs()
    options = JOURNALED._replace(min_free_bytes=1 << 20)
    clock = ManualClock()
    backend = EmbeddedBackend("/data", options, fs=fs, state=MemoryStateStore(), clock=clock)
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, _UNTIMED)
    await _reserved(backend, log)
    # Written by the thread, which opens the file.
    await log.append([make_batch([b"first"])])
    await asleep(backend)
    by_thread: list[int] = []
    write_group = backend._store.write_group

    def note(group: list[Append]) -> None:
        by_thread.append(len(group))
        write_group(group)

    monkeypatch.setattr(backend._store, "write_group", note)
    batch = bytes(options.quick_bytes // 2)
    for _ in range(20):
        await log.append([make_batch([batch])])
    assert [] == by_thread
    monkeypatch.undo()
    await backend.aclose()


async def test_the_loop_asks_again_whether_the_disk_has_room() -> None:
    """What it has written counts, and after a few megabytes what others have written, too."""
    fs = SimulatedFs()
    options = JOURNALED._replace(min_free_bytes=16 << 20)
    backend = EmbeddedBackend("/data", options, fs=fs, state=MemoryStateStore())
    await backend.open()
    backend.prepare()
    assert backend._preparing is not None
    await backend._preparing
    log = await backend.create_partition(KEY, TOPIC, _UNTIMED)
    await _reserved(backend, log)
    await asleep(backend)
    batch = bytes(JOURNALED.quick_bytes // 2)
    fs.capacity_bytes -= fs.free_bytes("/data") - (12 << 20)
    answers: list[Exception | None] = []
    while len(answers) < 100 and not any(answers):
        append = log.append([make_batch([batch])])
        (outcome,) = await asyncio.gather(append, return_exceptions=True)
        answers.append(outcome if isinstance(outcome, Exception) else None)
    assert isinstance(answers[-1], DiskFullError)
    assert not backend.health.writable
    await backend.aclose()


async def test_a_group_is_ready_to_be_answered_before_the_pen_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread may wait for the pen, and be done with the next group before the loop goes on."""
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    flusher = backend._flusher
    assert flusher is not None
    append = log.append([make_batch([b"a"])])
    await until_due(syncs)
    pen, completed = flusher._pen, flusher._completed
    ready: list[int] = []

    class Watched:
        """A pen that is watched as it is given back."""

        def release(self) -> None:
            ready.append(len(completed))
            pen.release()

    monkeypatch.setattr(flusher, "_pen", Watched())
    syncs.finish()
    monkeypatch.undo()
    await append
    assert [1] == ready
    await backend.aclose()
