"""What the judges of campaigns over a SeaweedFS say, and of what they say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from tests.campaigns import seaweedmq_judges
from tests.campaigns.history import FinalLog
from tests.campaigns.seaweedmq_judges import (
    Answer,
    changed,
    difference,
    unnamed,
    unread,
    wrong_answer,
)
from tests.findings import unplanted

if TYPE_CHECKING:
    from tests.campaigns.seaweedmq_judges import Records

WRITTEN = [b"a", b"b", b"c", b"d"]
DAMAGED = 2
CORRUPT, NONE = ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
ANSWERED: dict[str, tuple[Answer, list[str]]] = {
    "before the damage": (Answer(0, NONE, [(0, b"a")]), []),
    "up to the damage": (Answer(0, NONE, [(0, b"a"), (1, b"b")]), []),
    "the damage": (Answer(2, CORRUPT, []), []),
    "behind the damage": (Answer(3, NONE, [(3, b"d")]), []),
    "the damage is read": (Answer(2, NONE, [(2, b"?")]), ["offset 2 is damaged, and answered"]),
    "the damage is passed by": (
        Answer(2, NONE, [(3, b"d")]),
        ["offset 2 is damaged, and answered"],
    ),
    "the damage is the end": (Answer(2, NONE, []), ["offset 2 is damaged, and answered"]),
    "the damage is another error": (
        Answer(2, OUT_OF_RANGE, []),
        ["offset 2 is damaged, and answered"],
    ),
    "the damage is an error, with records": (
        Answer(2, CORRUPT, [(3, b"d")]),
        ["offset 2 is damaged, and answered"],
    ),
    "damage where there is none": (
        Answer(1, CORRUPT, []),
        ["offset 1 is not damaged, and not read"],
    ),
    "another error": (Answer(1, OUT_OF_RANGE, []), ["offset 1 is not damaged, and not read"]),
    "an end where there is none": (Answer(3, NONE, []), ["offset 3 is not damaged, and not read"]),
    "another record": (Answer(1, NONE, [(1, b"x")]), ["offset 1 is read as"]),
    "a record is passed by": (Answer(0, NONE, [(1, b"b")]), ["offset 0 is read as"]),
    "a record twice": (Answer(0, NONE, [(0, b"a"), (0, b"a")]), ["offset 0 is read as"]),
    "over the damage": (
        Answer(1, NONE, [(1, b"b"), (2, b"c"), (3, b"d")]),
        ["offset 1 is read as"],
    ),
    "the damage in passing": (Answer(1, NONE, [(1, b"b"), (2, b"?")]), ["offset 1 is read as"]),
    "more than was written": (Answer(3, NONE, [(3, b"d"), (4, b"e")]), ["offset 3 is read as"]),
}
PATH = "/topics/damaged/damaged/v1/0000-0031/2026-11-23-00-00-00"
NAMED: dict[str, tuple[str, list[str]]] = {
    "named": (f'level=warning problem="offsets 3 to 3 ({PATH}, chunk 3,01)"', []),
    "nothing": ("", [f"nothing names {PATH}"]),
    "another file": (PATH.replace("0000-0031", "0032-0063"), [f"nothing names {PATH}"]),
}
ACKNOWLEDGED = [(0, b"a"), (1, b"b"), (2, b"c")]
STORED: dict[str, tuple[Records, list[str]]] = {
    "all": (ACKNOWLEDGED, []),
    "the last one lost": (ACKNOWLEDGED[:2], ["offsets [0, 1] are stored, and [0, 1, 2] were"]),
    "the first one lost": (ACKNOWLEDGED[1:], ["offsets [1, 2] are stored, and [0, 1, 2] were"]),
    "all lost": ([], ["offsets [] are stored, and [0, 1, 2] were"]),
    "one moved": (
        [(0, b"a"), (1, b"b"), (3, b"c")],
        ["offsets [0, 1, 3] are stored, and [0, 1, 2] were"],
    ),
    "one twice": ([*ACKNOWLEDGED, (3, b"c")], ["offsets [0, 1, 2, 3] are stored"]),
    "an offset twice": ([*ACKNOWLEDGED, (2, b"c")], ["offsets [0, 1, 2, 2] are stored"]),
    "one that was refused": ([*ACKNOWLEDGED, (3, b"x")], ["offsets [0, 1, 2, 3] are stored"]),
    "not in order": (
        [(1, b"b"), (0, b"a"), (2, b"c")],
        ["offsets [1, 0, 2] are stored, and [0, 1, 2] were"],
    ),
    "exchanged": (
        [(0, b"a"), (1, b"c"), (2, b"b")],
        ["offsets [1, 2] are stored with other records"],
    ),
    "altered": ([(0, b"a"), (1, b"b"), (2, b"?")], ["offsets [2] are stored with other records"]),
}
LOG = FinalLog(1, 4, [(1, b"b"), (2, b"c"), (3, b"d")], [(1, b"b")], 2)
EMPTY = FinalLog(4, 4, [])
AGAIN: dict[str, tuple[dict[int, FinalLog], list[str]]] = {
    "the same": ({0: LOG, 1: EMPTY}, []),
    "gone": ({1: EMPTY}, ["partition 0 is gone"]),
    "an empty one is gone": ({0: LOG}, ["partition 1 is gone"]),
    **{
        what: ({0: log, 1: EMPTY}, [f"partition 0 is another one {name}"])
        for what, name, log in (
            ("the last record lost", "records", LOG._replace(records=LOG.records[:-1])),
            (
                "another record",
                "records",
                LOG._replace(records=[*LOG.records[:-1], (3, b"?")]),
            ),
            ("a record more", "records", LOG._replace(records=[*LOG.records, (4, b"e")])),
            (
                "a record moved",
                "records",
                LOG._replace(records=[*LOG.records[:-1], (4, b"d")]),
            ),
            ("it ends elsewhere", "high_watermark", LOG._replace(high_watermark=5)),
            ("it begins elsewhere", "log_start_offset", LOG._replace(log_start_offset=0)),
            ("a committed record lost", "committed", LOG._replace(committed=[])),
            (
                "an aborted record is committed",
                "committed",
                LOG._replace(committed=LOG.records[:2]),
            ),
            ("it is stable elsewhere", "last_stable_offset", LOG._replace(last_stable_offset=4)),
        )
    },
    "an empty one is not": (
        {0: LOG, 1: EMPTY._replace(records=[(3, b"x")])},
        ["partition 1 is another one records"],
    ),
}
READ: dict[str, tuple[FinalLog, list[str]]] = {
    "to its end": (LOG, []),
    "an empty one": (EMPTY, []),
    "one that never had anything": (FinalLog(0, 0, []), []),
    "not to its end": (LOG._replace(high_watermark=6), ["partition 7 is read to 4 of 6"]),
    "not at all": (FinalLog(2, 4, []), ["partition 7 is read to 2 of 4"]),
}


def says(found: list[str], expected: list[str]) -> bool:
    """Whether each finding has all words of what was expected, and there is no other."""
    return len(found) == len(expected) and all(
        all(word in one for word in words.split())
        for one, words in zip(found, expected, strict=True)
    )


def answered(what: str) -> list[str]:
    """Return what is said of an answer."""
    return list(wrong_answer(ANSWERED[what][0], WRITTEN, DAMAGED))


@pytest.mark.parametrize("what", ANSWERED)
def test_damage_is_an_error_at_its_offset_and_nowhere_else(what: str) -> None:
    """And what lies before and behind it is read as it was written."""
    assert says(answered(what), ANSWERED[what][1]), answered(what)


@pytest.mark.parametrize("what", NAMED)
def test_a_damaged_file_is_named(what: str) -> None:
    """By its whole path."""
    log, expected = NAMED[what]
    assert expected == list(unnamed(PATH, log))


@pytest.mark.parametrize("what", STORED)
def test_what_is_stored_is_what_was_acknowledged(what: str) -> None:
    """Each record once, at its offset, with its bytes, and nothing else."""
    stored, expected = STORED[what]
    found = list(difference(stored, ACKNOWLEDGED))
    assert says(found, expected), found


@pytest.mark.parametrize("what", AGAIN)
def test_a_log_is_the_same_when_a_later_gateway_serves_it(what: str) -> None:
    """Whatever differs is told, with what it is."""
    after, expected = AGAIN[what]
    found = list(changed({0: LOG, 1: EMPTY}, after))
    assert says(found, expected), found


@pytest.mark.parametrize("what", READ)
def test_a_partition_that_is_not_read_to_its_end_is_named(what: str) -> None:
    """Nobody knows what the rest of it is."""
    log, expected = READ[what]
    assert expected == list(unread({7: log}))


def test_everything_that_is_said_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    found = [
        *(one for what in ANSWERED for one in answered(what)),
        *(one for log, _ in NAMED.values() for one in unnamed(PATH, log)),
        *(one for stored, _ in STORED.values() for one in difference(stored, ACKNOWLEDGED)),
        *(one for after, _ in AGAIN.values() for one in changed({0: LOG, 1: EMPTY}, after)),
        *(one for log, _ in READ.values() for one in unread({7: log})),
    ]
    assert [] == unplanted([seaweedmq_judges], found)
