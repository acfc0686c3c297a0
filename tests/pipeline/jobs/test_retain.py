"""retain: what goes is at the front, was told of, and was archived; what others need stays."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.client import GroupClient
from kgw.client.admin import TOPIC
from kgw.offsets.ranges import OffsetBounds
from kgw.pipeline.archive.archived_topics import ArchivedTopic
from kgw.pipeline.archive.coverage import Coverage, PartitionCoverage
from kgw.pipeline.archive.entry import REASONS, DataFile, Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import data_path
from kgw.pipeline.archive.sweeping import sweep
from kgw.pipeline.archive.units import Sizes
from kgw.pipeline.jobs import merge
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.retain import (
    ArchiveRemoval,
    LogRemoval,
    RetentionLimits,
    cut_log,
    plan,
    plan_log,
    retained_from,
    run,
    run_log,
)
from tests.pipeline.archive.test_units import row
from tests.pipeline.jobs.lives import append, files_on_disk, new_life, pieces, read, shapes
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kgw.pipeline.archive.entry import Piece


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


def data_file(first: int, last: int, *, time_ms: int | None = 0, size_bytes: int = 10) -> DataFile:
    """Return a file of partition 0."""
    time_ns = None if time_ms is None else time_ms * 1_000_000
    path = data_path(0, first, last, "append", "a")
    rows = last - first + 1
    return DataFile(path, 0, first, last, rows, size_bytes, time_ns, time_ns, "append", "")


def retain(
    life: ArchivedTopic, partitions: list[int] | None = None, *, before_offset: int
) -> list[ArchiveRemoval]:
    """Let files below an offset go, and return what went."""
    limits = RetentionLimits(before_offset)
    planned = plan(life.log.read().coverage, limits, partitions)
    return run(life, planned, limits, now_ms=5)


def gone(limits: RetentionLimits, *parts: Piece) -> int | None:
    """Return up to where a partition of these pieces goes; None where nothing does."""
    coverage = Coverage(UUID(int=7), {0: PartitionCoverage(0, parts)})
    found = plan(coverage, limits)
    return found[0].end if found else None


def test_files_below_an_offset_go() -> None:
    """Whole ones; a hole goes with a file behind it, and never alone."""
    parts = (Hole(0, 0, 1, "control"), data_file(2, 4), Hole(0, 5, 6, "lost"), data_file(7, 9))
    ends = {at: gone(RetentionLimits(before_offset=at), *parts) for at in (2, 4, 5, 7, 9, 10, 99)}
    assert {2: None, 4: None, 5: 5, 7: 5, 9: 5, 10: 10, 99: 10} == ends
    assert None is gone(RetentionLimits(), *parts)


def test_files_whose_records_are_all_older_go() -> None:
    """From the front only, and none whose time is not known."""
    parts = (data_file(0, 1, time_ms=5), data_file(2, 3, time_ms=7), data_file(4, 5, time_ms=5))
    ends = {at: gone(RetentionLimits(before_ms=at), *parts) for at in (5, 6, 7, 8)}
    assert {5: None, 6: 2, 7: 2, 8: 6} == ends
    assert None is gone(RetentionLimits(before_ms=9), data_file(0, 1, time_ms=None))


def test_files_go_as_long_as_enough_bytes_are_left() -> None:
    """As with retention.bytes of a topic; one limit is enough to let a file go."""
    parts = tuple(data_file(at, at) for at in range(4))
    ends = {at: gone(RetentionLimits(max_bytes=at), *parts) for at in (1, 10, 11, 30, 31, 40)}
    assert {1: 3, 10: 3, 11: 2, 30: 1, 31: None, 40: None} == ends
    assert 3 == gone(RetentionLimits(before_offset=3, before_ms=0, max_bytes=30), *parts)


def test_what_went_is_declared_and_removed_after_a_grace(tmp_path: Path) -> None:
    """Who planned before still finds the files; a crash before the removal costs nothing."""
    life = new_life(tmp_path)
    for first in range(0, 8, 2):
        append(life, [row(first), row(first + 1)], first + 2)
    before = life.log.read().coverage

    (removal,) = retain(life, before_offset=3)
    assert (0, 2, 1) == (removal.partition, removal.end, len(removal.files))
    (again,) = retain(life, before_offset=6)
    assert [] == retain(life, before_offset=6)
    assert [(0, 5, "retention"), (6, 7, "append")] == shapes(life)
    assert [(0, 1, "retention"), (2, 3, "append"), (4, 5, "append")] == [
        (one.first, one.last, getattr(one, "reason", "append")) for one in again.pieces
    ]
    assert [6, 7] == [one["offset"] for one in read(life)]
    assert before.files() == files_on_disk(life)

    now_s = time.time()
    log = life.log
    assert [] == sweep(life.generation, log, now_s=now_s + 1e9)
    assert [] == sweep(life.generation, log, now_s=now_s + 60, replaced_grace_s=3600, dry_run=True)
    old = sweep(life.generation, log, now_s=now_s + 60, replaced_grace_s=30, dry_run=True)
    assert old == sweep(life.generation, log, now_s=now_s + 60, replaced_grace_s=30)
    assert sorted(before.files() - log.read().coverage.files()) == old
    assert log.read().coverage.files() == files_on_disk(life)


def test_a_file_that_was_merged_meanwhile_stays_when_it_reaches_further(tmp_path: Path) -> None:
    """The limits are asked again of what stands there now."""
    life = new_life(tmp_path)
    for first in range(0, 6, 2):
        append(life, [row(first), row(first + 1)], first + 2)
    append(life, [row(0)], 1, partition=1)
    limits = RetentionLimits(before_offset=4)
    planned = plan(life.log.read().coverage, limits)
    groups = merge.plan_life(life, 1 << 20)
    merge.run(life, groups, Backwards(), sizes=Sizes(), now_ms=lambda: 0)

    assert [1] == [one.partition for one in run(life, planned, limits, now_ms=0)]
    assert [(0, 5, "merged")] == shapes(life)
    assert [6] == [one.end for one in retain(life, before_offset=6)]
    assert [Hole(0, 0, 5, "retention")] == list(pieces(life))


def test_a_partition_that_is_not_archived_is_named(tmp_path: Path) -> None:
    """Nothing goes then."""
    life = new_life(tmp_path)
    append(life, [row(0)], 1)
    with pytest.raises(ArchiveError, match="the archive has no partition 3, 7"):
        retain(life, [0, 7, 3], before_offset=1)
    assert 1 == life.log.read().version


def test_only_partitions_that_are_named_lose_files(tmp_path: Path) -> None:
    """By number, whatever the limits would let go in others."""
    life = new_life(tmp_path)
    for partition in range(3):
        append(life, [row(0)], 1, partition=partition)
    assert [1] == [one.partition for one in retain(life, [1], before_offset=1)]
    kept = [[one["offset"] for one in read(life, partition)] for partition in range(3)]
    assert [[0], [], [0]] == kept


def test_a_partition_that_is_named_twice_goes_once(tmp_path: Path) -> None:
    """What would go is not counted twice."""
    life = new_life(tmp_path)
    append(life, [row(0)], 1)
    assert 1 == len(plan(life.log.read().coverage, RetentionLimits(before_offset=1), [0, 0]))


def test_a_group_keeps_what_it_has_not_read() -> None:
    """The lowest of several; all of a partition where one of them has committed nothing."""
    bounds = {partition: OffsetBounds(3, 100) for partition in range(4)}
    committed = {"a": {0: 9, 1: 50, 2: 2}, "b": {0: 8, 1: 40, 2: 30, 3: 90}}
    cuts = cut_log(dict.fromkeys(range(4), 20), bounds, committed)
    assert [
        LogRemoval(0, 3, 8, "group b has committed offset 8"),
        LogRemoval(1, 3, 20, None),
        LogRemoval(2, 3, 2, "group a has committed offset 2"),
        LogRemoval(3, 3, 3, "group a has committed nothing"),
    ] == cuts
    assert [True, True, False, False] == [one.is_to_do for one in cuts]


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_only_what_retention_removed_goes_from_the_topic(reason: str) -> None:
    """What the archive never had, or cannot say of, stays in the log: it is all that there is."""
    parts = (Hole(0, 0, 99, reason), data_file(100, 199))
    coverage = Coverage(UUID(int=7), {0: PartitionCoverage(0, parts)})
    ends = retained_from(coverage)
    assert ({0: 100} if reason == "retention" else {}) == ends
    cuts = cut_log(ends, {0: OffsetBounds(0, 500)}, {})
    assert [(0, 100)] * (reason == "retention") == [
        (one.partition, one.before_offset) for one in cuts if one.is_to_do
    ]


def archived(served: ServedTopics, root: Path, topic: str) -> ArchivedTopic:
    """Archive a topic, and return its life."""
    job = ArchiveJob(
        served.wire, served.cluster, root, Backwards(), ArchiveOptions(), now_ms=lambda: 0
    )
    return ArchivedTopic(root, topic, job.run_once(topic).topic_id)


def starts(served: ServedTopics, topic: str, partitions: int) -> list[int]:
    """Return where partitions begin."""
    return [one.earliest for _, one in sorted(served.wire.bounds(topic, range(partitions)).items())]


def test_the_topics_records_go_up_to_the_same_offset(served: ServedTopics, tmp_path: Path) -> None:
    """Also those of an earlier run that crashed before; never what a protected group has not."""
    served.create("trimmed", 3)
    served.number("trimmed", {0: 10, 1: 10, 2: 10})
    life = archived(served, tmp_path, "trimmed")
    served.number("trimmed", {0: 5})
    groups = GroupClient(served.wire.client)
    served.wire.call(groups.commit("readers", {("trimmed", 0): 99, ("trimmed", 1): 4}))
    retain(life, before_offset=99)

    ends = retained_from(life.log.read().coverage)
    assert {0: 10, 1: 10, 2: 10} == ends
    cuts = plan_log(served.wire, life, ends, ["readers"])
    done = run_log(served.wire, life, cuts)
    assert [(10, None), (4, None), (0, None)] == [
        (one.log_start_offset, one.refused) for one in done
    ]
    assert [10, 4, 0] == starts(served, "trimmed", 3)
    nothing = plan_log(served.wire, life, ends, ["unknown"])
    assert [False] * 3 == [one.is_to_do for one in nothing]


def test_a_hold_is_told_of(served: ServedTopics, tmp_path: Path) -> None:
    """The server refuses that partition, and the command ends with 1; the others are cut."""
    served.create("held", 2)
    served.number("held", {0: 10, 1: 10})
    archived(served, tmp_path, "held")
    served.wire.call(served.admin.alter_settings(TOPIC, "held", {"kgw.archive.hold": "slow"}))
    groups = GroupClient(served.wire.client)
    served.wire.call(groups.commit("slow", {("held", 0): 10, ("held", 1): 3}))
    given = ("--archive", str(tmp_path), "-t", "held", "--before-offset", "10", "--log")
    result = CliRunner().invoke(
        main, ["pipeline", "retain", *given, "-b", served.address], prog_name="kgw"
    )
    told = (
        "error: cannot delete records of held-1: POLICY_VIOLATION; "
        "a group of kgw.archive.hold=slow has not committed so far\n"
    )
    assert (1, told) == (result.exit_code, result.stderr)
    assert [10, 0] == starts(served, "held", 2)


def test_another_life_of_the_topic_is_refused(served: ServedTopics, tmp_path: Path) -> None:
    """Its offsets are those of other records."""
    served.create("reborn")
    served.number("reborn", {0: 10})
    life = archived(served, tmp_path, "reborn")
    served.wire.call(served.admin.delete_topic("reborn"))
    served.create("reborn")
    with pytest.raises(ArchiveError, match=f"topic reborn with topic id {life.topic_id} is not on"):
        plan_log(served.wire, life, {0: 10}, [])
