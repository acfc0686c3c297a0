"""An Iceberg table over the archive's files, written with the `pyiceberg` library.

Its catalog and metadata are in `_iceberg` in the directory of the topic id, or in a catalog that
the user names. The data files have no field ids, so the table has a name mapping. The summary of
each snapshot stores the version of the commit log and the offset ranges.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import TableProperties

from kgw.pipeline.archive.columns import SCHEMA
from kgw.pipeline.archive.durable import make_directory
from kgw.pipeline.archive.tables.changes import TableState

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from kgw.pipeline.archive.tables.changes import TableChange

NAMESPACE: Final = "kgw"
_VERSION: Final = "kgw.archive.version"
_METRICS: Final = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
_PROPERTIES: Final = {
    # Write no column metrics by default: the columns named below get them.
    TableProperties.DEFAULT_WRITE_METRICS_MODE: "none",
    **{f"{_METRICS}.{name}": "full" for name in ("_partition", "_offset", "_ts_ns")},
    # Merge manifests: each commit adds one, and every later commit reads all of them.
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.MANIFEST_MIN_MERGE_COUNT: "20",
    # Delete old metadata files: each one lists all snapshots.
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
}


def table_name(topic: str, topic_id: UUID) -> str:
    """Return the name of a topic's table.

    Only letters, digits and `_`: some catalogs allow no other characters.
    """
    return f"{re.sub('[^a-zA-Z0-9]', '_', topic)}_{topic_id.hex[:8]}"


class Iceberg:
    """See `publishing.Table`."""

    def __init__(self, generation: Path, topic_id: UUID, catalog: str | None) -> None:
        self._topic_id = topic_id
        self._root = f"file://{generation}/"
        self._identifier = (NAMESPACE, table_name(generation.parent.name, topic_id))
        self._directory = generation / "_iceberg"
        self._catalog_name = catalog
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self._files: dict[str, DataFile] = {}
        self.remedy = (
            f"remove {self._directory}"
            if catalog is None
            else f"drop the table {'.'.join(self._identifier)} in catalog {catalog}"
        )

    def close(self) -> None:
        """Close the catalog."""
        if self._catalog is not None:
            self._catalog.close()

    def make(self) -> None:
        """Create a table without rows."""
        if self._is_elsewhere():
            # The archive was moved, so the catalog names files at the old path: rebuild it. Rename
            # the catalog before removing it, so that a kill in between leaves no incomplete
            # catalog.
            gone = self._directory.with_name(f".removed-{uuid4().hex}")
            self._directory.rename(gone)
            shutil.rmtree(gone)
        catalog = self._opened_catalog()
        catalog.create_namespace_if_not_exists(NAMESPACE)
        try:
            catalog.create_table(self._identifier, SCHEMA, properties=_PROPERTIES)
        except TableAlreadyExistsError:
            return  # another publisher has made it

    def read(self) -> TableState | None:
        """Return the content of the table's current snapshot."""
        if self._catalog_name is None and not (self._directory / "catalog.db").exists():
            return None
        if self._is_elsewhere():
            return None
        try:
            self._table = self._opened_catalog().load_table(self._identifier)
        except NoSuchTableError:
            return None
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return TableState(0, frozenset())
        told = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if _VERSION not in told:
            return TableState(
                0, frozenset(), f"its snapshot {snapshot.snapshot_id} is somebody else's"
            )
        has_deletes = self._read_files(self._table, snapshot)
        return TableState(
            int(told[_VERSION]),
            frozenset(path.removeprefix(self._root) for path in self._files),
            f"its snapshot {snapshot.snapshot_id} has delete files" if has_deletes else None,
        )

    def commit(self, change: TableChange) -> bool:
        """Add and remove the files of a change in one new snapshot."""
        assert self._table is not None  # noqa: S101 - `read` comes first
        before = self._table.metadata_location
        told = {
            "kgw.archive.topic-id": str(self._topic_id),
            "kgw.archive.first-version": str(change.first_version),
            _VERSION: str(change.version),
            "kgw.archive.offsets": json.dumps(
                {str(partition): ranges for partition, ranges in change.offsets.items()}
            ),
        }
        try:
            self._set_properties(self._table)
            with self._table.transaction() as transaction:
                update = transaction.update_snapshot(snapshot_properties=told)
                with update.overwrite() if change.removed else update.merge_append() as producer:
                    for piece in change.added:
                        producer.append_data_file(
                            parquet_file_to_data_file(
                                self._table.io, self._table.metadata, self._root + piece.path
                            )
                        )
                    for piece in change.removed:
                        producer.delete_data_file(self._files[self._root + piece.path])
        except CommitFailedException:
            now = self._opened_catalog().load_table(self._identifier)
            if now.metadata_location == before:
                raise
            return False
        return True

    def _is_elsewhere(self) -> bool:
        """Return whether the archive's own catalog was made at another path of the archive.

        Tables have absolute paths. After an archive was moved or copied, the tables name files that
        are gone or belong to another archive.
        """
        if self._catalog_name is not None or not (self._directory / "catalog.db").exists():
            return False
        # Read the catalog with SQL: the library would load the table's metadata files, which may be
        # gone.
        with closing(sqlite3.connect(self._directory / "catalog.db")) as database:
            try:
                found = database.execute(
                    "select metadata_location from iceberg_tables where table_name = ?",
                    self._identifier[1:],
                ).fetchone()
            except sqlite3.OperationalError:
                return False  # another publisher is just making the catalog's tables
        return found is not None and not str(found[0]).startswith(f"{self._root}_iceberg/")

    def _read_files(self, table: Table, snapshot: Snapshot) -> bool:
        """Store the paths of a snapshot's data files; return whether it has delete files."""
        manifests = snapshot.manifests(table.io)
        self._files = {
            entry.data_file.file_path: entry.data_file
            for manifest in manifests
            if manifest.content == ManifestContent.DATA
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        }
        return any(manifest.content != ManifestContent.DATA for manifest in manifests)

    def _set_properties(self, table: Table) -> None:
        """Set the table properties that publishing needs, unless they are set."""
        mapping = table.schema().name_mapping.model_dump_json()
        wanted = {
            TableProperties.DEFAULT_NAME_MAPPING: mapping,
            # Otherwise the library would retry a conflicting commit on top of another publisher's.
            TableProperties.COMMIT_NUM_RETRIES: "0",
        }
        if any(table.properties.get(name) != value for name, value in wanted.items()):
            with table.transaction() as transaction:
                transaction.set_properties(wanted)

    def _opened_catalog(self) -> Catalog:
        if self._catalog is None:
            self._catalog = self._open_catalog()
        return self._catalog

    def _open_catalog(self) -> Catalog:
        if self._catalog_name is not None:
            return load_catalog(self._catalog_name)
        make_directory(self._directory)
        properties = {
            "uri": f"sqlite:///{self._directory / 'catalog.db'}",
            "warehouse": f"file://{self._directory}",
        }
        try:
            return SqlCatalog("kgw", **properties)
        except Exception:  # noqa: BLE001 - SQLAlchemy's, of whatever database
            # Try again: another publisher created the catalog's tables at the same moment.
            return SqlCatalog("kgw", **properties)
