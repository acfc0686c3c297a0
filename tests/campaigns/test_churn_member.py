"""A member of the churn campaign commits what it has read for as long as it is the member's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.campaigns.churn_member import FencedError, Holding, take_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.campaigns.churn_member import Offsets, Records


class OneMember:
    """A library with records and answers given beforehand."""

    def __init__(self, polls: list[Records], refusals: list[Exception | None]) -> None:
        self.holding = Holding()
        self.holding.gain([0, 1])
        self.commits: list[Offsets] = []
        self._polls = polls
        self._refusals = refusals
        self.before_reading: Callable[[], None] = lambda: None

    def poll(self) -> Records:
        """Return the next records, after partitions have come and gone."""
        records = self._polls.pop(0)
        self.before_reading()
        self.holding.read(records)
        return records

    def commit(self, offsets: Offsets) -> None:
        """Take a commit, or refuse it."""
        self.commits.append(offsets)
        refusal = self._refusals.pop(0)
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """Leave."""


def test_a_refused_commit_is_repeated_without_another_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    member = OneMember([[(0, 4), (0, 5), (1, 7)], [], []], [TimeoutError("no answer"), None])
    for _ in range(3):
        take_turn(member)
    assert member.commits == [{0: 6, 1: 8}, {0: 6, 1: 8}]
    said = [json.loads(line)["at"] for line in capsys.readouterr().out.splitlines()]
    assert said == ["read", "committing", "refused", "committing", "committed"]


def test_it_goes_with_what_is_read_next() -> None:
    member = OneMember([[(0, 4)], [(0, 5), (1, 0)]], [TimeoutError("no answer"), None])
    take_turn(member)
    take_turn(member)
    assert member.commits == [{0: 5}, {0: 6, 1: 1}]


def test_what_was_given_away_is_not_committed_even_if_it_comes_back() -> None:
    member = OneMember([[(0, 4), (1, 7)], []], [TimeoutError("no answer"), None])
    take_turn(member)
    member.holding.lose([0])
    member.holding.gain([0])
    take_turn(member)
    assert member.commits == [{0: 5, 1: 8}, {1: 8}]


def test_a_record_of_a_partition_that_came_in_the_same_poll_is_committed() -> None:
    member = OneMember([[(2, 9)]], [None])
    member.before_reading = lambda: member.holding.gain([2])
    take_turn(member)
    assert member.commits == [{2: 10}]


def test_a_record_of_nobodys_partition_is_not_committed() -> None:
    member = OneMember([[(3, 9)]], [])
    take_turn(member)
    assert member.commits == []


def test_who_is_fenced_stops() -> None:
    member = OneMember([[(0, 4)]], [RuntimeError("FENCED_INSTANCE_ID")])
    with pytest.raises(FencedError):
        take_turn(member)
