"""What is held against a group after a kill is found, and nothing else is."""

from __future__ import annotations

import pytest

from tests.campaigns.group_kills import wrong_commit, wrong_generation
from tests.findings import unplanted

LOST = "commit lost: 4 is stored, 5 was acknowledged"
INVENTED = "commit invented: 8 is stored, 7 was sent"
BACK = "went back from generation 3 to 2"


@pytest.mark.parametrize(
    ("stored", "said"), [(4, [LOST]), (5, []), (6, []), (7, []), (8, [INVENTED])]
)
def test_a_commit_that_was_acknowledged_is_stored_or_one_behind_it(
    stored: int, said: list[str]
) -> None:
    """One that was sent and not answered may be; none that nobody sent."""
    assert said == list(wrong_commit(5, 7, stored))


def test_a_group_that_never_committed_has_nothing_stored() -> None:
    """And one whose first commit is lost is found."""
    assert [] == list(wrong_commit(0, 0, 0))
    assert ["commit lost: 0 is stored, 1 was acknowledged"] == list(wrong_commit(1, 1, 0))


@pytest.mark.parametrize(("found", "said"), [(2, [BACK]), (3, []), (4, [])])
def test_a_generation_does_not_go_back(found: int, said: list[str]) -> None:
    """It may rise: members come back."""
    assert said == list(wrong_generation(3, found))


def test_everything_that_is_said_of_a_group_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    assert [] == unplanted([wrong_commit, wrong_generation], [LOST, INVENTED, BACK])
