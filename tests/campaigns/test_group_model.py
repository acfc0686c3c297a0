"""What a finding of the random histories says."""

from __future__ import annotations

import inspect
import re

import pytest

from tests.campaigns import group_model
from tests.campaigns.group_model import difference, says
from tests.campaigns.support import Report
from tests.groups import life, model, own_clock, transactions
from tests.groups.planted import BUGS


def test_the_first_difference_of_two_transcripts_is_told() -> None:
    """Or that one of them ends before the other."""
    assert difference([1, 2], [1, 2]) is None
    assert "changes 3 into 2" == difference([1, 2, 4], [1, 3, 5])
    assert "ends it after 1 of 2 answers" == difference([1], [1, 2])
    assert "adds to its 1 answers: there are 2" == difference([1, 2], [1])


def test_a_rule_is_not_taken_for_another_one() -> None:
    """The name of one begins with that of another."""
    assert says("AssertionError: I1: two owners", "I1")
    assert says("AssertionError: I3", "I3")
    assert not says("AssertionError: I10: waits for what another group stores", "I1")


def test_every_rule_has_a_planted_bug() -> None:
    """No rule is looked at of which no coordinator is there that breaks it.

    What waits for ever breaks I6, and what a jump of the wall clock changes I9.
    """
    sources = "".join(map(inspect.getsource, (model, life, own_clock, transactions, group_model)))
    rules = set(re.findall(r"\bI\d+\b", sources))
    assert {f"I{number}" for number in range(1, 13)} == rules
    assert rules <= {bug.found_by for bug in BUGS.values()}


@pytest.mark.slow
async def test_a_history_that_breaks_a_rule_is_a_finding() -> None:
    """It is told with its number, whichever it is; the others are counted, some of them twice."""
    clean = Report("clean", 1)
    await group_model.histories(clean, range(8))
    clean.conclude()
    assert (8, 2) == (clean.counts["histories"], clean.counts["histories_run_twice"])
    broken = Report("broken", 1)
    with BUGS["one-part-for-all"].plant():
        await group_model.histories(broken, range(8))
    assert 8 == broken.counts["histories"]
    assert broken.failures
    assert all(re.match(r"history \d: AssertionError: I1: ", one) for one in broken.failures)
