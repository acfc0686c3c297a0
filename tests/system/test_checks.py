"""Each rule of the whole system's verdict finds the deviation that it is about, and no other."""

from __future__ import annotations

from e2e.system import checks
from e2e.system.evidence import Content, Place, Stored
from e2e.system.verdict import Row, Verdict

FIRST, SECOND, THIRD = (Content(b"key", b"value %d" % number) for number in range(3))
STORED = [Stored(Place(0, offset), one) for offset, one in enumerate((FIRST, SECOND, THIRD))]
ACKNOWLEDGED = [("go", one.place, one.content) for one in STORED]
SENT = {one.content.value for one in STORED}


def test_what_is_as_it_was_acknowledged_is_not_wrong() -> None:
    """Records of which nobody was told are nothing to say either, if they were sent."""
    assert [] == checks.wrong_records(ACKNOWLEDGED, SENT, STORED)
    assert [] == checks.wrong_records(ACKNOWLEDGED[:2], SENT, STORED)


def test_a_lost_record_is_found() -> None:
    """It was acknowledged at an offset that has nothing."""
    (problem,) = checks.wrong_records(ACKNOWLEDGED, SENT, STORED[:2])
    assert problem.startswith(checks.LOST)


def test_a_record_in_the_place_of_another_is_found() -> None:
    """As after a loss: its offset was given again."""
    found = [*STORED[:2], Stored(Place(0, 2), Content(b"key", b"other"))]
    (problem,) = checks.wrong_records(ACKNOWLEDGED, {*SENT, b"other"}, found)
    assert problem.startswith(checks.LOST)


def test_an_altered_key_is_found() -> None:
    """The bytes of key and value count."""
    found = [*STORED[:2], Stored(Place(0, 2), THIRD._replace(key=b"other"))]
    assert 1 == len(checks.wrong_records(ACKNOWLEDGED, SENT, found))


def test_a_doubled_record_is_found() -> None:
    """It is at two offsets."""
    found = [*STORED, Stored(Place(0, 3), THIRD)]
    assert ["2 times there: b'value 2'"] == checks.wrong_records(ACKNOWLEDGED, SENT, found)


def test_a_record_that_nobody_sent_is_found() -> None:
    """It is in no producer's list."""
    found = [*STORED, Stored(Place(0, 3), Content(b"key", b"new"))]
    assert ["nobody has sent b'new'"] == checks.wrong_records(ACKNOWLEDGED, SENT, found)


def test_an_offset_that_was_given_twice_is_found() -> None:
    """Two producers were told the same one."""
    twice = [*ACKNOWLEDGED, ("rust", Place(0, 2), THIRD)]
    (problem,) = checks.wrong_records(twice, SENT, STORED)
    assert "was given to go and to rust" in problem


def test_a_gap_between_offsets_is_found() -> None:
    """No transaction has written to this topic, so each offset has a record."""
    assert [] == checks.wrong_offsets(STORED, {0: 3})
    assert 1 == len(checks.wrong_offsets(STORED, {0: 4}))
    assert 1 == len(checks.wrong_offsets([STORED[0], STORED[2]], {0: 3}))


def test_records_of_a_key_in_another_order_are_found() -> None:
    """By the order in which they were acknowledged."""
    assert [] == checks.wrong_order(ACKNOWLEDGED)
    assert 1 == len(checks.wrong_order([ACKNOWLEDGED[1], ACKNOWLEDGED[0], ACKNOWLEDGED[2]]))


def test_what_no_consumer_was_given_is_found() -> None:
    """All languages together count, and each must have been given something."""
    places = [one.place for one in STORED]
    assert [] == checks.not_seen({"go": set(places[:2]), "rust": set(places[1:])}, STORED)
    assert 1 == len(checks.not_seen({"go": set(places[:2]), "rust": {places[0]}}, STORED))
    assert 1 == len(checks.not_seen({"go": set(places), "rust": set()}, STORED))


def test_committed_offsets_that_went_back_are_found() -> None:
    """Also those that are no longer there."""
    assert [] == checks.wrong_commits([{}, {0: 1}, {0: 3}], {0: 3, 1: 0})
    assert 1 == len(checks.wrong_commits([{0: 2}, {0: 1}, {0: 3}], {0: 3}))
    assert 1 == len(checks.wrong_commits([{0: 2}, {}, {0: 3}], {0: 3}))


def test_committed_offsets_that_are_not_at_the_end_are_found() -> None:
    """In the end all that is there was read."""
    assert 1 == len(checks.wrong_commits([{0: 2}], {0: 3}))
    assert 1 == len(checks.wrong_commits([], {0: 3}))


def test_copies_that_are_not_exactly_once_are_found() -> None:
    """Missing, twice, altered, of nothing."""
    copies = [one._replace(source=one.place) for one in STORED]
    assert [] == checks.wrong_copies(copies, STORED)
    assert 1 == len(checks.wrong_copies(copies[:2], STORED))
    assert 1 == len(checks.wrong_copies([*copies, copies[0]], STORED))
    altered = [copies[0]._replace(content=SECOND), *copies[1:]]
    assert 1 == len(checks.wrong_copies(altered, STORED))
    assert 1 == len(checks.wrong_copies([*copies, STORED[0]], STORED))


def test_a_group_that_has_not_rebalanced_is_found() -> None:
    """Every member has had partitions, and most have had others before."""
    moved = {"go": [[0, 1, 2], [0]], "rust": [[], [1, 2]]}
    assert [] == checks.too_few_rebalances({**moved, "java": [[0], []]})
    assert 1 == len(checks.too_few_rebalances({**moved, "java": [[], []]}))
    assert 1 == len(checks.too_few_rebalances({"go": [[0, 1]], "rust": [[2], []]}))


def test_a_verdict_is_good_when_all_of_it_is_true() -> None:
    """And nothing is no verdict."""
    good, bad = Row("gateway", "one thing", []), Row("gateway", "another", list("abcdefg"))
    verdicts = []
    for rows in ([], [good], [good, bad]):
        verdict = Verdict()
        verdict.rows += rows
        verdicts.append(verdict.is_good)
    assert [False, True, False] == verdicts


def test_a_verdict_shows_the_first_problems() -> None:
    """And how many more there are."""
    verdict = Verdict()
    verdict.rows.append(Row("gateway", "one thing", list("abcdefg")))
    lines = verdict.table().splitlines()
    assert ("FAILED gateway  one thing", "         and 2 more") == (lines[0], lines[-1])
