"""What J1 takes for a finding in what its clients say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.campaigns.history import (
    Commit,
    FetchedOffset,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
    TransactionEnd,
)
from tests.campaigns.mixed import (
    NOT_TO_HAPPEN,
    REASONS,
    Book,
    Client,
    Operation,
    Quiet,
    in_quiet_phases,
    judge_rates,
    reason_of,
)
from tests.campaigns.support import Report
from tests.findings import unplanted

SEND = ["p", 0, "value", "ok", 0, None, 5.0, 5.1]
ENDED: dict[str, Any] = {
    "at": "end",
    "transaction": "p/1",
    "outcome": "ok",
    "why": "",
    "began": 6.0,
    "ended": 6.1,
}


@pytest.fixture
def report() -> Report:
    """What is found."""
    return Report("mixed", 0)


def test_what_is_sent_in_a_transaction_is_no_progress(report: Report) -> None:
    """A producer whose transactions never end is stuck, whatever it sends."""
    book = Book(Client("aiokafka", "transactional"), report)
    book.hear({"at": "sent", "sends": [SEND]})
    assert 0.0 == book.last_ok_s
    book.hear({**ENDED, "how": "commit"})
    assert 6.0 == book.last_ok_s


def test_what_is_sent_without_a_transaction_is_progress(report: Report) -> None:
    """A record that is acknowledged is what an idempotent producer is there for."""
    book = Book(Client("aiokafka", "idempotent"), report)
    book.hear({"at": "sent", "sends": [SEND]})
    assert 5.0 == book.last_ok_s


REFUSED = (
    "ProducerFenced: there is a newer one",
    "OutOfOrderSequenceNumberError: [Error 45]",
    "INVALID_PRODUCER_EPOCH",
    "UnknownProducerId",
    "INVALID_TXN_STATE",
    "Broker: Broker received an out of order sequence number",
    "Broker: Producer attempted an operation with an old epoch, or was fenced",
)
HARMLESS = (
    "HungError: not back after 6 s",
    "BrokenProducerError: left on purpose",
    "KafkaTimeoutError",
)


@pytest.mark.parametrize(
    ("why", "is_finding"), [*((why, True) for why in REFUSED), *((why, False) for why in HARMLESS)]
)
def test_a_producer_is_never_refused(report: Report, why: str, is_finding: bool) -> None:
    """Nobody else has its id, and no fault outlasts what the gateway remembers."""
    Book(Client("aiokafka", "transactional"), report).hear({"at": "anew", "why": why})
    said = f"REFUSED: transactional-aiokafka: {why}"
    assert [said] * is_finding == report.failures


def test_every_reason_that_is_a_finding_has_an_example() -> None:
    """No kind of refusal is passed over, and none is told that no words lead to."""
    found = {reason_of(why) for why in REFUSED}
    assert found == NOT_TO_HAPPEN
    assert {*REASONS.values()} >= NOT_TO_HAPPEN


@pytest.mark.parametrize(
    ("why", "is_finding"),
    [
        ("OffsetOutOfRangeError: partition 3", True),
        ("Broker: Offset out of range", True),
        ("NoOffsetForPartitionError", True),
        ("_AUTO_OFFSET_RESET", True),
        ("KafkaTimeoutError", False),
    ],
)
def test_no_reader_loses_its_position(report: Report, why: str, is_finding: bool) -> None:
    """What is committed or was read is never out of range."""
    book = Book(Client("aiokafka", "subscribed"), report)
    book.hear({"at": "trouble", "what": "poll", "began": 1.0, "ended": 2.0, "why": why})
    assert [f"POSITION lost by subscribed-aiokafka: {why}"] * is_finding == report.failures


def test_everything_that_clients_say_is_judged(report: Report) -> None:
    """Each line is an event of the history, at the time at which it was known."""
    book = Book(Client("aiokafka", "subscribed", "read_committed"), report)
    name = "subscribed-committed-aiokafka"
    times = {"began": 8.0, "ended": 8.1}
    sends = [SEND, ["p", 1, "other", "info", None, "p/1", 5.5, 9.0]]
    offsets = [(0, 4), (1, 5)]
    for line in (
        {"at": "sent", "sends": sends},
        {**ENDED, "how": "commit"},
        {"at": "sought", "partitions": [0, 1], "ended": 7.0},
        {"at": "polled", "records": [(0, [(3, "value"), (4, "next")])], **times},
        {"at": "commit", "outcome": "ok", "offsets": offsets, "why": "", **times},
        {"at": "commit", "outcome": "fail", "offsets": [(0, 9)], "why": "x", **times},
        {"at": "fetched", "offsets": [(0, 4)], **times},
        {"at": "trouble", "what": "poll", "why": "KafkaTimeoutError", **times},
    ):
        book.hear(line)
    records = ((3, b"value"), (4, b"next"))
    assert [
        (5.0, Send("p", 0, b"value", Outcome.OK, 0)),
        (5.5, Send("p", 1, b"other", Outcome.INFO, None, "p/1")),
        (6.1, TransactionEnd(name, "p/1", Outcome.OK)),
        (7.0, Seek(name, 0)),
        (7.0, Seek(name, 1)),
        (8.1, Poll(name, 0, records, read_committed=True)),
        (8.1, Commit(name, name, 0, 4, Outcome.OK)),
        (8.1, Commit(name, name, 1, 5, Outcome.OK)),
        (8.1, Commit(name, name, 0, 9, Outcome.FAIL)),
        (8.1, FetchedOffset(name, 0, 4)),
    ] == book.events
    assert [
        ("send", Outcome.OK),
        ("send", Outcome.INFO),
        ("commit", Outcome.OK),
        ("poll", Outcome.OK),
        ("commit-offsets", Outcome.OK),
        ("commit-offsets", Outcome.FAIL),
        ("fetch-offsets", Outcome.OK),
        ("poll", Outcome.INFO),
    ] == [(one.what, one.outcome) for one in book.operations]
    counts = {
        "polled": 2,
        "assignments": 1,
        "operations": 8,
        "operations_ok": 5,
        "operation_poll": 2,
        "operation_commit-offsets": 2,
        "transactions_commit_ok": 1,
    }
    assert counts == {what: report.counts[what] for what in counts}
    assert not book.has_ended
    book.hear({"at": "ended"})
    assert book.has_ended


def test_an_end_that_took_more_than_one_try_did_not_succeed(report: Report) -> None:
    """However it ended; what is left on purpose is no operation that could."""
    book = Book(Client("aiokafka", "transactional"), report)
    book.hear({**ENDED, "how": "commit", "why": "KafkaTimeoutError"})
    book.hear({**ENDED, "how": "left", "outcome": "fail"})
    assert [("commit", Outcome.INFO)] == [(one.what, one.outcome) for one in book.operations]
    assert 0.0 == book.last_ok_s


def test_what_a_reader_has_not_read_is_told(report: Report) -> None:
    """Of the committed records it is what was committed, of all it is all."""
    log = FinalLog(0, 4, [(0, b"a"), (1, b"b"), (2, b"c")], [(0, b"a"), (2, b"c")])
    line: dict[str, Any] = {"records": [(0, [(0, "a")])], "began": 1.0, "ended": 1.0}
    for isolation, unread in (("read_uncommitted", {1, 2}), ("read_committed", {2})):
        book = Book(Client("aiokafka", "assigned", isolation), report)
        assert {0, *unread} == book.unread(0, log)
        book.hear({"at": "polled", **line})
        assert unread == book.unread(0, log)


def test_failed_commits_do_not_hide_among_records(report: Report) -> None:
    """The rate holds for each kind of operation, but for one of them."""
    done = Counter({"send": 100_000, "commit": 500})
    judge_rates(report, done, Counter({"send": 80, "commit": 1}))
    assert [] == report.failures
    judge_rates(report, done, Counter({"commit": 2}))
    assert ["OK-RATE: 2 of 500 times commit did not succeed"] == report.failures


def test_few_failures_of_many_kinds_are_too_many(report: Report) -> None:
    """One of each kind may fail, and no more of all than the rate allows."""
    done = Counter({"send": 990, "commit": 5, "poll": 5})
    judge_rates(report, done, Counter({"send": 1}))
    assert [] == report.failures
    judge_rates(report, done, Counter({"commit": 1, "poll": 1}))
    said = "OK-RATE: 2 of 1000 operations did not succeed"
    assert [said] == report.failures
    assert [] == unplanted([judge_rates], [said, "OK-RATE: 2 of 500 times commit did not succeed"])


def test_a_member_hears_once_that_a_fault_has_put_it_out() -> None:
    """Its first commit in a quiet phase may tell it so; a second one is a finding."""

    def commit(began_s: float, why: str) -> Operation:
        outcome = Outcome.FAIL if why else Outcome.OK
        return Operation("member", "commit-offsets", began_s, began_s + 0.1, outcome, why)

    phases = [Quiet(10.0, 15.0), Quiet(20.0, 25.0)]
    put_out = "UnknownMemberIdError"
    during, first, second, timed_out, third = (
        commit(9.0, put_out),
        commit(10.3, put_out),
        commit(11.0, put_out),
        commit(20.0, "KafkaTimeoutError"),
        commit(21.0, "CommitFailedError"),
    )
    judged = in_quiet_phases([during, first, second, timed_out, third], phases)
    assert [(second, 10.0), (timed_out, 20.0), (third, 20.0)] == list(judged)
