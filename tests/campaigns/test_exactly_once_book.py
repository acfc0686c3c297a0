"""What the exactly-once campaign holds against a pipeline is found, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.campaigns.exactly_once_book import PipelineBook
from tests.campaigns.history import Commit, Outcome, Send
from tests.campaigns.support import Report

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = {(0, 0): "ab", (0, 1): "cd", (1, 0): "ef"}
FIRST, SECOND, THIRD = "t/1|0|0|ba", "t/1|0|1|dc", "t/2|1|0|fe"


def polled(book: PipelineBook, *records: tuple[int, int, str], reader: str = "reader") -> None:
    """Some records that a reader got."""
    book.hear(reader, {"at": "polled", "records": records})


def fine(book: PipelineBook) -> None:
    """A committed transaction, an aborted one, and the same work done by another worker."""
    first = {"records": [[0, FIRST], [1, SECOND]], "offsets": [[0, 2]]}
    book.hear("worker", {"at": "begun", "transaction": "t/1", **first})
    book.hear("worker", {"at": "sent", "transaction": "t/1", "offsets": [4, 7]})
    book.hear("worker", {"at": "offsets", "transaction": "t/1"})
    book.hear("worker", {"at": "ended", "transaction": "t/1", "outcome": "ok"})
    second = {"records": [[0, "t/x|1|0|fe"]], "offsets": [[1, 1]]}
    book.hear("worker", {"at": "begun", "transaction": "t/x", **second})
    book.hear("worker", {"at": "ended", "transaction": "t/x", "outcome": "fail"})
    third = {"records": [[0, THIRD]], "offsets": [[1, 1]]}
    book.hear("other", {"at": "begun", "transaction": "t/2", **third})
    polled(book, (0, 4, FIRST), (1, 7, SECOND), (0, 9, THIRD))


def again(book: PipelineBook) -> None:
    """A record of the input is in the output of two transactions."""
    fine(book)
    polled(book, (0, 11, "t/3|0|0|ba"))


def unfinished(book: PipelineBook) -> None:
    """A record of the input is in no output, and the group has passed it."""
    polled(book, (1, 7, SECOND), (0, 9, THIRD))


def late(book: PipelineBook) -> None:
    """A record of the input is in no output, and the group has not come to it."""
    polled(book, (0, 4, FIRST), (1, 7, SECOND))


def invented(book: PipelineBook) -> None:
    """Something was made of a record that nobody wrote."""
    fine(book)
    polled(book, (0, 11, "t/3|0|2|hg"))


def spoilt(book: PipelineBook) -> None:
    """A record has become something else."""
    polled(book, (0, 4, FIRST), (1, 7, SECOND), (0, 9, "t/2|1|0|ee"))


def different(book: PipelineBook) -> None:
    """Two readers have something else of the same record."""
    fine(book)
    polled(book, (0, 4, "t/1|0|0|bb"), reader="other reader")


def kept(book: PipelineBook) -> None:
    """A library has gone on from an old position without asking."""
    fine(book)
    book.hear("worker", {"at": "stale", "places": [(0, 1, 2)], "told": []})


def told(book: PipelineBook) -> None:
    """A library has asked how far the group is, and the worker was told something else."""
    fine(book)
    book.hear("worker", {"at": "stale", "places": [], "told": [(0, 1, 2)]})


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (fine, []),
        (kept, []),
        (told, ["TOLD"]),
        (again, ["DUPLICATE"]),
        (unfinished, ["MISSING"]),
        (late, ["BEHIND"]),
        (invented, ["INVENTED"]),
        (spoilt, ["WRONG"]),
        (different, ["WRONG"]),
    ],
)
def test_each_fault_has_its_name(
    story: Callable[[PipelineBook], None], expected: list[str]
) -> None:
    """One finding for each thing that is wrong."""
    report = Report("book", 1)
    book = PipelineBook("pipeline", report)
    story(book)
    book.judge(SOURCE, ["reader"], {0: 2, 1: 1} if story is not late else {0: 2})
    assert expected == [failure.split(": ")[1] for failure in report.failures]


def test_history_says_what_is_known() -> None:
    """Acknowledged records have offsets; commits are unknown where no worker heard of them."""
    book = PipelineBook("pipeline", Report("book", 1))
    fine(book)
    events = book.events({0: 2, 1: 1})
    sends = {one.value: (one.outcome, one.offset) for one in events if isinstance(one, Send)}
    assert (Outcome.OK, 7) == sends[SECOND.encode()]
    assert (Outcome.INFO, None) == sends[THIRD.encode()]
    commits = [(one.transaction, one.outcome) for one in events if isinstance(one, Commit)]
    assert [("t/1", Outcome.OK), ("t/2", Outcome.INFO)] == commits


def test_a_transaction_is_open_until_its_end_was_said() -> None:
    """As far as its worker has said."""
    book = PipelineBook("pipeline", Report("book", 1))
    fine(book)
    assert [None, "t/2", None] == [
        book.open_transaction(name) for name in ("worker", "other", "nobody")
    ]
    assert [Outcome.OK, Outcome.FAIL, None] == [
        book.outcome(name) for name in ("t/1", "t/x", "t/2")
    ]
