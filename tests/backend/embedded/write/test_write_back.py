from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.files import page_cache
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.log.segment import SegmentMark
from kgw.backend.embedded.write.write_path import WRITE_BACK_BYTES
from tests.backend.embedded.driver import DIRECT, JOURNALED, KEY, RELAXED, SETTINGS, Driver
from tests.simulated_fs import SimulatedFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segment import Segment


PAGE_BYTES = 4096


class Spans(list[tuple[int, int]]):
    """What simulated files were asked to write: positions and sizes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setattr(
            SimulatedFile,
            "begin_write_back",
            lambda _, position, size: self.append((position, size)),
        )


def grow(driver: Driver, size_bytes: int) -> Segment:
    """Append so many bytes and a little to the one log; return its segment."""
    log = driver.log(KEY)
    before = log.segments[-1].size_bytes if log.segments else 0
    while not log.segments or log.segments[-1].size_bytes - before < size_bytes:
        driver.append(b"x" * 10_000)
    return log.segments[-1]


def test_a_segment_that_the_journal_vouches_for_is_handed_on_as_it_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole pages, each once, and only when there are many of them."""
    driver = Driver(JOURNALED._replace(journal_bytes=4 << 20))
    spans = Spans(monkeypatch)
    driver.store.writes.write_back_soon = lambda hand_on: hand_on()
    segment = grow(driver, WRITE_BACK_BYTES - 20_000)
    assert [] == spans
    grow(driver, 40_000)
    first = segment.sent_bytes
    assert [(0, first)] == spans
    assert first >= WRITE_BACK_BYTES - PAGE_BYTES
    assert 0 == first % PAGE_BYTES
    grow(driver, WRITE_BACK_BYTES)
    assert [(0, first), (first, segment.sent_bytes - first)] == spans


def test_a_store_without_threads_leaves_its_bytes_to_the_system() -> None:
    """As a tool that copies into a directory: it writes as much as a server does."""
    driver = Driver(JOURNALED._replace(journal_bytes=4 << 20))
    segment = grow(driver, WRITE_BACK_BYTES + 40_000)
    assert 0 == segment.sent_bytes
    assert segment.size_bytes > WRITE_BACK_BYTES


def test_a_relaxed_segment_is_handed_on_as_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The round that syncs it finds little to write."""
    driver = Driver(DIRECT, RELAXED)
    driver.append(b"asks for a reservation")
    spans = Spans(monkeypatch)
    driver.store.writes.write_back_soon = lambda hand_on: hand_on()
    grow(driver, WRITE_BACK_BYTES + 20_000)
    assert 1 == len(spans)


def test_a_segment_that_is_synced_anyway_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to write then."""
    driver = Driver(DIRECT, SETTINGS)
    spans = Spans(monkeypatch)
    driver.store.writes.write_back_soon = lambda hand_on: hand_on()
    segment = grow(driver, 2 * WRITE_BACK_BYTES)
    assert [] == spans
    assert segment.size_bytes == segment.sent_bytes


def test_bytes_that_were_taken_back_are_handed_on_again() -> None:
    """Others stand in their place."""
    driver = Driver(JOURNALED)
    mark = SegmentMark(segment := grow(driver, 20_000))
    grow(driver, 20_000)
    segment.write_back()
    segment.go_back(mark)
    assert mark.size_bytes == segment.sent_bytes


@pytest.mark.parametrize("remove", [lambda one, fs: one.unlink(fs), lambda one, _: one.forget()])
def test_a_removed_segment_is_left_alone(
    remove: Callable[[Segment, FileSystem], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be gone before its turn comes; opened once more, its files would keep their space."""
    driver = Driver(JOURNALED)
    segment = grow(driver, 20_000)
    spans = Spans(monkeypatch)
    remove(segment, driver.fs)
    segment.write_back()
    assert [] == spans
    assert driver.store.directory.pool.acquire_open(segment.log_path) is None


def test_a_segment_is_handed_on_once_however_fast_it_grows() -> None:
    """The thread's queue does not grow with it; what comes later is handed on again."""
    driver = Driver(JOURNALED._replace(journal_bytes=4 << 20))
    jobs: list[Callable[[], None]] = []
    driver.store.writes.write_back_soon = jobs.append
    for count in (1, 2):
        grow(driver, 2 * WRITE_BACK_BYTES)
        assert count == len(jobs)
        jobs[-1]()


def test_real_files_know_the_hint_where_the_system_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written stays as it is; elsewhere, and for a broken descriptor, nothing happens."""
    file = RealFs().open(str(tmp_path / "file"), create=True)
    content = os.urandom(2 * PAGE_BYTES)
    file.pwrite((content,), 0)
    file.begin_write_back(0, len(content))
    assert content == file.pread(len(content), 0)
    page_cache.begin_write_back(-1, 0, PAGE_BYTES)
    monkeypatch.setattr(page_cache, "_sync_file_range", None)
    file.begin_write_back(0, len(content))
    file.close()
