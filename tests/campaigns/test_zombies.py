"""What zombies may be answered with."""

from __future__ import annotations

import pytest

from kgw.errors import ErrorCode
from tests.campaigns.zombies import Zombie, judge
from tests.findings import unplanted

ZOMBIE = Zombie("left", "member-1", None, 3)
NONE, GONE = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
OTHER = ErrorCode.ILLEGAL_GENERATION
JUDGED: dict[str, tuple[str, list[ErrorCode], list[str]]] = {
    "refused": ("heartbeat", [GONE], []),
    "refused for each partition": ("commit", [GONE, GONE], []),
    "not answered": ("sync", [], ["not answered"]),
    "accepted": ("heartbeat", [NONE], ["accepted"]),
    "accepted for one partition": ("commit", [GONE, NONE], ["accepted"]),
    "a transactional commit": (
        "txn commit",
        [NONE],
        ["left: a transactional commit was accepted"],
    ),
    "another code": ("commit", [OTHER], ["['ILLEGAL_GENERATION'], not UNKNOWN_MEMBER_ID"]),
    "another code for one partition": (
        "commit",
        [GONE, OTHER],
        ["['UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION'], not UNKNOWN_MEMBER_ID"],
    ),
}


@pytest.mark.parametrize("what", JUDGED)
def test_what_a_zombie_is_answered_with_is_judged(what: str) -> None:
    """Each thing that is wrong alone, by its name."""
    kind, codes, said = JUDGED[what]
    assert said == list(judge(ZOMBIE, kind, codes, GONE))


def test_everything_that_is_said_of_answers_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    assert [] == unplanted([judge], [one for *_, said in JUDGED.values() for one in said])
