"""What a finding of the random histories says."""

from __future__ import annotations

from tests.campaigns.group_model import difference, says


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
