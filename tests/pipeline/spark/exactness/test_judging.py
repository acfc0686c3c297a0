"""The comparison finds each kind of deviation: the control of the campaign's judge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.spark.exactness.journal import Record
from tests.pipeline.spark.exactness.judging import (
    AT_OFFSETS,
    COPIED,
    COPIED_IN_ORDER,
    Outcome,
    View,
    judge,
)

JOURNAL = [
    Record(number % 2, number // 2, 1000 + number, b"k%d" % (number % 3), b"v", (("h", None),))
    for number in range(10)
]
VIEWS = pytest.mark.parametrize("view", [AT_OFFSETS, COPIED, COPIED_IN_ORDER])


@VIEWS
def test_what_is_equal_has_no_deviation(view: View) -> None:
    """The journal itself is exact."""
    assert Outcome(10, 10) == judge(view, JOURNAL, JOURNAL)


@VIEWS
def test_a_dropped_record_is_lost(view: View) -> None:
    """One that did not come out is counted."""
    assert Outcome(10, 9, lost=1) == judge(view, JOURNAL, JOURNAL[:4] + JOURNAL[5:])


@VIEWS
def test_a_repeated_record_is_doubled(view: View) -> None:
    """One that came out twice is counted, and does not make up for a lost one."""
    found = [*JOURNAL[:8], JOURNAL[7], JOURNAL[9]]
    assert Outcome(10, 10, lost=1, doubled=1) == judge(view, JOURNAL, found)


@VIEWS
@pytest.mark.parametrize(
    "change",
    [
        {"key": None},
        {"key": b""},
        {"value": None},
        {"value": b"w"},
        {"headers": ()},
        {"headers": (("h", b""),)},
        {"timestamp_type": 1},
    ],
)
def test_a_changed_record_is_altered(view: View, change: dict[str, Any]) -> None:
    """Each column counts, and null is not empty."""
    found = [*JOURNAL[:9], JOURNAL[9]._replace(**change)]
    assert Outcome(10, 10, altered=1) == judge(view, JOURNAL, found)


def test_a_record_of_another_partition_is_altered() -> None:
    """A copy keeps its partition."""
    found = [*JOURNAL[:9], JOURNAL[9]._replace(partition=0)]
    assert Outcome(10, 10, altered=1) == judge(COPIED, JOURNAL, found)


@VIEWS
def test_a_record_that_never_went_in_is_foreign(view: View) -> None:
    """What was aborted, or belongs to others, is counted."""
    found = [*JOURNAL, Record(0, 99, 5000, None, b"aborted", ())]
    assert Outcome(10, 11, foreign=1) == judge(view, JOURNAL, found)


def test_a_record_before_its_time_is_moved() -> None:
    """Where order is promised, a partition's records come in it."""
    found = [JOURNAL[2], JOURNAL[0], *JOURNAL[3:], JOURNAL[1]]
    assert Outcome(10, 10, moved=2) == judge(COPIED_IN_ORDER, JOURNAL, found)
    assert judge(COPIED, JOURNAL, found).is_exact


def test_doubled_records_are_no_loss() -> None:
    """What writes at least once may double records, and nothing else."""
    twice = judge(COPIED, JOURNAL, JOURNAL * 2)
    assert twice.is_complete
    assert not twice.is_exact
    assert not judge(COPIED, JOURNAL, JOURNAL[1:] * 2).is_complete
