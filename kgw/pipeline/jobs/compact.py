"""compact: keeps the newest record of each key in an archive, and removes the older ones.

Each partition takes two passes. The first pass is one unit that reads all keys and finds the rows
to remove. The second pass rewrites the files with such rows; each file is a unit. Rewritten files
are committed in the order of their offsets. So a tombstone is never removed before the records that
it deletes, and even after an interrupted run the `compacted` files at the front of a partition have
each key at most once. For the same reason, if another committer has replaced a file, the run skips
the later files of that partition.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from kgw.pipeline.archive.compacting import (
    Parts,
    expired_tombstones,
    find_superseded,
    may_hold_expired,
    pack_rows,
    parts_of,
    unpack_rows,
)
from kgw.pipeline.archive.durable import sync
from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import COMPACTED, data_path
from kgw.pipeline.archive.reading import batches_of, check_checksum, open_file, read_stored
from kgw.pipeline.archive.replacing import replace_pieces
from kgw.pipeline.archive.units import DataFileWriter, Sizes, remove_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kgw.pipeline.archive.archived_topics import ArchivedTopic
    from kgw.pipeline.archive.commit_log import CommitLog
    from kgw.pipeline.archive.coverage import Coverage
    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.jobs.running import Runner

_TOMBSTONE_COLUMNS: Final = ("_key", "_value", "_ts_ns", "_ts_ms")


class Settings(NamedTuple):
    """The settings that all units of a job share."""

    life: ArchivedTopic
    tombstones_before_ms: int
    """Tombstones from before this time are removed."""
    key_memory_bytes: int
    sizes: Sizes


class PartitionToCompact(NamedTuple):
    """A partition to compact."""

    partition: int
    parts: Parts

    def __str__(self) -> str:
        return f"keys of partition {self.partition}"

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files of the partition, in the order of their offsets."""
        return self.parts.clean + self.parts.dirty


class Chosen(NamedTuple):
    """The result of the first pass for one file."""

    piece: DataFile
    fallen: bytes | None
    """The rows to remove because a newer record has their key, as a packed bitmap; None if there
    are none."""
    may_hold_expired: bool

    def __str__(self) -> str:
        one = self.piece
        return f"partition {one.partition}, offsets {one.first} to {one.last}"

    @property
    def is_to_do(self) -> bool:
        """Whether the second pass handles this file; dirty files get the kind `compacted` by it."""
        return self.fallen is not None or self.may_hold_expired or self.piece.kind != COMPACTED


class Found(NamedTuple):
    """The result of the first pass for one partition."""

    files: tuple[Chosen, ...]
    without_key: int


class Rewritten(NamedTuple):
    """The result of the second pass: the file or hole that replaces a file, or the file itself."""

    piece: Piece
    fallen: int
    tombstones: int
    """How many of the removed records are expired tombstones."""


@dataclass(slots=True)
class Compacted:
    """The result of a run for one partition."""

    partition: int
    dirty_ratio: float
    records: int
    """How many records the partition had before the run."""
    bytes_before: int
    bytes_after: int
    fallen: int = 0
    tombstones: int = 0
    without_key: int = 0
    files: int = 0
    """How many files were replaced by other files or by holes."""
    is_overtaken: bool = False
    """Whether another committer replaced a file first; this file and the later ones were left
    unchanged."""


# --- planning ------------------------------------------------------------------------------------


def plan(coverage: Coverage, *, min_dirty_ratio: float) -> list[PartitionToCompact]:
    """Return the partitions whose ratio of dirty bytes is at least `min_dirty_ratio`. Pure."""
    found = [
        PartitionToCompact(partition, parts_of(covered))
        for partition, covered in sorted(coverage.partitions.items())
    ]
    return [one for one in found if one.files and one.parts.dirty_ratio >= min_dirty_ratio]


# --- units ---------------------------------------------------------------------------------------


def find_fallen(settings: Settings, due: PartitionToCompact) -> Found:
    """Find the rows of a partition whose key a newer record has. Raises ArchiveError."""
    generation = settings.life.generation
    checked = set()

    def read_keys(piece: DataFile) -> pa.ChunkedArray:
        # Check the file: a damaged key could remove another record.
        if piece.path not in checked:
            check_checksum(generation, piece)
            checked.add(piece.path)
        path = generation / piece.path
        with open_file(path) as file:
            keys = file.read(columns=["_key"]).column(0)
        if len(keys) != piece.rows:
            raise ArchiveError(f"{path} has {len(keys)} records, committed with {piece.rows}")
        return keys

    superseded = find_superseded(due.parts, read_keys, key_memory_bytes=settings.key_memory_bytes)
    chosen = []
    for piece, rows in zip(due.files, superseded.clean + superseded.dirty, strict=True):
        with open_file(generation / piece.path) as file:
            may = may_hold_expired(file.metadata, settings.tombstones_before_ms)
        chosen.append(Chosen(piece, pack_rows(rows), may))
    return Found(tuple(chosen), superseded.without_key)


def rewrite(settings: Settings, chosen: Chosen) -> Rewritten:
    """Write a copy of a file without the removed rows, to be committed later.

    Raises ArchiveError.
    """
    piece = chosen.piece
    if chosen.fallen is None and not (chosen.may_hold_expired and _holds_expired(settings, piece)):
        return Rewritten(_as_compacted(settings.life, piece), 0, 0)
    rows = (
        np.zeros(piece.rows, np.bool_)
        if chosen.fallen is None
        else unpack_rows(chosen.fallen, piece.rows)
    )
    by_key = int(rows.sum())
    life = settings.life
    writer = DataFileWriter(
        life.generation, life.topic_id, piece.partition, piece.first, settings.sizes
    )
    position = 0
    try:
        for control in piece.control_ranges:
            writer.add_control(*control)
        for batch in read_stored(life.generation, piece):
            end = position + len(batch)
            expired = expired_tombstones(batch, settings.tombstones_before_ms)
            if expired is not None:
                rows[position:end] |= expired
            writer.add_batch(batch.filter(pa.array(~rows[position:end])))
            position = end
        made = writer.finish(piece.last + 1, COMPACTED, empty="compaction")
    except BaseException:
        writer.abandon()
        raise
    fallen = int(rows.sum())
    return Rewritten(made, fallen, fallen - by_key)


def _holds_expired(settings: Settings, piece: DataFile) -> bool:
    with open_file(settings.life.generation / piece.path) as file:
        return any(
            expired_tombstones(batch, settings.tombstones_before_ms) is not None
            for batch in batches_of(file, columns=_TOMBSTONE_COLUMNS)
        )


def _as_compacted(life: ArchivedTopic, piece: DataFile) -> DataFile:
    """Return the file as kind `compacted`, under a new name that is a hard link to it."""
    if piece.kind == COMPACTED:
        return piece
    path = data_path(piece.partition, piece.first, piece.last, COMPACTED, uuid4().hex)
    place = life.generation / path
    # Renew the modification time, which both links share; otherwise a sweep might remove the new
    # link as an old orphan.
    os.utime(life.generation / piece.path)
    os.link(life.generation / piece.path, place)
    sync(place.parent)
    return replace(piece, path=path, kind=COMPACTED)


# --- the job -------------------------------------------------------------------------------------


def run(
    settings: Settings,
    dues: Sequence[PartitionToCompact],
    runner: Runner,
    *,
    now_ms: Callable[[], int],
    on_rows: Callable[[int], None] = lambda _: None,
) -> list[Compacted]:
    """Compact partitions, and return the results. Raises ArchiveError, JobError.

    `on_rows` is called with the number of records that were done.
    """
    done = []
    log = settings.life.log
    for at in range(0, len(dues), runner.parallelism):
        # Compact a few partitions at a time, so that the results of the first pass fit into memory.
        some = dues[at : at + runner.parallelism]
        found = dict(runner.run(some, partial(find_fallen, settings)))
        done += _Rewriting(settings, log, runner, now_ms, on_rows).run(found)
    return done


class _Rewriting:
    """The second pass over some partitions."""

    def __init__(
        self,
        settings: Settings,
        log: CommitLog,
        runner: Runner,
        now_ms: Callable[[], int],
        on_rows: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._log = log
        self._runner = runner
        self._now_ms = now_ms
        self._on_rows = on_rows
        self._waiting: dict[int, dict[str, Rewritten]] = defaultdict(dict)
        """Rewritten files that cannot be committed before files with lower offsets, by partition
        and old path."""

    def run(self, found: Mapping[PartitionToCompact, Found]) -> list[Compacted]:
        results = {due.partition: _begun(due, one) for due, one in found.items()}
        left = {
            due.partition: [one.piece for one in of.files if one.is_to_do]
            for due, of in found.items()
        }
        self._on_rows(
            sum(one.piece.rows for of in found.values() for one in of.files if not one.is_to_do)
        )
        units = [one for of in found.values() for one in of.files if one.is_to_do]
        try:
            for unit, made in self._runner.run(units, partial(rewrite, self._settings)):
                partition = unit.piece.partition
                self._waiting[partition][unit.piece.path] = made
                self._commit(results[partition], left[partition])
                self._on_rows(unit.piece.rows)
        finally:
            # Remove the files that were not committed.
            for waiting in self._waiting.values():
                self._discard(waiting)
        return [results[partition] for partition in sorted(results)]

    def _commit(self, result: Compacted, left: list[DataFile]) -> None:
        """Commit the rewritten files of a partition up to the first unfinished one."""
        waiting = self._waiting[result.partition]
        if result.is_overtaken:
            self._discard(waiting)
        pairs = []
        while left and left[0].path in waiting:
            piece = left.pop(0)
            pairs.append((piece, waiting.pop(piece.path)))
        pairs = [(piece, made) for piece, made in pairs if made.piece != piece]
        if not pairs:
            return
        removed, added = [piece for piece, _ in pairs], [made.piece for _, made in pairs]
        life, now_ms = self._settings.life, self._now_ms()
        if not replace_pieces(life, self._log, removed, added, now_ms=now_ms):
            result.is_overtaken = True
            return
        for piece, made in pairs:
            result.files += 1
            result.fallen += made.fallen
            result.tombstones += made.tombstones
            result.bytes_after -= piece.bytes
            if isinstance(made.piece, DataFile):
                result.bytes_after += made.piece.bytes

    def _discard(self, waiting: dict[str, Rewritten]) -> None:
        made = [one.piece for path, one in waiting.items() if _path_of(one.piece) != path]
        remove_files(self._settings.life.generation, made)
        waiting.clear()


def _path_of(piece: Piece) -> str | None:
    return piece.path if isinstance(piece, DataFile) else None


def _begun(due: PartitionToCompact, found: Found) -> Compacted:
    size_bytes = sum(one.bytes for one in due.files)
    return Compacted(
        due.partition,
        due.parts.dirty_ratio,
        sum(one.rows for one in due.files),
        size_bytes,
        size_bytes,
        without_key=found.without_key,
    )
