"""The units that plan a migration; each is the work of one task.

Some units read entries from parts of files or of a topic, and others read records from ranges of
offsets. They store both by partition; then one unit for each partition matches entries with
records.
"""

from __future__ import annotations

from array import array
from itertools import starmap
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.compute as pc

from kgw.client import WireReader
from kgw.client.ack_journal import content_crc
from kgw.migrate.errors import MigrationError
from kgw.migrate.mapping import Records
from kgw.migrate.plan import plan_partition
from kgw.migrate.sources import (
    OldScheme,
    place_of_record,
    read_export,
    read_ledger_partition,
    read_log,
)
from kgw.offsets.ranges import DamagedRangeError
from kgw.pipeline.errors import DamagedRecordsError, DataLossError, PipelineError
from kgw.pipeline.migration.columns import Stored, load_entries, load_records, store

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from kgw.client import AsyncClient
    from kgw.migrate.plan import FoundPartition, TargetPartition
    from kgw.migrate.sources import TopicPartition, UnreadableData
    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.ranges import OffsetRange

CLIENT_ID: Final = "kgw-pipeline-migrate"
_ROWS: Final = 10_000
"""How many records are converted to Python objects at a time."""


class FilePart(NamedTuple):
    """The lines of an export that begin in a range of bytes, or a whole log file."""

    path: Path
    start: int
    stop: int
    is_export: bool


class FileUnit(NamedTuple):
    """Parts of files, in order."""

    parts: tuple[FilePart, ...]

    def __str__(self) -> str:
        first = self.parts[0]
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return f"{first.path} from byte {first.start}{more}"


class PartDamage(NamedTuple):
    """The damage in a part of a file: the first few findings, and the total number."""

    first: list[UnreadableData]
    """In an export, `place` is a line number, counted from 1 within the part."""
    total: int
    lines: int = 0
    """How many lines the part of an export has."""


class ReadEntries(NamedTuple):
    """The result of a unit: the stored entries by partition, and the damage."""

    entries: dict[TopicPartition, Stored]
    damage: tuple[PartDamage, ...]


class MatchUnit(NamedTuple):
    """A partition to match: its stored entries and records, and the old offsets of groups."""

    place: TargetPartition
    entries: tuple[Stored, ...]
    records: tuple[Stored, ...]
    positions: dict[str, int]

    def __str__(self) -> str:
        return f"{self.place.topic} partition {self.place.partition}"


def read_files(scratch: Path, unit: FileUnit) -> ReadEntries:
    """Store the entries of parts of files. Raises PipelineError for a file that cannot be read."""
    scheme = OldScheme()
    found = []
    for path, start, stop, is_export in unit.parts:
        scheme.damage, scheme.damage_count, lines = [], 0, 0
        try:
            if is_export:
                lines = read_export(scheme, path, "{number}".format, start=start, stop=stop)
            else:
                read_log(scheme, path)
        except MigrationError as error:
            raise PipelineError(str(error)) from None
        found.append(PartDamage(scheme.damage, scheme.damage_count, lines))
    return _stored(scratch, scheme, tuple(found))


def read_topic(scratch: Path, cluster: Cluster, unit: OffsetRange) -> ReadEntries | None:
    """Store the entries of a range of the ledger's topic; None if stored batches are damaged.

    Raises ClientError, PipelineError.
    """
    scheme = OldScheme()
    with cluster.client(client_id=CLIENT_ID) as wire:
        try:
            for decoded in wire.decoded(unit, columns=("offset", "key", "value")):
                for rows in _slices(decoded.batch):
                    columns = (rows.column(name).to_pylist() for name in ("offset", "key", "value"))
                    for offset, key, value in zip(*columns, strict=True):
                        place = place_of_record(unit.topic, unit.partition, offset)
                        scheme.add_message(place, key, value)
        except DamagedRecordsError:
            return None
        except DataLossError as error:
            raise _gone(error) from None
    return _stored(scratch, scheme, (PartDamage(scheme.damage, scheme.damage_count),))


def read_damaged_topic(scratch: Path, cluster: Cluster, unit: OffsetRange) -> ReadEntries:
    """Store the entries of a whole partition of the ledger's topic; skip damaged batches.

    Raises ClientError, PipelineError.
    """
    scheme = OldScheme()

    async def read(client: AsyncClient) -> None:
        reader = WireReader(client, await client.topic(unit.topic))
        await read_ledger_partition(scheme, reader, unit.partition, unit.first, unit.end)

    with cluster.client(client_id=CLIENT_ID) as wire:
        try:
            wire.call(read(wire.client))
        except DamagedRangeError as error:
            raise PipelineError(str(error)) from None
    return _stored(scratch, scheme, (PartDamage(scheme.damage, scheme.damage_count),))


def read_records(scratch: Path, cluster: Cluster, unit: OffsetRange) -> Stored:
    """Store those fields of a range's records that matching needs.

    Raises ClientError, PipelineError.
    """
    records = Records()
    with cluster.client(client_id=CLIENT_ID) as wire:
        try:
            for decoded in wire.decoded(unit, columns=("offset", "timestamp_ms", "key", "value")):
                for rows in _slices(decoded.batch):
                    _add(records, rows)
        except DataLossError as error:
            raise _gone(error) from None
    return store(scratch, [records])[0]


def match(unit: MatchUnit) -> FoundPartition:
    """Match the entries and records of a partition; takes 135 bytes of memory for each entry."""
    return plan_partition(
        unit.place,
        load_entries(unit.entries),
        load_records(unit.records),
        unit.positions,
    )


def _stored(scratch: Path, scheme: OldScheme, damage: tuple[PartDamage, ...]) -> ReadEntries:
    stored = store(scratch, scheme.entries.values())
    return ReadEntries(dict(zip(scheme.entries, stored, strict=True)), damage)


def _slices(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch.slice(at, _ROWS) for at in range(0, len(batch), _ROWS)]


def _add(records: Records, rows: pa.RecordBatch) -> None:
    value = rows.column("value")
    records.offsets.frombytes(rows.column("offset").to_numpy().tobytes())
    records.times.frombytes(rows.column("timestamp_ms").to_numpy().tobytes())
    sizes = pc.fill_null(pc.binary_length(value), 0)
    records.sizes_bytes.frombytes(sizes.to_numpy().tobytes())
    pairs = zip(rows.column("key").to_pylist(), value.to_pylist(), strict=True)
    records.fingerprints.extend(array("I", starmap(content_crc, pairs)))


def _gone(error: DataLossError) -> PipelineError:
    return PipelineError(
        f"topic {error.topic} partition {error.partition}: offsets {error.first} to "
        f"{error.end - 1} were removed while they were read; make the plan again"
    )
