from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest

from kgw.client import (
    AsyncClient,
    ConnectionLostError,
    GroupClient,
    NewRecord,
    Producer,
    TransactionalClient,
)
from kgw.client.admin import TOPIC
from kgw.client.groups import GroupOffset
from kgw.client.values import EpochRange
from kgw.errors import CorruptionError
from kgw.offsets.ranges import OffsetBounds
from kgw.pipeline.archive.audit import audit
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.coverage import Coverage, apply
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile, Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.archive.sweeping import GRACE_S
from kgw.pipeline.archive.units import Sizes, Unit, write_unit
from kgw.pipeline.arrow.encode import encode_at_offsets
from kgw.pipeline.errors import PipelineError
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.archive_plan import ArchivePlan, RangeSelector, find_truncation, plan
from kgw.pipeline.jobs.archive_unit import (
    Refused,
    UnitSettings,
    archive_range,
    attempt_range,
    split_at_gaps,
)
from kgw.pipeline.jobs.holding import find_stranger, hold
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading
from kgw.records.batch import read_batch
from kgw.records.builder import BatchBuilder, encode_batch
from kgw.types import TopicId
from tests.pipeline.archive.test_units import part, row
from tests.pipeline.jobs.runners import Backwards, ResultT, UnitT
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from kgw.backend.base import ReadResult
    from kgw.pipeline.archive.coverage import PartitionCoverage
    from kgw.pipeline.archive.tables import TableSettings
    from kgw.pipeline.jobs.archive import CommittedRange

TOPIC_ID = UUID(int=7)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


def job(
    served: ServedTopics,
    root: Path,
    runner: Backwards | None = None,
    on_committed: Callable[[CommittedRange], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    now_ms: Callable[[], int] = lambda: 0,
    **options: bool | int | str | Sizes | tuple[TableSettings, ...] | None,
) -> ArchiveJob:
    """Return a job that archives into a root."""
    return ArchiveJob(
        served.wire,
        served.cluster,
        root,
        runner or Backwards(),
        ArchiveOptions(**options),  # type: ignore[arg-type] # whichever a test names
        now_ms=now_ms,
        on_committed=on_committed,
        tell=tell,
    )


def archived(served: ServedTopics, root: Path, topic: str) -> dict[int, PartitionCoverage]:
    """Return what the archive of a topic as it is now covers, after an audit found nothing."""
    described = served.wire.find_topic(topic)
    assert described is not None
    topic_id = UUID(bytes=bytes(described.topic_id))
    generation = generation_directory(str(root), topic, topic_id)
    assert [] == list(audit(generation, topic_id, level=2))
    return dict(CommitLog(generation, topic_id).read().coverage.partitions)


def values(
    served: ServedTopics, root: Path, topic: str, partition: int
) -> tuple[list[bytes], list[bytes]]:
    """Return the values of a partition, of its archive and of the log, for the same offsets."""
    covered = archived(served, root, topic)[partition]
    described = served.wire.find_topic(topic)
    assert described is not None
    generation = generation_directory(str(root), topic, UUID(bytes=bytes(described.topic_id)))
    from_archive = list(read_range(generation, covered, covered.start, covered.next))
    wanted = OffsetRange(topic, partition, covered.start, covered.next)
    from_log = [
        one.batch for one in served.wire.decoded(wanted, reading=Reading(read_committed=True))
    ]
    return column(from_archive), column(from_log)


def write(served: ServedTopics, topic: str, *, is_commit: bool | None) -> None:
    """Store a record in a transaction, and end it; None leaves it open."""
    transactions = TransactionalClient(served.wire.client)

    async def send() -> None:
        producer = await transactions.begin(f"{topic}-{is_commit}", timeout_ms=60_000)
        await transactions.add_partitions(producer, topic, [0])
        async with Producer(served.wire.client, transaction=producer) as sender:
            await (await sender.send(topic, 0, [NewRecord(None, b"of a transaction", 1)]))
        if is_commit is not None:
            await transactions.end(producer, is_commit=is_commit)

    served.wire.call(send())


def column(batches: list[pa.RecordBatch]) -> list[bytes]:
    """Return the values of some batches."""
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_everything_is_archived_once(served: ServedTopics, tmp_path: Path) -> None:
    """Units end in any order, and what is committed is what the topic holds; again is nothing."""
    served.create("whole", 3)
    served.number("whole", {0: 45_000, 1: 10})
    summary = job(served, tmp_path).run_once("whole")

    assert (45_010, 45_010, 0) == (summary.offsets, summary.records, summary.overtaken_units)
    assert {0: 45_000, 1: 10, 2: 0} == {
        partition: one.next for partition, one in archived(served, tmp_path, "whole").items()
    }
    for partition in range(3):
        ours, theirs = values(served, tmp_path, "whole", partition)
        assert theirs == ours
    assert 0 == job(served, tmp_path).run_once("whole").offsets

    served.number("whole", {2: 5})
    again = job(served, tmp_path).run_once("whole")
    assert (5, {0: 45_000, 1: 10, 2: 5}) == (again.offsets, again.ends)


@pytest.mark.slow
def test_a_unit_that_is_larger_than_it_seemed_ends_early(
    served: ServedTopics, tmp_path: Path
) -> None:
    """Small records in front say nothing of those behind: these come in units of their own."""
    served.create("unlike")
    served.number("unlike", {0: 20_000})
    for index in range(30):
        served.produce("unlike", {0: [NewRecord(None, os.urandom(100_000), index)]})
    commits: list[int] = []

    def note(one: CommittedRange) -> None:
        commits.append(sum(file.bytes for file in one.pieces if isinstance(file, DataFile)))

    sizes = Sizes(row_group_bytes=1 << 18, file_bytes=1 << 18)
    runner = Backwards(step=1)
    summary = job(served, tmp_path, runner, on_committed=note, sizes=sizes).run_once("unlike")

    assert (20_030, 20_030) == (summary.offsets, summary.ends[0])
    # What is twice a file ends a unit, and the last answer may have as much.
    assert [] == [one for one in commits if one > 4 * sizes.file_bytes]
    ours, theirs = values(served, tmp_path, "unlike", 0)
    assert theirs == ours


class Together(Backwards):
    """Has all units there are before it begins, as Spark does; notes what they read together."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_per_s: list[int] = []

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Do it."""
        there = [*units]
        assert isinstance(work, partial)
        (settings,) = work.args
        at_once = min(self.parallelism, len(there))
        self.bytes_per_s.append(at_once * settings.reading.max_bytes_per_s)
        return super().run(there, work)


def test_units_that_are_cut_anew_share_the_rate(served: ServedTopics, tmp_path: Path) -> None:
    """One that seemed to be all becomes several at once: together they read no faster."""
    served.create("rated")
    served.number("rated", {0: 1_000})
    for index in range(30):
        served.produce("rated", {0: [NewRecord(None, os.urandom(100_000), index)]})
    sizes = Sizes(row_group_bytes=1 << 18, file_bytes=1 << 18)
    runner = Together()
    summary = job(
        served, tmp_path, runner, sizes=sizes, max_bytes_per_s=400 << 20
    ).run_once("rated")  # fmt: skip

    assert 1_030 == summary.records
    assert {400 << 20} == {*runner.bytes_per_s}
    assert 1 < len(runner.bytes_per_s)


@pytest.mark.parametrize("file_kb", [256, 1024])
def test_units_that_are_smaller_than_they_seemed_are_cut_anew(
    served: ServedTopics, tmp_path: Path, file_kb: int
) -> None:
    """One large record in front says nothing of those behind: they come in a few files."""
    topic = f"shrinking-{file_kb}"
    served.create(topic)
    served.produce(topic, {0: [NewRecord(None, os.urandom(900_000), 0)]})
    served.number(topic, {0: 30_000})
    sizes = Sizes(row_group_bytes=file_kb << 10, file_bytes=file_kb << 10)
    summary = job(served, tmp_path, Backwards(step=1), sizes=sizes).run_once(topic)

    assert 30_001 == summary.records
    # A file is 256 KB of columns and more: 30,000 records are 2 MB.
    assert summary.files <= 4 + 3 * 1024 // file_kb
    ours, theirs = values(served, tmp_path, topic, 0)
    assert theirs == ours


def test_a_run_that_fails_leaves_no_file_behind(served: ServedTopics, tmp_path: Path) -> None:
    """A disk that is full needs the room: of what tasks wrote only what was committed stays."""
    served.create("no-room")
    served.number("no-room", {0: 30_000})

    def fail() -> None:
        assert [] != list(tmp_path.rglob("*.parquet"))
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        job(served, tmp_path, Backwards(fail)).run_once("no-room")
    assert [] == list(tmp_path.rglob("*.parquet"))
    assert 30_000 == job(served, tmp_path).run_once("no-room").records


def test_a_second_archiver_removes_what_it_was_too_late_with(
    served: ServedTopics, tmp_path: Path
) -> None:
    """Two archivers of a topic: each offset is in one committed file, and no file is left over."""
    served.create("raced")
    served.number("raced", {0: 1000})

    def overtake() -> None:
        job(served, tmp_path, group=None).run_once("raced")

    summary = job(served, tmp_path, Backwards(overtake)).run_once("raced")

    assert (0, 1) == (summary.offsets, summary.overtaken_units)
    covered = archived(served, tmp_path, "raced")[0]
    files = {one.path for one in covered.pieces if isinstance(one, DataFile)}
    there = {one.name for one in tmp_path.rglob("*.parquet")}
    assert {path.rpartition("/")[2] for path in files} == there
    ours, theirs = values(served, tmp_path, "raced", 0)
    assert theirs == ours


def test_an_archiver_that_does_not_hear_of_its_own_commit_keeps_its_files(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes itself for no other archiver: what is committed is not removed as too late."""
    served.create("unheard")
    served.number("unheard", {0: 10})
    real_link = os.link

    def link(source: Path, target: Path) -> None:
        real_link(source, target)
        raise FileExistsError(target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        summary = job(served, tmp_path).run_once("unheard")
    assert (10, 1, 0) == (summary.records, summary.files, summary.overtaken_units)
    ours, theirs = values(served, tmp_path, "unheard", 0)
    assert theirs == ours


def test_an_archiver_that_is_ahead_by_other_ranges_is_made_room_for(
    served: ServedTopics, tmp_path: Path
) -> None:
    """It has committed a part that no unit ends with: the rest is planned anew, and archived."""
    served.create("ahead")
    served.number("ahead", {0: 12_000})
    is_first = True

    def overtake() -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            described = served.wire.find_topic("ahead")
            assert described is not None
            topic_id = UUID(bytes=bytes(described.topic_id))
            generation = generation_directory(str(tmp_path), "ahead", topic_id)
            parts = served.wire.decoded(OffsetRange("ahead", 0, 0, 700))
            pieces = write_unit(generation, Unit(topic_id, 0, 0, 700), parts)
            entry = CommitLogEntry(uuid4(), topic_id, added=pieces)
            CommitLog(generation, topic_id).commit(entry, planned_at=0)

    for _ in range(3):
        served.number("ahead", {0: 12_000})
    summary = job(served, tmp_path, Backwards(overtake, step=1)).run_once("ahead")

    assert (47_300, 4) == (summary.offsets, summary.overtaken_units)
    ours, theirs = values(served, tmp_path, "ahead", 0)
    assert theirs == ours


def test_what_cannot_be_read_in_one_partition_keeps_no_other_out(
    served: ServedTopics, tmp_path: Path
) -> None:
    """The error comes when the others are archived, and names the partition and the offset."""
    served.create("damaged", 3)
    served.number("damaged", {0: 10, 1: 10, 2: 10})
    # Longer than it says, which a server that does not look into batches stores.
    damaged = BatchBuilder()
    damaged.add(value=b"v")
    batch = encode_batch(
        bytes(read_batch(damaged.build()).records) + b"x",
        base_offset=0,
        leader_epoch=-1,
        last_offset_delta=0,
        record_count=1,
    )
    served.wire.call(served.wire.client.produce("damaged", 1, batch))

    served.number("damaged", {1: 5})

    for step in -1, 1:
        with pytest.raises(PipelineError, match="damaged partition 1: the batch at offset 10"):
            job(served, tmp_path, Backwards(step=step)).run_once("damaged")
        assert {0: 10, 1: 10, 2: 10} == {
            partition: one.next for partition, one in archived(served, tmp_path, "damaged").items()
        }
    summary = job(served, tmp_path / "other", accept_loss=True, group=None).run_once("damaged")
    assert (1, 35, {0: 10, 1: 16, 2: 10}) == (summary.lost_offsets, summary.records, summary.ends)
    assert Hole(1, 10, 10, "lost") in archived(served, tmp_path / "other", "damaged")[1].pieces


def test_what_the_server_cannot_read_is_an_error_or_declared_lost(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer does not say where that ends: it is found out."""
    served.create("spoilt")
    for count in 2, 3, 4:
        served.number("spoilt", {0: count})
    topic = served.gateway.catalog.get("spoilt")
    assert topic is not None
    log = topic.partitions[0].log
    intact = log.read_hot

    def spoilt(offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
        if 2 <= offset < 5:
            raise CorruptionError("spoilt", 5)
        return intact(offset, max_bytes, 2 if offset < 2 else upper_bound)

    monkeypatch.setattr(log, "read_hot", spoilt)
    refused = "spoilt partition 0: what is stored at offset 2 is damaged, says the server; accept"
    with pytest.raises(PipelineError, match=refused):
        job(served, tmp_path).run_once("spoilt")
    assert 2 == archived(served, tmp_path, "spoilt")[0].next
    summary = job(served, tmp_path, accept_loss=True).run_once("spoilt")
    assert (3, 4, 9) == (summary.lost_offsets, summary.records, summary.ends[0])
    assert Hole(0, 2, 4, "lost") in archived(served, tmp_path, "spoilt")[0].pieces


@pytest.mark.slow
def test_offsets_without_a_record_are_refused_where_nothing_is_compacted(
    served: ServedTopics, tmp_path: Path
) -> None:
    """What is before them is archived; they are declared lost, or allowed, by who knows why."""
    served.create("gaps")
    loading = {"kgw.loading": "loader-", "kgw.loading.offsets": "original"}
    served.wire.call(served.admin.alter_settings(TOPIC, "gaps", loading))
    rows = [row(at) for at in range(24) if at not in {11, 12}]
    batch = pa.RecordBatch.from_pylist(rows).select(["offset", "timestamp_ms", "key", "value"])
    client = served.wire.client

    async def store(data: bytearray) -> None:
        await (await client.start_produce("gaps", 0, data, transactional_id="loader-0"))

    for one in encode_at_offsets(batch, 0, 24, max_batch_bytes=1 << 20):
        served.wire.call(store(one.data))
    refused = r"topic gaps partition 0: offsets 11 to 12 have no record, though the topic is not"
    with pytest.raises(ArchiveError, match=refused):
        job(served, tmp_path).run_once("gaps")
    assert 11 == archived(served, tmp_path, "gaps")[0].next

    summary = job(served, tmp_path, accept_loss=True).run_once("gaps")
    assert (2, 11, 24) == (summary.lost_offsets, summary.records, summary.ends[0])
    assert Hole(0, 11, 12, "lost") in archived(served, tmp_path, "gaps")[0].pieces

    summary = job(served, tmp_path / "other", allow_gaps=True, group=None).run_once("gaps")
    assert (0, 22, 24) == (summary.lost_offsets, summary.records, summary.ends[0])
    (file,) = archived(served, tmp_path / "other", "gaps")[0].pieces
    assert isinstance(file, DataFile)
    assert (2, ()) == (file.holes, file.control_ranges)

    served.wire.call(served.admin.alter_settings(TOPIC, "gaps", {"cleanup.policy": "compact"}))
    job(served, tmp_path / "compacted", group=None).run_once("gaps")
    assert 24 == archived(served, tmp_path / "compacted", "gaps")[0].next


def test_what_is_lost_ends_a_file(tmp_path: Path) -> None:
    """Files on both sides have what an answer has there; nothing is lost twice."""
    rows = [row(2), row(3), row(6), row(9)]
    found = part(rows, 12, [(4, 5), (7, 9)], [(1, 2), (5, 6), (10, 12)])
    pieces = write_unit(tmp_path, Unit(TOPIC_ID, 0, 1, 12), split_at_gaps(found, 1))
    shapes = [
        (one.first, one.last, one.rows, one.control_ranges)
        if isinstance(one, DataFile)
        else (one.first, one.last, one.reason)
        for one in pieces
    ]
    assert [
        (1, 1, "lost"),
        (2, 4, 2, ((4, 4),)),
        (5, 5, "lost"),
        (6, 9, 2, ((7, 8),)),
        (10, 11, "lost"),
    ] == shapes


def test_header_keys_that_are_no_text_are_told(served: ServedTopics, tmp_path: Path) -> None:
    """The archive has them otherwise than the topic: nobody should find that out later."""
    served.create("no-text")
    served.produce("no-text", {0: [NewRecord(None, b"v", 1, (("\udcff", b"1"), ("b", None)))]})
    told: list[str] = []
    summary = job(served, tmp_path, tell=told.append).run_once("no-text")
    assert (1, 1) == (summary.records, summary.altered_keys)
    assert [True] == [
        one.startswith("Topic no-text: 1 keys of headers are not UTF-8") for one in told
    ]


def test_what_a_dead_run_has_left_is_removed(served: ServedTopics, tmp_path: Path) -> None:
    """After a day, and nothing that a commit names."""
    served.create("left")
    served.number("left", {0: 10})
    job(served, tmp_path).run_once("left")
    (file,) = tmp_path.rglob("*.parquet")
    orphan = file.with_name(f"{file.name.rpartition('-')[0]}-dead.parquet")
    orphan.write_bytes(file.read_bytes())

    assert 0 == job(served, tmp_path).run_once("left").swept_files
    os.utime(orphan, (0, 0))
    os.utime(file, (0, 0))
    later = ArchiveJob(
        served.wire,
        served.cluster,
        tmp_path,
        Backwards(),
        ArchiveOptions(),
        now_ms=lambda: 2 * GRACE_S * 1000,
    )
    assert 1 == later.run_once("left").swept_files
    assert [file] == list(tmp_path.rglob("*.parquet"))


def test_a_new_group_is_told_what_is_archived_already(served: ServedTopics, tmp_path: Path) -> None:
    """A hold by a group that says nothing would hold everything."""
    served.create("new-group", 2)
    served.number("new-group", {0: 10})
    job(served, tmp_path, group=None).run_once("new-group")
    job(served, tmp_path, group="late").run_once("new-group")
    offsets = served.wire.call(GroupClient(served.wire.client).offsets("late"))
    assert {("new-group", 0): 10, ("new-group", 1): 0} == {
        place: one.offset for place, one in offsets.items()
    }


def test_what_the_log_has_removed_is_an_error_or_declared_lost(
    served: ServedTopics, tmp_path: Path
) -> None:
    """The text names topic, partition and offsets; who accepts it gets a hole that says lost."""
    served.create("gone")
    served.number("gone", {0: 10})
    job(served, tmp_path).run_once("gone")
    served.number("gone", {0: 10})
    served.wire.call(served.admin.delete_records("gone", {0: 15}))

    with pytest.raises(ArchiveError, match=r"topic gone partition 0: offsets 10 to 14 were remov"):
        job(served, tmp_path).run_once("gone")
    summary = job(served, tmp_path, accept_loss=True).run_once("gone")

    assert (5, 5, 20) == (summary.lost_offsets, summary.offsets, summary.ends[0])
    assert Hole(0, 10, 14, "lost") in archived(served, tmp_path, "gone")[0].pieces


def test_what_the_log_removes_while_it_is_read_is_an_error_or_declared_lost(
    served: ServedTopics, tmp_path: Path
) -> None:
    """The text says what this job can do about it, and the next run does."""
    served.create("going")
    served.number("going", {0: 30_000})

    def remove() -> None:
        served.wire.call(served.admin.delete_records("going", {0: 15}))

    refused = r"topic going partition 0: offsets 0 to 14 were .* accept the loss to go on behind"
    with pytest.raises(ArchiveError, match=refused):
        job(served, tmp_path, Backwards(remove)).run_once("going")
    summary = job(served, tmp_path, accept_loss=True).run_once("going")
    assert (15, 29_985, 30_000) == (summary.lost_offsets, summary.records, summary.ends[0])

    other = tmp_path / "other"
    removed = [20, 40]

    def remove_more() -> None:
        if removed:
            served.wire.call(served.admin.delete_records("going", {0: removed.pop()}))

    runner = Backwards(remove_more)
    summary = job(served, other, runner, accept_loss=True, group=None).run_once("going")
    assert (25, 29_960, 30_000) == (summary.lost_offsets, summary.records, summary.ends[0])


def test_a_topic_that_was_created_again_gets_a_directory_of_its_own(
    served: ServedTopics, tmp_path: Path
) -> None:
    """The archive of the topic before it stays as it is."""
    served.create("again")
    served.number("again", {0: 10})
    job(served, tmp_path).run_once("again")
    served.wire.call(served.admin.delete_topic("again"))
    served.create("again")
    served.number("again", {0: 3})
    job(served, tmp_path).run_once("again")

    assert 2 == len(list((tmp_path / "again").iterdir()))
    assert 3 == archived(served, tmp_path, "again")[0].next


def test_records_of_aborted_transactions_are_declared(served: ServedTopics, tmp_path: Path) -> None:
    """They have no rows, and neither have markers; an open transaction ends what is archived."""
    served.create("aborts")
    served.number("aborts", {0: 3})
    write(served, "aborts", is_commit=False)
    served.number("aborts", {0: 2})
    write(served, "aborts", is_commit=None)
    served.number("aborts", {0: 4})
    summary = job(served, tmp_path).run_once("aborts")

    # Three records, one aborted and its marker, two records.
    assert (7, 5, 7) == (summary.offsets, summary.records, summary.ends[0])
    (file,) = archived(served, tmp_path, "aborts")[0].pieces
    assert isinstance(file, DataFile)
    assert ((3, 4),) == file.control_ranges


def test_the_group_stands_where_the_archive_does(served: ServedTopics, tmp_path: Path) -> None:
    """It commits after the archive has, so that a hold never lets go early."""
    served.create("told")
    served.number("told", {0: 10})
    groups = GroupClient(served.wire.client)
    seen = []

    def look(one: CommittedRange) -> None:
        described = served.wire.find_topic("told")
        assert described is not None
        topic_id = UUID(bytes=bytes(described.topic_id))
        generation = generation_directory(str(tmp_path), "told", topic_id)
        seen.append((one.end, CommitLog(generation, topic_id).read().coverage.partitions[0].next))

    job(served, tmp_path, on_committed=look, group="kept").run_once("told")
    offsets = served.wire.call(groups.offsets("kept"))
    assert (10, [(10, 10)]) == (offsets["told", 0].offset, seen)


def test_a_group_is_told_again_while_the_server_is_away(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that is started again at that moment does not end the run."""
    served.create("away")
    served.number("away", {0: 10})
    commit = GroupClient.commit
    failures = [ConnectionLostError("closed")] * 2

    async def fail_first(self: GroupClient, *args: Any) -> None:
        if failures:
            raise failures.pop()
        await commit(self, *args)

    monkeypatch.setattr(GroupClient, "commit", fail_first)
    assert 10 == job(served, tmp_path, group="patient").run_once("away").records
    offsets = served.wire.call(GroupClient(served.wire.client).offsets("patient"))
    assert 10 == offsets["away", 0].offset


def test_an_archive_does_not_move_the_group_of_another_one(
    served: ServedTopics, tmp_path: Path
) -> None:
    """What the other one has not is held on: with a hold it is an error, without one it is told."""
    served.create("two")
    served.number("two", {0: 10})
    hold(served.wire, "two", "kgw-archive")
    job(served, tmp_path / "first").run_once("two")
    served.number("two", {0: 10})

    told: list[str] = []
    assert 20 == job(served, tmp_path / "second", tell=told.append).run_once("two").records
    (first, second) = (
        json.loads(next((tmp_path / name).rglob("*0001.json")).read_bytes())["id"]
        for name in ("first", "second")
    )
    why = f"partition 0 is committed by archive {first}, and this one is {second}"
    assert [True] == [why in one for one in told]
    groups = GroupClient(served.wire.client)
    assert 10 == served.wire.call(groups.offsets("kgw-archive"))["two", 0].offset
    with pytest.raises(ArchiveError, match=f"group kgw-archive is not this archive's: .* {why}"):
        job(served, tmp_path / "second", is_held=True).hold("two")
    with pytest.raises(ArchiveError, match="and this one has not begun; give this archive another"):
        job(served, tmp_path / "third", is_held=True).hold("two")

    job(served, tmp_path / "first", is_held=True).run_once("two")
    assert 20 == served.wire.call(groups.offsets("kgw-archive"))["two", 0].offset


def test_a_group_is_an_archives_own_by_its_mark_or_by_where_it_stands() -> None:
    """Not one of another archive; one that a former topic of the name has left is."""
    entry = CommitLogEntry(uuid4(), TOPIC_ID, added=(Hole(0, 5, 8, "control"),), starts={0: 5})
    coverage = apply(Coverage(TOPIC_ID), entry)
    ours, theirs = f"kgw-archive {TOPIC_ID} a", f"kgw-archive {TOPIC_ID} b"

    def refused(metadata: str, offset: int = 9, name: str = "t", ours: str | None = ours) -> bool:
        offsets = {(name, 0): GroupOffset(offset, -1, metadata)}
        return find_stranger(ours, "t", TOPIC_ID, coverage, offsets) is not None

    assert not refused(ours, 7)
    assert refused(theirs)
    assert refused(theirs, ours=None)
    assert not refused(theirs, name="other")
    assert not refused(f"kgw-archive {UUID(int=8)} b")
    # Of an archive before there were marks, or of a consumer.
    assert not refused("")
    assert refused("", 8)
    for covered, stands in ((coverage, "goes to offset 8"), (Coverage(TOPIC_ID), "has nothing")):
        why = find_stranger(ours, "t", TOPIC_ID, covered, {("t", 0): GroupOffset(8, -1, "")})
        assert why is not None
        assert why.endswith(f"at offset 8 by nobody who is known, and this archive {stands}")


def test_an_archive_without_a_group_holds_nothing(served: ServedTopics, tmp_path: Path) -> None:
    """Who follows a topic and gives no group has nothing that the topic could wait for."""
    served.create("unheld")
    job(served, tmp_path, group="").hold("unheld")
    assert {None, ""} >= {
        one.value
        for one in served.wire.call(served.admin.describe_settings(TOPIC, "unheld"))
        if one.name == "kgw.archive.hold"
    }


def test_a_hold_is_added_to_those_that_are_there(served: ServedTopics) -> None:
    """Twice is once, and what others hold stays."""
    served.create("held")
    served.wire.call(served.admin.alter_settings(TOPIC, "held", {"kgw.archive.hold": "other"}))
    hold(served.wire, "held", "mine")
    hold(served.wire, "held", "mine")
    rows = served.wire.call(served.admin.describe_settings(TOPIC, "held"))
    assert ["other,mine"] == [one.value for one in rows if one.name == "kgw.archive.hold"]


def test_a_log_that_ends_before_its_archive_is_refused() -> None:
    """It has lost records, or is another one's; nothing may be written behind that."""
    coverage = Coverage(TOPIC_ID)
    before = plan("t", TOPIC_ID, coverage, {0: OffsetBounds(5, 9)}, accept_loss=False)
    assert (
        ArchivePlan({0: 5}, (), (OffsetRange("t", 0, 5, 9, TOPIC_ID.bytes),)) == before  # type: ignore[arg-type]
    )
    entry = CommitLogEntry(uuid4(), TOPIC_ID, added=(Hole(0, 5, 8, "control"),), starts={0: 5})
    with pytest.raises(ArchiveError, match="partition 0: the archive goes to offset 8, and the lo"):
        plan("t", TOPIC_ID, apply(coverage, entry), {0: OffsetBounds(5, 8)}, accept_loss=True)


def test_a_log_that_has_grown_again_over_what_it_lost_is_refused(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the leader epoch of the last record; where the server knows none, the run goes on."""
    served.create("truncated", 2)
    served.number("truncated", {0: 10, 1: 10})
    job(served, tmp_path).run_once("truncated")
    served.number("truncated", {0: 10})
    asked: list[Mapping[int, int]] = []
    end: EpochRange | None = EpochRange(0, 7)

    async def ends(
        _: AsyncClient, __: str, leader_epochs: Mapping[int, int]
    ) -> dict[int, EpochRange | None]:
        asked.append(leader_epochs)
        return dict.fromkeys(leader_epochs, end)

    with monkeypatch.context() as patch:
        patch.setattr(AsyncClient, "epoch_ends", ends)
        lost = "partition 0: the archive has offset 9, .* lost offsets 7 to 9, and others may"
        with pytest.raises(ArchiveError, match=lost):
            job(served, tmp_path).run_once("truncated")
        assert [0] == list(asked[0])
        served.number("truncated", {1: 1})
        told: list[str] = []
        job(served, tmp_path, accept_loss=True, tell=told.append).run_once("truncated")
        assert 2 == len(told)
        served.number("truncated", {0: 10})
        end = None
        assert 10 == job(served, tmp_path).run_once("truncated").records
    # As the server has it, the epoch goes on.
    served.number("truncated", {0: 10, 1: 10})
    assert 20 == job(served, tmp_path).run_once("truncated").records
    assert find_truncation("t", 0, (9, 3), EpochRange(3, 10)) is None


@pytest.mark.parametrize(
    ("end_offset", "told"),
    [(8, "lost offsets 8 to 9, and"), (9, "lost offsets 9 to 9, and"), (10, None), (11, None)],
)
def test_a_log_that_lost_what_was_archived_last_is_refused(
    end_offset: int, told: str | None
) -> None:
    """Also exactly one record; a log that has the last one may end its epoch right behind it."""
    why = find_truncation("t", 0, (9, 3), EpochRange(3, end_offset))
    assert (told is not None) == (why is not None)
    assert (told or "") in (why or "")


def test_a_partition_is_due_with_a_files_worth_or_after_a_wait() -> None:
    """What was chosen begins to wait anew."""
    due = RangeSelector(least_bytes=1000, max_lag_s=60.0)
    small, large = OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 100)
    sizes = {0: 10.0, 1: 10.0}

    assert [large] == due.choose([small, large], sizes, 0.0)
    assert [] == due.choose([small], sizes, 59.9)
    assert [small] == due.choose([small], sizes, 60.0)
    assert [] == due.choose([small], sizes, 61.0)


def test_a_topic_that_is_not_there_is_named(served: ServedTopics, tmp_path: Path) -> None:
    """And nothing is made in the root."""
    with pytest.raises(ArchiveError, match="there is no topic missing"):
        job(served, tmp_path).run_once("missing")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_is_behind_the_end_of_a_log_is_not_declared_lost(
    served: ServedTopics, tmp_path: Path
) -> None:
    """Also where loss is accepted: records that are written there later are to be archived."""
    served.create("shorter")
    served.number("shorter", {0: 10})
    described = served.wire.find_topic("shorter")
    assert described is not None
    topic_id = UUID(bytes=bytes(described.topic_id))
    reading = Reading(read_committed=True)
    settings = UnitSettings(served.cluster, tmp_path, topic_id, reading, Sizes(), accept_loss=True)
    # As if the log had gone to 20 when the range was planned.
    wanted = OffsetRange("shorter", 0, 0, 20, described.topic_id)
    refused = attempt_range(settings, wanted)
    assert isinstance(refused, Refused)
    assert 10 == refused.offset
    assert "offsets 10 to 19 cannot be read: the partition ends at 10 now" in refused.why
    assert [] == list(tmp_path.rglob("*.parquet"))


def test_an_archive_that_tasks_do_not_share_is_refused(
    served: ServedTopics, tmp_path: Path
) -> None:
    """Wherever the other machine's files are: the run ends, and does not try for ever."""
    served.create("not-shared")
    served.number("not-shared", {0: 100})

    def elsewhere() -> None:
        for file in tmp_path.rglob("*.parquet"):
            file.unlink()

    with pytest.raises(ArchiveError, match="is not there as its task has reported"):
        job(served, tmp_path, Backwards(elsewhere)).run_once("not-shared")
    assert 0 == archived(served, tmp_path, "not-shared")[0].next

    wanted = OffsetRange("not-shared", 0, 0, 100, TopicId(TOPIC_ID.bytes))
    settings = UnitSettings(served.cluster, tmp_path / "absent", TOPIC_ID, Reading(), Sizes())
    with pytest.raises(ArchiveError, match=r"there is no .*/absent on .*: an archive is"):
        archive_range(settings, wanted)
