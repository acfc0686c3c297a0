"""Archives that publish tables, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import DataFile, Entry, Hole
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.archive.tables import TableSettings, register
from kgw.pipeline.archive.tables.iceberg import NAMESPACE, table_name
from kgw.pipeline.archive.units import Unit, write_unit
from tests.pipeline.archive.test_units import part, row

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyiceberg.table import Table

    from kgw.pipeline.archive.entry import Piece

TOPIC_ID = UUID(int=7)


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

    def write(self, first: int, end: int, kind: str = "append") -> DataFile:
        """Write a file; the first offset of it is a marker."""
        rows = [
            row(offset, value=b"v%d" % offset, headers=[{"key": "h", "value": b"%d" % offset}])
            for offset in range(first + 1, end)
        ]
        unit = Unit(TOPIC_ID, 3, first, end)
        (piece,) = write_unit(
            self.generation, unit, [part(rows, end, [(first, first + 1)])], kind=kind
        )
        assert isinstance(piece, DataFile)
        return piece

    def commit(self, *added: Piece, removed: tuple[Piece, ...] = ()) -> None:
        """Commit pieces, the first ones with the start of the partition."""
        version = self.version
        starts = {} if version else {3: added[0].first}
        self.log.commit(Entry(uuid4(), TOPIC_ID, added, removed, starts), planned_at=version)

    def append(self, first: int, end: int) -> DataFile:
        """Write and commit."""
        piece = self.write(first, end)
        self.commit(piece)
        return piece

    def replace(self, count: int, kind: str) -> None:
        """Put the first few pieces into one file of another kind."""
        old = self.pieces[:count]
        self.commit(self.write(old[0].first, old[-1].last + 1, kind), removed=old)

    def expire(self, count: int) -> None:
        """Remove the first few pieces."""
        old = self.pieces[:count]
        self.commit(Hole(3, old[0].first, old[-1].last, "retention"), removed=old)
        for piece in old:
            if isinstance(piece, DataFile):
                (self.generation / piece.path).unlink()

    def rows(self) -> list[tuple[int, bytes]]:
        """Return offsets and values of what the archive holds."""
        covered = self.log.read().coverage.partitions[3]
        batches = read_range(self.generation, covered, covered.start, covered.next)
        return [(one["offset"], one["value"]) for batch in batches for one in batch.to_pylist()]


def iceberg(generation: Path) -> tuple[SqlCatalog, Table]:
    """Return an archive's Iceberg table, as a user finds it, and its catalog, to be closed."""
    directory = generation.resolve() / "_iceberg"
    catalog = SqlCatalog("kgw", uri=f"sqlite:///{directory}/catalog.db")
    return catalog, catalog.load_table((NAMESPACE, table_name("or.ders", TOPIC_ID)))


def table_rows(generation: Path, kind: str) -> list[tuple[int, bytes]]:
    """Return offsets and values of what a table holds, by its library."""
    rows = (_delta_rows(generation) if kind == "delta" else _iceberg_rows(generation)).to_pylist()
    return sorted((one["_offset"], one["_value"]) for one in rows)


def _delta_rows(generation: Path) -> pa.Table:
    return ds.dataset(DeltaTable(str(generation)).file_uris(), partitioning=None).to_table()


def _iceberg_rows(generation: Path) -> pa.Table:
    catalog, table = iceberg(generation)
    with catalog:
        return table.scan().to_arrow()
