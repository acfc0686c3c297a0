from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.comparing import LogBounds, compare, differences, shown
from kgw.pipeline.archive.coverage import PartitionCoverage
from kgw.pipeline.archive.entry import CommitLogEntry, Hole
from kgw.pipeline.archive.units import Sizes, Unit, write_unit
from kgw.pipeline.arrow.columns import SCHEMA
from kgw.pipeline.arrow.decode import Decoded
from kgw.pipeline.jobs.compact import Settings, plan, run
from tests.pipeline.archive.test_units import part, row
from tests.pipeline.jobs.lives import append, new_life, shapes
from tests.pipeline.jobs.runners import Backwards

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC_ID = UUID(int=7)


def batch(rows: dict[int, bytes]) -> pa.RecordBatch:
    """Return records by offset and value."""
    return pa.RecordBatch.from_pylist([record(*one) for one in rows.items()], schema=SCHEMA)


def record(offset: int, value: bytes) -> dict[str, Any]:
    """Return a record of the decoder's columns."""
    return {
        "offset": offset,
        "timestamp_ms": 5,
        "timestamp_type": 0,
        "leader_epoch": 1,
        "key": b"k",
        "value": value,
        "headers": None,
    }


def cut(rows: dict[int, bytes], sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield records in batches of these lengths, 0 among them, and what is left."""
    whole = batch(dict(sorted(rows.items())))
    for size in sizes:
        yield whole.slice(0, size)
        whole = whole.slice(size) if size < len(whole) else whole.slice(len(whole))
    yield whole


RECORDS = st.dictionaries(st.integers(0, 20), st.sampled_from([b"a", b"b"]))
SIZES = st.lists(st.integers(0, 4), max_size=8)


@given(RECORDS, RECORDS, SIZES, SIZES)
def test_differences_are_those_of_two_dictionaries(
    ours: dict[int, bytes], theirs: dict[int, bytes], sizes: list[int], others: list[int]
) -> None:
    """However either side is cut into batches."""
    found = list(differences(cut(ours, sizes), cut(theirs, others)))
    assert sorted(theirs.keys() - ours.keys()) == [one for part in found for one in part.lost]
    assert sorted(ours.keys() - theirs.keys()) == [one for part in found for one in part.foreign]
    altered = [one for one in sorted(ours.keys() & theirs.keys()) if ours[one] != theirs[one]]
    assert altered == [one for part in found for one in part.altered]


def test_a_partition_is_compared_as_far_as_log_and_archive_reach(tmp_path: Path) -> None:
    """What the log has removed is passed over, and so is what is not archived yet."""
    parts = [Decoded(batch({0: b"a", 1: b"a", 2: b"a", 3: b"a"}), 4, [], is_partial=False)]
    pieces = write_unit(tmp_path, Unit(TOPIC_ID, 0, 0, 4), parts)
    log = CommitLog(tmp_path, TOPIC_ID)
    entry = CommitLogEntry(TOPIC_ID, TOPIC_ID, added=pieces, starts={0: 0})
    coverage = log.commit(entry, planned_at=0).coverage.partitions[0]
    stored = {1: b"a", 2: b"b", 4: b"a"}

    def read_log(first: int, end: int) -> Iterator[Decoded]:
        found = batch({at: value for at, value in stored.items() if first <= at < end})
        yield Decoded(found, end, [], is_partial=False, missing=gaps)

    gaps: list[tuple[int, int]] = []

    def names(*, may_have_gaps: bool) -> list[tuple[str, str]]:
        standing = LogBounds(1, 5, may_have_gaps)
        found = compare(tmp_path, "t", 0, coverage, standing, read_log)
        return [(one.name, one.text) for one in found]

    altered = ("altered record", "topic t partition 0: offset 2")
    foreign = ("foreign record", "topic t partition 0: offset 3")
    assert [altered, foreign] == names(may_have_gaps=False)
    assert [altered] == names(may_have_gaps=True)
    del stored[2]
    stored[3] = b"a"
    foreign = ("foreign record", "topic t partition 0: offset 2")
    assert [foreign] == names(may_have_gaps=False)
    gaps.append((2, 3))
    gap = ("gap in the topic", "topic t partition 0: offsets 2 to 2 have nothing in the topic")
    assert [foreign, gap] == names(may_have_gaps=False)
    assert [] == names(may_have_gaps=True)


def test_a_compacted_archive_may_lack_what_a_later_record_stands_for(tmp_path: Path) -> None:
    """Not the newest record of a key, one without a key, nor a record of a file before that."""
    life = new_life(tmp_path)
    stored = [row(at, key=key) for at, key in enumerate([b"a", b"b", b"a", None, b"b", b"a"])]
    append(life, stored[:2], 2)
    append(life, stored[2:5], 5)
    append(life, stored[5:], 6)
    settings = Settings(life, 0, 1 << 20, Sizes())
    dues = plan(life.log.read().coverage, min_dirty_ratio=0.0)
    run(settings, dues, Backwards(), now_ms=lambda: 0)
    coverage = life.log.read().coverage.partitions[0]
    standing = LogBounds(0, 6, may_have_gaps=False)

    def found(log: list[dict[str, Any]]) -> list[tuple[str, str]]:
        def read_log(first: int, end: int) -> Iterator[Decoded]:
            rows = [one for one in log if first <= one["offset"] < end]
            yield part(rows, end)

        compared = compare(life.generation, "t", 0, coverage, standing, read_log)
        return [(one.name, one.text) for one in compared]

    assert [(0, 1, "compaction"), (2, 4, "compacted"), (5, 5, "compacted")] == shapes(life)
    assert [] == found(stored)
    # As if compaction had taken too much.
    told = "topic t partition 0: offset 2, and no later record of the key"
    stored[2]["key"] = b"c"
    assert [("lost record", told)] == found(stored)
    stored[2]["key"] = None
    assert [("lost record", "topic t partition 0: offset 2")] == found(stored)


@pytest.mark.parametrize(
    ("reason", "lost"),
    [("control", [0, 1, 2]), ("compaction", [2]), ("lost", []), ("retention", [])],
)
def test_what_the_topic_has_where_the_archive_has_no_file_is_lost(
    tmp_path: Path, reason: str, lost: list[int]
) -> None:
    """All of it where nothing was to be, the newest of the key where all of a file was compacted.

    What is declared lost, or went by retention, the archive does not claim to have.
    """
    covered = PartitionCoverage(0, (Hole(0, 0, 2, reason),))

    def read_log(first: int, end: int) -> Iterator[Decoded]:
        stored = {0: b"a", 1: b"b", 2: b"c"}
        found = batch({at: value for at, value in stored.items() if first <= at < end})
        yield Decoded(found, end, [], is_partial=False)

    found = list(compare(tmp_path, "t", 0, covered, LogBounds(0, 3, may_have_gaps=True), read_log))
    assert ["lost record"] * bool(lost) == [one.name for one in found]
    assert [shown(lost)] * bool(lost) == [
        one.text.removeprefix("topic t partition 0: ").partition(", and no later")[0]
        for one in found
    ]


@pytest.mark.parametrize(("kind", "lost"), [("append", [0]), ("merged", [0]), ("compacted", [])])
def test_only_a_compacted_file_may_lack_a_record_for_a_later_one(
    tmp_path: Path, kind: str, lost: list[int]
) -> None:
    """Others have lost it, though a later record has the same key."""
    stored = [row(0, value=b"a"), row(1, value=b"b")]
    pieces = write_unit(
        tmp_path, Unit(TOPIC_ID, 0, 0, 2), [part(stored[1:], 2, [], [(0, 1)])], kind=kind
    )
    covered = PartitionCoverage(0, pieces)

    def read_log(first: int, end: int) -> Iterator[Decoded]:
        yield part([one for one in stored if first <= one["offset"] < end], end)

    found = compare(tmp_path, "t", 0, covered, LogBounds(0, 2, may_have_gaps=True), read_log)
    assert [f"topic t partition 0: {shown(lost)}"] * bool(lost) == [one.text for one in found]


@pytest.mark.parametrize(("end_offset", "told"), [(1, "the log ends at 1"), (2, None), (9, None)])
def test_a_log_that_ends_before_its_archive_has_lost_records(
    tmp_path: Path, end_offset: int, told: str | None
) -> None:
    """Though all that both have is the same."""
    stored = [row(0), row(1)]
    pieces = write_unit(tmp_path, Unit(TOPIC_ID, 0, 0, 2), [part(stored, 2)])

    def read_log(first: int, end: int) -> Iterator[Decoded]:
        yield part(stored[first:end], end)

    standing = LogBounds(0, end_offset, may_have_gaps=False)
    found = list(compare(tmp_path, "t", 0, PartitionCoverage(0, pieces), standing, read_log))
    assert ["end went back"] * (told is not None) == [one.name for one in found]
    assert (told or "") in "".join(one.text for one in found)
