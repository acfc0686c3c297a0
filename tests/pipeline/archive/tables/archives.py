"""Archives that publish tables, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from kgw.pipeline.archive.columns import SCHEMA, decode
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile, Hole
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.archive.tables import TableSettings, register
from kgw.pipeline.archive.tables.iceberg import NAMESPACE, table_name
from kgw.pipeline.archive.units import Unit, write_unit
from kgw.pipeline.arrow.columns import ALL_COLUMNS
from tests.pipeline.archive.test_units import part_from, row

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyiceberg.table import Table

    from kgw.pipeline.archive.entry import Piece

TOPIC_ID = UUID(int=7)


VARIETY: list[dict[str, Any]] = [
    {"headers": [{"key": "h", "value": b"x"}, {"key": "", "value": None}]},
    {"key": None, "timestamp_ms": -1},
    # Beyond what a long can hold as nanoseconds.
    {"timestamp_ms": 2**62, "timestamp_type": 1},
    {"key": b"", "value": None, "leader_epoch": 9},
    {"timestamp_ms": -(2**63)},
]
"""What the records of a test's archive have, one after the other."""


class Archived:
    """An archive of partition 3 of topic `or.ders`, which publishes a table of a kind."""

    def __init__(self, root: Path, *kinds: str) -> None:
        self.generation = generation_directory(str(root), "or.ders", TOPIC_ID)
        self.log = CommitLog(self.generation, TOPIC_ID)
        for kind in kinds:
            register(self.generation, TableSettings(kind))

    @property
    def version(self) -> int:
        return self.log.read().version

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return self.log.read().coverage.partitions[3].pieces

    @property
    def files(self) -> list[str]:
        return sorted(self.log.read().coverage.files())

    def write(self, first: int, end: int) -> DataFile:
        """Write a file; the first offset of it is a marker."""
        rows = [
            row(offset, **{"value": b"v%d" % offset} | VARIETY[offset % len(VARIETY)])
            for offset in range(first + 1, end)
        ]
        return self._write(first, rows, end, [(first, first + 1)], "append")

    def commit(self, *added: Piece, removed: tuple[Piece, ...] = ()) -> None:
        """Commit pieces, the first ones with the start of the partition."""
        is_begun = any((self.generation / "_log").glob("*.json"))
        starts = {} if is_begun else {3: added[0].first}
        self.log.commit(CommitLogEntry(uuid4(), TOPIC_ID, added, removed, starts), planned_at=0)

    def append(self, first: int, end: int) -> DataFile:
        """Write and commit."""
        piece = self.write(first, end)
        self.commit(piece)
        return piece

    def replace(self, count: int, kind: str) -> None:
        """Put the first few pieces into one file; when compacted, without every second record."""
        old = self.pieces[:count]
        end = old[-1].last + 1
        rows = [one for one in self.rows() if one["offset"] < end]
        merged = self._write(old[0].first, rows[:: 1 if kind == "merged" else 2], end, [], kind)
        self.commit(merged, removed=old)

    def expire(self, count: int) -> None:
        """Remove the first few pieces."""
        old = self.pieces[:count]
        self.commit(Hole(3, old[0].first, old[-1].last, "retention"), removed=old)
        for piece in old:
            if isinstance(piece, DataFile):
                (self.generation / piece.path).unlink()

    def rows(self) -> list[dict[str, Any]]:
        """Return what the archive holds, in the decoder's columns."""
        covered = self.log.read().coverage.partitions[3]
        batches = read_range(self.generation, covered, covered.start, covered.next)
        return [one for batch in batches for one in batch.to_pylist()]

    def _write(
        self,
        first: int,
        rows: list[dict[str, Any]],
        end: int,
        control: list[tuple[int, int]],
        kind: str,
    ) -> DataFile:
        unit = Unit(TOPIC_ID, 3, first, end)
        (piece,) = write_unit(
            self.generation, unit, [part_from(first, rows, end, control)], kind=kind
        )
        assert isinstance(piece, DataFile)
        return piece


def iceberg(generation: Path) -> tuple[SqlCatalog, Table]:
    """Return an archive's Iceberg table, as a user finds it, and its catalog, to be closed."""
    directory = generation.resolve() / "_iceberg"
    catalog = SqlCatalog("kgw", uri=f"sqlite:///{directory}/catalog.db")
    return catalog, catalog.load_table((NAMESPACE, table_name("or.ders", TOPIC_ID)))


def decoded(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows of partition 3 in the decoder's columns, in the order of offsets."""
    stored = table.select(SCHEMA.names).cast(SCHEMA).sort_by("_offset").combine_chunks()
    assert [3] * len(stored) == stored["_partition"].to_pylist()
    return [one for batch in stored.to_batches() for one in decode(batch, ALL_COLUMNS).to_pylist()]


def table_rows(generation: Path, kind: str) -> list[dict[str, Any]]:
    """Return what is in the files that a table names, in the decoder's columns."""
    if kind == "delta":
        files = DeltaTable(str(generation)).file_uris()
    else:
        catalog, table = iceberg(generation)
        with catalog:
            planned = [one.file.file_path for one in table.scan().plan_files()]
        files = [path.removeprefix("file://") for path in planned]
    return decoded(ds.dataset(files, schema=SCHEMA, partitioning=None).to_table())
