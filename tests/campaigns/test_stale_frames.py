"""What frames of producers that were fenced may be answered with."""

from __future__ import annotations

import pytest

from kgw.errors import ErrorCode
from tests.campaigns.stale_frames import judge
from tests.findings import unplanted

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
JUDGED: dict[str, tuple[ErrorCode, set[ErrorCode], tuple[int, int] | None, list[str]]] = {
    "refused": (FENCED, {FENCED}, None, []),
    "refused in one of two ways": (UNKNOWN, {FENCED, UNKNOWN}, None, []),
    "told again who it is": (NONE, {NONE}, (7, 3), []),
    "accepted": (NONE, {FENCED}, None, ["ACCEPTED: an end"]),
    "another code": (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        {FENCED, UNKNOWN},
        None,
        ["UNKNOWN_SERVER_ERROR and not INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED for an end"],
    ),
    "refused although it is a repetition": (
        FENCED,
        {NONE},
        None,
        ["PRODUCER_FENCED and not NONE for an end"],
    ),
    "told to be another one": (NONE, {NONE}, (7, 2), ["an end is answered with (7, 2)"]),
    "told to have another id": (NONE, {NONE}, (8, 3), ["an end is answered with (8, 3)"]),
}


@pytest.mark.parametrize("what", JUDGED)
def test_what_a_stale_frame_is_answered_with_is_judged(what: str) -> None:
    """Each thing that is wrong alone, by its name."""
    code, expected, told, said = JUDGED[what]
    assert said == list(judge("an end", code, expected, told, (7, 3)))


def test_everything_that_is_said_of_stale_frames_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    assert [] == unplanted([judge], [one for *_, said in JUDGED.values() for one in said])
