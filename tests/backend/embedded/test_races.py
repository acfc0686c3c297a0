from __future__ import annotations

import sys
from functools import partial
from inspect import getsourcelines
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.embedded.files.pool import FilePool
from kgw.backend.embedded.log.segment import Segment, SegmentMark, SideFileDamagedError
from kgw.backend.embedded.log.side import ENTRY_BYTES
from kgw.backend.embedded.read import lookups
from kgw.backend.embedded.recover.rebuilding import rebuild_side
from kgw.backend.embedded.write.write_path import Retirement
from kgw.testing.batches import make_batch
from tests.backend.embedded.driver import (
    DIRECT,
    JOURNALED,
    KEY,
    OTHER_KEY,
    SETTINGS,
    Driver,
    flush_group,
)
from tests.simulated_disk import CrashMode
from tests.simulated_fs import Fault, FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable


def _deleting(driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the flusher delete the partition when somebody is about to open one of its files."""
    acquire = FilePool.acquire

    def delete_first(pool: FilePool, wanted: str, *, create: bool = False) -> object:
        if wanted == path:
            monkeypatch.setattr(FilePool, "acquire", acquire)
            driver.store.remove_log(KEY, driver.store.retire_log(KEY))
        return acquire(pool, wanted, create=create)

    monkeypatch.setattr(FilePool, "acquire", delete_first)


def test_a_deletion_meets_the_retirement_of_a_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that disappears before its sync needs none, and fails nothing."""
    driver = Driver(JOURNALED)
    driver.append(b"kept", key=OTHER_KEY)
    driver.append(b"deleted")
    segment = driver.log().segments[-1]
    number = driver.store.writes.journal.switch()
    _deleting(driver, segment.log_path, monkeypatch)
    driver.store.writes.journaled.retire(Retirement(number, [segment]))
    assert driver.store.directory.failure is None
    assert driver.store.writes.journal.has_free_file
    assert [b"kept"] == driver.values(OTHER_KEY)


def test_a_deletion_meets_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other partitions get their checkpoints all the same."""
    driver = Driver(DIRECT)
    driver.append(b"deleted")
    driver.append(b"kept", key=OTHER_KEY)
    segment = driver.log().segments[-1]
    plan = driver.store.begin_checkpoint()
    _deleting(driver, segment.log_path, monkeypatch)
    driver.store.finish_checkpoint(plan)
    assert [] == driver.store.directory.problems


def _before_line(function: Callable[..., object], text: str, action: Callable[[], None]) -> None:
    """Run `action` once, when this thread is about to run the line of `function` with `text`."""
    lines, start = getsourcelines(function)
    number = next(start + at for at, line in enumerate(lines) if text in line)

    def trace(frame: Any, event: str, _argument: object) -> Any:
        if frame.f_code is not function.__code__:
            return None
        if event == "line" and frame.f_lineno == number:
            sys.settrace(None)
            action()
        return trace

    sys.settrace(trace)


@pytest.mark.parametrize("place", ["last = decode_entry", "self.side = "])
def test_a_first_read_meets_the_first_append_after_a_start(place: str) -> None:
    """The entry that the append adds is neither forgotten nor taken for damage."""
    driver = Driver(DIRECT)
    driver.append(b"before")
    driver.stop()
    segment = driver.log().segments[-1]
    flusher = Thread(target=partial(driver.append, b"meanwhile"))

    def append() -> None:
        flusher.start()
        # It waits where the reader is in its way, and is done where it is not.
        flusher.join(0.05)

    _before_line(Segment.load, place, append)
    segment.load()
    flusher.join()
    driver.append(b"after")
    # Batch by batch, so that each is looked for.
    assert [b"before", b"meanwhile", b"after"] == driver.values(max_bytes=1)
    assert [] == driver.store.directory.problems


def test_a_reader_that_was_mistaken_has_no_segment_read() -> None:
    """The flusher looks first: a gigabyte takes seconds, in which nobody appends."""
    driver = Driver(DIRECT)
    for number in range(3):
        driver.append(b"%d" % number)
    log = driver.log()
    segment = log.segments[-1]
    damages = [SideFileDamagedError(segment), SideFileDamagedError(segment, 1, 2)]
    for damage in damages:
        rebuild_side(log.directory, log, segment, damage)
    assert [] == driver.store.directory.problems
    driver.flip(segment.side_path, ENTRY_BYTES + 3)
    for damage in damages:
        rebuild_side(log.directory, log, segment, damage)
    assert [f"{segment.side_path} was damaged; rebuilt"] == driver.store.directory.problems
    assert [b"0", b"1", b"2"] == driver.values(max_bytes=1)


def _begin_group(driver: Driver) -> Callable[[], None]:
    """Append 0, 1 and 2 at these times; write batches of 10 and 30 behind; return their undoing."""
    for number in range(3):
        driver.append(b"%d" % number, timestamp_ms=number)
    segment = driver.log().segments[-1]
    mark = SegmentMark(segment)
    batches = [make_batch([b"given up"], timestamps_ms=[ms]) for ms in (10, 10, 10, 30)]
    for offset, batch in enumerate(batches, 3):
        batch.assign(offset, 0)
    segment.write(batches, SETTINGS)
    return partial(segment.go_back, mark)


@pytest.mark.parametrize("offset", [0, 2])
def test_a_search_by_offset_meets_a_group_that_fails(offset: int) -> None:
    """Its batches were counted; that they are gone is no damage."""
    driver = Driver(DIRECT)
    undo = _begin_group(driver)
    segment = driver.log().segments[-1]
    _before_line(Segment.find_offset, "middle = ", undo)
    assert offset == segment.find_offset(offset)


@pytest.mark.parametrize("place", ["middle = ", "return low"])
def test_a_search_by_time_meets_a_group_that_fails(place: str) -> None:
    """What it would have found was never answered."""
    driver = Driver(DIRECT)
    undo = _begin_group(driver)
    log = driver.log()
    _before_line(Segment.find_timestamp, place, undo)
    assert lookups.find_by_time(log, 20, 0, 3, lambda batch: batch) is None
    assert 1 == log.segments[-1].find_timestamp(1, 7)


def test_an_append_meets_a_rising_log_start() -> None:
    """A start that was noted, and is about to be shown, is not overwritten by an older one."""
    driver = Driver(DIRECT)
    for number in range(4):
        driver.append(b"%d" % number)
    driver.lose_power()
    log = driver.log()
    assert log.state_is_stale
    driver.store.trimmer.save_log_start(log, 3)
    driver.append(b"4")
    log.offsets.raise_log_start(3)
    driver.lose_power()
    assert driver.log().offsets.log_start_offset == 3


def test_log_starts_that_cross_do_not_go_back() -> None:
    """Two callers note theirs, the higher one first: the higher one counts."""
    driver = Driver(DIRECT)
    for number in range(4):
        driver.append(b"%d" % number)
    log = driver.log()
    driver.store.trimmer.save_log_start(log, 3)
    driver.store.trimmer.save_log_start(log, 2)
    driver.lose_power()
    assert driver.log().offsets.log_start_offset == 3


def test_a_side_file_rebuilt_after_a_failed_sync_vouches_for_nothing_new() -> None:
    """What that sync left in doubt is written again at the next start, before it is shown."""
    driver = Driver(DIRECT)
    driver.append(b"durable")
    segment = driver.log().segments[-1]
    batch = make_batch([b"in doubt"])
    append = driver.store.writes.submit(driver.log(), [batch])
    # Fails as a disk does: the pages read back, count as clean, and are nowhere.
    others = frozenset({"open", "read", "read_into", "peek", "write", "extend"})
    driver.fs.inject(Fault(FaultKind.EIO, 1, persistent=True, spared=others))
    flush_group(driver.store.writes)
    driver.fs.inject(None)
    assert append.error is not None
    driver.flip(segment.side_path, 3)
    segment.side = None
    assert [b"durable"] == driver.values()
    driver.kill()
    shown = driver.values()
    driver.lose_power(CrashMode.NOTHING)
    assert shown == driver.values()
