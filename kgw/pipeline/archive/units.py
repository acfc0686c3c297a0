"""Writes a range of one partition's offsets as data files and declared holes, in one task.

A file is written with a temporary name, synced, read again for its checksum and renamed, and its
directory is synced. Until a commit names it, it is an orphan: it is never read, and a sweep removes
it after the grace period.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kgw.pipeline.archive.columns import SCHEMA, encode
from kgw.pipeline.archive.durable import make_directory, sync
from kgw.pipeline.archive.entry import FORMAT, DataFile, Hole, Piece
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import data_path, partition_directory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.archive.commit_log import CommitLog
    from kgw.pipeline.arrow.decode import Decoded

# The key of kgw's entry in a Parquet footer. Its value is JSON with the topic id, the partition and
# the covered offsets.
FOOTER_KEY: Final = "kgw.archive"
# How many ranges without records a file lists; it only counts further ranges, so that log entries
# stay small.
MAX_CONTROL_RANGES: Final = 1000


@dataclass(frozen=True, slots=True)
class Unit:
    """Offsets from `first` up to `end`, which is exclusive, of one partition."""

    topic_id: UUID
    partition: int
    first: int
    end: int


class Lost(NamedTuple):
    """Offsets whose records are lost; the end is exclusive."""

    first: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """When to end a row group and a file, in bytes of Arrow arrays before compression.

    The part of the unit that reaches the size is the last one in it.
    """

    row_group_bytes: int = 64 * 1024 * 1024
    file_bytes: int = 256 * 1024 * 1024


def write_unit(
    generation: Path,
    unit: Unit,
    parts: Iterable[Decoded | Lost],
    *,
    sizes: Sizes = Sizes(),
    kind: str = "append",
    may_end_early: bool = False,
    run: str = "",
) -> tuple[Piece, ...]:
    """Write a unit, and return the files and holes to commit; together they cover it exactly.

    `run` is a random text from `new_run`. It is part of the file names, so that
    `remove_uncommitted` finds the files.

    With `may_end_early`, `parts` may end before the unit, and only their offsets are covered; they
    must have at least one offset.

    `parts` are decoded responses with all columns. Each begins where the one before ends, and none
    has records after the unit's end. A `Lost` becomes a hole.

    Raises ArchiveError if the parts end before the unit, are not in the order of their offsets, or
    do not account for every offset; the files are removed then.
    """
    pieces: list[Piece] = []
    position = unit.first

    def begin(first: int) -> DataFileWriter:
        return DataFileWriter(generation, unit.topic_id, unit.partition, first, sizes, run)

    file = begin(position)
    try:
        for part in parts:
            if position == unit.end:
                break
            next_offset = min(part.next_offset, unit.end)
            if isinstance(part, Lost):
                if position > file.first:
                    pieces.append(file.finish(position, kind))
                pieces.append(Hole(unit.partition, position, next_offset - 1, "lost"))
                position = next_offset
                file = begin(position)
                continue
            _check_part(unit, part, position, next_offset)
            for control_first, control_end in part.control_ranges:
                file.add_control(control_first, min(control_end, next_offset) - 1)
            file.add_batch(encode(part.batch, unit.partition))
            position = next_offset
            if file.raw_bytes >= sizes.file_bytes:
                pieces.append(file.finish(position, kind))
                file = begin(position)
        if position != unit.end and (position == unit.first or not may_end_early):
            raise ArchiveError(
                f"partition {unit.partition}: offsets {position} to {unit.end - 1} did not come"
            )
        if position > file.first:
            pieces.append(file.finish(position, kind))
    except BaseException:
        file.abandon()
        remove_files(generation, pieces)
        raise
    return tuple(pieces)


def footer_value(topic_id: UUID, partition: int, first: int, last: int) -> dict[str, Any]:
    """Return the footer of a file. It identifies the file, even in a copy at another path."""
    return {
        "format": FORMAT,
        "topic_id": str(topic_id),
        "partition": partition,
        "first": first,
        "last": last,
    }


def checksum_of(path: Path) -> str:
    """Return the checksum of a file's bytes."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def remove_files(generation: Path, pieces: Iterable[Piece]) -> None:
    """Remove files that no commit names and none will name."""
    for piece in pieces:
        if isinstance(piece, DataFile):
            (generation / piece.path).unlink(missing_ok=True)


def new_run() -> str:
    """Return a random text that marks the files of one run."""
    return uuid4().hex[:16]


def remove_uncommitted(generation: Path, log: CommitLog, run: str) -> list[str]:
    """Remove files of a finished run that no commit names, and return their paths.

    Raises ArchiveError if the log cannot be read; nothing is removed then.
    """
    there = {str(path.relative_to(generation)) for path in generation.glob(f"p=*/*{run}*")}
    left = sorted(there - log.read().coverage.files() - log.replaced_at().keys()) if there else []
    for path in left:
        (generation / path).unlink(missing_ok=True)
    return left


def _check_part(unit: Unit, part: Decoded, position: int, next_offset: int) -> None:
    offsets = part.batch.column("offset").to_numpy()
    is_ordered = next_offset >= position and (
        len(offsets) == 0
        or bool(
            offsets[0] >= position and offsets[-1] < next_offset and (np.diff(offsets) > 0).all()
        )
    )
    if not is_ordered:
        raise ArchiveError(
            f"partition {unit.partition}: records from offset {position} up to {next_offset} are "
            "not in the order of their offsets"
        )
    # Count only offsets that are declared to have no record: a record that got lost before this
    # check must not become a hole.
    silent = sum(
        max(0, min(end, next_offset) - first)
        for ranges in (part.control_ranges, part.missing)
        for first, end in ranges
    )
    if len(offsets) + silent != next_offset - position:
        raise ArchiveError(
            f"partition {unit.partition}: {len(offsets)} records and {silent} offsets without one "
            f"are not all from offset {position} up to {next_offset}"
        )


class DataFileWriter:
    """Writes a data file; creates its temporary file when the first row group is full."""

    def __init__(
        self,
        generation: Path,
        topic_id: UUID,
        partition: int,
        first: int,
        sizes: Sizes,
        run: str = "",
    ) -> None:
        self.first = first
        self.raw_bytes = 0
        self._generation = generation
        self._topic_id = topic_id
        self._partition = partition
        self._sizes = sizes
        self._token = f"{run}{uuid4().hex}"[:32]
        self._directory = generation / partition_directory(partition)
        self._temporary = self._directory / f".{self._token}.tmp"
        self._writer: Any = None
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._rows = 0
        self._control: list[tuple[int, int]] = []
        # The earliest and latest time of each row group; times that do not fit nanoseconds are left
        # out.
        self._times_ns: list[int] = []
        self._has_far_times = False

    def add_control(self, first: int, last: int) -> None:
        """Declare that offsets have no records, both ends inclusive; ignore an empty range.

        Call it in ascending order of offsets. The file lists at most `MAX_CONTROL_RANGES` ranges,
        and counts the offsets of the others.
        """
        if first > last:
            return
        if self._control and self._control[-1][1] + 1 == first:
            self._control[-1] = (self._control[-1][0], last)
        elif len(self._control) < MAX_CONTROL_RANGES:
            self._control.append((first, last))

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add the next records, in the archive's columns."""
        if len(batch) == 0:
            return
        self._buffered.append(batch)
        self._buffered_bytes += batch.nbytes
        self.raw_bytes += batch.nbytes
        self._rows += len(batch)
        if self._buffered_bytes >= self._sizes.row_group_bytes:
            self._write_row_groups()

    def finish(self, end: int, kind: str, *, empty: str = "control") -> Piece:
        """Rename the complete, synced file to its own name, and return it for a commit.

        It covers the offsets from `first` up to `end`. If there are no records, return a hole with
        the reason `empty`.
        """
        partition, last = self._partition, end - 1
        if self._rows == 0:
            return Hole(partition, self.first, last, empty)
        self._write_row_groups()
        value = footer_value(self._topic_id, partition, self.first, last)
        self._writer.add_key_value_metadata({FOOTER_KEY: json.dumps(value)})
        self._writer.close()
        sync(self._temporary)
        checksum = checksum_of(self._temporary)
        path = data_path(partition, self.first, last, kind, self._token)
        control = sum(last - first + 1 for first, last in self._control)
        times_ns = [] if self._has_far_times else self._times_ns
        piece = DataFile(
            path=path,
            partition=partition,
            first=self.first,
            last=last,
            rows=self._rows,
            bytes=self._temporary.stat().st_size,
            min_ts_ns=min(times_ns, default=None),
            max_ts_ns=max(times_ns, default=None),
            kind=kind,
            checksum=checksum,
            control_ranges=tuple(self._control),
            holes=end - self.first - self._rows - control,
        )
        self._temporary.rename(self._generation / path)
        sync(self._directory)
        return piece

    def abandon(self) -> None:
        """Remove the temporary file."""
        try:
            # close() writes buffered data, and fails again if the disk is full.
            if self._writer is not None:
                self._writer.close()
        finally:
            self._temporary.unlink(missing_ok=True)

    def _write_row_groups(self) -> None:
        if not self._buffered:
            return
        if self._writer is None:
            make_directory(self._directory)
            self._writer = pq.ParquetWriter(
                str(self._temporary),
                SCHEMA,
                compression="zstd",
                # Dictionaries only for columns whose values repeat from row to row; keys and values
                # seldom do.
                use_dictionary=["_partition", "_ts_type", "_epoch", "_headers.list.element.key"],
                column_encoding={
                    "_offset": "DELTA_BINARY_PACKED",
                    "_ts_ns": "DELTA_BINARY_PACKED",
                },
                # Compaction reads the null counts of `_value` to look for tombstones.
                write_statistics=["_partition", "_offset", "_ts_ns", "_value"],
            )
        table = pa.Table.from_batches(self._buffered)
        groups = max(1, round(self._buffered_bytes / self._sizes.row_group_bytes))
        self._writer.write_table(table, row_group_size=-(-len(table) // groups))
        self._has_far_times |= table.column("_ts_ns").null_count > 0
        times = pc.min_max(table.column("_ts_ns")).as_py()
        if times["min"] is not None:
            self._times_ns += [times["min"], times["max"]]
        self._buffered = []
        self._buffered_bytes = 0
