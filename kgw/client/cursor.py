"""The positions of a subscription as text, from which another subscription can continue. Pure."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import KgwError
from kgw.records.crc import crc32c
from kgw.types import TopicId, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "kgw1."
_CRC_BYTES: Final = 4


class CursorError(KgwError, ValueError):
    """A text that is not a cursor, or the cursor of another topic."""


class RecordFilter(NamedTuple):
    """The records of a partition to deliver, from the start position on.

    `end_offset` and `until_ns` are exclusive; None means no limit. As times may decrease with
    rising offsets, records outside of the times are skipped, and reading continues up to
    `end_offset`.
    """

    end_offset: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None

    def takes_time(self, ts_ns: int) -> bool:
        return (self.since_ns is None or ts_ns >= self.since_ns) and (
            self.until_ns is None or ts_ns < self.until_ns
        )


class Cursor(NamedTuple):
    """The next offset of each partition, and the filter of later records."""

    topic: str
    topic_id: TopicId
    partitions: Mapping[int, tuple[int, RecordFilter]]

    def encode(self) -> str:
        """Return the cursor as text without spaces."""
        content = json.dumps(
            [
                self.topic,
                format_uuid(self.topic_id),
                [
                    [partition, offset, *wanted]
                    for partition, (offset, wanted) in self.partitions.items()
                ],
            ],
            separators=(",", ":"),
        ).encode()
        checked = crc32c(content).to_bytes(_CRC_BYTES, "big") + content
        return _PREFIX + urlsafe_b64encode(checked).rstrip(b"=").decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Return the cursor that `encode` has written as a text. Raises CursorError."""
        try:
            if not text.startswith(_PREFIX):
                raise ValueError(text)
            encoded = text.removeprefix(_PREFIX)
            checked = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            content = checked[_CRC_BYTES:]
            if crc32c(content).to_bytes(_CRC_BYTES, "big") != checked[:_CRC_BYTES]:
                raise ValueError(text)
            topic, topic_id, partitions = json.loads(content)
            return cls(
                topic,
                TopicId(parse_uuid(topic_id)),
                {one[0]: (one[1], RecordFilter(*one[2:])) for one in partitions},
            )
        except (ValueError, TypeError, IndexError):
            raise CursorError(f"{text!r} is not a cursor, or not all of it") from None
