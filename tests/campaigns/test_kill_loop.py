"""What is held against a process that is killed is found, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.campaigns.history import Bounds, FinalLog, Outcome, Poll, Send
from tests.campaigns.kill_loop import READY_S, judge, judge_starts
from tests.campaigns.support import Report

if TYPE_CHECKING:
    from tests.campaigns.history import Event

SENDS: list[Event] = [
    Send("p", 0, b"a", Outcome.OK, 0),
    Send("p", 0, b"b", Outcome.OK, 1),
    Send("p", 0, b"c", Outcome.INFO),
]
A, B, C = enumerate([b"a", b"b", b"c"])
POLLED: list[Event] = [Poll("c", 0, (A, B))]
BOUNDS: list[Event] = [Bounds(0, 0, 2, -1)]

JUDGED: dict[str, tuple[list[Event], FinalLog, list[str]]] = {
    "fine": (POLLED, FinalLog(0, 2, [A, B]), []),
    "what was not answered is there": (POLLED, FinalLog(0, 3, [A, B, C]), []),
    "lost": (
        [Poll("c", 0, (A,)), Poll("d", 0, (B,))],
        FinalLog(0, 2, [A]),
        [
            "time-travel in partition 0: 1 was read as b'b' and is None at the end",
            "acked-lost in partition 0: b'b', acknowledged at 1",
        ],
    ),
    "the log begins behind what was acknowledged": (
        POLLED,
        FinalLog(2, 2, []),
        [
            "time-travel in partition 0: 0 was read as b'a' and is None at the end",
            "time-travel in partition 0: 1 was read as b'b' and is None at the end",
            "acked-lost in partition 0: b'a', acknowledged at 0",
            "acked-lost in partition 0: b'b', acknowledged at 1",
        ],
    ),
    "nobody was served it": (
        [Poll("c", 0, (A,))],
        FinalLog(0, 2, [A, B]),
        ["unseen in partition 0: b'b'"],
    ),
    "the watermark went back": (
        POLLED,
        FinalLog(0, 1, [A]),
        [
            "time-travel in partition 0: 1 was read as b'b' and is None at the end",
            "acked-lost in partition 0: b'b', acknowledged at 1",
            f"bounds-went-back in partition 0: {BOUNDS[0]} then {Bounds(0, 0, 1, -1)}",
        ],
    ),
}


@pytest.mark.parametrize("what", JUDGED)
def test_what_clients_saw_is_judged(what: str) -> None:
    """Nothing is removed from this topic, and whatever was acknowledged has been polled."""
    polls, log, said = JUDGED[what]
    report = Report("kills", 1)
    judge(report, [*SENDS, *polls, *BOUNDS], {0: log})
    assert said == report.failures
    for failure in said:
        assert report.counts[failure.split(" ")[0]]
    counted = [report.counts[one] for one in ("sent", "acknowledged", "stored", "polled")]
    polled = sum(len(one.records) for one in polls if isinstance(one, Poll))
    assert [3, 2, len(log.records), polled] == counted


@pytest.mark.parametrize(
    ("starts_s", "said"),
    [([0.5, READY_S], []), ([0.5, READY_S + 0.001, 0.6], ["a restart took 2001 ms"])],
)
def test_a_slow_restart_is_found(starts_s: list[float], said: list[str]) -> None:
    """The longest of all counts."""
    report = Report("kills", 1)
    judge_starts(report, starts_s, READY_S)
    assert said == report.failures
