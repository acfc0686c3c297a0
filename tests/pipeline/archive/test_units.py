"""Units: what comes out of the files is what went in, and the pieces cover the unit exactly."""

from __future__ import annotations

import os
import resource
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.pipeline.archive import units
from kgw.pipeline.archive.audit import audit
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.coverage import PartitionCoverage
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile, Hole, Piece
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.reading import last_record, read_range, read_stored
from kgw.pipeline.archive.sweeping import MIN_GRACE_S, sweep
from kgw.pipeline.archive.units import Sizes, Unit, new_run, remove_uncommitted, write_unit
from kgw.pipeline.arrow.columns import ALL_COLUMNS, SCHEMA
from kgw.pipeline.arrow.decode import Decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


TOPIC_ID = UUID(int=7)
LONGS = st.one_of(st.integers(-1, 2**41), st.integers(-(2**63), 2**63 - 1))
HEADERS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}),
    min_size=1,
    max_size=2,
)


def row(offset: int, **fields: Any) -> dict[str, Any]:
    """Return a record of the decoder's columns."""
    return {
        "offset": offset,
        "timestamp_ms": 5,
        "timestamp_type": 0,
        "leader_epoch": 1,
        "key": b"k",
        "value": b"v",
        "headers": None,
    } | fields


def part(
    rows: list[dict[str, Any]],
    next_offset: int,
    control: list[tuple[int, int]] | None = None,
    missing: Sequence[tuple[int, int]] = (),
) -> Decoded:
    """Return an answer of the decoder; the ends of the ranges are exclusive, as there."""
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    return Decoded(batch, next_offset, control or [], is_partial=False, missing=missing)


def part_from(
    first: int,
    rows: list[dict[str, Any]],
    next_offset: int,
    control: list[tuple[int, int]] | None = None,
) -> Decoded:
    """Return an answer from an offset on, in which what else there is has nothing."""
    held = {one["offset"] for one in rows}
    for low, high in control or ():
        held.update(range(low, high))
    missing = [(at, at + 1) for at in range(first, next_offset) if at not in held]
    return part(rows, next_offset, control, missing)


def commit(generation: Path, pieces: tuple[Piece, ...]) -> PartitionCoverage:
    """Commit the first pieces of partition 3."""
    entry = CommitLogEntry(uuid4(), TOPIC_ID, pieces, starts={3: pieces[0].first})
    log = CommitLog(generation, TOPIC_ID)
    return log.commit(entry, planned_at=0).coverage.partitions[3]


@st.composite
def unit_parts(draw: st.DrawFn) -> tuple[int, list[Decoded], list[dict[str, Any]]]:
    """Draw parts from a first offset on, with records, markers and holes, and all records."""
    first = position = draw(st.integers(0, 2**40))
    parts, every = [], []
    for _ in range(draw(st.integers(1, 5))):
        rows, control, missing = [], [], []
        for what in draw(st.lists(st.sampled_from(["record", "marker", "hole"]), max_size=8)):
            if what == "record":
                rows.append(
                    row(
                        position,
                        timestamp_ms=draw(LONGS),
                        timestamp_type=draw(st.integers(0, 1)),
                        key=draw(st.none() | st.binary(max_size=4)),
                        value=draw(st.none() | st.binary(max_size=4)),
                        headers=draw(st.none() | HEADERS),
                    )
                )
            elif what == "marker":
                control.append((position, position + 1))
            else:
                missing.append((position, position + 1))
            position += 1
        parts.append(part(rows, position, control, missing))
        every += rows
    return first, parts, every


@given(unit_parts(), st.integers(1, 600), st.data())
@settings(max_examples=30, deadline=None)
def test_what_comes_out_is_what_went_in(
    drawn: tuple[int, list[Decoded], list[dict[str, Any]]], file_bytes: int, data: st.DataObject
) -> None:
    """Every record and column, over files of any size; any range; and an audit finds nothing."""
    first, parts, every = drawn
    end = parts[-1].next_offset
    if end == first:
        return
    with tempfile.TemporaryDirectory() as name:
        generation = Path(name)
        sizes = Sizes(row_group_bytes=max(1, file_bytes // 3), file_bytes=file_bytes)
        pieces = write_unit(generation, Unit(TOPIC_ID, 3, first, end), parts, sizes=sizes)
        coverage = commit(generation, pieces)
        assert (coverage.start, coverage.next) == (first, end)
        low = data.draw(st.integers(first, end))
        high = data.draw(st.integers(low, end))
        for since, until in ((first, end), (low, high)):
            batches = list(read_range(generation, coverage, since, until))
            read = [one for batch in batches for one in batch.to_pylist()]
            assert read == [one for one in every if since <= one["offset"] < until]
        columns = data.draw(st.frozensets(st.sampled_from(sorted(ALL_COLUMNS)), min_size=1))
        some = [
            one
            for batch in read_range(generation, coverage, first, end, columns=columns)
            for one in batch.to_pylist()
        ]
        assert some == [
            {name: one[name] for name in SCHEMA.names if name in columns} for one in every
        ]
        assert list(audit(generation, TOPIC_ID, level=2)) == []


def test_a_report_says_what_the_file_holds(tmp_path: Path) -> None:
    """Rows, ranges without records, times; past the unit's end nothing counts."""
    parts = [
        part([row(10), row(12, timestamp_ms=3)], 14, [(11, 12), (13, 14)]),
        part([row(16, timestamp_ms=4)], 19, [(14, 15), (17, 19)], [(15, 16)]),
    ]
    (piece,) = write_unit(tmp_path, Unit(TOPIC_ID, 3, 10, 18), parts)
    assert isinstance(piece, DataFile)
    assert (piece.first, piece.last, piece.rows, piece.holes) == (10, 17, 3, 1)
    assert piece.control_ranges == ((11, 11), (13, 14), (17, 17))
    assert (piece.min_ts_ns, piece.max_ts_ns) == (3_000_000, 5_000_000)
    assert piece.bytes == (tmp_path / piece.path).stat().st_size


def test_a_file_with_a_far_time_says_nothing_of_its_times(tmp_path: Path) -> None:
    """Whoever removes what is old would remove a record of a time to come."""
    sizes = Sizes(row_group_bytes=1)
    parts = [part([row(0, timestamp_ms=2**62)], 1), part([row(1)], 2)]
    (piece,) = write_unit(tmp_path, Unit(TOPIC_ID, 3, 0, 2), parts, sizes=sizes)
    assert isinstance(piece, DataFile)
    assert (None, None) == (piece.min_ts_ns, piece.max_ts_ns)


def test_a_unit_without_records_is_a_hole(tmp_path: Path) -> None:
    """It is declared, and no file is made."""
    parts = [part([], 9, [(5, 9)])]
    assert write_unit(tmp_path, Unit(TOPIC_ID, 3, 5, 9), parts) == (Hole(3, 5, 8, "control"),)
    assert list(tmp_path.iterdir()) == []


def test_a_file_lists_so_many_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are counted."""
    monkeypatch.setattr(units, "MAX_CONTROL_RANGES", 1)
    parts = [part([row(0), row(2), row(4)], 6, [(1, 2), (3, 4), (5, 6)])]
    pieces = write_unit(tmp_path, Unit(TOPIC_ID, 3, 0, 6), parts)
    assert isinstance(pieces[0], DataFile)
    assert (pieces[0].control_ranges, pieces[0].holes) == (((1, 1),), 2)
    commit(tmp_path, pieces)
    assert list(audit(tmp_path, TOPIC_ID, level=2)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param([part([row(0)], 1)], id="too short"),
        pytest.param([part([row(0)], 1), part([row(0)], 4)], id="again"),
        pytest.param([part([row(0), row(2), row(1)], 4)], id="order"),
        pytest.param([part([row(0), row(2), row(1), row(3)], 4)], id="order of all"),
        pytest.param([part([row(0), row(1), row(1), row(3)], 4)], id="twice in place of another"),
        pytest.param([part([row(0), row(4)], 4)], id="past its end"),
        pytest.param([part([row(0), row(1), row(2), row(4)], 4)], id="past its end, of as many"),
        pytest.param([part([row(0), row(1), row(3)], 4)], id="one gone"),
        pytest.param([part([row(0), row(1), row(2)], 4, [(2, 4)])], id="one told twice"),
    ],
)
def test_parts_that_are_not_the_unit_leave_nothing(tmp_path: Path, wrong: list[Decoded]) -> None:
    """They are refused, and files that were written before are removed."""
    with pytest.raises(ArchiveError, match="partition 3"):
        write_unit(tmp_path, Unit(TOPIC_ID, 3, 0, 4), wrong, sizes=Sizes(1, 1))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_last_record_is_told_with_its_own_epoch(tmp_path: Path) -> None:
    """Not that of the records before it; what has no record behind it does not count."""
    parts = [part([row(at, leader_epoch=at // 2)], at + 1) for at in range(6)]
    parts.append(part([], 8, [(6, 8)]))
    pieces = write_unit(tmp_path, Unit(TOPIC_ID, 3, 0, 8), parts, sizes=Sizes(1, 1))
    assert [(0, 0), (4, 4), (5, 5), (6, 7)] == [
        (one.first, one.last) for one in (pieces[0], *pieces[-3:])
    ]
    coverage = commit(tmp_path, pieces)
    assert (5, 2) == last_record(tmp_path, coverage)
    assert None is last_record(tmp_path, PartitionCoverage(0, pieces[-1:]))

    (one_file,) = write_unit(tmp_path, Unit(TOPIC_ID, 3, 0, 8), parts, sizes=Sizes(1))
    assert (5, 2) == last_record(tmp_path, PartitionCoverage(0, (one_file,)))
    (one_group,) = write_unit(tmp_path, Unit(TOPIC_ID, 3, 0, 8), parts)
    assert (5, 2) == last_record(tmp_path, PartitionCoverage(0, (one_group,)))


def test_offsets_that_are_not_covered_are_refused(tmp_path: Path) -> None:
    """Not answered with fewer records."""
    coverage = commit(tmp_path, write_unit(tmp_path, Unit(TOPIC_ID, 3, 5, 6), [part([row(5)], 6)]))
    for first, end in ((4, 6), (5, 7)):
        with pytest.raises(ArchiveError, match="not within 5 to 5"):
            list(read_range(tmp_path, coverage, first, end))


def test_a_range_between_two_records_has_no_rows(tmp_path: Path) -> None:
    """No batch comes either: who asks for the offset of its last row finds none."""
    parts = [part_from(0, [row(0), row(9)], 10)]
    coverage = commit(tmp_path, write_unit(tmp_path, Unit(TOPIC_ID, 3, 0, 10), parts))
    assert [] == list(read_range(tmp_path, coverage, 3, 6))


def test_a_file_of_large_records_is_not_read_at_once(tmp_path: Path) -> None:
    """A batch holds rows of one row group, as its bytes are bounded."""
    rows = [row(at, value=b"v" * 1000) for at in range(12)]
    parts = [part(rows[at : at + 3], at + 3) for at in range(0, 12, 3)]
    unit = Unit(TOPIC_ID, 3, 0, 12)
    pieces = write_unit(tmp_path, unit, parts, sizes=Sizes(row_group_bytes=3000))
    (piece,) = pieces
    assert isinstance(piece, DataFile)
    assert [3, 3, 3, 3] == [len(batch) for batch in read_stored(tmp_path, piece)]
    coverage = commit(tmp_path, pieces)
    assert [2, 3, 3] == [len(batch) for batch in read_range(tmp_path, coverage, 4, 12)]


def test_orphans_are_swept_after_their_grace(tmp_path: Path) -> None:
    """Also temporary names; not what is committed, is younger, or is not of a writer."""
    log = CommitLog(tmp_path, TOPIC_ID)
    kept = write_unit(tmp_path, Unit(TOPIC_ID, 3, 0, 1), [part([row(0)], 1)])
    commit(tmp_path, kept)
    orphans = [
        str(piece.path)
        for _ in range(2)
        for piece in write_unit(tmp_path, Unit(TOPIC_ID, 3, 1, 2), [part([row(1)], 2)])
        if isinstance(piece, DataFile)
    ]
    temporary = [f"{folder}/.{uuid4().hex}.tmp" for folder in ("p=00003", "_log")]
    for name in [*temporary, "p=00003/notes.txt"]:
        (tmp_path / name).touch()
    for path in tmp_path.rglob("*"):
        if path.is_file() and str(path.relative_to(tmp_path)) != orphans[1]:
            os.utime(path, (100, 100))
    os.utime(tmp_path / orphans[1], (101, 101))
    log.commit(CommitLogEntry(uuid4(), TOPIC_ID, (Hole(3, 1, 1, "control"),)), planned_at=1)
    with pytest.raises(ArchiveError, match="grace"):
        sweep(tmp_path, log, now_s=101 + MIN_GRACE_S, grace_s=MIN_GRACE_S - 1)
    swept = sweep(tmp_path, log, now_s=101 + MIN_GRACE_S, grace_s=MIN_GRACE_S)
    assert swept == sorted([orphans[0], *temporary])
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("p=*/*")}
    assert left == {orphans[1], "p=00003/notes.txt", *log.read().coverage.files()}
    assert list(audit(tmp_path, TOPIC_ID, level=2)) == []


def test_an_orphan_of_what_is_not_archived_is_kept(tmp_path: Path) -> None:
    """When the newest versions were lost, it may be all that is left of its records."""
    log = CommitLog(tmp_path, TOPIC_ID)
    pieces = [
        write_unit(tmp_path, Unit(TOPIC_ID, 3, at, at + 1), [part([row(at)], at + 1)])
        for at in range(2)
    ]
    commit(tmp_path, pieces[0])
    log.commit(CommitLogEntry(uuid4(), TOPIC_ID, pieces[1]), planned_at=1)
    (tmp_path / "_log" / f"{2:020d}.json").unlink()
    assert [] == sweep(tmp_path, log, now_s=1e12)
    log.commit(CommitLogEntry(uuid4(), TOPIC_ID, (Hole(3, 1, 1, "lost"),)), planned_at=1)
    (lost,) = pieces[1]
    assert isinstance(lost, DataFile)
    assert [lost.path] == sweep(tmp_path, log, now_s=1e12)


@contextmanager
def no_room(most_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_keeps_nothing_of_a_unit(tmp_path: Path) -> None:
    """Neither the file that did not fit, which cannot be ended, nor those before it."""
    rows = [row(offset, value=os.urandom(1000)) for offset in range(1000)]
    sizes = Sizes(row_group_bytes=100_000, file_bytes=400_000)
    parts = [
        part_from(first, rows[first : first + 100], first + 100) for first in range(0, 1000, 100)
    ]
    unit = Unit(TOPIC_ID, 3, 0, 1000)
    with no_room(350_000), pytest.raises(OSError, match="File too large"):
        write_unit(tmp_path, unit, parts, sizes=sizes)
    assert [] == [one for one in tmp_path.rglob("*") if one.is_file()]


def test_what_a_run_has_not_committed_is_removed(tmp_path: Path) -> None:
    """By the name of the run: what is committed stays, and what another run writes."""
    generation = generation_directory(str(tmp_path), "t", TOPIC_ID)
    log = CommitLog(generation, TOPIC_ID)
    run, other = new_run(), new_run()

    def write(first: int, run: str) -> Piece:
        unit = Unit(TOPIC_ID, 3, first, first + 1)
        (piece,) = write_unit(
            generation, unit, [part_from(first, [row(first)], first + 1)], run=run
        )
        return piece

    committed = write(0, run)
    log.commit(CommitLogEntry(uuid4(), TOPIC_ID, (committed,), (), {3: 0}), planned_at=0)
    left, others = write(1, run), write(1, other)
    assert isinstance(committed, DataFile)
    assert isinstance(left, DataFile)
    assert isinstance(others, DataFile)
    assert [left.path] == remove_uncommitted(generation, log, run)
    there = {str(one.relative_to(generation)) for one in generation.glob("p=*/*")}
    assert {committed.path, others.path} == there
