"""Reads records of an archive in the decoder's columns, by offsets."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kgw.pipeline.archive.columns import SCHEMA, decode, stored_columns
from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.units import checksum_of
from kgw.pipeline.arrow.columns import ALL_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kgw.pipeline.archive.coverage import PartitionCoverage

_OFFSET_INDEX = SCHEMA.get_field_index("_offset")
BATCH_ROWS: Final = 1 << 16
# For these columns, the uncompressed size in Parquet is about the size in Arrow.
_PAYLOAD: Final = ("_key", "_value", "_headers")
# The bytes of one row in the other columns.
_ROW_BYTES: Final[int] = sum(
    field.type.byte_width for field in SCHEMA if not field.name.startswith(_PAYLOAD)
)


def read_range(
    generation: Path,
    coverage: PartitionCoverage,
    first: int,
    end: int,
    *,
    columns: frozenset[str] = ALL_COLUMNS,
    is_checked: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records from `first` up to `end`, which is exclusive, in the order of offsets.

    `columns` are some of the decoder's. Raises ArchiveError for offsets that the partition does not
    cover, and for a file that is missing or damaged. With `is_checked`, raises it for a file with
    another checksum than was committed, before the first record of that file.
    """
    if not coverage.start <= first <= end <= coverage.next:
        raise ArchiveError(
            f"offsets {first} to {end - 1} are not within {coverage.start} to {coverage.next - 1}"
        )
    for piece in coverage.pieces:
        if isinstance(piece, DataFile) and piece.first < end and first <= piece.last:
            if is_checked:
                check_checksum(generation, piece)
            yield from _read_file(generation, piece, first, end, columns)


def last_record(generation: Path, coverage: PartitionCoverage) -> tuple[int, int] | None:
    """Return offset and leader epoch of a partition's last record; None if no file has one.

    Raises ArchiveError for a file that is missing or damaged.
    """
    for piece in reversed(coverage.pieces):
        if isinstance(piece, DataFile):
            path = generation / piece.path
            with open_file(path) as file:
                group = file.metadata.num_row_groups - 1
                try:
                    table = file.read_row_group(group, columns=["_offset", "_epoch"])
                    return table["_offset"][-1].as_py(), table["_epoch"][-1].as_py()
                except LookupError as error:
                    raise ArchiveError(f"{path} cannot be read: {error}") from error
    return None


def read_stored(generation: Path, piece: DataFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in the stored columns, to copy them to another file.

    Raises ArchiveError for a file that is missing or whose checksum is wrong: once the file is
    replaced, nobody could find the damage.
    """
    check_checksum(generation, piece)
    rows = 0
    with open_file(generation / piece.path) as file:
        if not file.schema_arrow.remove_metadata().equals(SCHEMA):
            raise ArchiveError(f"{generation / piece.path} has other columns than an archive's")
        for batch in batches_of(file):
            rows += len(batch)
            yield batch.replace_schema_metadata(None)
    if rows != piece.rows:
        raise ArchiveError(
            f"{generation / piece.path} has {rows} records, committed with {piece.rows}"
        )


def check_checksum(generation: Path, piece: DataFile) -> None:
    """Raise ArchiveError for a file that is missing or has another checksum than was committed."""
    path = generation / piece.path
    try:
        found = checksum_of(path)
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error}") from error
    if found != piece.checksum:
        raise ArchiveError(f"{path} was altered after its commit: {found}, not {piece.checksum}")


def raw_bytes(generation: Path, piece: DataFile) -> int:
    """Estimate from its footer the Arrow size of a file, the measure of `Sizes`."""
    with open_file(generation / piece.path) as file:
        metadata = file.metadata
        payload_bytes: int = sum(
            column.total_uncompressed_size
            for group in map(metadata.row_group, range(metadata.num_row_groups))
            for column in map(group.column, range(group.num_columns))
            if column.path_in_schema.startswith(_PAYLOAD)
        )
        return payload_bytes + piece.rows * _ROW_BYTES


@contextmanager
def open_file(path: Path) -> Iterator[Any]:
    """Open a `pyarrow.parquet.ParquetFile` for a `with` block that only reads the file.

    Raises ArchiveError if the file cannot be opened or read in the block.
    """
    try:
        with pq.ParquetFile(str(path)) as file:
            yield file
    except FileNotFoundError as error:
        raise ArchiveError(f"{path} is missing") from error
    except (pa.ArrowException, OSError) as error:
        raise ArchiveError(f"{path} cannot be read: {error}") from error


def batches_of(
    file: Any, groups: Iterable[int] | None = None, *, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups, by default of all; each batch is from one row group.

    Row groups of large records have few rows, so a batch across row groups could hold the whole
    file.
    """
    for group in range(file.num_row_groups) if groups is None else groups:
        yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns)


def _read_file(
    generation: Path, piece: DataFile, first: int, end: int, columns: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    wanted = stored_columns(columns | {"offset"})
    with open_file(generation / piece.path) as file:
        groups = [
            group
            for group in range(file.metadata.num_row_groups)
            if _may_hold(file.metadata.row_group(group).column(_OFFSET_INDEX), first, end)
        ]
        for batch in batches_of(file, groups, columns=wanted):
            offsets = batch.column("_offset").to_numpy()
            low, high = offsets.searchsorted([first, end])
            if low < high:
                yield decode(batch.slice(low, high - low), columns)


def _may_hold(column: Any, first: int, end: int) -> bool:
    statistics = column.statistics
    return statistics is None or bool(statistics.min < end and first <= statistics.max)
