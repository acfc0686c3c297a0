from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.write.segment_syncs import sync_all_files, sync_segments
from kgw.types import PartitionKey
from tests.backend.embedded.driver import JOURNALED, KEY, Driver
from tests.simulated_fs import Fault, FaultKind, SimulatedFile, SimulatedFs

if TYPE_CHECKING:
    from kgw.backend.embedded.log.segment import Segment

MANY = 70
"""More than are synced together."""


def _segments(partitions: int) -> tuple[Driver, list[Segment]]:
    """Return segments of a store that are not synced: the journal vouches for them."""
    driver = Driver(JOURNALED)
    for number in range(partitions):
        driver.append(b"value", key=PartitionKey(KEY.topic_id, number))
    return driver, [log.segments[-1] for log in driver.store.logs.values()]


def test_each_of_many_segments_is_synced_once() -> None:
    """However many there are, and each has its outcome; their files are free afterwards."""
    driver, segments = _segments(MANY)
    with driver.noting("fdatasync", suffix=".log") as synced:
        assert [None] * MANY == sync_segments(segments)
    assert [segment.log_path for segment in segments] == synced
    assert [None] * MANY == sync_segments(segments)


def test_one_that_fails_is_told_apart() -> None:
    """The others have been synced, and no later sync is believed."""
    driver, segments = _segments(3)
    driver.fs.inject(Fault(FaultKind.EIO, 2, spared=frozenset({"open", "write"})))
    outcomes = sync_segments(segments)
    assert [False, True, False] == [isinstance(one, SyncFailedError) for one in outcomes]
    assert all(sync_segments(segments))


def test_a_file_that_another_syncs_is_waited_for_when_the_others_are_free() -> None:
    """So that two who sync several cannot wait for each other."""
    driver, segments = _segments(3)
    pooled = driver.store.directory.pool.acquire(segments[0].log_path)
    pooled.syncing.acquire()
    synced: list[str] = []

    def operation(call: str, path: str) -> None:
        if call == "fdatasync":
            synced.append(path)
            if path == segments[2].log_path:
                pooled.syncing.release()

    driver.fs.on_operation = operation
    assert [None] * 3 == sync_segments(segments)
    assert [segments[number].log_path for number in (1, 2, 0)] == synced


def test_a_bug_leaves_no_file_locked_and_each_open() -> None:
    """Whoever syncs them next does not wait for ever, and finds what is not synced."""
    driver, segments = _segments(2)

    def operation(call: str, _: str) -> None:
        if call == "fdatasync":
            raise ValueError("a bug")

    driver.fs.on_operation = operation
    with pytest.raises(ValueError, match="a bug"):
        sync_segments(segments)
    driver.fs.on_operation = None
    pool = driver.store.directory.pool
    for segment in segments:
        with pool.acquire(segment.log_path) as pooled:
            assert pooled.dirty
    assert [None] * 2 == sync_segments(segments)


def test_all_files_of_segments_are_synced_but_of_removed_ones() -> None:
    """Side files only where something was written to them."""
    driver, segments = _segments(3)
    segments[0].write_side(at_least_bytes=1)
    segments[1].forget()
    with driver.noting("fdatasync") as synced:
        sync_all_files(segments)
    assert [segments[0].log_path, segments[2].log_path, segments[0].side_path] == synced
    assert not segments[0].side_is_dirty


def test_a_failed_sync_of_all_files_is_raised() -> None:
    """A checkpoint must not note what may be on no disk."""
    driver, segments = _segments(2)
    driver.fs.inject(Fault(FaultKind.EIO, 1, spared=frozenset({"open", "write"})))
    with pytest.raises(SyncFailedError):
        sync_all_files(segments)


def _refuse_to_open(_: SimulatedFs, path: str, *, create: bool = False) -> SimulatedFile:
    raise OSError(errno.EMFILE, f"too many open files; create={create}", path)


def test_a_synced_segment_needs_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has unsynced bytes is open; for want of a descriptor no data directory ends."""
    driver, segments = _segments(2)
    assert [None] * 2 == sync_segments(segments)
    for segment in segments:
        driver.store.directory.pool.forget(segment.log_path)

    monkeypatch.setattr(SimulatedFs, "open", _refuse_to_open)
    assert [None] * 2 == sync_segments(segments)
    driver.store.directory.pool.sync_failure = SyncFailedError("gone")
    assert all(sync_segments(segments))


def _driver_with_side_files() -> tuple[Driver, list[Segment]]:
    driver, segments = _segments(2)
    for segment in segments:
        segment.write_side(at_least_bytes=1)
    return driver, segments


def _assert_side_files_are_synced(driver: Driver, segments: list[Segment]) -> None:
    with driver.noting("fdatasync", suffix=layout.SIDE_SUFFIX) as synced:
        sync_all_files(segments)
    assert [segment.side_path for segment in segments] == synced
    assert not any(segment.side_is_dirty for segment in segments)


def test_side_files_of_a_set_that_was_given_up_are_synced_later() -> None:
    """A checkpoint that comes after it does not leave them out."""
    driver, segments = _driver_with_side_files()

    def operation(call: str, path: str) -> None:
        if call == "fdatasync" and path.endswith(layout.SIDE_SUFFIX):
            raise ValueError("a bug")

    driver.fs.on_operation = operation
    with pytest.raises(ValueError, match="a bug"):
        sync_all_files(segments)
    _assert_side_files_are_synced(driver, segments)


def test_a_side_file_that_cannot_be_opened_is_synced_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of a descriptor no sync was tried."""
    driver, segments = _driver_with_side_files()
    for segment in segments:
        driver.store.directory.pool.forget(segment.side_path)
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedFs, "open", _refuse_to_open)
        with pytest.raises(OSError, match="too many open files"):
            sync_all_files(segments)
    _assert_side_files_are_synced(driver, segments)
