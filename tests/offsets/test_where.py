from __future__ import annotations

import pytest

from kgw.errors import ErrorCode, KafkaError
from kgw.offsets.ranges import OffsetBounds, SeekOutOfRangeError
from kgw.offsets.reader import FoundRecord
from kgw.offsets.seeker import Seek, SeekKind, SeekResult
from kgw.offsets.where import parse_seek, seek_as_json

NS = 1_000_000
BOUNDS = OffsetBounds(2, 9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Seek(SeekKind.RESET_TO_EARLIEST)),
        ("latest", Seek(SeekKind.RESET_TO_LATEST)),
        ("newest", Seek(SeekKind.NEWEST_TS)),
        ("resume", Seek(SeekKind.RESUME_OR_EARLIEST)),
        ("resume-or-latest", Seek(SeekKind.RESUME_OR_LATEST)),
        ("007", Seek(SeekKind.EXACT_OFFSET, 7)),
        ("near:70", Seek(SeekKind.RESET_TO_OFFSET, 70)),
        ("@1500", Seek(SeekKind.EXACT_TS_NS, 1500 * NS)),
        ("@-5", Seek(SeekKind.EXACT_TS_NS, 0)),
        ("1970-01-01T00:00:01.5Z", Seek(SeekKind.EXACT_TS_NS, 1500 * NS)),
        ("1969-12-31T23:59Z", Seek(SeekKind.EXACT_TS_NS, 0)),
    ],
)
def test_words_offsets_and_times(text: str, expected: Seek) -> None:
    """Each way to say where; times before 1970 are the beginning of time."""
    assert expected == parse_seek(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        " 1",
        "1.5",
        "\u0661",
        "near:",
        "near:-1",
        "@",
        "@x",
        "yesterday",
        "2026-13-01",
    ],
)
def test_what_is_nowhere_is_refused(text: str) -> None:
    """With what can be said instead."""
    with pytest.raises(ValueError, match="is neither earliest, latest"):
        parse_seek(text)


@pytest.mark.parametrize("prefix", ["", "near:", "@"])
def test_numbers_that_no_offset_has_are_refused(prefix: str) -> None:
    """However long: Python itself refuses to read more than 4,300 digits."""
    for digits in (20, 5000):
        with pytest.raises(ValueError, match="is neither earliest, latest"):
            parse_seek(prefix + "9" * digits)


def test_what_is_told_of_a_seek() -> None:
    """The same fields, found or not; the valid range where it is known."""
    found = SeekResult(4, BOUNDS, FoundRecord(4, 1500, 0))
    assert {
        "offset": 4,
        "earliest": 2,
        "latest": 9,
        "timestamp_ms": 1500,
        "error": None,
        "kafka_error": None,
    } == seek_as_json(found)
    told = seek_as_json(SeekOutOfRangeError(0, 1, BOUNDS))
    assert (None, 2, 9, "OFFSET_OUT_OF_RANGE") == (
        told["offset"],
        told["earliest"],
        told["latest"],
        told["kafka_error"],
    )
    told = seek_as_json(KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged"))
    assert (None, "damaged", "CORRUPT_MESSAGE") == (
        told["earliest"],
        told["error"],
        told["kafka_error"],
    )
