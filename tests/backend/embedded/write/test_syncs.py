"""Two syncs of one file: the kernel tells an open file of an error once."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.files.durability import sync_file
from kgw.backend.embedded.files.pool import FilePool
from kgw.backend.embedded.read import lookups
from kgw.errors import StorageError
from kgw.testing.batches import make_batch
from tests import patience
from tests.backend.embedded.driver import (
    DIRECT,
    JOURNALED,
    KEY,
    OTHER_KEY,
    ROOT,
    SETTINGS,
    Driver,
    flush_group,
)
from tests.simulated_disk import CrashMode
from tests.simulated_fs import Fault, FaultKind, SimulatedFile, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.write.write_path import DiskAppend

PATH = f"{ROOT}/file"
NEXT_SYNC_FAILS = Fault(FaultKind.EIO, 1, spared=frozenset({"open", "write"}))


def _file(fs: SimulatedFs) -> SimulatedFile:
    file = fs.open(PATH, create=True)
    file.pwrite((b"bytes",), 0)
    return file


def _fs() -> SimulatedFs:
    fs = SimulatedFs()
    fs.make_directory_durably(ROOT)
    return fs


def _fails(sync: Callable[[], None]) -> bool:
    try:
        sync()
    except OSError as error:
        return error.errno == errno.EIO
    return False


def test_each_open_file_is_told_of_an_error() -> None:
    """Also one that was opened after it, while nobody knew; not one that came after that."""
    fs = _fs()
    file, other = _file(fs), fs.open(PATH)
    fs.inject(NEXT_SYNC_FAILS)
    assert _fails(file.fdatasync)
    late = fs.open(PATH)
    assert [True, False] == [_fails(other.fdatasync), _fails(late.fdatasync)]
    assert [False, False] == [_fails(file.fdatasync), _fails(other.fdatasync)]


def test_an_error_nobody_waits_for_is_told_to_the_next_sync_and_lost_with_the_file() -> None:
    """Why a file with unsynced bytes stays open."""
    fs = _fs()
    file = _file(fs)
    fs.fail_write_back(PATH)
    assert [True, False] == [_fails(file.fdatasync), _fails(file.fdatasync)]
    file.pwrite((b"more",), 0)
    fs.fail_write_back(PATH)
    file.close()
    assert not _fails(fs.open(PATH).fdatasync)


def _append_beside_a_failed_sync(driver: Driver) -> DiskAppend:
    """Another sync of the file, such as a checkpoint's, gets the error; nobody knows it yet."""
    driver.append(b"first")
    segment = driver.log().segments[-1]
    append = driver.submit(b"second")

    def fail_another_sync(call: str, path: str) -> None:
        if call == "write" and path == segment.log_path:
            driver.fs.on_operation = None
            driver.fs.inject(NEXT_SYNC_FAILS)
            with pytest.raises(SyncFailedError):
                segment.sync()

    driver.fs.on_operation = fail_another_sync
    flush_group(driver.store.writes)
    return append


def test_an_append_is_not_answered_after_another_sync_of_its_file_has_failed() -> None:
    """Its own sync would succeed, and the record is on no disk."""
    driver = Driver(DIRECT)
    append = _append_beside_a_failed_sync(driver)
    assert append.error is not None
    assert driver.store.directory.failure is not None
    driver.lose_power(CrashMode.NOTHING)
    assert [b"first"] == driver.values()


def test_control_an_append_whose_sync_is_believed_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs that know nothing of each other answer what is on no disk."""
    monkeypatch.setattr(FilePool, "sync", lambda _, pooled: sync_file(pooled.file))
    driver = Driver(DIRECT)
    append = _append_beside_a_failed_sync(driver)
    assert append.error is None
    driver.lose_power(CrashMode.NOTHING)
    assert [b"first"] == driver.values()


def test_no_append_is_answered_after_a_failed_sync_of_the_journal() -> None:
    """Its segment has not been synced, and the frame that vouches for it is on no disk."""
    driver = Driver(JOURNALED)
    keys = (KEY, OTHER_KEY)
    for key in keys:
        driver.append(b"first", key=key)
    appends = [driver.submit(b"second", key=key) for key in keys]
    driver.fs.inject(NEXT_SYNC_FAILS)
    flush_group(driver.store.writes)
    driver.fs.inject(None)
    ((call, path),) = driver.fs.struck
    assert ("fdatasync", True) == (call, path.endswith(".journal"))
    assert all(append.error is not None for append in appends)
    assert [1, 1] == [driver.log(key).offsets.high_watermark for key in keys]
    with pytest.raises(StorageError, match="the data directory has failed"):
        driver.submit(b"third")
    driver.lose_power(CrashMode.NOTHING)
    assert [[b"first"], [b"first"]] == [driver.values(key) for key in keys]


def test_bytes_written_while_a_sync_runs_keep_their_file_open() -> None:
    """A sync that begins in the middle of a write covers a part, also of one that fails."""
    driver = Driver(DIRECT)
    driver.append(b"first")
    pool, segment = driver.store.directory.pool, driver.log().segments[-1]
    batch = make_batch([b"second"])
    for fault in (None, Fault(FaultKind.EIO, 1, spared=frozenset({"open", "fdatasync"}))):
        driver.fs.inject(fault)

        def sync_meanwhile(call: str, _: str) -> None:
            if call == "write":
                driver.fs.on_operation = None
                pooled = pool.acquire(segment.log_path)
                pool.sync(pooled)
                pool.release(pooled)

        driver.fs.on_operation = sync_meanwhile
        with nullcontext() if fault is None else pytest.raises(OSError, match="write failed"):
            segment.write([batch], SETTINGS)
        pooled = pool.acquire(segment.log_path)
        assert pooled.dirty
        pool.sync(pooled)
        pool.release(pooled)


def test_a_failed_sync_is_known_when_the_file_is_opened_again() -> None:
    """The kernel does not tell who opens it after somebody was told."""
    fs = _fs()
    pool = FilePool(fs, 8)
    _file(fs)
    pooled = pool.acquire(PATH)
    fs.inject(NEXT_SYNC_FAILS)
    with pytest.raises(SyncFailedError):
        pool.sync(pooled)
    pool.release(pooled)
    pool.forget(PATH)
    again = pool.acquire(PATH)
    assert again is not pooled
    assert {} == pool.sync_together([again])
    with pytest.raises(SyncFailedError):
        pool.sync(again)


def test_one_thread_syncs_a_file_at_a_time() -> None:
    """The second one begins when it is known what became of the first."""
    fs = _fs()
    pool = FilePool(fs, 8)
    _file(fs)
    pooled = pool.acquire(PATH)
    may_end, has_begun = Event(), Event()
    order: list[str] = []

    def operation(call: str, _: str) -> None:
        if call == "fdatasync" and not has_begun.is_set():
            has_begun.set()
            may_end.wait(patience.seconds(10))
            order.append("first")

    fs.on_operation = operation
    first = Thread(target=pool.sync, args=(pooled,))
    first.start()
    assert has_begun.wait(patience.seconds(10))
    assert {} == pool.sync_together([pooled])

    def sync_too() -> None:
        pool.sync(pooled)
        order.append("second")

    second = Thread(target=sync_too)
    second.start()
    may_end.set()
    first.join()
    second.join()
    assert ["first", "second"] == order


# --- side files, which may be closed with unsynced bytes ------------------------------------------


def _with_side_entries(options: EmbeddedOptions) -> tuple[Driver, list[bytes]]:
    """Return a log whose side entries are half durable and half written, and its records."""
    driver = Driver(options)
    values = [b"%03d" % number * 10 for number in range(60)]
    for number, value in enumerate(values):
        driver.append(value, timestamp_ms=number)
        if number == len(values) // 2:
            driver.checkpoint()
    return driver, values


def test_a_side_file_whose_write_back_failed_fails_the_checkpoint() -> None:
    """Where it is still open its sync, which the checkpoint waits for, tells it; that is final."""
    driver, values = _with_side_entries(DIRECT)
    driver.fs.fail_write_back(driver.segment_path(suffix="checksums"))
    with pytest.raises(StorageError, match="checksums"):
        driver.checkpoint()
    assert not driver.store.writes.is_writable
    assert values == driver.values()
    driver.lose_power()
    assert values == driver.values()


@pytest.mark.slow
@pytest.mark.parametrize("options", [DIRECT, JOURNALED])
@pytest.mark.parametrize("after", ["checkpoint", "stop"])
def test_a_write_back_that_failed_behind_a_closed_side_file_costs_no_record(
    options: EmbeddedOptions, after: str
) -> None:
    """Nobody is told of it, and the checkpoint counts the entries as durable: they are derived.

    What the disk lacks of them is noticed as it is read, and made anew from the batches.
    """
    for seed in range(8):
        driver, values = _with_side_entries(options._replace(open_files=2))
        side_path, pool = driver.segment_path(suffix="checksums"), driver.store.directory.pool
        driver.log().segments[-1].write_side(at_least_bytes=1)
        driver.fs.fail_write_back(side_path)
        for number in range(4):
            pool.release(pool.acquire(f"{ROOT}/{number}", create=True))
        assert pool.acquire_open(side_path) is None
        if after == "stop":
            driver.stop()
        else:
            driver.checkpoint()
        assert driver.store.writes.is_writable
        before = bytes(driver.fs.content(side_path))
        driver.lose_power(CrashMode.RANDOM if seed else CrashMode.NOTHING, seed)
        lacks_some = bytes(driver.fs.content(side_path)) != before
        assert lacks_some or seed
        log = driver.log()
        assert (values, ()) == (driver.values(), log.damaged)
        found = lookups.find_by_time(log, 50, 0, len(values), lambda batch: batch)
        assert found is not None
        assert 50 == found.base_offset
        assert not any(
            "damaged" in one and "rebuilt" not in one for one in driver.store.directory.problems
        )
        driver.append(b"next")
        driver.stop()
        assert [*values, b"next"] == driver.values()
        assert [] == driver.problems()
