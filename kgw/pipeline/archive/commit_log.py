"""The versions of an archive: `_log/<version>.json`, each created only if it does not exist.

A version is written with a temporary name, synced, and linked exclusively to its own name. So it is
there completely or not at all, and if two committers write the same version, one of them fails. The
directory is synced after the link, which makes all earlier versions durable, too.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kgw.pipeline.archive.coverage import Coverage, PartitionCoverage, apply
from kgw.pipeline.archive.durable import create
from kgw.pipeline.archive.entry import (
    FORMAT,
    CommitLogEntry,
    DataFile,
    decode_entry,
    decode_piece,
    encode_entry,
    encode_piece,
)
from kgw.pipeline.archive.errors import (
    CoverageError,
    CoverageFault,
    DamagedLogError,
)
from kgw.pipeline.archive.names import parse_data_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECKPOINT_EVERY: Final = 50
KEPT_CHECKPOINTS: Final = 2
"""A checkpoint names every file of the archive, so keeping all checkpoints would take quadratic
space."""


@dataclass(frozen=True, slots=True)
class CoverageSnapshot:
    """The coverage after a version; version 0 is an archive without a commit."""

    version: int
    coverage: Coverage


class CommitLog:
    """The commit log of a topic id, in a local directory that other processes may write to."""

    def __init__(self, generation: Path, topic_id: UUID) -> None:
        self._generation = generation
        self._directory = generation / "_log"
        self._topic_id = topic_id
        self._seen: CoverageSnapshot | None = None
        """The last snapshot that was read; the next read continues from it, as versions never
        change."""

    def read(self) -> CoverageSnapshot:
        """Return the newest snapshot; raises DamagedLogError and CoverageError.

        Raises DamagedLogError if the log has no version but data files exist: the log was lost. An
        empty log would make a sweep delete all data files as orphans, and an audit find nothing
        wrong.
        """
        snapshot = self._read()
        if snapshot.version == 0 and self._is_lost():
            raise DamagedLogError(
                f"{self._directory} has no version, but there are data files beside it: the "
                "commit log was lost; put it back from a copy, or move the files away to begin anew"
            )
        return snapshot

    def _read(self) -> CoverageSnapshot:
        snapshot = self._seen
        if snapshot is None or not self._path(snapshot.version).exists():
            snapshot = self._read_newest_checkpoint()
        while (entry := self.entry(snapshot.version + 1)) is not None:
            snapshot = CoverageSnapshot(snapshot.version + 1, apply(snapshot.coverage, entry))
        # If the log has a newer version, the next one must exist: another process may have just
        # written it.
        newest = self._newest_version()
        if newest > snapshot.version and self.entry(snapshot.version + 1) is None:
            raise DamagedLogError(
                f"{self._directory}: version {snapshot.version + 1} is missing, {newest} is there"
            )
        self._seen = snapshot
        return snapshot

    def entry(self, version: int) -> CommitLogEntry | None:
        """Return a version's entry; None if the log has no such version."""
        path = self._path(version)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return decode_entry(data)
        except DamagedLogError as error:
            raise DamagedLogError(f"{path}: {error}") from error

    def replaced_at(self) -> dict[str, float | None]:
        """Return every file that a version added, with the time when it was replaced or None.

        Keys are paths; times are seconds since 1970 by the clock of the file system. Reads every
        version.
        """
        found: dict[str, float | None] = {}
        for version in range(1, self._newest_version() + 1):
            entry = self.entry(version)
            if entry is None:
                continue
            if entry.removed:
                at_s = self._path(version).stat().st_mtime
                found |= {one.path: at_s for one in entry.removed if isinstance(one, DataFile)}
            found |= {one.path: None for one in entry.added if isinstance(one, DataFile)}
        return found

    def entries(self, first: int, last: int) -> Iterator[CommitLogEntry]:
        """Yield the entries of some versions, both ends inclusive; raises DamagedLogError."""
        for version in range(first, last + 1):
            entry = self.entry(version)
            if entry is None:
                raise DamagedLogError(
                    f"{self._directory}: version {version} is missing, {last} is there"
                )
            yield entry

    def commit(self, entry: CommitLogEntry, *, planned_at: int) -> CoverageSnapshot:
        """Write an entry as the next version, and return a snapshot that has it.

        `planned_at` is the version of the log from which the caller planned the entry.

        If a version already has the entry's id, e.g. as the result of an earlier attempt was lost,
        nothing is written. If another committer takes the next version, the rules are checked
        again. Raises CoverageError if the other commit conflicts with this entry, or if an added
        file is missing or has another size, e.g. because a sweep removed it as an orphan.
        """
        seen = planned_at
        while True:
            snapshot = self._read()
            for version in range(seen + 1, snapshot.version + 1):
                before = self.entry(version)
                if before is not None and before.id == entry.id:
                    return snapshot
            seen = snapshot.version
            after = CoverageSnapshot(snapshot.version + 1, apply(snapshot.coverage, entry))
            self._check_files(entry)
            try:
                create(self._path(after.version), encode_entry(entry))
            except FileExistsError:
                continue
            if after.version % CHECKPOINT_EVERY == 0:
                self._write_checkpoint(after)
            return after

    def replay(self) -> CoverageSnapshot:
        """Return the newest snapshot, computed from all versions; compare each checkpoint with it.

        Raises DamagedLogError and CoverageError for the first version that is wrong.
        """
        snapshot = CoverageSnapshot(0, Coverage(self._topic_id))
        for version, entry in enumerate(self.entries(1, self.read().version), 1):
            snapshot = CoverageSnapshot(version, apply(snapshot.coverage, entry))
            checkpoint = self._checkpoint_path(version)
            with suppress(FileNotFoundError):
                if self._read_checkpoint(checkpoint) != snapshot:
                    raise DamagedLogError(f"{checkpoint}: not what the versions say")
        return snapshot

    def _path(self, version: int) -> Path:
        return self._directory / f"{version:020d}.json"

    def _checkpoint_path(self, version: int) -> Path:
        return self._directory / f"{version:020d}.checkpoint.json"

    def _check_files(self, entry: CommitLogEntry) -> None:
        for piece in entry.added:
            if isinstance(piece, DataFile):
                path = self._generation / piece.path
                if not path.is_file() or path.stat().st_size != piece.bytes:
                    raise CoverageError(
                        CoverageFault.MISSING_FILE,
                        f"{path} is not there as its task has reported; "
                        "is this one directory for all that write to it?",
                    )

    def _is_lost(self) -> bool:
        files = (str(path.relative_to(self._generation)) for path in self._generation.glob("p=*/*"))
        has_files = any(parse_data_path(path) is not None for path in files)
        # Look for version 1 after listing the files: an archiver writes no file before version 1.
        return has_files and not self._path(1).exists()

    def _newest_version(self) -> int:
        names = (path.name.partition(".") for path in self._directory.glob("*.json"))
        return max(
            (int(stem) for stem, _, end in names if end == "json" and stem.isdigit()), default=0
        )

    def _write_checkpoint(self, snapshot: CoverageSnapshot) -> None:
        value = {
            "format": FORMAT,
            "topic_id": str(snapshot.coverage.topic_id),
            "version": snapshot.version,
            "partitions": {
                str(partition): {
                    "start": coverage.start,
                    "pieces": [encode_piece(piece) for piece in coverage.pieces],
                }
                for partition, coverage in snapshot.coverage.partitions.items()
            },
        }
        try:
            create(self._checkpoint_path(snapshot.version), json.dumps(value).encode())
        except FileExistsError:
            return  # it has the same content, as versions never change
        for path in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            path.unlink(missing_ok=True)

    def _checkpoints(self) -> list[Path]:
        return sorted(self._directory.glob("*.checkpoint.json"))

    def _read_newest_checkpoint(self) -> CoverageSnapshot:
        while checkpoints := self._checkpoints():
            try:
                return self._read_checkpoint(checkpoints[-1])
            except FileNotFoundError:
                continue  # other processes have written newer ones and removed it
        return CoverageSnapshot(0, Coverage(self._topic_id))

    def _read_checkpoint(self, path: Path) -> CoverageSnapshot:
        try:
            value = json.loads(path.read_bytes())
            if value["format"] != FORMAT or UUID(value["topic_id"]) != self._topic_id:
                raise DamagedLogError("of another format or topic id")
            partitions = {
                int(partition): PartitionCoverage(
                    int(coverage["start"]),
                    tuple(decode_piece(piece) for piece in coverage["pieces"]),
                )
                for partition, coverage in value["partitions"].items()
            }
            return CoverageSnapshot(int(value["version"]), Coverage(self._topic_id, partitions))
        except (DamagedLogError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedLogError(f"{path}: {error}") from error
