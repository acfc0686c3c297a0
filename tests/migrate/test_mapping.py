"""Old offsets to native ones: each class of finding, and positions that never skip a record."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from kgw.migrate.mapping import (
    Certainty,
    Entries,
    MappedPosition,
    MatchClass,
    PartitionMapping,
    Records,
    Run,
)

MS = 1_000_000
EXACT, BY_ORDER, LOWER_BOUND = Certainty.EXACT, Certainty.BY_ORDER, Certainty.LOWER_BOUND


def mapping(
    entries: list[tuple[int, int, int]],
    records: list[tuple[int, int, int]],
    *,
    end_offset: int | None = None,
    precision_ns: int = 1,
) -> PartitionMapping:
    """Match entries (old offset, time, size) with records (offset, time, size)."""
    ours, theirs = Entries(), Records()
    for entry in entries:
        ours.add(*entry)
    for offset, time_ns, size_bytes in records:
        theirs.add(offset, time_ns // precision_ns, size_bytes)
    if end_offset is None:
        end_offset = records[-1][0] + 1 if records else 0
    return PartitionMapping(ours, theirs, end_offset, precision_ns=precision_ns)


def straight(*offsets: int) -> list[tuple[int, int, int]]:
    """Rows whose time says which record it was: offset, time, size."""
    return [(offset, 1000 + offset, 7) for offset in offsets]


def found(one: PartitionMapping) -> list[tuple[str, int | None, int | None, int]]:
    """Class, old offset, offset and length of every run."""
    return [(run.match_class.value, *run[1:]) for run in one.runs()]


def at(one: PartitionMapping, old_offset: int) -> tuple[int, Certainty]:
    """Where a group goes on, and how sure that is."""
    place = one.position(old_offset)
    return place.offset, place.certainty


def test_what_fits_is_one_run() -> None:
    """A history without anomalies is one run, and every position is exact."""
    one = mapping(straight(*range(100)), straight(*range(100)))
    assert [("matched", 0, 0, 100)] == found(one)
    assert [(old, EXACT) for old in range(101)] == [at(one, old) for old in range(101)]
    assert Run(MatchClass.MATCHED, 0, 0, 100) == next(one.runs())


def test_native_offsets_may_differ() -> None:
    """Records that begin elsewhere keep their order; the end is the partition's."""
    records = [(offset + 50, ts_ns, size) for offset, ts_ns, size in straight(0, 1, 2)]
    one = mapping(straight(0, 1, 2), records, end_offset=60)
    assert [(50, EXACT), (52, EXACT), (60, EXACT)] == [at(one, 0), at(one, 2), at(one, 3)]


def test_only_in_ledger() -> None:
    """An entry whose record is gone is said to be so; a group behind it goes on exactly behind."""
    one = mapping(straight(0, 1, 2, 3, 4), straight(0, 1, 3, 4))
    assert [("matched", 0, 0, 2), ("only-in-ledger", 2, None, 1), ("matched", 3, 3, 2)] == found(
        one
    )
    assert (3, BY_ORDER) == at(one, 3)
    assert MappedPosition(1, LOWER_BOUND, 1) == one.position(2)
    assert (4, EXACT) == at(one, 4)


def test_holes_and_only_in_data() -> None:
    """As many records without an entry as offsets are missing: they are mapped by order."""
    one = mapping(straight(0, 1, 5, 6), straight(*range(7)))
    assert [
        ("matched", 0, 0, 2),
        ("hole", 2, None, 3),
        ("matched", 5, 5, 2),
        ("only-in-data", None, 2, 3),
    ] == found(one)
    assert [(old, BY_ORDER) for old in (2, 3, 4, 5)] == [at(one, old) for old in (2, 3, 4, 5)]


def test_holes_that_do_not_count_up() -> None:
    """With fewer records than missing offsets a group inside begins behind the last known one."""
    one = mapping(straight(0, 1, 5, 6), straight(0, 1, 3, 5, 6))
    assert (1, LOWER_BOUND) == at(one, 3)
    assert (5, BY_ORDER) == at(one, 5)
    assert (6, EXACT) == at(one, 6)


def test_record_that_the_old_scheme_never_showed() -> None:
    """A record between two consecutive old offsets was read by nobody: it is not skipped."""
    records = [(0, 1000, 7), (1, 1001, 7), (2, 1001_5, 7), (3, 1002_0, 7)]
    one = mapping([(0, 1000, 7), (1, 1001, 7), (2, 1002_0, 7)], records)
    assert ("only-in-data", None, 2, 1) == found(one)[-1]
    assert MappedPosition(1, LOWER_BOUND, 1) == one.position(2)


def test_truncated_ledger() -> None:
    """Without its first or last entries a ledger maps by order, or to behind what it knows."""
    head = mapping(straight(*range(5, 10)), straight(*range(10)))
    assert ("hole", 0, None, 5) == found(head)[0]
    assert (3, BY_ORDER) == at(head, 3)
    assert (5, BY_ORDER) == at(head, 5)
    tail = mapping(straight(*range(5)), straight(*range(10)))
    assert (5, EXACT) == at(tail, 5)
    assert MappedPosition(4, LOWER_BOUND, 4) == tail.position(8)


def test_equal_times_are_paired_by_order() -> None:
    """Several records of one time are paired in their order when there are as many entries."""
    one = mapping([(0, 5, 7), (1, 5, 7), (2, 5, 9)], [(0, 5, 7), (1, 5, 7), (2, 5, 9)])
    assert [("equal-times", 0, 0, 3)] == found(one)
    assert (1, EXACT) == at(one, 1)


def test_equal_times_are_paired_by_size() -> None:
    """With a record missing, sizes that fit in one place alone say which."""
    entries = [(0, 4, 1), (1, 5, 10), (2, 5, 20), (3, 5, 30), (4, 6, 1)]
    one = mapping(entries, [(0, 4, 1), (1, 5, 10), (2, 5, 30), (3, 6, 1)])
    assert [
        ("matched", 0, 0, 1),
        ("equal-times", 1, 1, 1),
        ("only-in-ledger", 2, None, 1),
        ("equal-times", 3, 2, 1),
        ("matched", 4, 3, 1),
    ] == found(one)
    entries = [(0, 5, 10), (1, 5, 20), (2, 6, 1)]
    more_records = mapping(entries, [(0, 5, 5), (1, 5, 10), (2, 5, 20), (3, 6, 1)])
    assert ("equal-times", 0, 1, 2) == found(more_records)[0]
    assert ("only-in-data", None, 0, 1) == found(more_records)[-1]


def test_equal_times_beside_a_hole_are_ambiguous() -> None:
    """The record of a lost entry may have taken the place of a lost one: nothing is decided."""
    entries = [(0, 4, 1), (1, 5, 10), (2, 5, 10), (4, 6, 1)]
    # The record of offset 1 is lost, and that of offset 3, whose entry is lost, is of its time.
    one = mapping(entries, [(0, 4, 1), (1, 5, 10), (2, 5, 10), (3, 6, 1)])
    assert ("ambiguous", 1, None, 2) in found(one)
    assert (0, LOWER_BOUND) == at(one, 2)
    assert (0, LOWER_BOUND) == at(one, 3)
    assert (3, BY_ORDER) == at(one, 4)


def test_equal_times_that_stay_ambiguous() -> None:
    """Sizes that fit in two places decide nothing: the group begins before all of that time."""
    entries = [(0, 4, 1), (1, 5, 10), (2, 5, 10), (3, 5, 10), (4, 6, 1)]
    one = mapping(entries, [(0, 4, 1), (1, 5, 10), (2, 5, 10), (3, 6, 1)])
    assert ("ambiguous", 1, None, 3) in found(one)
    assert ("ambiguous", None, 1, 2) in found(one)
    assert (0, LOWER_BOUND) == at(one, 2)
    assert (3, BY_ORDER) == at(one, 4)


def test_a_record_in_the_place_of_a_lost_one_is_not_skipped_at_the_end() -> None:
    """What is behind the last matched entry is sure only when that is the ledger's last one."""
    one = mapping([(0, 1, 3), (3, 3, 2)], [(1, 1, 1), (2, 3, 1), (3, 3, 2)])
    assert (1, Certainty.LOWER_BOUND) == at(one, 1)


def test_one_entry_does_not_choose_among_records_beside_a_hole() -> None:
    """Of two records of its time the entry's own may be lost: size alone would skip the other."""
    one = mapping([(0, 2, 1), (1, 3, 1), (4, 4, 3)], [(1, 3, 2), (3, 3, 1), (4, 4, 3)])
    assert (1, Certainty.LOWER_BOUND) == at(one, 1)
    assert ("ambiguous", 1, None, 1) in found(one)


@pytest.mark.slow
def test_no_dense_history_skips_an_unread_record() -> None:
    """Of few records most share their times, and many are lost: nothing is skipped there either.

    Random histories of any length hardly ever have all of that at once.
    """
    chance = Random(13)
    for _ in range(20_000):
        time = 0
        true = []
        for old_offset in range(chance.randint(1, 7)):
            time += chance.choice((0, 0, 1, 1, 2))
            true.append((old_offset, time, chance.choice((1, 1, 2, 3))))
        entries = [one for one in true if chance.random() < 0.7]
        if not entries:
            continue
        kept = [one for one in true if chance.random() < 0.7]
        last_time = entries[-1][1]
        known = set(entries)
        records = [one for one in true if one in kept or (one in known and one[1] == last_time)]
        planned = mapping(
            entries,
            [(offset, *one[1:]) for offset, one in enumerate(records)],
            end_offset=len(records),
        )
        for position in range(len(true) + 1):
            unread = [offset for offset, (old, _, _) in enumerate(records) if old >= position]
            assert planned.position(position).offset <= min(unread, default=len(records)), true


def test_sizes_that_never_agree_are_no_evidence() -> None:
    """Early gateways stored estimates: sizes count only where more agree than differ."""
    entries = [(old, 1000 + old, 99) for old in range(5)]
    estimates = mapping(entries, straight(*range(5)))
    assert not estimates.sizes_count
    assert [("matched", 0, 0, 5)] == found(estimates)
    # An entry whose time no record has is not ambiguous, whatever its size says.
    assert ("only-in-ledger", 2, None, 1) in found(mapping(entries, straight(0, 1, 3, 4)))
    one_differs = mapping([*straight(0, 1, 2, 3), (4, 1004, 99)], straight(*range(5)))
    assert one_differs.sizes_count
    assert ("ambiguous", 4, None, 1) in found(one_differs)
    half_differ = mapping([*straight(0, 1), (2, 1002, 99), (3, 1003, 99)], straight(*range(4)))
    assert not half_differ.sizes_count
    assert [("matched", 0, 0, 4)] == found(half_differ)


def test_duplicates_count_once() -> None:
    """An entry that was written twice is one entry."""
    one = mapping([*straight(0, 1, 1, 2), *straight(1)], straight(0, 1, 2))
    assert 2 == one.duplicates
    assert [("matched", 0, 0, 3)] == found(one)


def test_offsets_used_twice() -> None:
    """After a restart with a lost ledger offsets were given out again: no unread one is skipped."""
    entries = [*straight(0, 1, 2, 3), (2, 2002, 7), (3, 2003, 7), (4, 2004, 7), (5, 2005, 7)]
    records = [*straight(0, 1, 2, 3), (4, 2002, 7), (5, 2003, 7), (6, 2004, 7), (7, 2005, 7)]
    one = mapping(entries, records)
    assert 2 == sum(run[3] for run in found(one) if run[0] == "non-monotonic")
    assert (2, LOWER_BOUND) == at(one, 2)
    assert (3, LOWER_BOUND) == at(one, 3)
    assert (6, EXACT) == at(one, 4)


def test_unread_record_that_stands_before_read_ones() -> None:
    """A record far before its place is not skipped by a group that has yet to read it."""
    order = [0, 1, 9, 2, 3, 4, 5, 6, 7, 8]
    one = mapping(straight(*range(10)), [(place, 1000 + old, 7) for place, old in enumerate(order)])
    assert ("non-monotonic", 9, 2, 1) in found(one)
    assert MappedPosition(2, LOWER_BOUND, 4) == one.position(5)


def test_writers_that_overtook_each_other() -> None:
    """A pair against the order is reported; what was read beyond the position comes again."""
    entries = [(0, 10, 1), (1, 13, 2), (2, 12, 3), (3, 14, 4)]
    one = mapping(entries, [(0, 10, 1), (1, 12, 3), (2, 13, 2), (3, 14, 4)])
    assert 1 == sum(run[3] for run in found(one) if run[0] == "non-monotonic")
    place = one.position(2)
    assert 1 == place.offset
    assert 1 <= place.comes_again


def test_a_record_out_of_order_in_a_gap_leaves_nothing_to_count() -> None:
    """What was overtaken may be any of the gap's records: as many are missing, but not in order."""
    entries = straight(0, 2, 3, 4)
    # Old offset 1 has no entry; the record of 4 was written before that of 2.
    order = [1, 4, 2, 3]
    one = mapping(entries, [(offset, 1000 + old, 7) for offset, old in enumerate(order)])
    assert ("non-monotonic", 4, 1, 1) in found(one)
    assert MappedPosition(0, LOWER_BOUND, 1) == one.position(1)


def test_clock_that_was_set_back() -> None:
    """Times that go back are no disorder as long as offsets and records agree."""
    rows = [(0, 100, 1), (1, 101, 1), (2, 50, 1), (3, 51, 1)]
    one = mapping(rows, rows)
    assert [("matched", 0, 0, 4)] == found(one)
    assert (2, EXACT) == at(one, 2)


def test_times_as_kafka_has_them() -> None:
    """Over Kafka's wire times are milliseconds: entries in nanoseconds are compared so."""
    entries = [(0, 5 * MS + 1, 7), (1, 5 * MS + 999_999, 8), (2, 6 * MS, 7)]
    one = mapping(entries, [(0, 5 * MS, 7), (1, 5 * MS, 8), (2, 6 * MS, 7)], precision_ns=MS)
    assert [("equal-times", 0, 0, 2), ("matched", 2, 2, 1)] == found(one)


def test_nothing_to_go_by() -> None:
    """Without a ledger everything comes again; without records the group begins at the end."""
    assert MappedPosition(0, LOWER_BOUND, 3) == mapping([], straight(0, 1, 2, 3)).position(3)
    assert (9, LOWER_BOUND) == at(mapping(straight(0, 1), [], end_offset=9), 1)
    assert (4, EXACT) == at(mapping([], [], end_offset=4), 0)


def test_records_come_in_order() -> None:
    """Records are taken as a partition has them."""
    records = Records()
    records.add(3, 0, 0)
    with pytest.raises(ValueError, match="offset 3 after offset 3"):
        records.add(3, 0, 0)


class History(NamedTuple):
    """What really happened: old offsets of the records that are left, and what the ledger says."""

    entries: list[tuple[int, int, int]]
    records: list[tuple[int, int, int]]
    old_offsets: list[int]
    precision_ns: int
    are_times_unique: bool


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Lost entries, lost records, equal times, clock steps, overtaking, copies, cut ledgers."""
    count = draw(st.integers(0, 24))
    steps = st.sampled_from([0, 0, 1, 1, 2, 7, -1, -5])
    is_steady = draw(st.booleans())
    time = 1000
    true = []
    for old_offset in range(count):
        step = draw(steps)
        time += abs(step) if is_steady else step
        true.append((old_offset, time, draw(st.sampled_from([3, 3, 3, 4, 5]))))
    loss = st.sets(st.integers(0, max(count - 1, 0)), max_size=draw(st.sampled_from([0, 1, 3, 12])))
    lost_entries, lost_records = draw(loss), draw(loss)
    # A ledger may lack its beginning and its end; a partition too.
    lost_entries |= set(range(draw(st.sampled_from([0, 0, 0, 4]))))
    lost_entries |= set(range(count - draw(st.sampled_from([0, 0, 0, 4])), count))
    lost_records |= set(range(draw(st.sampled_from([0, 0, 0, 4]))))
    with_entry = set(range(count)) - lost_entries
    precision_ns = draw(st.sampled_from([1, 1, 4]))
    if with_entry:  # the planner's third condition
        last_time = true[max(with_entry)][1] // precision_ns
        lost_records -= {one for one in with_entry if true[one][1] // precision_ns == last_time}
    passed: dict[int, int] = {}  # the fourth one
    for old_offset, time, _ in true:
        if passed.setdefault(time // precision_ns, old_offset) < old_offset - 1:
            lost_records -= {
                one for one, at, _ in true if at // precision_ns == time // precision_ns
            }
        passed[time // precision_ns] = old_offset
    records = [one for one in true if one[0] not in lost_records]
    times = Counter(time // precision_ns for _, time, _ in true)
    for at in draw(st.lists(st.integers(0, max(count - 2, 0)), max_size=2, unique=True)):
        # The planner's first condition: who overtook whom can be seen.
        if at + 1 < len(records) and all(
            one[0] in with_entry and times[one[1] // precision_ns] == 1
            for one in records[at : at + 2]
        ):
            records[at], records[at + 1] = records[at + 1], records[at]
    entries = [one for one in true if one[0] in with_entry]
    entries += draw(st.lists(st.sampled_from(entries), max_size=3)) if entries else []
    first = draw(st.integers(0, 5))
    return History(
        draw(st.permutations(entries)),
        [
            (first + at, time // precision_ns * precision_ns, size)
            for at, (_, time, size) in enumerate(records)
        ],
        [old_offset for old_offset, _, _ in records],
        precision_ns,
        len(times) == count,
    )


@pytest.mark.slow
@given(histories(), st.integers(0, 26))
def test_no_position_skips_an_unread_record(history: History, old_offset: int) -> None:
    """Whatever was lost, a group never goes on behind a record that it has not read.

    Where each time has one record, no more comes again than the planner says.
    """
    one = mapping(
        history.entries, history.records, end_offset=99, precision_ns=history.precision_ns
    )
    place = one.position(old_offset)
    event(place.certainty.value)
    unread = [
        offset
        for (offset, _, _), old in zip(history.records, history.old_offsets, strict=True)
        if old >= old_offset
    ]
    assert place.offset <= min(unread, default=99)
    again = [
        offset
        for (offset, _, _), old in zip(history.records, history.old_offsets, strict=True)
        if old < old_offset and offset >= place.offset
    ]
    if history.are_times_unique:
        assert len(again) <= place.comes_again


@pytest.mark.slow
@given(histories())
def test_every_entry_and_record_is_accounted_for(history: History) -> None:
    """Runs hold each old offset up to the last entry and each record exactly once, in any order."""
    one = mapping(history.entries, history.records, precision_ns=history.precision_ns)
    old_offsets: list[int] = []
    offsets: list[int] = []
    for run in one.runs():
        if run.old_offset is not None:
            old_offsets += range(run.old_offset, run.old_offset + run.length)
        if run.offset is not None:
            offsets += range(run.offset, run.offset + run.length)
    assert list(range(max((entry[0] for entry in history.entries), default=-1) + 1)) == old_offsets
    assert [record[0] for record in history.records] == sorted(offsets)
    shuffled = mapping(sorted(history.entries), history.records, precision_ns=history.precision_ns)
    assert found(one) == found(shuffled)
