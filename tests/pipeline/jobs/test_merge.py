"""merge: small files become one, and every record stays where it is."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.coverage import Coverage, PartitionCoverage
from kgw.pipeline.archive.entry import DataFile, Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import data_path
from kgw.pipeline.archive.reading import raw_bytes
from kgw.pipeline.archive.units import Sizes
from kgw.pipeline.jobs.merge import Merged, MergeGroup, plan, plan_life, run
from tests.pipeline.archive.test_units import row
from tests.pipeline.jobs.lives import append, files_on_disk, new_life, pieces, read, shapes
from tests.pipeline.jobs.runners import Backwards

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kgw.pipeline.archive.archived_topics import ArchivedTopic
    from kgw.pipeline.archive.entry import CommitLogEntry, Piece

TARGET = 100
# A kind and a size, or the reason of a hole.
KINDS = ["append", "merged", "compacted", "control", "retention", "lost", "compaction"]


def laid_out(*parts: tuple[str, int]) -> tuple[Piece, ...]:
    """Return pieces of one offset each."""
    return tuple(
        Hole(0, at, at, what)
        if what in {"control", "retention", "lost", "compaction"}
        else DataFile(
            data_path(0, at, at, what, uuid4().hex), 0, at, at, 1, size, None, None, what, ""
        )
        for at, (what, size) in enumerate(parts)
    )


def groups_of(parts: Sequence[Piece]) -> list[MergeGroup]:
    """Return what would be merged of partition 0, its sizes being bytes."""
    coverage = Coverage(UUID(int=7), {0: PartitionCoverage(0, tuple(parts))})
    return plan(coverage, lambda one: one.bytes, TARGET)


def ranges(*parts: tuple[str, int]) -> list[tuple[int, int]]:
    """Return the first and last offset of each group."""
    return [(one.pieces[0].first, one.pieces[-1].last) for one in groups_of(laid_out(*parts))]


def test_groups_are_small_neighbours_up_to_the_target() -> None:
    """A file of half of the target or more is left alone, and so is a small one without another."""
    small, half = ("append", 40), ("append", 50)
    assert [(0, 1)] == ranges(small, small, small)
    assert [(0, 1), (2, 3)] == ranges(small, small, small, small)
    assert [(2, 3)] == ranges(small, half, small, small)
    assert [] == ranges(small, half, small)
    assert [(0, 1)] == ranges(("merged", 1), small)


def test_holes_between_files_go_along_but_for_those_that_tell_of_a_loss() -> None:
    """A hole of compaction goes with compacted files alone; holes at an end stay."""
    small, clean = ("append", 1), ("compacted", 1)
    control, gone = ("control", 0), ("compaction", 0)
    assert [(1, 3)] == ranges(control, small, control, small, control)
    assert [(0, 4)] == ranges(clean, gone, control, gone, clean, gone)
    assert [] == ranges(small, gone, small)
    assert [] == ranges(small, ("lost", 0), small)
    assert [] == ranges(clean, ("retention", 0), clean)
    assert [(0, 1), (2, 3)] == ranges(small, small, clean, clean)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 120)), max_size=20))
def test_a_second_plan_is_empty(parts: list[tuple[str, int]]) -> None:
    """Groups do not touch, hold no more than the target, and leave nothing to merge."""
    before = list(laid_out(*parts))
    after = list(before)
    found = groups_of(before)
    assert all(one.pieces[-1].last < two.pieces[0].first for one, two in pairwise(found))
    for group in found:
        assert group.bytes <= TARGET
        first, last = group.pieces[0].first, group.pieces[-1].last
        assert list(group.pieces) == before[first : last + 1]
        merged = DataFile("", 0, first, last, group.rows, group.bytes, None, None, group.kind, "")
        at = after.index(group.pieces[0])
        after[at : at + len(group.pieces)] = [merged]
    assert [] == groups_of(after)


def numbered(first: int, end: int, **fields: Any) -> list[dict[str, Any]]:
    """Return a record for each offset."""
    return [row(at, value=b"%d" % at, **fields) for at in range(first, end)]


def merge(life: ArchivedTopic, runner: Backwards | None = None) -> list[Merged]:
    """Merge what can be merged."""
    groups = plan_life(life, 1 << 20)
    return run(life, groups, runner or Backwards(), sizes=Sizes(), now_ms=lambda: 0)


def test_every_record_stays_where_it_is(tmp_path: Path) -> None:
    """And what has no record stays declared: markers by their ranges, others by number."""
    life = new_life(tmp_path)
    append(life, numbered(0, 3, timestamp_ms=2**62), 5, control=[(3, 5)])
    append(life, [], 7, control=[(5, 7)])
    append(life, numbered(8, 10), 12, control=[(10, 11)])
    append(life, numbered(0, 2), 2, partition=1)
    before = read(life)

    (merged,) = merge(life)

    assert before == read(life)
    (file,) = pieces(life)
    assert file == merged.piece
    assert isinstance(file, DataFile)
    assert (0, 11, "merged", 5, 2) == (file.first, file.last, file.kind, file.rows, file.holes)
    assert ((3, 6), (10, 10)) == file.control_ranges
    assert [] == merge(life)
    assert [(0, 1, "append")] == shapes(life, 1)


def test_a_size_is_what_the_writer_counts(tmp_path: Path) -> None:
    """A file that was full for one is not small for the other."""
    life = new_life(tmp_path)
    rows = [row(at, value=b"v" * 100, headers=[{"key": "h", "value": b"x"}]) for at in range(2000)]
    append(life, rows, 2000)
    (file,) = pieces(life)
    assert isinstance(file, DataFile)
    # Two more offsets, and a bit for what is null.
    assert 2000 * (33 + 104 + 5 + 10) == pytest.approx(raw_bytes(life.generation, file), rel=0.15)


@pytest.mark.parametrize("step", [1, -1])
def test_of_two_that_merge_the_same_files_one_removes_its_own(tmp_path: Path, step: int) -> None:
    """Whoever it is; records are there once, and every file that is there has been committed."""
    life = new_life(tmp_path)
    for first in range(0, 6, 2):
        append(life, numbered(first, first + 2), first + 2)
    append(life, numbered(0, 2), 2, partition=1)
    append(life, numbered(2, 4), 4, partition=1)
    before = read(life)
    is_first = True

    def overtake() -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            merge(life)

    merged = merge(life, Backwards(overtake, step=step))

    assert [None, None] == [one.piece for one in merged]
    assert before == read(life)
    assert [(0, 5, "merged")] == shapes(life)
    assert files_on_disk(life) == life.log.replaced_at().keys()


def test_what_a_job_has_read_of_the_log_it_does_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many files the log would take more time than they do."""
    life = new_life(tmp_path)
    for partition in range(8):
        append(life, numbered(0, 1), 1, partition=partition)
        append(life, numbered(1, 2), 2, partition=partition)
    groups = plan_life(life, 1 << 20)
    read_versions = []
    real = CommitLog.entry

    def entry(log: CommitLog, version: int) -> CommitLogEntry | None:
        read_versions.append(version)
        return real(log, version)

    monkeypatch.setattr(CommitLog, "entry", entry)
    run(life, groups, Backwards(), sizes=Sizes(), now_ms=lambda: 0)
    assert 8 == len(groups)
    assert 1 == read_versions.count(1)


def test_an_append_in_between_is_no_race(tmp_path: Path) -> None:
    """It stays behind what was merged; what a crash has left is not read."""
    life = new_life(tmp_path)
    append(life, numbered(0, 2), 2)
    append(life, numbered(2, 4), 4)

    def crash() -> None:
        append(life, numbered(4, 6), 6)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge(life, Backwards(crash))
    assert [(0, 1, "append"), (2, 3, "append"), (4, 5, "append")] == shapes(life)
    assert 4 == len(files_on_disk(life))

    def archive() -> None:
        append(life, numbered(6, 8), 8)

    merge(life, Backwards(archive))
    assert [(0, 5, "merged"), (6, 7, "append")] == shapes(life)
    assert list(range(8)) == [one["offset"] for one in read(life)]


def test_a_file_that_is_missing_ends_it(tmp_path: Path) -> None:
    """The text names it; the log stays as it is, and no file is left over."""
    life = new_life(tmp_path)
    append(life, numbered(0, 2), 2)
    append(life, numbered(2, 4), 4)
    groups = plan_life(life, 1 << 20)
    second = groups[0].files[1]
    (life.generation / second.path).unlink()
    with pytest.raises(ArchiveError, match=f"{second.path} cannot be read"):
        run(life, groups, Backwards(), sizes=Sizes(), now_ms=lambda: 0)
    assert 2 == life.log.read().version
    assert 1 == len(files_on_disk(life))


def test_a_swept_file_is_not_committed(tmp_path: Path) -> None:
    """A sweep that took it for an orphan: the unit counts as overtaken."""
    life = new_life(tmp_path)
    append(life, numbered(0, 2), 2)
    append(life, numbered(2, 4), 4)

    def sweep() -> None:
        for path in files_on_disk(life) - life.log.read().coverage.files():
            (life.generation / path).unlink()

    (merged,) = merge(life, Backwards(sweep))
    assert merged.piece is None
    assert [0, 1, 2, 3] == [one["offset"] for one in read(life)]
