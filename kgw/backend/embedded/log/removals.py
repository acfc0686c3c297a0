"""Directories of deleted partitions, until nothing brings back a byte of them.

A power loss may bring back a directory whose new name is not durable yet. And the journal may hold
bytes for it: a log that is created anew under the same key could be given them by a recovery. What
is left to do is known here, so that a deletion that failed on the way is finished by the next
attempt, and that no log of that key is created before. Belongs to the flusher.
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
    """Deletions that have been begun."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        journal: Journal,
        switch: Callable[[], bool],
    ) -> None:
        """`switch` has the journal go on in its other file; False when it cannot."""
        self._fs = fs
        self._directory = f"{root}/{layout.PARTITIONS_DIRECTORY}"
        self._journal = journal
        self._switch = switch
        self._unsynced: set[PartitionKey] = set()
        """Those whose directories have another name, and a power loss may undo it."""
        self._unnoted: set[PartitionKey] = set()
        """Those that are gone for good, which the journal does not know."""
        self._failure: SyncFailedError | None = None

    def is_unfinished(self, key: PartitionKey) -> bool:
        """Whether no log of that key may be created."""
        return key in self._unsynced or (self._journal.is_ready and key in self._unnoted)

    def take_away(self, key: PartitionKey, path: str, target: str) -> None:
        """Give a partition's directory another name; `finish` makes it durable. Raises OSError."""
        if self._fs.is_directory(target):
            self._fs.remove_tree(target)
        self._fs.rename(path, target)
        self._unsynced.add(key)

    def finish(self) -> None:
        """Make durable what was taken away, and tell the journal as far as it has room.

        Raises OSError, after which it may be tried again, and SyncFailedError.
        """
        if self._unsynced:
            if self._failure is not None:
                # Another sync of these names would succeed, and prove nothing.
                raise self._failure
            try:
                sync_directory(self._fs, self._directory)
            except SyncFailedError as error:
                self._failure = error
                raise
            if self._journal.is_ready:
                self._unnoted |= self._unsynced
            self._unsynced.clear()
        # Not before: the journal may hold the only durable copy of what is deleted.
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
