"""Parses the text form of seeks, and returns their results as JSON values."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from kgw.errors import KafkaError, KgwError
from kgw.offsets.ranges import SeekOutOfRangeError
from kgw.offsets.reader import ts_ns_at
from kgw.offsets.seeker import Seek, SeekKind

if TYPE_CHECKING:
    from kgw.offsets.seeker import SeekResult

_NAMES = {
    "earliest": Seek(SeekKind.RESET_TO_EARLIEST),
    "latest": Seek(SeekKind.RESET_TO_LATEST),
    "newest": Seek(SeekKind.NEWEST_TS),
    "resume": Seek(SeekKind.RESUME_OR_EARLIEST),
    "resume-or-latest": Seek(SeekKind.RESUME_OR_LATEST),
}
_NEAR = "near:"
_OFFSET_DIGITS = len(str((1 << 63) - 1))
_A_TIME = "2026-01-31T12:00 or @1769860800000"
_TOLD = ("offset", "earliest", "latest", "timestamp_ms", "error", "kafka_error")
WHERE_HELP = (
    "earliest, latest, an offset, near:OFFSET (the nearest that there is), a time as ISO 8601 or "
    "@milliseconds, newest (the greatest time), resume or resume-or-latest (where the group "
    "stands; otherwise the beginning, or the end)"
)


def parse_seek(text: str) -> Seek:
    """Return the seek for a text. Raises ValueError."""
    if text in _NAMES:
        return _NAMES[text]
    if is_number(text):
        return Seek(SeekKind.EXACT_OFFSET, int(text))
    if text.startswith(_NEAR) and is_number(text.removeprefix(_NEAR)):
        return Seek(SeekKind.RESET_TO_OFFSET, int(text.removeprefix(_NEAR)))
    try:
        return Seek(SeekKind.EXACT_TS_NS, ts_ns_at(max(0, parse_time(text))))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is neither earliest, latest, newest, resume, an offset, near:OFFSET, nor a "
            f"time like {_A_TIME}"
        ) from None


def parse_time(text: str) -> int:
    """Return the milliseconds of `@MILLISECONDS` or of an ISO 8601 time, by default a local one.

    Raises ValueError.
    """
    try:
        if not text.startswith("@"):
            return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
        timestamp_ms = int(text[1:])
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time like {_A_TIME}") from None
    if timestamp_ms >= 1 << 63:
        raise ValueError(f"{text} is further away than a timestamp can say")
    return timestamp_ms


def seek_as_json(found: SeekResult | KgwError) -> dict[str, Any]:
    """Return the result or the error of a seek as JSON fields."""
    told: dict[str, Any] = dict.fromkeys(_TOLD)
    if isinstance(found, KgwError):
        told["error"] = str(found)
        if isinstance(found, KafkaError):
            told["kafka_error"] = found.code.name
        if isinstance(found, SeekOutOfRangeError):
            told["earliest"], told["latest"] = found.earliest, found.latest
    else:
        told["offset"] = found.offset
        told["earliest"], told["latest"] = found.bounds
        if found.record is not None:
            told["timestamp_ms"] = found.record.timestamp_ms
    return told


def is_number(text: str) -> bool:
    """Return whether a text has only ASCII digits, and no more digits than an offset can have."""
    return text.isascii() and text.isdigit() and len(text) <= _OFFSET_DIGITS
