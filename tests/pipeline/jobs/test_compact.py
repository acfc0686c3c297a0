"""compact: against a dictionary, whatever was archived when, and whoever else commits meanwhile."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.pipeline.archive.entry import DataFile, Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.sweeping import sweep
from kgw.pipeline.archive.units import Sizes
from kgw.pipeline.jobs import merge
from kgw.pipeline.jobs.compact import Compacted, Settings, plan, run
from tests.pipeline.archive.test_units import row
from tests.pipeline.jobs.lives import append, files_on_disk, new_life, pieces, read, shapes
from tests.pipeline.jobs.runners import Backwards

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.pipeline.archive.archived_topics import ArchivedTopic


def compact(
    life: ArchivedTopic,
    runner: Backwards | None = None,
    *,
    tombstones_before_ms: int = 0,
    key_memory_bytes: int = 1 << 20,
    min_dirty_ratio: float = 0.0,
) -> list[Compacted]:
    """Compact an archive."""
    given = Settings(life, tombstones_before_ms, key_memory_bytes, Sizes())
    dues = plan(life.log.read().coverage, min_dirty_ratio=min_dirty_ratio)
    return run(given, dues, runner or Backwards(), now_ms=lambda: 0)


def keyed(keys: str, first: int = 0, **fields: Any) -> list[dict[str, Any]]:
    """Return a record for each letter, from an offset on; "." has no key."""
    return [
        row(first + at, key=None if key == "." else key.encode(), value=b"%d" % (first + at))
        | fields
        for at, key in enumerate(keys)
    ]


def offsets(life: ArchivedTopic, partition: int = 0) -> list[int]:
    """Return the offsets that have a record."""
    return [one["offset"] for one in read(life, partition)]


def compacted(rows: list[dict[str, Any]], tombstones_before_ms: int) -> list[dict[str, Any]]:
    """Return what stays of records, one by one."""
    newest = {one["key"]: one["offset"] for one in rows}
    return [
        one
        for one in rows
        if one["key"] is None
        or (
            newest[one["key"]] == one["offset"]
            and not (one["value"] is None and one["timestamp_ms"] < tombstones_before_ms)
        )
    ]


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "gap": st.sampled_from([0, 0, 0, 1, 3]),
            "key": st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"dd"]),
            "value": st.none() | st.binary(max_size=2),
            "timestamp_ms": st.integers(0, 5),
        }
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(ROWS, st.booleans(), st.integers(0, 5)), min_size=1, max_size=5))
def test_what_stays_is_what_a_dictionary_says(
    steps: list[tuple[list[dict[str, Any]], bool, int]],
) -> None:
    """After any appends and runs; each run twice, with as few keys at once as fit; with merging."""
    with tempfile.TemporaryDirectory() as name:
        life = new_life(Path(name))
        every: list[dict[str, Any]] = []
        end = before_ms = 0
        for drawn, is_compacted, later_ms in steps:
            rows = []
            for one in drawn:
                at = end + one["gap"]
                rows.append(
                    row(at, **{name: value for name, value in one.items() if name != "gap"})
                )
                end = at + 1
            append(life, rows, end)
            every += rows
            if not is_compacted:
                continue
            before_ms = max(before_ms, later_ms)
            every = compacted(every, before_ms)
            for _ in range(2):
                compact(life, tombstones_before_ms=before_ms, key_memory_bytes=400)
                assert every == read(life)
                pieces(life)
            groups = merge.plan_life(life, 1 << 20)
            merge.run(life, groups, Backwards(), sizes=Sizes(), now_ms=lambda: 0)
            assert every == read(life)
        pieces(life)


def test_a_file_in_which_nothing_falls_is_not_written_anew(tmp_path: Path) -> None:
    """It gets a name that says it was looked at; the one whose records all fall becomes a hole."""
    life = new_life(tmp_path)
    append(life, keyed("xy"), 2)
    append(life, keyed("a.b", 2), 7, control=[(5, 7)])
    append(life, keyed("yxz", 7), 10)
    before = {one.first: one for one in pieces(life) if isinstance(one, DataFile)}

    (done,) = compact(life)

    assert [(0, 1, "compaction"), (2, 6, "compacted"), (7, 9, "compacted")] == shapes(life)
    assert [2, 3, 4, 7, 8, 9] == offsets(life)
    assert (8, 2, 1, 3) == (done.records, done.fallen, done.without_key, done.files)
    for one in pieces(life):
        if isinstance(one, DataFile):
            assert before[one.first].checksum == one.checksum
    assert [] == plan(life.log.read().coverage, min_dirty_ratio=0.01)

    append(life, keyed("z", 10), 11)
    (again,) = compact(life)
    assert (1, 2) == (again.fallen, again.files)
    assert [2, 3, 4, 7, 8, 10] == offsets(life)


def test_a_partition_is_left_alone_while_little_of_it_is_new(tmp_path: Path) -> None:
    """By bytes of its files since it was compacted."""
    life = new_life(tmp_path)
    append(life, keyed("abcd"), 4)
    assert 1 == len(compact(life, min_dirty_ratio=1.0))
    append(life, keyed("abcd", 4), 8)
    assert [] == compact(life, min_dirty_ratio=0.6)
    (done,) = compact(life, min_dirty_ratio=0.4)
    assert 4 == done.fallen


def test_tombstones_stay_for_a_time(tmp_path: Path) -> None:
    """What they stand for goes at once; they themselves later, without a new record."""
    life = new_life(tmp_path)
    append(life, keyed("ab"), 2)
    append(life, keyed("a", 2, value=None, timestamp_ms=100), 3)
    assert 1 == compact(life, tombstones_before_ms=100)[0].fallen
    assert [1, 2] == offsets(life)
    (done,) = compact(life, tombstones_before_ms=101)
    assert (1, 1) == (done.fallen, done.tombstones)
    assert [1] == offsets(life)


def test_tombstones_are_counted_apart_from_what_falls_by_its_key(tmp_path: Path) -> None:
    """One file can lose rows of both kinds; the sum of them is told, too."""
    life = new_life(tmp_path)
    append(life, [*keyed("aab"), *keyed("c", 3, value=None, timestamp_ms=100), *keyed("aa", 4)], 6)
    (done,) = compact(life, tombstones_before_ms=101)
    assert [2, 5] == offsets(life)
    assert (4, 1) == (done.fallen, done.tombstones)


@pytest.mark.slow
def test_a_crash_between_commits_leaves_no_record_without_its_tombstone(tmp_path: Path) -> None:
    """Files are committed from the front, in whichever order they are done."""
    for step in (1, -1):
        for crash_at in range(1, 5):
            life = new_life(tmp_path / f"{step}-{crash_at}")
            append(life, keyed("ax"), 2)
            append(life, keyed("ay", 2), 4)
            append(life, keyed("a", 4, value=None), 5)
            append(life, keyed("xy", 5), 7)
            ended = 0

            def crash(crash_at: int = crash_at) -> None:
                nonlocal ended
                ended += 1
                # The first unit is the keys of the partition.
                if ended == 1 + crash_at:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                compact(life, Backwards(crash, step=step), tombstones_before_ms=1000)
            left = offsets(life)
            assert 4 in left or not {0, 2} & set(left)
            pieces(life)
            compact(life, tombstones_before_ms=1000)
            assert [5, 6] == offsets(life)


def merge_all(life: ArchivedTopic) -> None:
    """Merge whatever can be."""
    groups = merge.plan_life(life, 1 << 20)
    merge.run(life, groups, Backwards(), sizes=Sizes(), now_ms=lambda: 0)


@pytest.mark.parametrize("other", [merge_all, compact])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_who_comes_too_late_leaves_the_partition_alone(
    tmp_path: Path, other: Callable[[ArchivedTopic], object], at: int
) -> None:
    """Another job in between, anywhere: nothing is lost or doubled, and no file is left over."""
    life = new_life(tmp_path)
    for first, keys in ((0, "ab"), (2, "ac"), (4, "bc")):
        append(life, keyed(keys, first), first + 2)
    ended = 0

    def overtake() -> None:
        nonlocal ended
        ended += 1
        if ended == at:
            other(life)

    (done,) = compact(life, Backwards(overtake, step=1))

    assert done.is_overtaken
    named = life.log.read().coverage.files()
    committed = set(life.log.replaced_at())
    assert files_on_disk(life) == named | committed
    compact(life)
    assert [2, 4, 5] == offsets(life)
    pieces(life)


def test_who_comes_too_late_for_a_record_leaves_its_tombstone(tmp_path: Path) -> None:
    """Another job has merged the record's file: without the tombstone it would be there again."""
    life = new_life(tmp_path)
    append(life, keyed("ax"), 2)
    append(life, keyed("y", 2), 3)
    append(life, keyed("a", 3, value=None), 4)
    is_planned = False

    def overtake() -> None:
        nonlocal is_planned
        if not is_planned:
            is_planned = True
            merge.run(
                life,
                [merge.MergeGroup(0, pieces(life)[:2])],
                Backwards(),
                sizes=Sizes(),
                now_ms=lambda: 0,
            )

    (done,) = compact(life, Backwards(overtake, step=1), tombstones_before_ms=1000)
    assert done.is_overtaken
    assert [0, 1, 2, 3] == offsets(life)
    compact(life, tombstones_before_ms=1000)
    assert [1, 2] == offsets(life)


def test_what_is_archived_meanwhile_stays(tmp_path: Path) -> None:
    """The horizon is where the archive ended when the run began."""
    life = new_life(tmp_path)
    append(life, keyed("ab"), 2)
    ended = 0

    def archive() -> None:
        nonlocal ended
        ended += 1
        append(life, keyed("ab", 2 * ended), 2 * ended + 2)

    (done,) = compact(life, Backwards(archive))
    assert (False, 0) == (done.is_overtaken, done.fallen)
    assert [0, 1, 2, 3, 4, 5] == offsets(life)
    compact(life)
    assert [4, 5] == offsets(life)
    assert Hole(0, 0, 1, "compaction") in pieces(life)


def test_a_sweep_in_between_takes_nothing_that_waits_for_its_commit(tmp_path: Path) -> None:
    """Also a second name of an old file, which has the same time."""
    life = new_life(tmp_path)
    append(life, keyed("a"), 1)
    append(life, keyed("b", 1), 2)
    for path in files_on_disk(life):
        os.utime(life.generation / path, (0, 0))

    def between() -> None:
        sweep(life.generation, life.log, now_s=time.time())

    (done,) = compact(life, Backwards(between))
    assert (2, False) == (done.files, done.is_overtaken)
    assert [(0, 0, "compacted"), (1, 1, "compacted")] == shapes(life)


def test_an_altered_file_is_refused(tmp_path: Path) -> None:
    """Its damage would be lost with it: the text names the file, and nothing is committed."""
    life = new_life(tmp_path)
    append(life, keyed("aa"), 2)
    (piece,) = pieces(life)
    assert isinstance(piece, DataFile)
    path = life.generation / piece.path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match=f"{piece.path} was altered after its commit"):
        compact(life)
    assert 1 == life.log.read().version


def test_a_key_that_was_altered_lets_no_other_record_fall(tmp_path: Path) -> None:
    """Also where nothing of its own file falls, so that the file is not written anew."""
    life = new_life(tmp_path)
    append(life, keyed("ab"), 2)
    append(life, keyed("x", 2), 3)
    (_, piece) = pieces(life)
    assert isinstance(piece, DataFile)
    path = life.generation / piece.path
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.set_column(5, table.field("_key"), pa.array([b"a"])), path)
    with pytest.raises(ArchiveError, match=f"{piece.path} was altered after its commit"):
        compact(life)
    assert 2 == life.log.read().version
