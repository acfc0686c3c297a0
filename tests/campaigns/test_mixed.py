"""What J1 takes for a finding in what its clients say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.campaigns.history import Outcome
from tests.campaigns.mixed import Book, Client, Operation, Quiet, in_quiet_phases, judge_rates
from tests.campaigns.support import Report

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


@pytest.mark.parametrize(
    ("why", "is_finding"),
    [
        ("ProducerFenced: there is a newer one", True),
        ("OutOfOrderSequenceNumberError: [Error 45]", True),
        ("INVALID_PRODUCER_EPOCH", True),
        ("UnknownProducerId", True),
        ("INVALID_TXN_STATE", True),
        ("HungError: not back after 6 s", False),
        ("BrokenProducerError: left on purpose", False),
        ("KafkaTimeoutError", False),
    ],
)
def test_a_producer_is_never_refused(report: Report, why: str, is_finding: bool) -> None:
    """Nobody else has its id, and no fault outlasts what the gateway remembers."""
    Book(Client("aiokafka", "transactional"), report).hear({"at": "anew", "why": why})
    assert is_finding == bool(report.failure_count)


def test_failed_commits_do_not_hide_among_records(report: Report) -> None:
    """The rate holds for each kind of operation, but for one of them."""
    done = Counter({"send": 100_000, "commit": 500})
    judge_rates(report, done, Counter({"send": 80, "commit": 1}))
    assert [] == report.failures
    judge_rates(report, done, Counter({"commit": 2}))
    assert ["OK-RATE: 2 of 500 times commit did not succeed"] == report.failures


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
