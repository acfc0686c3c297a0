"""What is held against a coordinator that rebalances is found, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from tests.campaigns.rebalance_time import LARGE, P99, Load, check_round, judge
from tests.campaigns.support import Report
from tests.findings import unplanted

if TYPE_CHECKING:
    from bench.loads.groups import GroupLoad
    from tests.campaigns.machine import Others


class Member(NamedTuple):
    """What a member was told."""

    generation: int
    leads: bool
    member_id: str


class Group(NamedTuple):
    """What the members of a group were told."""

    members: list[Member]
    group_id: str = "group"


FINE = [Member(3, True, "a"), Member(3, False, "b"), Member(3, False, "c")]
TOLD: dict[str, tuple[list[Member], list[str]]] = {
    "fine": (FINE, []),
    "one is behind": (
        [*FINE[:2], Member(2, False, "c")],
        ["group: generation {2, 3}, not 3"],
    ),
    "one is ahead": ([*FINE[:2], Member(4, False, "c")], ["group: generation {3, 4}, not 3"]),
    "all are ahead": (
        [one._replace(generation=4) for one in FINE],
        ["group: generation {4}, not 3"],
    ),
    "nobody leads": ([one._replace(leads=False) for one in FINE], ["group: 0 leaders"]),
    "two lead": ([*FINE[:2], Member(3, True, "c")], ["group: 2 leaders"]),
    "two have one id": (
        [*FINE[:2], Member(3, False, "b")],
        ["group: 2 ids of 3 members"],
    ),
}


@pytest.mark.parametrize("what", TOLD)
def test_what_members_are_told_is_judged(what: str) -> None:
    """Each thing that is wrong alone, by its name."""
    members, said = TOLD[what]
    report = Report("rebalances", 1)
    check_round(report, cast("GroupLoad", Group(members)), 3)
    assert said == report.failures


OTHERS = cast("Others", "nobody else")
FAST = [0.001] * 990


@pytest.mark.parametrize(
    ("limit", "taken_s", "said"),
    [
        (P99, [*FAST, *[0.5] * 9], []),
        (P99, [*FAST[:900], *[0.5] * 90], ["coordinator time, p99: 500 ms, not below 100"]),
        (P99, [0.1] * 10, ["coordinator time, p99: 100 ms, not below 100"]),
        (LARGE, [*FAST, 0.9], []),
        (
            LARGE,
            [*FAST, 1.0],
            ["coordinator time of the large group, longest: 1000 ms, not below 1000"],
        ),
        (None, [9.0], []),
    ],
)
def test_a_coordinator_that_takes_too_long_is_found(
    limit: Any, taken_s: list[float], said: list[str]
) -> None:
    """By the share of the rebalances that its limit is about; without a limit it is printed."""
    report = Report("rebalances", 1)
    judge(report, Load("load", 1, 1, 1, 1, limit), taken_s, OTHERS)
    assert [f"{one}; nobody else" for one in said] == report.failures
    assert report.counts["longest_us_load"] == round(max(taken_s) * 1e6)


def test_everything_that_is_said_of_rebalances_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    examples = [one for _, said in TOLD.values() for one in said]
    assert [] == unplanted([check_round], examples)
