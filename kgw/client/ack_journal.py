"""A journal of acknowledged records, for `kgw pipeline audit --level 4`.

The file has one JSON object per line, for each record that a server has acknowledged:

    {"topic": "orders", "partition": 0, "offset": 41, "crc": 2774921563, "topic_id": "…",
     "acknowledged_ms": 1757628000123}

`topic`, `partition` and `offset` are required. `crc` is the CRC-32C of the bytes of the key
followed by those of the value; null has no bytes. `topic_id` is in Kafka's text form. Any client
can write such a file.
"""

from __future__ import annotations

import json
from os import SEEK_END
from typing import TYPE_CHECKING, NamedTuple, Self

from kgw.records.crc import crc32c
from kgw.types import ZERO_TOPIC_ID, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from kgw.client.values import TopicDescription

_MAX_INT32 = (1 << 31) - 1
_MAX_INT64 = (1 << 63) - 1
_MAX_UINT32 = (1 << 32) - 1


class Acknowledged(NamedTuple):
    """A record that a server has acknowledged."""

    topic: str
    partition: int
    offset: int
    crc: int | None = None
    topic_id: str | None = None


def content_crc(key: bytes | None, value: bytes | None) -> int:
    """Return the checksum of a record's content, the `crc` in a journal."""
    return crc32c(value or b"", crc32c(key or b""))


def journal_lines(
    topic: TopicDescription, partition: int, base_offset: int, crcs: Iterable[int], now_ms: int
) -> str:
    """Return the lines for an acknowledged batch; `crcs` are in the order of its records."""
    line: dict[str, object] = {"topic": topic.name, "partition": partition}
    if topic.topic_id != ZERO_TOPIC_ID:
        line["topic_id"] = format_uuid(topic.topic_id)
    line["acknowledged_ms"] = now_ms
    return "".join(
        json.dumps({**line, "offset": offset, "crc": crc}) + "\n"
        for offset, crc in enumerate(crcs, base_offset)
    )


def read_journal_line(line: bytes) -> Acknowledged:
    """Parse a line of a journal. Raises ValueError, which says what is wrong."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(said, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - as for every other fault
    topic, topic_id = said.get("topic"), said.get("topic_id")
    if not (isinstance(topic, str) and topic):
        raise ValueError("no topic")
    if topic_id is not None:
        if not isinstance(topic_id, str):
            raise ValueError(f"topic_id is no text: {topic_id!r}")
        # An id in another form would look like that of a topic that was created again.
        parse_uuid(topic_id)
    return Acknowledged(
        topic,
        _number(said, "partition", _MAX_INT32),
        _number(said, "offset", _MAX_INT64),
        None if said.get("crc") is None else _number(said, "crc", _MAX_UINT32),
        topic_id,
    )


class AckJournal:
    """Writes a journal; `add` returns once the operating system has the lines."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending.

        Raises OSError, and ValueError if the file does not end with a complete line.
        """
        self._file = path.open("a+b", buffering=0)
        if self._file.seek(0, SEEK_END):
            self._file.seek(-1, SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.close()
                # Appending to the incomplete line would make it unreadable.
                raise ValueError(
                    "its last line has no end, as after a crash or on a full disk: remove that "
                    "line, or name another file"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, lines: str) -> None:
        """Append some lines. Raises OSError."""
        left = memoryview(lines.encode())
        while left:
            left = left[self._file.write(left) :]


def _number(said: dict[str, object], name: str, limit: int) -> int:
    value = said.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise ValueError(f"{name} is no number from 0 to {limit}: {value!r}")
    return value
