"""Where campaigns reach into a gateway that runs: its syncs, its writes, its wall clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.backend.embedded.files.fs import RealFile, RealFs
from kgw.backend.embedded.files.sync_batch import SyncBatch
from kgw.clock import SystemClock
from kgw.state.sql.commit_note import CountedConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kgw.types import Buffer


def replace_file(path: Path, text: str) -> None:
    """Write a file that is never seen half written."""
    new = path.with_suffix(path.suffix + ".new")
    new.write_text(text)
    new.replace(path)


def hook_syncs(synced: Callable[[str, str], None]) -> None:
    """Have something done behind each sync, in the thread that makes it.

    `synced` takes the way to sync and the path of what is synced, "" where that is not known:
    "file"; "directory"; "batch", a set of files or directories by the kernel's queue; "database",
    in front of a commit of SQLite. The sync lasts until it returns, and fails when it raises
    OSError: a batch with its first file.
    """
    fdatasync, sync_directory = RealFile.fdatasync, RealFs.sync_directory
    sync_some, commit = SyncBatch._sync, CountedConnection.commit

    def hooked_fdatasync(self: RealFile) -> None:
        fdatasync(self)
        synced("file", self.path)

    def hooked_directory(self: RealFs, path: str) -> None:
        sync_directory(self, path)
        synced("directory", path)

    def hooked_some(
        self: SyncBatch, descriptors: Sequence[int], operation: int
    ) -> list[OSError | None]:
        outcomes = sync_some(self, descriptors, operation)
        try:
            synced("batch", "")
        except OSError as error:
            outcomes[:1] = [error]
        return outcomes

    def hooked_commit(self: CountedConnection) -> None:
        if self.in_transaction:
            synced("database", "")
        commit(self)

    replacements: list[tuple[Any, str, Any]] = [
        (RealFile, "fdatasync", hooked_fdatasync),
        (RealFs, "sync_directory", hooked_directory),
        (SyncBatch, "_sync", hooked_some),
        (CountedConnection, "commit", hooked_commit),
    ]
    for owner, name, hooked in replacements:
        setattr(owner, name, hooked)


def hook_writes(writing: Callable[[str], None]) -> None:
    """Have something done before each write to a file of this path; OSError makes it fail."""
    write_once = RealFile.write_once

    def hooked_write(self: RealFile, buffers: Sequence[Buffer], position: int) -> int:
        writing(self.path)
        return write_once(self, buffers, position)

    RealFile.write_once = hooked_write  # type: ignore[method-assign]


def hook_clock(wrong_by_ms: Callable[[], int]) -> None:
    """Have the wall clock be wrong by so much."""
    wall_ms = SystemClock.wall_ms

    def hooked_wall_ms(self: SystemClock) -> int:
        return wall_ms(self) + wrong_by_ms()

    SystemClock.wall_ms = hooked_wall_ms  # type: ignore[method-assign]
