"""Every damage that levels 0 to 3 of an audit name, each planted alone in an archive that is whole.

The archive is one of a topic on a server. Version 1 of its log says where its partitions begin, and
version 2 has all of partition 0. Version 3 has a file of offsets 0 to 9 of partition 1, where the
damage is planted, and version 4 one of 10 to 19, of which 10 and 11 are an aborted record and its
marker. Version 5 has 20 and 21, the same without a file. Another topic, and another life of this
one, which come before it, stay whole.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from kgw.client import NewRecord, Producer, TransactionalClient
from kgw.client.admin import TOPIC
from kgw.pipeline.archive.archived_topics import ArchivedTopic
from kgw.pipeline.archive.columns import SCHEMA
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import CommitLogEntry, Hole
from kgw.pipeline.archive.findings import AuditProblem
from kgw.pipeline.archive.tables import TableSettings, publish, register
from kgw.pipeline.archive.units import FOOTER_KEY, checksum_of
from kgw.pipeline.arrow.encode import encode_at_offsets
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from tests.pipeline.archive.test_units import row
from tests.pipeline.jobs.lives import append
from tests.pipeline.jobs.runners import Backwards

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.pipeline.serving import ServedTopics

TOPIC_NAME = "orders"
GAPS = "gaps"
"""A topic that has nothing at offsets 3 and 4, though it is not compacted; its archive has all."""

_OFFSET = SCHEMA.get_field_index("_offset")
_VALUE = SCHEMA.get_field_index("_value")
_PARTITION = 1
_STAGES = 4
"""The versions that the archive job makes after the first one."""
_EARLIER = "early"
_EARLIER_ID = UUID(int=7)


class Damage:
    """An archive, and what becomes of its files and its log behind its back."""

    def __init__(self, root: Path, topic_id: UUID) -> None:
        self.life = ArchivedTopic(root, TOPIC_NAME, topic_id)
        self.log = self.life.generation / "_log"

    def version(self, number: int) -> Path:
        """Return the file of a version."""
        return self.log / f"{number:020d}.json"

    def edit(self, number: int, *, piece: dict[str, Any] | None = None, **fields: Any) -> None:
        """Let a version say something else, of itself or of the piece that it adds."""
        path = self.version(number)
        entry = json.loads(path.read_bytes())
        entry |= fields
        if piece is not None:
            entry["added"][0] |= piece
        path.write_text(json.dumps(entry))

    def added(self, number: int) -> dict[str, Any]:
        """Return the piece that a version adds, as it says it."""
        found: dict[str, Any] = json.loads(self.version(number).read_bytes())["added"][0]
        return found

    def file(self, number: int) -> Path:
        """Return the data file that a version adds."""
        found: Path = self.life.generation / self.added(number)["path"]
        return found

    def commit_as_it_is(self, number: int, **fields: Any) -> None:
        """Let a version say what its data file is now, as whoever has altered both would."""
        path = self.file(number)
        size, checksum = path.stat().st_size, checksum_of(path)
        self.edit(number, piece={"bytes": size, "checksum": checksum, **fields})

    def rewrite(
        self,
        number: int,
        change: Callable[[pa.Table], pa.Table],
        *,
        footer: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Put other rows in a data file, or another footer, and commit that."""
        path = self.file(number)
        table = pq.read_table(path, partitioning=None)
        said = json.loads(pq.read_metadata(path).metadata[FOOTER_KEY.encode()])
        changed = change(table)
        with pq.ParquetWriter(path, changed.schema.remove_metadata()) as writer:
            writer.write_table(changed)
            writer.add_key_value_metadata({FOOTER_KEY: json.dumps(said | (footer or {}))})
        times = pc.min_max(changed["_ts_ns"]).as_py()
        told = {"min_ts_ns": times["min"], "max_ts_ns": times["max"]}
        self.commit_as_it_is(number, **(told | fields))

    def spoil(self, number: int, column: int, count: int) -> None:
        """Overwrite the last bytes of a column in a data file."""
        path = self.file(number)
        chunk = pq.read_metadata(path).row_group(0).column(column)
        end = chunk.data_page_offset + chunk.total_compressed_size
        if chunk.dictionary_page_offset is not None:
            end = chunk.dictionary_page_offset + chunk.total_compressed_size
        data = bytearray(path.read_bytes())
        for at in range(end - count, end):
            data[at] ^= 0xFF
        path.write_bytes(data)

    def go_on(self) -> None:
        """Commit one offset more than the topic has, as if it had lost that since."""
        last = self.added(5)["last"] + 1
        added = (Hole(_PARTITION, last, last, "control"),)
        self.life.log.commit(CommitLogEntry(uuid4(), self.life.topic_id, added), planned_at=5)

    def publish(self) -> None:
        """Publish a Delta table of what is committed."""
        register(self.life.generation, TableSettings("delta"))
        publish(self.life.generation, self.life.topic_id)


class Planting(NamedTuple):
    """A damage, the level that finds it, and everything that the audit says of it then.

    What a level below it says is a pair of that level and the problem.
    """

    level: int
    plant: Callable[[Damage], object]
    found: tuple[AuditProblem | tuple[int, AuditProblem], ...]
    is_of_gaps: bool = False
    """Whether it is planted in the archive of the topic that has gaps."""

    @property
    def expected(self) -> list[tuple[int, AuditProblem]]:
        """Levels and problems."""
        return [one if isinstance(one, tuple) else (self.level, one) for one in self.found]


# --- what is done to rows ------------------------------------------------------------------------


def without(*offsets: int) -> Callable[[pa.Table], pa.Table]:
    """Leave out the rows of some offsets."""
    return lambda table: table.filter(
        pc.invert(pc.is_in(table["_offset"], pa.array(offsets, pa.int64())))
    )


def rows(order: list[int]) -> Callable[[pa.Table], pa.Table]:
    """Take the rows of these numbers."""
    return lambda table: table.take(order)


def put(row_number: int, **fields: Any) -> Callable[[pa.Table], pa.Table]:
    """Give one row other fields."""

    def change(table: pa.Table) -> pa.Table:
        found = table.to_pylist()
        found[row_number] |= fields
        return pa.Table.from_pylist(found, SCHEMA)

    return change


def exchanged(one: int, other: int, *columns: str) -> Callable[[pa.Table], pa.Table]:
    """Exchange the columns of two rows."""

    def change(table: pa.Table) -> pa.Table:
        found = table.to_pylist()
        for name in columns:
            found[one][name], found[other][name] = found[other][name], found[one][name]
        return pa.Table.from_pylist(found, SCHEMA)

    return change


def added_row(offset: int) -> Callable[[pa.Table], pa.Table]:
    """Put one more row in front, as the first one but of another offset."""

    def change(table: pa.Table) -> pa.Table:
        found = table.to_pylist()
        return pa.Table.from_pylist([found[0] | {"_offset": offset}, *found], SCHEMA)

    return change


# --- the table -----------------------------------------------------------------------------------

HOLE_IN_PLACE = {"type": "hole", "partition": 1, "first": 10, "last": 19}
P = AuditProblem


def _replace_piece(reason: str) -> Callable[[Damage], object]:
    return lambda one: one.edit(4, added=[HOLE_IN_PLACE | {"reason": reason}])


def _foreign_table(one: Damage) -> None:
    one.publish()
    DeltaTable(str(one.life.generation)).alter.add_columns([Field("more", PrimitiveType("string"))])


def _write_twice(one: Damage) -> None:
    one.edit(4, added=[one.added(4)] * 2)


def _lose_log(one: Damage) -> None:
    for path in one.log.glob("*"):
        path.unlink()


def _lose_newest(one: Damage) -> None:
    one.publish()
    one.version(5).unlink()


def _delete_rows(condition: str) -> Callable[[Damage], object]:
    def delete(one: Damage) -> None:
        one.publish()
        DeltaTable(str(one.life.generation)).delete(condition)

    return delete


def _empty_log(one: Damage) -> None:
    for path in one.log.iterdir():
        path.unlink()


def _damage_table(one: Damage) -> None:
    one.publish()
    (one.life.generation / "_tables" / "delta.json").write_text("{")


def _spoil_offsets(one: Damage) -> None:
    one.spoil(4, _OFFSET, 8)
    one.commit_as_it_is(4)


PLANTINGS: dict[str, Planting] = {
    # Level 0: the log.
    "a log that is gone": Planting(0, lambda one: shutil.rmtree(one.log), (P.DAMAGED_LOG,)),
    "a log that is empty": Planting(0, _empty_log, (P.DAMAGED_LOG,)),
    "a version of another topic": Planting(
        0, lambda one: one.edit(5, topic_id=str(UUID(int=8))), (P.FOREIGN_TOPIC_ID,)
    ),
    "a partition that begins twice": Planting(
        0, lambda one: one.edit(5, starts={"1": 20}), (P.WRONG_START,)
    ),
    "a partition that never began": Planting(
        0, lambda one: one.edit(5, piece={"partition": 2}), (P.WRONG_START,)
    ),
    "offsets that are covered twice": Planting(
        0, lambda one: one.edit(5, piece={"first": 19}), (P.OVERLAP,)
    ),
    "offsets that are not covered": Planting(
        0, lambda one: one.edit(5, piece={"first": 21}), (P.HOLE,)
    ),
    "a replacement of what is not there": Planting(
        0, lambda one: one.edit(5, removed=[HOLE_IN_PLACE | {"reason": "lost"}]), (P.UNKNOWN_PIECE,)
    ),
    "a record more than there are offsets": Planting(
        0, lambda one: one.edit(4, piece={"rows": 9}), (P.WRONG_COUNT,)
    ),
    "a record less than there are offsets": Planting(
        0, lambda one: one.edit(4, piece={"rows": 7}), (P.WRONG_COUNT,)
    ),
    # A path says its offsets, so that the same path is the same offsets.
    "a file that is added twice": Planting(0, _write_twice, (P.OVERLAP,)),
    "a version that is no JSON": Planting(
        0, lambda one: one.version(4).write_text("{"), (P.DAMAGED_LOG,)
    ),
    "a version of a later format": Planting(0, lambda one: one.edit(4, format=2), (P.DAMAGED_LOG,)),
    "a path of other offsets": Planting(
        0, lambda one: one.edit(4, piece={"first": 11}), (P.DAMAGED_LOG,)
    ),
    "an unknown reason of a hole": Planting(
        0, lambda one: one.edit(5, piece={"reason": "no reason"}), (P.DAMAGED_LOG,)
    ),
    "a version that is missing": Planting(0, lambda one: one.version(4).unlink(), (P.DAMAGED_LOG,)),
    "the first version missing": Planting(0, lambda one: one.version(2).unlink(), (P.DAMAGED_LOG,)),
    "a log that was lost": Planting(0, _lose_log, (P.DAMAGED_LOG,)),
    # Level 1: footers and tables.
    "a file that is missing": Planting(1, lambda one: one.file(4).unlink(), (P.MISSING_FILE,)),
    "a file that was cut": Planting(
        1,
        lambda one: one.file(4).write_bytes(one.file(4).read_bytes()[:-1]),
        (P.TRUNCATED_FILE,),
    ),
    "a file of no bytes": Planting(
        1, lambda one: one.file(4).write_bytes(b""), (P.TRUNCATED_FILE,)
    ),
    "a file with more behind it": Planting(
        1,
        lambda one: one.file(4).write_bytes(one.file(4).read_bytes() + b"x"),
        (P.FILE_TOO_LONG,),
    ),
    "a footer that cannot be read": Planting(
        1,
        lambda one: one.file(4).write_bytes(one.file(4).read_bytes()[:-8] + b"\xff" * 8),
        (P.DAMAGED_FILE,),
    ),
    "a file without some columns": Planting(
        1,
        lambda one: one.rewrite(4, lambda table: table.drop_columns("_headers")),
        (P.WRONG_COLUMNS,),
    ),
    "a file of another topic": Planting(
        1,
        lambda one: one.rewrite(4, rows([*range(8)]), footer={"topic_id": str(UUID(int=8))}),
        (P.FOREIGN_TOPIC_ID,),
    ),
    "a file of another partition": Planting(
        1,
        lambda one: one.rewrite(4, rows([*range(8)]), footer={"partition": 0}),
        (P.WRONG_RANGE,),
    ),
    "a file of other offsets": Planting(
        1, lambda one: one.rewrite(4, rows([*range(8)]), footer={"first": 9}), (P.WRONG_RANGE,)
    ),
    "a record outside of its file": Planting(
        1, lambda one: one.rewrite(4, put(7, _offset=20)), (P.WRONG_RANGE,)
    ),
    "a record of another partition": Planting(
        1, lambda one: one.rewrite(4, put(7, _partition=0)), (P.WRONG_RANGE,)
    ),
    # Retention by age goes by it.
    "a file that seems to be older": Planting(
        1, lambda one: one.edit(4, piece={"max_ts_ns": 0}), (P.WRONG_TIMES,)
    ),
    "a file whose times seem unknown": Planting(
        1, lambda one: one.edit(4, piece={"min_ts_ns": None}), (P.WRONG_TIMES,)
    ),
    "a file with more records": Planting(
        1, lambda one: one.rewrite(4, added_row(11)), (P.WRONG_ROWS,)
    ),
    "a file with fewer records": Planting(
        1, lambda one: one.rewrite(4, without(15)), (P.WRONG_ROWS,)
    ),
    "a table that is behind": Planting(
        1, lambda one: register(one.life.generation, TableSettings("delta")), (P.TABLE_BEHIND,)
    ),
    "a table that is ahead": Planting(1, _lose_newest, (P.TABLE_AHEAD,)),
    "a table without a row": Planting(1, _delete_rows("_offset = 15"), (P.TABLE_DIFFERS,)),
    "a table without a file": Planting(1, _delete_rows("_offset > 11"), (P.TABLE_DIFFERS,)),
    "a table of other columns": Planting(1, _foreign_table, (P.FOREIGN_TABLE,)),
    "a table that cannot be read": Planting(1, _damage_table, (P.DAMAGED_TABLE,)),
    # Level 2: every byte, and each offset.
    "a value whose bytes were altered": Planting(
        2, lambda one: one.spoil(4, _VALUE, 1), (P.ALTERED_FILE,)
    ),
    "another checksum": Planting(
        2, lambda one: one.edit(4, piece={"checksum": "sha256:0"}), (P.ALTERED_FILE,)
    ),
    "offsets that cannot be read": Planting(2, _spoil_offsets, (P.DAMAGED_FILE,)),
    "records in another order": Planting(
        2, lambda one: one.rewrite(4, rows([1, 0, *range(2, 8)])), (P.ORDER,)
    ),
    # As many rows as before, so that another record is missing.
    "a record that is there twice": Planting(
        2, lambda one: one.rewrite(4, rows([0, 1, 2, 2, 4, 5, 6, 7])), (P.DUPLICATE, P.GAP)
    ),
    "a record at an offset without one": Planting(
        2, lambda one: one.rewrite(4, put(0, _offset=11)), (P.UNDECLARED_RECORD, P.GAP)
    ),
    "a record that is missing": Planting(
        2, lambda one: one.rewrite(4, without(15)), ((1, P.WRONG_ROWS), P.GAP)
    ),
    "a record of an offset outside": Planting(
        2,
        lambda one: one.rewrite(4, put(7, _offset=20)),
        ((1, P.WRONG_RANGE), P.WRONG_RANGE, P.GAP),
    ),
    # Level 3: what is like this was committed like this, and only the topic knows better.
    "a record that the archive leaves out": Planting(
        3, lambda one: one.rewrite(4, without(15), rows=7, holes=1), (P.LOST_RECORD,)
    ),
    "the first record left out": Planting(
        3, lambda one: one.rewrite(3, without(0), rows=9, holes=1), (P.LOST_RECORD,)
    ),
    "the last record left out": Planting(
        3, lambda one: one.rewrite(4, without(19), rows=7, holes=1), (P.LOST_RECORD,)
    ),
    "records declared to be none": Planting(3, _replace_piece("control"), (P.LOST_RECORD,)),
    "records declared to be compacted": Planting(3, _replace_piece("compaction"), (P.LOST_RECORD,)),
    "a record that the topic has not": Planting(
        3,
        lambda one: one.rewrite(4, added_row(11), rows=9, control_ranges=[[10, 10]]),
        (P.FOREIGN_RECORD,),
    ),
    "another value": Planting(
        3, lambda one: one.rewrite(4, put(3, _value=b"x")), (P.ALTERED_RECORD,)
    ),
    "no value": Planting(3, lambda one: one.rewrite(4, put(3, _value=None)), (P.ALTERED_RECORD,)),
    "another key": Planting(3, lambda one: one.rewrite(4, put(3, _key=b"x")), (P.ALTERED_RECORD,)),
    "another time": Planting(
        3, lambda one: one.rewrite(4, put(3, _ts_ns=1_012_000_000)), (P.ALTERED_RECORD,)
    ),
    "a time of the server": Planting(
        3, lambda one: one.rewrite(4, put(3, _ts_type=1)), (P.ALTERED_RECORD,)
    ),
    "another leader epoch": Planting(
        3, lambda one: one.rewrite(4, put(3, _epoch=7)), (P.ALTERED_RECORD,)
    ),
    "another header": Planting(
        3,
        lambda one: one.rewrite(4, put(3, _headers=[{"key": "h", "value": b"x"}])),
        (P.ALTERED_RECORD,),
    ),
    "two records in each other's place": Planting(
        3,
        lambda one: one.rewrite(4, exchanged(3, 4, "_key", "_value", "_ts_ns", "_headers")),
        (P.ALTERED_RECORD,),
    ),
    "a log that ends before its archive": Planting(3, Damage.go_on, (P.END_WENT_BACK,)),
    "offsets that the topic has nothing of": Planting(
        3, lambda _: None, (P.GAP_IN_THE_TOPIC,), is_of_gaps=True
    ),
}


# --- the archive ---------------------------------------------------------------------------------


def make_archive(served: ServedTopics, root: Path) -> UUID:
    """Make the topic and its archive, and return the topic's id."""
    served.create(_EARLIER)
    served.number(_EARLIER, {0: 3})
    archive(served, root, _EARLIER)
    append(ArchivedTopic(root, TOPIC_NAME, _EARLIER_ID), [row(0)], 1)
    served.create(TOPIC_NAME, 2)
    for stage in range(_STAGES):
        if stage > 1:
            _abort(served)
        partition, count = ((0, 3), (1, 10), (1, 8), (1, 0))[stage]
        if count:
            first = 10 * stage
            served.number(TOPIC_NAME, {partition: count}, first=first, record=_record)
        archive(served, root, TOPIC_NAME)
    described = served.wire.find_topic(TOPIC_NAME)
    assert described is not None
    topic_id = UUID(bytes=bytes(described.topic_id))
    assert _EARLIER_ID < topic_id
    snapshot = CommitLog(ArchivedTopic(root, TOPIC_NAME, topic_id).generation, topic_id).read()
    shapes = [(one.first, one.last) for one in snapshot.coverage.partitions[1].pieces]
    assert (5, [(0, 9), (10, 19), (20, 21)]) == (snapshot.version, shapes)
    return topic_id


def make_gaps(served: ServedTopics, root: Path) -> None:
    """Make the topic that has nothing at some offsets, and its archive."""
    served.create(GAPS)
    loading = {"kgw.loading": "loader-", "kgw.loading.offsets": "original"}
    served.wire.call(served.admin.alter_settings(TOPIC, GAPS, loading))
    stored = [row(at) for at in range(9) if at not in {3, 4}]
    batch = pa.RecordBatch.from_pylist(stored).select(["offset", "timestamp_ms", "key", "value"])
    client = served.wire.client

    async def store(data: bytearray) -> None:
        await (await client.start_produce(GAPS, 0, data, transactional_id="loader-0"))

    for one in encode_at_offsets(batch, 0, 9, max_batch_bytes=1 << 20):
        served.wire.call(store(one.data))
    archive(served, root, GAPS)


def archive(served: ServedTopics, root: Path, topic: str) -> None:
    """Archive what a topic has."""
    options = ArchiveOptions(allow_gaps=True)
    ArchiveJob(served.wire, served.cluster, root, Backwards(), options, now_ms=lambda: 0).run_once(
        topic
    )


def _record(partition: int, index: int) -> NewRecord:
    headers = (("h", b"%d" % index),)
    return NewRecord(b"k%d" % index, b"%d-%d" % (partition, index), 1000 + index, headers)


def _abort(served: ServedTopics) -> None:
    """Store one record in a transaction that is aborted: two offsets without a record."""

    async def produce() -> None:
        client = served.wire.client
        transactions = TransactionalClient(client)
        transaction = await transactions.begin("aborting", timeout_ms=60_000)
        async with Producer(client, transaction=transaction) as producer:
            await (await producer.send(TOPIC_NAME, 1, [NewRecord(None, b"aborted", 0)]))
        await transactions.end(transaction, is_commit=False)

    served.wire.call(produce())
