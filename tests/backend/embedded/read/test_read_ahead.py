"""Bytes of old data are there before their reader asks for them, and are the same bytes."""

from __future__ import annotations

import errno
import os
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.files.read_buffers import ReadBuffers
from kgw.backend.embedded.read import read_ahead
from kgw.backend.embedded.read.read_ahead import ReadAhead
from kgw.backend.embedded.read.source import Files
from tests.backend.embedded.driver import DIRECT, Driver
from tests.simulated_fs import SimulatedFile

if TYPE_CHECKING:
    from collections.abc import Callable

RANGE_BYTES = 200_000
PART_BYTES = 100_000
"""What a reader takes at a time. Less than 64 KB is in no shared buffer."""


class Ahead:
    """A segment that is not in memory, and what is read ahead of its readers, by hand."""

    def __init__(self, *, limit: int = 4) -> None:
        self.driver = Driver(DIRECT)
        self.driver.append(os.urandom(10 * PART_BYTES))
        self.segment = self.driver.log().segments[0]
        self.content = bytes(self.driver.fs.content(self.segment.log_path))
        self.driver.fs.drop_page_cache()
        self.now_s = 0.0
        self.has_threads = True
        self.begun: list[tuple[Callable[[], memoryview | None], Future[memoryview | None]]] = []
        self.source = ReadAhead(
            Files(ReadBuffers(4), least_direct_bytes=1),
            limit,
            self._submit,
            lambda: self.now_s,
            range_bytes=RANGE_BYTES,
            least_direct_bytes=1,
        )

    def _submit(self, function: Callable[[], memoryview | None]) -> Future[memoryview | None]:
        if not self.has_threads:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.begun.append((function, Future()))
        return self.begun[-1][1]

    def read(self, part: int, size_bytes: int = PART_BYTES) -> None:
        """Read a part as a thread does."""
        start = part * PART_BYTES
        assert self.content[start : start + size_bytes] == bytes(
            self.source.read(self.segment, start, size_bytes)
        )

    def finish(self) -> int:
        """Do what the threads do; returns how many had something to do."""
        begun, self.begun = self.begun, []
        for function, future in begun:
            future.set_result(function())
        return len(begun)

    def peek(self, part: int) -> memoryview | None:
        """Look at a part as the event loop does."""
        start = part * PART_BYTES
        view = self.source.peek(self.segment, start, PART_BYTES)
        assert view is None or self.content[start : start + PART_BYTES] == bytes(view)
        return view

    def there(self) -> list[int]:
        """Return which parts can be had without waiting."""
        return [part for part in range(10) if self.peek(part) is not None]


def test_what_is_behind_a_read_is_read_ahead() -> None:
    """It is there once a thread has brought it, for all who come by."""
    ahead = Ahead()
    ahead.read(0)
    assert ahead.peek(1) is None
    assert 1 == ahead.finish()
    assert [1, 2] == ahead.there()
    assert [1, 2] == ahead.there()


def test_a_range_is_followed_by_the_next() -> None:
    """As soon as what is left of it is less than its reader takes, up to the end of the segment."""
    ahead = Ahead()
    ahead.read(0)
    begun = []
    for part in range(1, 10):
        begun.append(ahead.finish())
        assert ahead.peek(part) is not None
    assert [1, 0, 1, 0, 1, 0, 1, 0, 1] == begun


def test_what_is_in_memory_is_not_read_ahead() -> None:
    """It is copied from there when it is wanted."""
    ahead = Ahead()
    ahead.segment.read_bytes(0, 10 * PART_BYTES)
    ahead.read(0)
    assert 0 == ahead.finish()
    assert [*range(10)] == ahead.there()


def test_more_than_a_range_is_not_read_ahead() -> None:
    """It would never be used."""
    ahead = Ahead()
    ahead.read(0, RANGE_BYTES + 1)
    assert 0 == ahead.finish()


def test_a_removed_segment_is_not_served() -> None:
    """What has come in its place may be something else."""
    ahead = Ahead()
    ahead.read(0)
    ahead.finish()
    ahead.segment.is_removed = True
    assert [] == ahead.there()
    assert 0 == len(ahead.source)


@pytest.mark.parametrize("error", [OSError(errno.EIO, os.strerror(errno.EIO)), ValueError()])
def test_an_error_is_left_to_those_who_read(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """They read for themselves, and meet it if it is still there."""
    ahead = Ahead()

    def fail(*_: object) -> int:
        raise error

    ahead.read(0)
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedFile, "pread_direct", fail)
        ahead.finish()
    assert ahead.peek(1) is None
    ahead.read(1)


def test_nothing_is_begun_without_threads() -> None:
    """A backend that is being closed reads nothing ahead, and answers."""
    ahead = Ahead()
    ahead.has_threads = False
    ahead.read(0)
    assert 0 == len(ahead.source)


def test_room_is_bounded_and_goes_to_those_who_come() -> None:
    """What was used gives way, and after 0.1 s what nobody has come for."""
    ahead = Ahead(limit=2)
    ahead.read(0)
    ahead.read(3)
    ahead.read(6)
    assert 2 == ahead.finish()
    assert ahead.peek(1) is not None
    ahead.read(6)
    assert 1 == ahead.finish()
    assert [4, 5, 7, 8] == ahead.there()
    ahead = Ahead(limit=1)
    ahead.read(0)
    ahead.finish()
    ahead.now_s = 0.05
    ahead.read(3)
    assert 0 == ahead.finish()
    ahead.now_s = 0.1
    ahead.read(3)
    assert 1 == ahead.finish()


def test_answers_on_their_way_keep_their_memory() -> None:
    """Nothing is read ahead while they hold all that there is for it."""
    ahead = Ahead(limit=1)
    ahead.read(0)
    ahead.finish()
    answer = ahead.peek(1)
    assert answer is not None
    ahead.read(5)
    assert 0 == ahead.finish()
    del answer
    ahead.read(5)
    assert 1 == ahead.finish()


def test_a_range_whose_turn_does_not_come_is_read_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that is to bring it may hang for another file."""
    monkeypatch.setattr(read_ahead, "_QUEUED_S", 0)
    ahead = Ahead()
    ahead.read(0)
    ((_, future),) = ahead.begun
    ahead.read(1)
    assert future.cancelled()
    ahead.begun.pop(0)
    ahead.read(1)
