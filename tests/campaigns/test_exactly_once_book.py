"""What the exactly-once campaign holds against a pipeline is found, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.campaigns.exactly_once_book import PipelineBook
from tests.campaigns.history import Commit, FetchedOffset, Outcome, Poll, Send, TransactionEnd
from tests.campaigns.support import Report
from tests.findings import unplanted

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
    first = {"records": [[0, FIRST], [1, SECOND]], "offsets": [[0, 2]]}
    book.hear("worker", {"at": "begun", "transaction": "t/1", **first})
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


def test_a_zombie_commits_nothing() -> None:
    """One that was aborted, or of which nobody knows how it ended, has done no harm."""
    report = Report("book", 1)
    book = PipelineBook("pipeline", report)
    fine(book)
    book.judge_zombies(["t/x", "t/2"])
    assert [] == report.failures
    book.judge_zombies(["t/x", "t/1"])
    assert ["pipeline: ZOMBIE: t/1 was committed"] == report.failures


def test_everything_that_is_held_against_a_pipeline_is_planted() -> None:
    """No finding is in the source of which there is no example among the stories."""
    examples = ["pipeline: ZOMBIE: t/1 was committed"]
    for story in (told, again, unfinished, late, invented, spoilt, different):
        report = Report("book", 1)
        book = PipelineBook("pipeline", report)
        story(book)
        book.judge(SOURCE, ["reader"], {0: 2, 1: 1} if story is not late else {0: 2})
        examples += report.failures
    assert [] == unplanted([PipelineBook], examples)


def test_history_says_what_is_known() -> None:
    """Acknowledged records have offsets; commits are unknown where no worker heard of them."""
    book = PipelineBook("pipeline", Report("book", 1))
    fine(book)
    first, second, third = (one.encode() for one in (FIRST, SECOND, THIRD))
    assert [
        Send("worker", 0, first, Outcome.OK, 4, "t/1"),
        Send("worker", 1, second, Outcome.OK, 7, "t/1"),
        Send("worker", 0, b"t/x|1|0|fe", Outcome.INFO, None, "t/x"),
        Send("other", 0, third, Outcome.INFO, None, "t/2"),
        Commit("worker", "pipeline", 0, 2, Outcome.OK, "t/1"),
        TransactionEnd("worker", "t/1", Outcome.OK),
        TransactionEnd("worker", "t/x", Outcome.FAIL),
        Poll("reader", 0, ((4, first), (9, third)), read_committed=True),
        Poll("reader", 1, ((7, second),), read_committed=True),
        Commit("other", "pipeline", 1, 1, Outcome.INFO, "t/2"),
        FetchedOffset("pipeline", 0, 2),
        FetchedOffset("pipeline", 1, 1),
    ] == book.events({0: 2, 1: 1})


def test_what_was_looked_at_is_counted() -> None:
    """A run that has looked at little has failed: the counts say how much it was."""
    report = Report("book", 1)
    book = PipelineBook("pipeline", report)
    kept(book)
    book.judge(SOURCE, ["reader"], {0: 2, 1: 1})
    expected = {
        "records_sent": 2,
        "transactions_ok": 1,
        "transactions_fail": 1,
        "records_read": 3,
        "records_compared": 3,
        "stale_positions": 1,
    }
    assert expected == report.counts
    assert 3 == book.count_read("reader")


def test_what_is_missing_is_told_with_what_was_done_around_it() -> None:
    """With each transaction that had read near it in its partition, and how that ended."""
    report = Report("book", 1)
    book = PipelineBook("pipeline", report)
    begun = {
        "t/1": ["t/1|0|90|x", "t/1|0|95|x"],
        "t/2": ["t/2|0|111|x", "t/2|0|112|x"],
        "t/3": ["t/3|0|110|x"],
        "t/4": ["t/4|0|89|x"],
        "t/5": ["t/5|1|100|x"],
    }
    for name, texts in begun.items():
        records = [[0, text] for text in texts]
        book.hear("w", {"at": "begun", "transaction": name, "records": records, "offsets": []})
    book.hear("w", {"at": "ended", "transaction": "t/3", "outcome": "ok"})
    book.judge({(0, 100): "x"}, ["reader"], {0: 101})
    (failure,) = report.failures
    assert "around the first: ['t/1 90-95 unknown', 't/3 110-110 ok']" in failure


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
