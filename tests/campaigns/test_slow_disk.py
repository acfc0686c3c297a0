"""What is held against a gateway on a slow disk is found, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.campaigns.slow_disk import LAG_S, LAGS_FORGIVEN, Phase, Seen, judge
from tests.campaigns.support import Report
from tests.findings import unplanted

if TYPE_CHECKING:
    from collections.abc import Callable

QUIET, SLOW = Phase("quiet", 0, 20.0), Phase("500 ms", 500, 20.0)
STALL = Phase("stall", 0, 30.0, is_stall=True)
Lags = list[tuple[float, float]]


def phases() -> list[Seen]:
    """Three phases in which all is well: each lasts for 20 s, one behind the other."""
    found = []
    for number, phase in enumerate((QUIET, SLOW, STALL)):
        seen = Seen(phase, 100.0 * number)
        seen.ended_s = seen.began_s + 20.0
        seen.answers_s = {"metadata": [0.001] * 200, "fetch": [0.002] * 200}
        if not phase.is_stall:
            delay_s = phase.delay_ms / 1_000
            seen.synced_s = {"produce": [delay_s + 0.01] * 20, "commit": [delay_s] * 2}
        found.append(seen)
    return found


def held_up_often(_: list[Seen], lags: Lags) -> None:
    """The loop is held up again and again, for a moment."""
    lags += [(101.0 + number, LAG_S + 0.001) for number in range(LAGS_FORGIVEN + 1)]


def held_up_at_the_edges(_: list[Seen], lags: Lags) -> None:
    """What is held up as a phase begins or ends is of that phase, too."""
    lags += [(at_s, LAG_S + 0.001) for at_s in (100.0, 100.5, 119.9, 120.0 + LAG_S / 2)]


def held_up_long(_: list[Seen], lags: Lags) -> None:
    """The loop is held up once, for long."""
    lags.append((205.0, 0.5))


def held_up_a_little(_: list[Seen], lags: Lags) -> None:
    """No more than a busy machine does, nor in a phase: as often as that is forgiven."""
    lags += [(101.0 + number, LAG_S + 0.001) for number in range(LAGS_FORGIVEN)]
    lags += [(150.0, 9.0), (205.0, LAG_S)]


def held_up_as_when_quiet(_: list[Seen], lags: Lags) -> None:
    """A machine that is as busy in the quiet phase says nothing of the disk."""
    lags += [(1.0, 0.4), (101.0, 0.5)]


def waits(seen: list[Seen], _: Lags) -> None:
    """What needs no disk takes as long as it."""
    seen[1].answers_s["metadata"] = [0.5] * 200


def nothing_answered(seen: list[Seen], _: Lags) -> None:
    """What needs no disk is not answered."""
    seen[2].answers_s["fetch"] = []


def too_busy(seen: list[Seen], _: Lags) -> None:
    """The quiet phase is slow itself."""
    for one in seen:
        one.answers_s["fetch"] = [0.15] * 200


def before_the_sync(seen: list[Seen], _: Lags) -> None:
    """Appends are answered before the disk can have synced them."""
    seen[1].synced_s["produce"][3:5] = [0.2, 0.1]


def commit_before_the_sync(seen: list[Seen], _: Lags) -> None:
    """A commit is, too."""
    seen[1].synced_s["commit"][0] = 0.48


def in_the_stall(seen: list[Seen], _: Lags) -> None:
    """Something that needs a sync is answered while none can end."""
    seen[2].before_the_end = 1


JUDGED: dict[Callable[[list[Seen], Lags], None], list[str]] = {
    lambda *_: None: [],
    held_up_a_little: [],
    held_up_as_when_quiet: [],
    held_up_often: [
        "500 ms: the LOOP was held up 4 times, once for 0.051 s; in the quiet phase 0 times"
    ],
    held_up_at_the_edges: [
        "500 ms: the LOOP was held up 4 times, once for 0.051 s; in the quiet phase 0 times"
    ],
    held_up_long: [
        "stall: the LOOP was held up 1 times, once for 0.500 s; in the quiet phase 0 times"
    ],
    waits: ["500 ms: metadata WAITED 500 ms, 1 when quiet"],
    nothing_answered: ["stall: fetch WAITED 0 ms, 2 when quiet"],
    too_busy: [
        (
            "this machine is TOO BUSY to judge by: in the quiet phase 99 of 100 fetch answers took "
            "150 ms, and 100 are allowed"
        )
    ],
    before_the_sync: ["500 ms: 2 of 20 produces were answered before their SYNC, after 0.100 s"],
    commit_before_the_sync: [
        "500 ms: 1 of 2 commits were answered before their SYNC, after 0.480 s"
    ],
    in_the_stall: ["stall: 1 were answered before their SYNC"],
}


@pytest.mark.parametrize("change", JUDGED)
def test_what_is_seen_of_a_slow_disk_is_judged(change: Callable[[list[Seen], Lags], None]) -> None:
    """Each thing that is wrong alone, by its name."""
    seen, lags = phases(), Lags()
    change(seen, lags)
    report = Report("slow disk", 1)
    said: dict[str, Any] = {"slowed": {"file": 3}, "lags": lags}
    judge(report, seen, said, full=True)
    assert JUDGED[change] == report.failures
    assert 3 == report.counts["slowed: file"]


@pytest.mark.parametrize(
    ("slow_s", "number", "full", "is_fine"),
    [
        (0.5, 1, True, True),
        (0.5, 3, True, False),
        (0.5, 90, False, True),
        (0.5, 101, False, False),
        (0.24, 200, False, True),
        (0.26, 200, False, False),
    ],
)
def test_one_of_a_hundred_may_wait(
    slow_s: float, number: int, *, full: bool, is_fine: bool
) -> None:
    """In the short form, which has few of them, half of them may, and a little."""
    seen = phases()
    seen[1].answers_s["metadata"][:number] = [slow_s] * number
    report = Report("slow disk", 1)
    judge(report, seen, {"slowed": {}, "lags": []}, full=full)
    assert is_fine == ([] == report.failures)
    assert 200 == report.counts["metadata: 500 ms"]
    assert 20 == report.counts["produce: 500 ms"]


def test_everything_that_is_said_of_a_slow_disk_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    assert [] == unplanted([judge], [one for said in JUDGED.values() for one in said])
