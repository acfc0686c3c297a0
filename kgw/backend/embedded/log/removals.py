"""Completes deletions of partitions, so that no deleted bytes can come back.

A power loss may bring back a directory whose new name is not durable yet. And the journal may hold
bytes of the partition, which a recovery could write into a new log with the same key. The
unfinished steps are recorded here: the next attempt completes a deletion that failed halfway, and
no log with that key is created before. Used by the flusher only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.files.durability import sync_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.journal import Journal
    from kgw.types import PartitionKey


class Removals:
    """Deletions that have begun and are not complete."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        journal: Journal,
        switch: Callable[[], bool],
    ) -> None:
        """`switch` lets the journal continue in its other file, and returns False if it cannot."""
        self._fs = fs
        self._directory = f"{root}/{layout.PARTITIONS_DIRECTORY}"
        self._journal = journal
        self._switch = switch
        self._unsynced: set[PartitionKey] = set()
        """Partitions whose renamed directories are not durable: a power loss may undo the
        rename."""
        self._unnoted: set[PartitionKey] = set()
        """Partitions whose removal is durable and not recorded in the journal yet."""
        self._failure: SyncFailedError | None = None

    def is_unfinished(self, key: PartitionKey) -> bool:
        """Return whether no log with this key may be created yet."""
        return key in self._unsynced or (self._journal.is_ready and key in self._unnoted)

    def take_away(self, key: PartitionKey, path: str, target: str) -> None:
        """Rename a partition's directory; `finish` makes this durable. Raises OSError."""
        if self._fs.is_directory(target):
            self._fs.remove_tree(target)
        self._fs.rename(path, target)
        self._unsynced.add(key)

    def finish(self) -> None:
        """Make the renames durable, and record the deletions in the journal as far as it has space.

        Raises OSError, after which the caller may retry, and SyncFailedError.
        """
        if self._unsynced:
            if self._failure is not None:
                # After a failed sync, another sync of the directory would succeed without proving
                # anything.
                raise self._failure
            try:
                sync_directory(self._fs, self._directory)
            except SyncFailedError as error:
                self._failure = error
                raise
            if self._journal.is_ready:
                self._unnoted |= self._unsynced
            self._unsynced.clear()
        # Not earlier: the journal may hold the only durable copy of the partition's records.
        self._note()

    def _note(self) -> None:
        journal = self._journal
        while self._unnoted and journal.is_ready:
            if not journal.has_room(1, 0) and not self._switch():
                return
            key = self._unnoted.pop()
            try:
                journal.append_deletion(key)
            except OSError:
                self._unnoted.add(key)
                raise
            try:
                journal.sync()
            except OSError as error:
                raise SyncFailedError(f"journal: {error}") from error
