"""What is held against a log whose records were stored while the clock jumped."""

from __future__ import annotations

import pytest

from tests.campaigns.clock_jumps import Answers
from tests.findings import unplanted

JUDGED: dict[str, tuple[list[int], tuple[int, int], list[str]]] = {
    "fine": ([0, 2, 1], (0, 3), []),
    "removed": ([0, 1, 2], (2, 3), ["records were removed: the log begins at 2"]),
    "lost at the end": (
        [0, 1, 2],
        (0, 2),
        ["offsets up to 2 are not those of the answers"],
    ),
    "more than was answered": (
        [0, 1, 2],
        (0, 4),
        ["offsets up to 4 are not those of the answers"],
    ),
    "one is missing": ([0, 2], (0, 3), ["offsets up to 3 are not those of the answers"]),
    "given twice": ([0, 1, 1, 2], (0, 3), ["offsets were given twice: [1]"]),
}


@pytest.mark.parametrize("what", JUDGED)
def test_a_log_has_what_was_answered(what: str) -> None:
    """All of it, each record at an offset of its own; each thing that is wrong has its name."""
    offsets, bounds, said = JUDGED[what]
    answers = Answers()
    for offset in offsets:
        answers.take(offset, 1_000)
    assert said == list(answers.broken(*bounds))


def test_everything_that_is_said_of_a_log_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    assert [] == unplanted([Answers], [one for *_, said in JUDGED.values() for one in said])


def test_a_time_leads_to_the_first_offset_that_has_it_or_a_later_one() -> None:
    """However times went back between them."""
    answers = Answers()
    for offset, time_ms in enumerate([5, 3, 9, 9, 7]):
        answers.take(offset, time_ms)
    assert [0, 0, 2, 2] == [answers.first_at(time_ms) for time_ms in (3, 5, 6, 9)]
