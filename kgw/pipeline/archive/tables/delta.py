"""A Delta table in the archive's directory of a topic id, written with the `deltalake` library.

Reader version 1, writer version 2. Each commit stores the version of the commit log as a `txn`
action, and the offset ranges in its commit info. A conflicting commit is not retried at a later
version of the table, so two publishers cannot apply the same change.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from kgw.pipeline.archive.columns import SCHEMA
from kgw.pipeline.archive.tables.changes import TableState

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.archive.entry import DataFile
    from kgw.pipeline.archive.tables.changes import TableChange

_STATISTICS: Final = ("_partition", "_offset", "_ts_ns")


class Delta:
    """See `publishing.Table`."""

    def __init__(self, generation: Path, topic_id: UUID) -> None:
        self._generation = generation
        self._topic_id = topic_id
        self._application = f"kgw-archive-{topic_id}"
        self._schema = Schema.from_arrow(SCHEMA)
        self._table: DeltaTable | None = None
        self.remedy = f"remove {generation / '_delta_log'}"

    def close(self) -> None:
        """Do nothing: the table holds no resources."""

    def make(self) -> None:
        """Create a table without rows."""
        try:
            DeltaTable.create(
                str(self._generation), self._schema, name=self._generation.parent.name
            )
        except DeltaError:
            # Ignore the error if another publisher has created the table meanwhile.
            if self.read() is None:
                raise

    def read(self) -> TableState | None:
        """Return the content of the table's newest version."""
        try:
            self._table = DeltaTable(str(self._generation))
        except TableNotFoundError:
            return None
        version = self._table.transaction_version(self._application) or 0
        paths = self._table.get_add_actions().column("path").to_pylist()
        return TableState(version, frozenset(paths), self._foreign())

    def commit(self, change: TableChange) -> bool:
        """Commit the next version of the table, with the added and removed files of a change."""
        assert self._table is not None  # noqa: S101 - `read` comes first
        data_change = not change.keeps_rows
        adds = [self._add(piece, data_change=data_change) for piece in change.added]
        removes = [
            RemoveAction(piece.path, data_change, change.committed_at_ms, piece.bytes, {})
            for piece in change.removed
        ]
        told = {
            "topic_id": str(self._topic_id),
            "first_version": change.first_version,
            "version": change.version,
            "offsets": {str(partition): ranges for partition, ranges in change.offsets.items()},
        }
        try:
            self._table.create_write_transaction(
                [*adds, *removes],
                "append",
                self._schema,
                commit_properties=CommitProperties(
                    custom_metadata={"kgw.archive": told},
                    max_commit_retries=0,
                    app_transactions=[Transaction(self._application, change.version)],
                ),
            )
        except CommitFailedError:
            before = self._table.version()
            if DeltaTable(str(self._generation)).version() == before:
                raise
            return False
        return True

    def _foreign(self) -> str | None:
        assert self._table is not None  # noqa: S101 - `read` has set it
        if self._table.schema() != self._schema:
            return "its columns are not the archive's"
        # A table with deletion vectors names them in its protocol.
        if self._table.protocol().reader_features:
            deleted = self._table.deletion_vectors().read_all()
            if deleted.num_rows:
                return f"rows were deleted from {deleted.column(0)[0]}"
        return None

    def _add(self, piece: DataFile, *, data_change: bool) -> AddAction:
        path = self._generation / piece.path
        modified_ms = path.stat().st_mtime_ns // 1_000_000
        statistics = json.dumps(_statistics(path))
        return AddAction(piece.path, piece.bytes, {}, modified_ms, data_change, statistics)


def _statistics(path: Path) -> dict[str, Any]:
    """Return the exact statistics in a file's footer: readers compute `min` and `max` from them."""
    metadata = pq.read_metadata(path)
    told: dict[str, Any] = {
        "numRecords": metadata.num_rows,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
    }
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for name in _STATISTICS:
        found = [group.column(SCHEMA.get_field_index(name)).statistics for group in groups]
        if all(one is not None and one.has_null_count for one in found):
            told["nullCount"][name] = sum(one.null_count for one in found)
        if found and all(one is not None and one.has_min_max for one in found):
            told["minValues"][name] = min(one.min for one in found)
            told["maxValues"][name] = max(one.max for one in found)
    return told
