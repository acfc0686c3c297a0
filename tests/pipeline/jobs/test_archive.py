from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from kgw.client import ConnectionLostError, GroupClient, NewRecord, Producer, TransactionalClient
from kgw.client.admin import TOPIC
from kgw.offsets.ranges import OffsetBounds
from kgw.pipeline.archive.audit import audit
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.coverage import Coverage
from kgw.pipeline.archive.entry import DataFile, Entry, Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.archive.sweeping import GRACE_S
from kgw.pipeline.archive.units import Sizes, Unit, write_unit
from kgw.pipeline.errors import PipelineError
from kgw.pipeline.jobs.archive import (
    ArchiveJob,
    ArchiveOptions,
    Due,
    Plan,
    UnitSettings,
    archive_range,
    hold,
    plan,
)
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading
from kgw.records.batch import read_batch
from kgw.records.builder import BatchBuilder, encode_batch
from kgw.types import TopicId
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from kgw.pipeline.archive.coverage import PartitionCoverage
    from kgw.pipeline.archive.tables import TableSettings
    from kgw.pipeline.jobs.archive import Committed

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
    on_committed: Callable[[Committed], None] = lambda _: None,
    **options: bool | str | Sizes | tuple[TableSettings, ...] | None,
) -> ArchiveJob:
    """Return a job that archives into a root."""
    return ArchiveJob(
        served.wire,
        served.address,
        root,
        runner or Backwards(),
        ArchiveOptions(**options),  # type: ignore[arg-type] # whichever a test names
        now_ms=lambda: 0,
        on_committed=on_committed,
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
            entry = Entry(uuid4(), topic_id, added=pieces)
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

    for step in -1, 1:
        with pytest.raises(PipelineError, match="damaged partition 1: the batch at offset 10"):
            job(served, tmp_path, Backwards(step=step)).run_once("damaged")
        assert {0: 10, 1: 0, 2: 10} == {
            partition: one.next for partition, one in archived(served, tmp_path, "damaged").items()
        }


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
        served.address,
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
    assert (15, 29_985, 30_000) == (summary.lost_offsets, summary.offsets, summary.ends[0])


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

    def look(one: Committed) -> None:
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
        Plan({0: 5}, (), (OffsetRange("t", 0, 5, 9, TOPIC_ID.bytes),)) == before  # type: ignore[arg-type]
    )
    from kgw.pipeline.archive.coverage import apply

    entry = Entry(uuid4(), TOPIC_ID, added=(Hole(0, 5, 8, "control"),), starts={0: 5})
    with pytest.raises(ArchiveError, match="partition 0: the archive goes to offset 8, and the lo"):
        plan("t", TOPIC_ID, apply(coverage, entry), {0: OffsetBounds(5, 8)}, accept_loss=True)


def test_a_partition_is_due_with_a_files_worth_or_after_a_wait() -> None:
    """What was chosen begins to wait anew."""
    due = Due(least_bytes=1000, max_lag_s=60.0)
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
    settings = UnitSettings(served.address, tmp_path / "absent", TOPIC_ID, Reading(), Sizes())
    with pytest.raises(ArchiveError, match=r"there is no .*/absent on .*: an archive is"):
        archive_range(settings, wanted)
