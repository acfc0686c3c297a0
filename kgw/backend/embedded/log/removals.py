"""Completes deletions of partitions, so that no deleted bytes can come back.

A deletion renames the directory; a power loss may undo this until the rename is durable. And the
journal may have bytes of the partition, which a recovery could write into a new log with the same
key. If a deletion fails halfway, the next attempt completes it, and until then no log with that key
is created. Used by the flusher only.
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
    """The deletions that are not complete yet."""

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
        """Partitions whose directory's rename is not durable, so that a power loss may undo it."""
        self._unnoted: set[PartitionKey] = set()
        """Partitions whose rename is durable, but not recorded in the journal yet."""
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
        """Make the renames durable, and record deletions in the journal while it has space.

        Raises OSError, after which the caller may retry, and SyncFailedError.
        """
        if self._unsynced:
            if self._failure is not None:
                # After a failed sync, a successful sync of the directory would prove nothing.
                raise self._failure
            try:
                sync_directory(self._fs, self._directory)
            except SyncFailedError as error:
                self._failure = error
                raise
            if self._journal.is_ready:
                self._unnoted |= self._unsynced
            self._unsynced.clear()
        # Do not record them earlier: the journal may have the only durable copy of the partition's
        # records.
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
