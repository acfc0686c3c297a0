"""The pool of open files: who opens, who closes, and what the event loop never waits for."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.files.pool import FilePool, PooledFile
from tests import patience
from tests.backend.embedded.driver import ROOT
from tests.simulated_fs import Fault, FaultKind, SimulatedFile, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATH = f"{ROOT}/file"
OTHER = f"{ROOT}/other"
WATCHED = f"{ROOT}/watched"


class WatchedFs(SimulatedFs):
    """Tells of each file that is about to be opened."""

    __slots__ = ("before_open", "opened")

    def __init__(self) -> None:
        super().__init__()
        self.before_open: Callable[[str], None] | None = None
        self.opened: list[str] = []
        self.make_directory_durably(ROOT)

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        if self.before_open is not None:
            self.before_open(path)
        self.opened.append(path)
        return super().open(path, create=create)


def test_a_write_goes_on_while_it_gets_on() -> None:
    """With more buffers than a call takes; and a call that has written some has not failed."""
    fs = WatchedFs()
    file = fs.open(PATH, create=True)
    buffers = [b"%04d" % number for number in range(2 * 1024 + 3)]
    for fault in (None, Fault(FaultKind.SHORT, 1, persistent=True)):
        fs.inject(fault)
        file.truncate(0)
        file.pwrite(buffers, 5)
        fs.inject(None)
        assert bytes(5) + b"".join(buffers) == fs.read_bytes(PATH)
    file.close()


def test_nothing_is_left_of_a_tree_that_was_removed(tmp_path: Path) -> None:
    """No directory either: it would be found at each start."""
    fs = RealFs()
    top = tmp_path / "partition"
    (top / "compaction").mkdir(parents=True)
    for directory in (top, top / "compaction"):
        (directory / "file").write_bytes(b"x")
    fs.remove_tree(str(top))
    assert [] == list(tmp_path.iterdir())


@pytest.fixture
def fs() -> WatchedFs:
    """Return a disk with an empty directory."""
    return WatchedFs()


@pytest.fixture
def pool(fs: WatchedFs) -> FilePool:
    """Return a pool with room for all that is opened here."""
    return FilePool(fs, 8)


def _begin_opening(
    fs: WatchedFs, pool: FilePool, got: list[PooledFile | OSError], *, create: bool
) -> tuple[Thread, Event]:
    """Let a thread open the file, until the event is set."""
    began, may_open = Event(), Event()

    def wait(path: str) -> None:
        if path == PATH:
            fs.before_open = None
            began.set()
            may_open.wait(patience.seconds(10))

    fs.before_open = wait
    thread = Thread(target=_acquire, args=(pool, got, create))
    thread.start()
    assert began.wait(patience.seconds(10))
    return thread, may_open


def _acquire(pool: FilePool, got: list[PooledFile | OSError], create: bool) -> None:
    try:
        got.append(pool.acquire(PATH, create=create))
    except OSError as error:
        got.append(error)


def _open_together(
    fs: WatchedFs, pool: FilePool, *, first_creates: bool
) -> list[PooledFile | OSError]:
    """Let a thread open the file while another does; one of the two would create it."""
    got: list[PooledFile | OSError] = []
    first, may_open = _begin_opening(fs, pool, got, create=first_creates)
    second = Thread(target=_acquire, args=(pool, got, not first_creates))
    second.start()
    # It waits for the first one by then.
    second.join(0.05)
    may_open.set()
    first.join()
    second.join()
    return got


def test_nobody_waits_for_the_pool_while_a_file_is_opened(fs: WatchedFs, pool: FilePool) -> None:
    """The event loop takes and gives back others meanwhile, and finds that this one is not open."""
    pool.release(pool.acquire(OTHER, create=True))
    got: list[PooledFile | OSError] = []
    thread, may_open = _begin_opening(fs, pool, got, create=True)
    other = pool.acquire_open(OTHER)
    assert other is not None
    pool.leave(other)
    pool.forget(OTHER)
    assert pool.acquire_open(PATH) is None
    may_open.set()
    thread.join()
    assert pool.acquire_open(PATH) is not None


def test_two_threads_that_open_one_file_get_one_descriptor(fs: WatchedFs, pool: FilePool) -> None:
    """Two of them could be told differently of a write-back that failed."""
    one, other = _open_together(fs, pool, first_creates=True)
    assert one is other
    assert [PATH] == fs.opened


def test_who_creates_a_file_does_not_fail_with_one_who_would_not(
    fs: WatchedFs, pool: FilePool
) -> None:
    """A reader may be about to find that there is none, just before the flusher makes it."""
    got = _open_together(fs, pool, first_creates=False)
    assert {FileNotFoundError, PooledFile} == {type(one) for one in got}
    assert pool.acquire_open(PATH) is not None


def test_a_file_that_is_removed_while_it_is_opened_is_not_found_again(
    fs: WatchedFs, pool: FilePool
) -> None:
    """Its name may be another file's by then; who opened it has it to itself until the end."""
    pool.release(pool.acquire(PATH, create=True))
    pool.forget(PATH)
    got: list[PooledFile | OSError] = []
    thread, may_open = _begin_opening(fs, pool, got, create=False)
    pool.forget(PATH)
    may_open.set()
    thread.join()
    (old,) = got
    assert isinstance(old, PooledFile)
    new = pool.acquire(PATH)
    assert new is not old
    assert old.file.size() == 0
    pool.release(old)
    with pytest.raises(OSError, match="the file is closed"):
        old.file.size()
    assert new.file.size() == 0


def test_what_the_event_loop_used_last_is_closed_by_the_next_thread(pool: FilePool) -> None:
    """A large file that has no name any more takes milliseconds to close."""
    pool.release(pool.acquire(PATH, create=True))
    used = pool.acquire_open(PATH)
    assert used is not None
    pool.forget(PATH)
    pool.leave(used)
    assert used.file.size() == 0
    pool.release(pool.acquire(OTHER, create=True))
    with pytest.raises(OSError, match="the file is closed"):
        used.file.size()


def test_a_file_that_was_left_is_closed_with_the_next_one_that_goes(pool: FilePool) -> None:
    """Until it is closed, its bytes take room on the disk, which retention was to give back."""
    pool.release(pool.acquire(PATH, create=True))
    pool.release(pool.acquire(OTHER, create=True))
    used = pool.acquire_open(PATH)
    assert used is not None
    pool.forget(PATH)
    pool.leave(used)
    pool.forget(OTHER)
    with pytest.raises(OSError, match="the file is closed"):
        used.file.size()


def test_files_are_closed_without_the_pools_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they make room, were removed or are given back last: the event loop takes it, too."""
    fs = WatchedFs()
    pool = FilePool(fs, 1)
    held: list[bool] = []
    close = SimulatedFile.close
    watched = pool.acquire(WATCHED, create=True)

    def note(file: SimulatedFile) -> None:
        # The event loop is told that a file is not open when it would have to wait for the lock.
        found = pool.acquire_open(WATCHED)
        held.append(found is None)
        if found is not None:
            pool.leave(found)
        close(file)

    monkeypatch.setattr(SimulatedFile, "close", note)
    pool.release(pool.acquire(OTHER, create=True))
    used = pool.acquire(PATH, create=True)
    pool.forget(PATH)
    pool.release(used)
    pool.release(pool.acquire(OTHER))
    pool.forget(OTHER)
    pool.release(watched)
    assert [False] * 3 == held
