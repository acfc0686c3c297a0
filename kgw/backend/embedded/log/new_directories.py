"""Creates directories of many new logs at a time, and syncs their files together.

A directory and its two files need three syncs, each of which waits for the file system's journal.
May run in any thread, because no other code uses these directories yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kgw.backend.embedded.files.fs import File, FileSystem
    from kgw.types import PartitionKey, TopicName

DIRECTORIES_TOGETHER: Final = 64
"""The most descriptors that are open at a time."""


class NewDirectories:
    """Makes the directories of empty logs; records which are new and which failed."""

    def __init__(self, fs: FileSystem, path_of: Callable[[PartitionKey], str]) -> None:
        self._fs = fs
        self._path_of = path_of
        self.new: set[PartitionKey] = set()
        """Partitions whose directories were made. Keys that are neither here nor in `failures` had
        a log already."""
        self.failures: dict[PartitionKey, OSError] = {}

    def make(self, places: Sequence[tuple[PartitionKey, TopicName]]) -> None:
        """Make the directories and sync their files. The caller syncs the directories' names."""
        for start in range(0, len(places), DIRECTORIES_TOGETHER):
            self._make_together(places[start : start + DIRECTORIES_TOGETHER])

    def _make_together(self, places: Sequence[tuple[PartitionKey, TopicName]]) -> None:
        identities: dict[PartitionKey, bytes] = {}
        for key, topic in places:
            path = self._path_of(key)
            try:
                if not self._fs.is_directory(path):
                    self._fs.mkdir(path)
                elif self._holds_log(path):
                    continue
            except OSError as error:
                self.failures[key] = error
                continue
            identities[key] = layout.encode_partition(layout.PartitionIdentity(topic, key))
        named = self._write(layout.PARTITION_NAME, identities, are_last=False)
        # Written last: the state file shows that the creation is complete.
        state = layout.encode_log_state(layout.LogState())
        states = dict.fromkeys(named, state)
        self.new.update(self._write(layout.LOG_STATE_NAME, states, are_last=True))

    def _write(
        self, name: str, contents: Mapping[PartitionKey, bytes], *, are_last: bool
    ) -> list[PartitionKey]:
        """Durably write a small file into each directory; return the keys that succeeded.

        With `are_last`, the names in the directories are synced, too.
        """
        files: dict[PartitionKey, File] = {}
        try:
            for key, content in contents.items():
                try:
                    file = files[key] = self._fs.open(f"{self._path_of(key)}/{name}", create=True)
                    file.truncate(0)
                    file.pwrite((content,), 0)
                except OSError as error:
                    self.failures[key] = error
            written = [key for key in files if key not in self.failures]
            directories = [self._path_of(key) for key in written] if are_last else []
            outcomes = self._fs.sync_all([files[key] for key in written], directories)
        finally:
            for file in files.values():
                file.close()
        for number, outcome in enumerate(outcomes):
            if outcome is not None:
                self.failures[written[number % len(written)]] = outcome
        return [key for key in written if key not in self.failures]

    def _holds_log(self, path: str) -> bool:
        """Return whether a directory has a log, not only the files of an interrupted creation."""
        names = self._fs.listdir(path)
        return layout.LOG_STATE_NAME in names or any(
            layout.parse_stem(name, layout.LOG_SUFFIX) is not None for name in names
        )
