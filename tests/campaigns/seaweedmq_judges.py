"""What is held against gateways over a SeaweedFS, by what they have answered and said. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.campaigns.history import FinalLog

    Records = Sequence[tuple[int, bytes]]
    """Offsets and values."""


class Answer(NamedTuple):
    """What a fetch from an offset was answered with."""

    offset: int
    error_code: int
    records: Records


def wrong_answer(answer: Answer, written: Sequence[bytes], damaged: int) -> Iterator[str]:
    """Say what is wrong with an answer of a partition in which one offset is damaged.

    That one is an error, and every other one is read as it was written, up to the damage.
    """
    offset, error_code, records = answer
    is_told = error_code == ErrorCode.CORRUPT_MESSAGE
    if offset == damaged and (records or not is_told):
        yield f"offset {offset} is damaged, and answered with {answer}"
    if offset != damaged and (error_code or not records):
        yield f"offset {offset} is not damaged, and not read: {answer}"
    expected = [
        (number, written[number])
        for number in range(offset, min(offset + len(records), len(written)))
        if number != damaged
    ]
    if offset != damaged and list(records) != expected:
        yield f"offset {offset} is read as {records}, and {expected} was written"


def unnamed(path: str, log: str) -> Iterator[str]:
    """Say so when a gateway's log does not name a file that is damaged."""
    if path not in log:
        yield f"nothing names {path}"


def difference(stored: Records, acknowledged: Records) -> Iterator[str]:
    """Say how what a partition has differs from what was acknowledged, where all was."""
    offsets = [offset for offset, _ in stored]
    expected = [offset for offset, _ in acknowledged]
    if offsets != expected:
        yield f"offsets {offsets} are stored, and {expected} were acknowledged"
        return
    other = [
        offset
        for (offset, found), (_, value) in zip(stored, acknowledged, strict=True)
        if found != value
    ]
    if other:
        yield f"offsets {other} are stored with other records than were acknowledged"


def unread(logs: Mapping[int, FinalLog]) -> Iterator[str]:
    """Say which partitions were not read to their ends. Their last offsets hold records."""
    for number, log in logs.items():
        if log.records_end < log.high_watermark:
            yield f"partition {number} is read to {log.records_end} of {log.high_watermark}"


def changed(before: Mapping[int, FinalLog], after: Mapping[int, FinalLog]) -> Iterator[str]:
    """Say which partitions are not, to the byte, what they were when nobody has written since."""
    for number, log in before.items():
        again = after.get(number)
        if again is None:
            yield f"partition {number} is gone when a later gateway serves it"
        elif again != log:
            names = [
                name
                for name, one in zip(log._fields, log, strict=True)
                if one != getattr(again, name)
            ]
            yield f"partition {number} is another one when a later gateway serves it: {names}"
