"""Records as text: the output of `kgw consume`, and the input of `kgw produce`."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.cli.shared.errors import CommandError
from kgw.client import NewRecord

if TYPE_CHECKING:
    from kgw.offsets.reader import ReadRecord
    from kgw.records.record import Record

FORMATS = ("text", "json", "hex", "base64", "raw")
_KNOWN_FIELDS = frozenset(
    {
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        "timestamp_type",
        "key",
        "key_base64",
        "value",
        "value_base64",
        "headers",
    }
)

Headers = tuple[tuple[str, bytes | None], ...]


class InputRecord(NamedTuple):
    """A record that was read from input; its key chooses the partition if `partition` is None."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    headers: Headers

    def at(self, now_ms: int) -> NewRecord:
        """Return the record to store; without a time of its own it gets `now_ms`."""
        timestamp_ms = now_ms if self.timestamp_ms is None else self.timestamp_ms
        return NewRecord(self.key, self.value, timestamp_ms, self.headers)


class InputFormat(NamedTuple):
    """How lines are parsed into records."""

    format: str
    key_separator: str | None
    null_value: str | None
    headers: Headers

    def read_line(self, line: bytes, number: int) -> InputRecord:
        """Return the record of one line, without its line end.

        Raises CommandError, which names the line.
        """
        try:
            if self.format == "json":
                return self._read_json(line)
            return self._read_text(line)
        except ValueError as error:
            raise CommandError(f"line {number}: {error}") from None

    def _read_text(self, line: bytes) -> InputRecord:
        key: bytes | None = None
        if self.key_separator is not None:
            key_text, separator, rest = line.partition(self.key_separator.encode())
            if not separator:
                raise ValueError(f"there is no {self.key_separator!r} between key and value")
            key, line = self._decode(key_text), rest
        is_null = self.null_value is not None and line == self.null_value.encode()
        value = None if is_null else self._decode(line)
        return InputRecord(None, key, value, None, self.headers)

    def _decode(self, text: bytes) -> bytes:
        if self.format == "hex":
            try:
                return bytes.fromhex(text.decode("ascii"))
            except ValueError:
                raise ValueError(f"{_excerpt(text)} is not hexadecimal") from None
        if self.format == "base64":
            return _from_base64(text.decode("ascii", "replace"))
        return text

    def _read_json(self, line: bytes) -> InputRecord:
        try:
            document = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
        except UnicodeDecodeError:
            raise ValueError("not JSON: the text is not UTF-8") from None
        if not isinstance(document, dict):
            raise ValueError(f"a record is an object, not {_excerpt(line)}")  # noqa: TRY004 - input
        unknown = document.keys() - _KNOWN_FIELDS
        if unknown:
            raise ValueError(f"unknown field {min(unknown)!r} in a record")
        return InputRecord(
            _number(document, "partition", 1 << 31),
            _content(document, "key"),
            _content(document, "value"),
            _number(document, "timestamp_ms", 1 << 63),
            self.headers + _headers(document.get("headers")),
        )


class OutputFormat(NamedTuple):
    """How records are printed as lines."""

    format: str
    topic: str
    key_separator: str | None = None
    null_value: str = ""
    has_offsets: bool = False
    has_timestamps: bool = False
    has_headers: bool = False

    def write(self, found: ReadRecord) -> bytes:
        """Return the output for one record, with a line end if the format uses one."""
        record = found.record
        if self.format == "json":
            return json.dumps(self._as_json(found), ensure_ascii=False).encode() + b"\n"
        if self.format == "raw":
            return record.value or b""
        parts = []
        if self.has_offsets:
            parts.append(f"{found.partition}:{record.offset}".encode())
        if self.has_timestamps:
            parts.append(format_time(record.timestamp_ms).encode())
        if self.has_headers:
            parts.append(b",".join(self._header(*header) for header in record.headers))
        content = self._encode(record.value)
        if self.key_separator is not None:
            content = self._encode(record.key) + self.key_separator.encode() + content
        return b"\t".join([*parts, content]) + b"\n"

    def _header(self, key: str, value: bytes | None) -> bytes:
        return key.encode("utf-8", "surrogateescape") + b"=" + self._encode(value)

    def _encode(self, content: bytes | None) -> bytes:
        if content is None:
            return self.null_value.encode()
        if self.format == "hex":
            return content.hex().encode()
        if self.format == "base64":
            return b64encode(content)
        return content

    def _as_json(self, found: ReadRecord) -> dict[str, Any]:
        described = record_as_json(found.record)
        return {
            "topic": self.topic,
            "partition": found.partition,
            "offset": described.pop("offset"),
            "timestamp_ms": described.pop("timestamp_ms"),
            "timestamp_type": "LogAppendTime" if found.has_log_append_time else "CreateTime",
            **described,
        }


def record_as_json(record: Record) -> dict[str, Any]:
    """Return a record as JSON: text under the field's name, other bytes as base64."""
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_named("key", record.key),
        **_named("value", record.value),
        "headers": [
            _named("key", key.encode("utf-8", "surrogateescape")) | _named("value", value)
            for key, value in record.headers
        ],
    }


def parse_header(text: str) -> tuple[str, bytes | None]:
    """Parse a header `KEY=VALUE`, or `KEY` alone for a null value.

    Raises ValueError.
    """
    key, separator, value = text.partition("=")
    if not key:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return key, value.encode() if separator else None


def format_time(timestamp_ms: int) -> str:
    """Return a time as ISO 8601 in UTC; a time outside of the calendar as a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def format_duration(milliseconds: int | None) -> str:
    """Return a duration in rounded units; "?" if it is unknown."""
    if milliseconds is None:
        return "?"
    seconds = milliseconds // 1_000
    if seconds < 60:
        return f"{milliseconds / 1_000:g} s"
    minutes, hours = seconds // 60, seconds // 3_600
    if minutes < 60:
        return f"{minutes} min"
    return f"{hours} h" if hours < 48 else f"{hours // 24} d"


def _named(name: str, content: bytes | None) -> dict[str, str | None]:
    """Return bytes under `name` if they are text, else as base64 under another name."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(content).decode("ascii")}


def _content(document: dict[str, Any], name: str) -> bytes | None:
    """Return a key or value: text as is, other JSON as compact text, or decoded base64."""
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        if document.get(name) is not None:
            raise ValueError(f"{name} and {name}_base64 exclude each other")
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 is not a string")
        return _from_base64(encoded)
    content = document.get(name)
    if content is None:
        return None
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(listed: object) -> Headers:
    """Return headers that are given as an object, or as a list of objects as printed."""
    if listed is None:
        return ()
    if isinstance(listed, dict):
        return tuple((key, _content({"value": value}, "value")) for key, value in listed.items())
    if isinstance(listed, list) and all(isinstance(one, dict) for one in listed):
        keys = [_content(one, "key") for one in listed]
        if None not in keys:
            return tuple(
                ((key or b"").decode("utf-8", "surrogateescape"), _content(one, "value"))
                for key, one in zip(keys, listed, strict=True)
            )
    raise ValueError('headers are an object, or a list of {"key": ..., "value": ...}')


def _number(document: dict[str, Any], name: str, limit: int) -> int | None:
    number = document.get(name)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"{name} is not a whole number")  # noqa: TRY004 - input
    if not -limit <= number < limit:
        raise ValueError(f"{name} {number} is out of range")
    return number


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"{_excerpt(text.encode())} is not base64") from None


def _excerpt(text: bytes) -> str:
    shown = text[:40].decode("utf-8", "replace")
    return repr(shown if len(text) <= 40 else shown + "...")
