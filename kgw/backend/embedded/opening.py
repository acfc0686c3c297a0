"""Opens a data directory for a server: locks it, opens its store and prepares the journal.

These functions wait for the disk, so they run in threads.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.lock import COPIED, is_copy
from kgw.backend.embedded.store import Store
from kgw.errors import DataDirectoryError
from kgw.logs import EventLogger
from kgw.problems import DAMAGE, Refusals

if TYPE_CHECKING:
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.files.lock import DirectoryLock
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.clock import Clock

LITTLE_ROOM_BYTES: Final = 256 << 20
"""A start logs a warning if the disk has less space than this for records."""

_BACKED_UP_S: Final = 30.0
"""The longest time that a start waits for a backup of the stopped directory, which holds the lock
while it copies the state and makes links."""
_LOCK_TRIED_EVERY_S: Final = 0.1

_log = EventLogger(__name__)


def new_store(fs: FileSystem, root: str, options: EmbeddedOptions, clock: Clock) -> Store:
    """Return the unopened store of a directory; it logs the directory's problems."""
    store = Store(fs, root, options, clock.wall_ms)
    directory = store.directory
    directory.announce = lambda text: _log.warning("storage problem", problem=text, data=root)
    directory.remark = lambda text: _log.info("storage", detail=text, data=root)
    directory.refusals = Refusals(clock.monotonic_s)
    return store


def open_directory(store: Store, lock: DirectoryLock, clock: Clock) -> None:
    """Lock a directory, which is created if it is missing, and open its store.

    Raises DataDirectoryError.
    """
    fs, root = store.fs, store.directory.root
    try:
        # Before the format file exists, a start has at most created the directory.
        if not fs.exists(f"{root}/{layout.FORMAT_NAME}"):
            from kgw.backend.embedded.foreign import refuse_foreign, refuse_others

            refuse_foreign(fs, root)
            if not store.directory.options.may_share_directory:
                refuse_others(fs, root)
            fs.make_directories_durably(root)
    except OSError as error:
        raise DataDirectoryError(f"{root}: {error.strerror or error}") from error
    _take_lock(lock, root, clock)
    was_copied = is_copy(fs, root)
    store.open()
    lock.note_directory()
    if was_copied and not store.clean_stop:
        store.directory.report(f"{root} {COPIED}", DAMAGE)


def _take_lock(lock: DirectoryLock, root: str, clock: Clock) -> None:
    """Acquire the directory's lock, after waiting for a backup that holds it."""
    until_s = clock.monotonic_s() + _BACKED_UP_S
    while True:
        try:
            lock.acquire()
        except DataDirectoryError:
            # Imported late: most starts do not need it.
            from kgw.backend.embedded.backup.stage import is_backed_up

            if clock.monotonic_s() >= until_s:
                raise
            if not is_backed_up(root):
                # Try again, because a backup may have released the lock just now.
                lock.acquire()
                return
        else:
            return
        sleep(_LOCK_TRIED_EVERY_S)


def prepare(store: Store) -> None:
    """Prepare the journal, and log a warning if the disk has little room."""
    store.prepare_journal()
    fs, root = store.fs, store.directory.root
    reserve_bytes = store.directory.options.min_free_bytes
    if reserve_bytes <= 0:
        return
    try:
        free_bytes = fs.free_bytes(root)
    except OSError:
        return  # the next append will report the error
    left_bytes = free_bytes - reserve_bytes
    if left_bytes < LITTLE_ROOM_BYTES:
        _log.warning(
            "little room for records; docs/sizing.md says what a disk carries",
            left_bytes=max(0, left_bytes),
            free_bytes=free_bytes,
            reserve_bytes=reserve_bytes,
            data=root,
        )
