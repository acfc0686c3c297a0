"""The gateway with small journals, so that a few seconds see them full; or without its syncs.

`python -m tests.campaigns.power_loss_serve BUG serve ...`, the positive controls of `power_loss`,
and with "none" for BUG the real thing.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.embedded import options
from kgw.backend.embedded.files.fs import FileSystem, RealFile, RealFs
from kgw.backend.embedded.files.sync_batch import SyncBatch
from kgw.backend.embedded.log.journal import Journal
from kgw.backend.embedded.write import flush_timer
from kgw.cli.main import main
from kgw.state.sql import sqlite_file

if TYPE_CHECKING:
    from collections.abc import Callable


JOURNAL_BYTES = 256 << 10
RESERVED_OFFSETS = 50


def plant(owner: object, name: str, value: object) -> None:
    """Put something in place of an attribute."""
    setattr(owner, name, value)


def one_by_one() -> None:
    """Have files synced one after the other: the kernel, which syncs many, would not be fooled."""
    plant(RealFs, "sync_all", FileSystem.sync_all)


def void_fdatasync() -> None:
    """Sync no file."""
    one_by_one()
    plant(RealFile, "fdatasync", lambda _: None)


def write_back_only() -> None:
    """Have the system begin to write, and wait for nothing."""
    one_by_one()
    plant(RealFile, "fdatasync", lambda self: self.begin_write_back(0, 0))


def void_sync_directory() -> None:
    """Sync no directory."""
    plant(RealFs, "sync_directory", lambda *_: None)
    plant(RealFs, "_sync_directories", lambda _, __, directories: [None] * len(directories))


def no_journal() -> None:
    """Sync no journal."""
    plant(Journal, "sync", lambda _: None)


def void_kernel_queue() -> None:
    """Say of syncs in the kernel's queue that they are done."""
    plant(SyncBatch, "_sync", lambda _, descriptors, __: [None] * len(descriptors))


def normal_database() -> None:
    """Let SQLite sync its log before it empties it, and not with each commit."""
    pragmas = sqlite_file._PRAGMAS
    assert "synchronous = FULL" in pragmas
    plant(sqlite_file, "_PRAGMAS", (*pragmas, "synchronous = NORMAL"))


def late_flush_timer() -> None:
    """Have relaxed logs synced a second later than they ask for, and by no checkpoint before."""
    sys.argv += ["--set", "kgw.checkpoint.interval.ms=60000"]
    interval_s = flush_timer._interval_s
    plant(flush_timer, "_interval_s", lambda log: interval_s(log) + log.settings.is_relaxed)


BUGS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "void-fdatasync": void_fdatasync,
    "write-back-only": write_back_only,
    "void-sync-directory": void_sync_directory,
    "no-journal": no_journal,
    "void-kernel-queue": void_kernel_queue,
    "normal-database": normal_database,
    "late-flush-timer": late_flush_timer,
}


def command(bug: str = "none") -> tuple[str, ...]:
    """Return what to run instead of `kgw serve`."""
    return (sys.executable, "-m", "tests.campaigns.power_loss_serve", bug, "serve")


if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    plant(
        options,
        "EmbeddedOptions",
        partial(
            options.EmbeddedOptions,
            journal_bytes=JOURNAL_BYTES,
            reserved_offsets=RESERVED_OFFSETS,
        ),
    )
    main(prog_name="kgw")
