"""Computes new positions of groups: matches ledger entries with kgw's records. Pure.

The entries and records of a partition are matched by time, then by size, then by order. A group's
new position is the next record that it has not read. No unread record is skipped if these
conditions hold:

1. Records are in the order of their old offsets, except if matched records show otherwise.
2. Each record of the partition had an old offset, even if its entry is lost.
3. No record is lost whose entry has the time of the last entry.
4. The time of a lost record was not repeated after a clock was set back.

If several positions remain possible, the earliest one is used and reported as a lower bound: the
group may read some records again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from enum import Enum
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NONE = -1


class MatchClass(Enum):
    """The result of matching for an entry, a record or an old offset."""

    MATCHED = "matched"
    """Exactly one entry and one record have this time, and equal sizes if sizes are compared."""

    EQUAL_TIMES = "equal-times"
    """Several entries or records have this time, but order and size allow only one pairing."""

    AMBIGUOUS = "ambiguous"
    """Several entries or records have this time, and there are several pairings, or sizes
    differ."""

    NON_MONOTONIC = "non-monotonic"
    """Paired, but not in the order of the other pairs: a clock was set back, an offset was used
    twice, or there were two writers."""

    ONLY_LEDGER = "only-in-ledger"
    ONLY_DATA = "only-in-data"
    HOLE = "hole"
    """Old offsets that have no entry."""


_CLASSES = tuple(MatchClass)
_MATCHED, _EQUAL_TIMES, _AMBIGUOUS, _NON_MONOTONIC, _ONLY_LEDGER = map(
    _CLASSES.index,
    (
        MatchClass.MATCHED,
        MatchClass.EQUAL_TIMES,
        MatchClass.AMBIGUOUS,
        MatchClass.NON_MONOTONIC,
        MatchClass.ONLY_LEDGER,
    ),
)


class Certainty(Enum):
    """How certain it is that a position is the next unread record."""

    EXACT = "exact"
    """The records before and after the position are matched, and no unmatched one is between
    them."""

    BY_ORDER = "by-order"
    """Between the matched records before and after the position, there are no more unmatched
    records than missing old offsets."""

    LOWER_BOUND = "lower-bound"
    """Uncertain: the earliest record that may be unread."""


class Run(NamedTuple):
    """Adjacent rows of one class with consecutive offsets; None if the rows lack that offset."""

    match_class: MatchClass
    old_offset: int | None
    offset: int | None
    length: int


class MappedPosition(NamedTuple):
    """The new position of a group.

    At most `comes_again` records from this position on were already read, provided that no two
    records have the same time. Otherwise a lost record can make the position earlier, but never
    later.
    """

    offset: int
    certainty: Certainty
    comes_again: int


class Entries:
    """The ledger entries of one partition, in any order, in 20 bytes each."""

    __slots__ = ("old_offsets", "sizes_bytes", "times_ns")

    def __init__(self) -> None:
        self.old_offsets = array("q")
        self.times_ns = array("q")
        self.sizes_bytes = array("i")

    def __len__(self) -> int:
        return len(self.old_offsets)

    def add(self, old_offset: int, ts_ns: int, size_bytes: int) -> None:
        self.old_offsets.append(old_offset)
        self.times_ns.append(ts_ns)
        self.sizes_bytes.append(size_bytes)


class Records:
    """The records of one partition by native offset, in 24 bytes each."""

    __slots__ = ("fingerprints", "offsets", "sizes_bytes", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.times = array("q")
        """Times in units of the mapping's `precision_ns`, e.g. milliseconds."""
        self.sizes_bytes = array("i")
        self.fingerprints = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, time: int, size_bytes: int, fingerprint: int = 0) -> None:
        """Add the next record. Raises ValueError unless its offset is above the last one."""
        if self.offsets and offset <= self.offsets[-1]:
            raise ValueError(f"offset {offset} after offset {self.offsets[-1]}")
        self.offsets.append(offset)
        self.times.append(time)
        self.sizes_bytes.append(size_bytes)
        self.fingerprints.append(fingerprint)

    def index_of(self, offset: int) -> int:
        """Return the index of the record at an offset, or of the next record."""
        return bisect_left(self.offsets, offset)


class PartitionMapping:
    """Matches the old offsets of one partition with its records."""

    def __init__(
        self, entries: Entries, records: Records, end_offset: int, *, precision_ns: int = 1
    ) -> None:
        """Match entries with records.

        Record times are in units of `precision_ns`, to which entry times are truncated.
        `end_offset` is the native offset after the last record.
        """
        self._entries = entries
        self._records = records
        self._end_offset = end_offset
        self._entry_times = array("q", (time // precision_ns for time in entries.times_ns))
        order = _order_of(entries.old_offsets, entries.times_ns, entries.sizes_bytes)
        self._order = array("q", (one for at, one in enumerate(order) if self._is_new(order, at)))
        """The indexes of the entries without duplicates, sorted by old offset."""
        self.duplicates = len(order) - len(self._order)
        del order
        old_offsets = map(entries.old_offsets.__getitem__, self._order)
        self._known = array("q", (old_offset for old_offset, _ in groupby(old_offsets)))
        self._record_of = array("q", [_NONE]) * len(entries)
        self._classes = bytearray([_ONLY_LEDGER]) * len(entries)
        """For each entry its class, as an index into `_CLASSES`."""
        self._entry_of = array("q", [_NONE]) * len(records)
        self._is_ambiguous = bytearray(len(records))
        ours = self._ordered(self._order, self._entry_times)
        theirs = _order_of(records.times)
        self.sizes_count = self._do_sizes_count(ours, theirs)
        """Whether sizes are compared: early gateways stored only estimates."""
        for bucket in self._buckets(ours, theirs):
            self._match_bucket(*bucket)
        del ours, theirs
        self._anchor_olds = array("q")
        self._anchor_indexes = array("q")
        """The old offsets and record indexes of the pairs that are in order; both ascend."""
        self._strays: list[tuple[int, int]] = []
        """The old offsets and record indexes of the pairs that are not in order."""
        self._part_anchors()
        self._stray_minimum = _suffix_minimum([index for _, index in self._strays])

    def runs(self) -> Iterator[Run]:
        """Yield the results by old offset, then the records without an entry."""
        yield from _joined(self._rows())

    def position(self, old_offset: int) -> MappedPosition:
        """Return the new position of a group whose next record had this old offset."""
        after = bisect_left(self._anchor_olds, old_offset)
        before = after - 1
        has_next = after < len(self._anchor_olds)
        next_old = self._anchor_olds[after] if has_next else old_offset
        next_index = self._anchor_indexes[after] if has_next else len(self._records)
        chosen, missing = self._gap(before, next_old)
        stray_records, stray_offsets = self._strays_within(chosen, next_index, next_old, missing)
        certainty = Certainty.EXACT
        comes_again = 0
        if has_next and missing == stray_offsets and next_index - chosen == stray_records:
            chosen = next_index
        elif missing or has_next or not self._is_last_known(before):
            # The matched record may stand for a lost one of the same time: start before all of that
            # time.
            chosen, missing = self._gap(self._before_bucket(before), next_old)
            unknown = next_index - chosen
            in_order = has_next and not any(
                self._strays_within(chosen, next_index, next_old, missing)
            )
            if in_order and unknown == missing:
                chosen, certainty = next_index - (next_old - old_offset), Certainty.BY_ORDER
            elif in_order and unknown < missing and next_old == old_offset:
                chosen, certainty = next_index, Certainty.BY_ORDER
            else:
                certainty = Certainty.LOWER_BOUND
                comes_again = min(unknown, missing - (next_old - old_offset))
        first_stray = self._first_stray(old_offset)
        if first_stray < chosen:
            comes_again += chosen - first_stray
            chosen, certainty = first_stray, Certainty.LOWER_BOUND
        twice = [index for old, index in self._strays if old == next_old and index > chosen]
        if twice:
            # The old offset was used twice, and the group may have meant the later record.
            comes_again += max(twice) - chosen
            certainty = Certainty.LOWER_BOUND
        comes_again += sum(old < old_offset and index >= chosen for old, index in self._strays)
        return MappedPosition(
            self._records.offsets[chosen] if chosen < len(self._records) else self._end_offset,
            certainty,
            comes_again,
        )

    # Positions

    def _gap(self, before: int, next_old: int) -> tuple[int, int]:
        """Return the first record after a pair, and the number of old offsets before `next_old`."""
        if before < 0:
            return 0, next_old
        return self._anchor_indexes[before] + 1, next_old - self._anchor_olds[before] - 1

    def _before_bucket(self, before: int) -> int:
        """Return the nearest earlier pair with another time; -1 if there is none."""
        if before < 0:
            return before
        time = self._records.times[self._anchor_indexes[before]]
        while before >= 0 and self._records.times[self._anchor_indexes[before]] == time:
            before -= 1
        return before

    def _is_last_known(self, before: int) -> bool:
        """Return whether a pair has the time of the ledger's last entry; True without a pair."""
        if before < 0:
            return True
        time = self._records.times[self._anchor_indexes[before]]
        return time == self._entry_times[self._order[-1]]

    def _strays_within(self, start: int, stop: int, next_old: int, missing: int) -> tuple[int, int]:
        """Return how many records and old offsets of a gap are in pairs that are not in order."""
        return (
            sum(start <= index < stop for _, index in self._strays),
            len({old for old, _ in self._strays if next_old - missing <= old < next_old}),
        )

    def _first_stray(self, old_offset: int) -> int:
        low = bisect_left(self._strays, (old_offset, _NONE))
        return self._stray_minimum[low]

    # Matching

    def _ordered(self, places: array[int], *columns: array[int]) -> array[int]:
        """Return the indexes `places`, sorted by the values in some columns."""
        chosen = [array(one.typecode, map(one.__getitem__, places)) for one in columns]
        return array("q", map(places.__getitem__, _order_of(*chosen)))

    def _is_new(self, order: array[int], at: int) -> bool:
        """Return whether an entry differs from the entry before it in `order`."""
        if at == 0:
            return True
        one, before = order[at], order[at - 1]
        entries = self._entries
        return (
            entries.old_offsets[one] != entries.old_offsets[before]
            or entries.times_ns[one] != entries.times_ns[before]
            or entries.sizes_bytes[one] != entries.sizes_bytes[before]
        )

    def _buckets(
        self, ours: array[int], theirs: array[int]
    ) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the entries and records of each time that has both, sorted by offset.

        `ours` and `theirs` must be sorted by time.
        """
        record_times = self._records.times
        count = len(theirs)
        at = 0
        for time, entries in groupby(ours, key=self._entry_times.__getitem__):
            while at < count and record_times[theirs[at]] < time:
                at += 1
            first = at
            while at < count and record_times[theirs[at]] == time:
                at += 1
            if at > first:
                yield list(entries), theirs[first:at].tolist()

    def _do_sizes_count(self, ours: array[int], theirs: array[int]) -> bool:
        agree = differ = 0
        for entries, records in self._buckets(ours, theirs):
            if len(entries) == len(records):
                same = sum(map(self._same_size, entries, records))
                agree += same
                differ += len(entries) - same
        return agree > differ

    def _same_size(self, one: int, index: int) -> bool:
        return self._entries.sizes_bytes[one] == self._records.sizes_bytes[index]

    def _match_bucket(self, ours: list[int], theirs: list[int]) -> None:
        pairs = self._pairs(ours, theirs)
        if pairs is None:
            for one in ours:
                self._classes[one] = _AMBIGUOUS
            for index in theirs:
                self._is_ambiguous[index] = True
            return
        found = _MATCHED if len(ours) == len(theirs) == 1 else _EQUAL_TIMES
        for one, index in pairs:
            self._record_of[one] = index
            self._entry_of[index] = one
            self._classes[one] = found

    def _pairs(self, ours: list[int], theirs: list[int]) -> list[tuple[int, int]] | None:
        """Return the only pairing of the entries and records of one time; None if not unique."""
        if len(ours) + len(theirs) > 2 and self._may_be_shifted(ours):
            return None
        if len(ours) == len(theirs):
            if self.sizes_count and not all(map(self._same_size, ours, theirs)):
                return None
            return list(zip(ours, theirs, strict=True))
        if not self.sizes_count:
            return None
        our_sizes = [self._entries.sizes_bytes[one] for one in ours]
        their_sizes = [self._records.sizes_bytes[index] for index in theirs]
        if len(ours) < len(theirs):
            places = _only_embedding(our_sizes, their_sizes)
            return None if places is None else [(ours[i], theirs[at]) for i, at in places]
        places = _only_embedding(their_sizes, our_sizes)
        return None if places is None else [(ours[at], theirs[i]) for i, at in places]

    def _may_be_shifted(self, ours: list[int]) -> bool:
        """Return whether a record of this time may lack its entry while another record is lost.

        In that case, equal numbers would hide that entries are paired with wrong records.
        """
        first, last = (self._entries.old_offsets[ours[at]] for at in (0, -1))
        stop = min(last + 1, self._known[-1])
        within = bisect_right(self._known, stop) - bisect_left(self._known, first)
        return within != stop - first + 1

    def _part_anchors(self) -> None:
        """Divide the pairs into a longest sequence that is in order, and the others."""
        olds = self._entries.old_offsets
        paired = array("q", (one for one in self._order if self._record_of[one] != _NONE))
        # If an old offset was used twice, at most one of its pairs can be in order.
        last_first = array("q", (-index for index in self._record_of))
        paired = self._ordered(paired, olds, last_first)
        del last_first
        indexes = array("q", map(self._record_of.__getitem__, paired))
        in_order = iter(_longest_growing(indexes))
        following = next(in_order, _NONE)
        for at, one in enumerate(paired):
            if at == following:
                self._anchor_olds.append(olds[one])
                self._anchor_indexes.append(self._record_of[one])
                following = next(in_order, _NONE)
            else:
                self._strays.append((olds[one], self._record_of[one]))
                self._classes[one] = _NON_MONOTONIC
        self._strays.sort()

    def _rows(self) -> Iterator[Run]:
        expected = 0
        for one in self._order:
            old_offset = self._entries.old_offsets[one]
            if old_offset > expected:
                yield Run(MatchClass.HOLE, expected, None, old_offset - expected)
            expected = old_offset + 1
            index = self._record_of[one]
            offset = None if index == _NONE else self._records.offsets[index]
            yield Run(_CLASSES[self._classes[one]], old_offset, offset, 1)
        for index, one in enumerate(self._entry_of):
            if one == _NONE:
                is_ambiguous = self._is_ambiguous[index]
                found = MatchClass.AMBIGUOUS if is_ambiguous else MatchClass.ONLY_DATA
                yield Run(found, None, self._records.offsets[index], 1)


def _order_of(*columns: array[int]) -> array[int]:
    """Return the indexes of rows, sorted by the first column, then the next, and so on.

    The sort is stable.
    """
    if all(before <= after for before, after in pairwise(zip(*columns, strict=True))):
        # The rows of a log are usually sorted; then no Python object is needed for each row.
        return array("q", range(len(columns[0])))
    places = list(range(len(columns[0])))
    # Sort by one column at a time, which needs no tuples.
    for column in reversed(columns):
        places.sort(key=column.__getitem__)
    return array("q", places)


def _only_embedding(short: list[int], long: list[int]) -> list[tuple[int, int]] | None:
    """Return how a sequence is embedded in a longer one; None unless there is exactly one way."""
    first = _leftmost(short, long)
    if first is None:
        return None
    mirrored = _leftmost(short[::-1], long[::-1])
    if mirrored is None or first != [len(long) - 1 - at for at in reversed(mirrored)]:
        return None
    return list(enumerate(first))


def _leftmost(short: list[int], long: list[int]) -> list[int] | None:
    found = []
    at = 0
    for size in short:
        while at < len(long) and long[at] != size:
            at += 1
        if at == len(long):
            return None
        found.append(at)
        at += 1
    return found


def _longest_growing(values: Sequence[int]) -> Sequence[int]:
    """Return the indexes of a longest increasing subsequence."""
    if all(before < after for before, after in pairwise(values)):
        return range(len(values))
    tails = array("q")
    places = array("q")
    previous = array("q", [_NONE]) * len(values)
    for at, value in enumerate(values):
        length = bisect_left(tails, value)
        previous[at] = places[length - 1] if length else _NONE
        if length == len(tails):
            tails.append(value)
            places.append(at)
        else:
            tails[length] = value
            places[length] = at
    found = array("q")
    at = places[-1]
    while at != _NONE:
        found.append(at)
        at = previous[at]
    found.reverse()
    return found


def _suffix_minimum(values: list[int]) -> list[int]:
    """Return the minimum from each index to the end; a huge number for the index after the last."""
    found = [1 << 62]
    for value in reversed(values):
        found.append(min(found[-1], value))
    return found[::-1]


def _joined(rows: Iterator[Run]) -> Iterator[Run]:
    """Join adjacent rows into runs."""
    current = next(rows, None)
    if current is None:
        return
    for row in rows:
        if _goes_on(current, row):
            current = current._replace(length=current.length + row.length)
        else:
            yield current
            current = row
    yield current


def _goes_on(run: Run, row: Run) -> bool:
    return (
        run.match_class is row.match_class
        and _follows(run.old_offset, row.old_offset, run.length)
        and _follows(run.offset, row.offset, run.length)
    )


def _follows(before: int | None, after: int | None, length: int) -> bool:
    if before is None or after is None:
        return before is after
    return after == before + length
