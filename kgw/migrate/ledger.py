"""Decodes the old offset ledger: its entries, and the positions of groups. Pure.

Until September 2025, SeaweedFS's Kafka gateway identified records by time and kept a ledger of
offsets. For each produced record it wrote an entry to the topic `kafka-system/offset-mappings`,
with the key "TOPIC-PARTITION" and the Kafka offset, SeaweedMQ's timestamp in nanoseconds and the
record's size. An entry's value was a protobuf `RecordValue` with four fields; exports have it as
JSON.

SeaweedMQ divides a topic's ring into ranges of slots. In the scheme of September 2025, which kgw
can migrate, Kafka partition N had the 32 slots from N*32 on. The ring had 1,024 slots, and later
2,520. Ranges include both ends. Later versions divide the ring by the number of partitions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEDGER_KEY = "__persistent_ledger__"
"""The last old gateways stored the end of their ledger under this group name."""

SLOTS_PER_PARTITION = 32
GROUP_PREFIX = "kafka-cg-"

_MAX_INT64 = (1 << 63) - 1
_MAX_INT32 = (1 << 31) - 1
# SeaweedMQ's messages are smaller, so a larger number cannot be a length.
_MAX_LOG_ENTRY_BYTES = 64 << 20
# Offsets are far smaller: native subscribers stored nanoseconds in their files of "offsets".
_LEAST_TIME_NS = 10**15
_LENGTH_BYTES = 4

# The names of the fields in the topic, and in the JSON of the gateway's own structure.
_NAMES = {
    "topic_partition": ("topic_partition", "TopicPartition"),
    "kafka_offset": ("kafka_offset", "KafkaOffset"),
    "smq_timestamp": ("smq_timestamp", "Timestamp"),
    "message_size": ("message_size", "Size"),
}


class LedgerFormatError(ValueError):
    """Bytes cannot be decoded as an entry or position; the text says why."""


class LedgerEntry(NamedTuple):
    """A ledger entry: one record of the old scheme."""

    topic: str
    partition: int
    old_offset: int
    ts_ns: int
    size_bytes: int


class OldPosition(NamedTuple):
    """A group's position: the next old Kafka offset to read."""

    group_id: str
    topic: str
    partition: int
    old_offset: int


class LogMessage(NamedTuple):
    """A message in a SeaweedMQ log file, and its position in the file."""

    position: int
    key: bytes
    value: bytes


def split_topic_partition(text: str) -> tuple[str, int]:
    """Split "TOPIC-PARTITION" at the last dash, because topics may have dashes.

    Some versions wrote "TOPIC:PARTITION"; topic names have no colons. Raises LedgerFormatError.
    """
    topic, separator, number = text.rpartition(":" if ":" in text else "-")
    if not (separator and topic and number.isascii() and number.isdigit()):
        raise LedgerFormatError(f"not a topic and a partition: {text!r}")
    partition = int(number)
    if partition > _MAX_INT32:
        raise LedgerFormatError(f"no partition has this number: {text!r}")
    return topic, partition


def decode_entry(key: bytes | None, value: bytes | None) -> LedgerEntry:
    """Decode a message of the ledger topic, protobuf or JSON.

    Raises LedgerFormatError if it is not an entry, if a field is missing or has a wrong type, or if
    key and value name different partitions.
    """
    if not value:
        raise LedgerFormatError("the message is empty")
    fields = _json_object(value) if value.lstrip()[:1] == b"{" else _record_value(value)
    entry = _entry(fields)
    if key:
        named = split_topic_partition(_text(key))
        if named != (entry.topic, entry.partition):
            raise LedgerFormatError(f"the key says {_text(key)!r}, the value {entry[:2]}")
    return entry


def read_log_file(read: Callable[[int], bytes]) -> Iterator[LogMessage | LedgerFormatError]:
    """Yield the messages of a SeaweedMQ log file: big-endian lengths, `LogEntry` protobufs.

    `read` returns as many bytes as requested, and fewer only at the end of the file. For a message
    that cannot be decoded, an error is yielded. At an impossible length reading ends, as the start
    of the next message is unknown. Empty messages are control messages, and are left out.
    """
    position = 0
    while prefix := read(_LENGTH_BYTES):
        length = int.from_bytes(prefix, "big")
        if len(prefix) < _LENGTH_BYTES or length > _MAX_LOG_ENTRY_BYTES:
            yield LedgerFormatError(f"byte {position}: not the length of a message")
            return
        content = read(length)
        if len(content) < length:
            yield LedgerFormatError(f"byte {position}: the file ends within a message")
            return
        try:
            fields = dict(_fields(content))
            key, value = fields.get(4, b""), fields.get(3, b"")
            if not (isinstance(key, bytes) and isinstance(value, bytes)):
                raise LedgerFormatError("not a LogEntry")
        except LedgerFormatError as error:
            yield LedgerFormatError(f"byte {position}: {error}")
        else:
            if key or value:
                yield LogMessage(position, key, value)
        position += _LENGTH_BYTES + length


def decode_position(content: bytes) -> int:
    """Return the offset in a group's file; old gateways wrote three formats.

    These are: a JSON entry (KafkaOffset, Timestamp, Size), a JSON position (type, value), and eight
    big-endian bytes. Raises LedgerFormatError, also for a file with a time, which native
    subscribers wrote.
    """
    try:
        fields = _json_object(content)
    except LedgerFormatError:
        if len(content) != 8:
            raise
        return _number({"offset": int.from_bytes(content, "big", signed=True)}, "offset")
    if "KafkaOffset" in fields:
        return _number(fields, "KafkaOffset")
    if fields.get("type", "offset") != "offset" or "value" not in fields:
        raise LedgerFormatError("not an offset")
    offset = _number(fields, "value")
    if offset >= _LEAST_TIME_NS:
        raise LedgerFormatError(f"a time of a native subscriber, not an offset: {offset}")
    return offset


def decode_position_line(line: bytes) -> OldPosition:
    """Decode a JSON line with group, topic, partition and offset.

    Raises LedgerFormatError.
    """
    fields = _json_object(line)
    group, topic = fields.get("group"), fields.get("topic")
    if not (isinstance(group, str) and group and isinstance(topic, str) and topic):
        raise LedgerFormatError("no group or no topic")
    return OldPosition(
        group_id_of(group),
        topic,
        _number(fields, "partition", _MAX_INT32),
        _number(fields, "offset"),
    )


def ring_range(partition: int) -> tuple[int, int]:
    """Return the first and last slot of a Kafka partition."""
    start = partition * SLOTS_PER_PARTITION
    return start, start + SLOTS_PER_PARTITION - 1


def partition_of(directory: str) -> int:
    """Return the Kafka partition of a directory that is named after its slots, e.g. 0032-0063.

    Raises ValueError for another name, and for slots that are not exactly one partition.
    """
    start, dash, stop = directory.partition("-")
    if not dash or not (start + stop).isascii() or not (start.isdigit() and stop.isdigit()):
        raise ValueError(f"not a range of slots like 0032-0063: {directory!r}")
    partition = int(start) // SLOTS_PER_PARTITION
    if ring_range(partition) != (int(start), int(stop)):
        raise ValueError(f"slots {directory} are not those of one Kafka partition")
    return partition


def group_id_of(name: str) -> str:
    """Return the Kafka group id for a name in SeaweedMQ.

    A name without the prefix is the group id itself: old gateways used both forms.
    """
    return name.removeprefix(GROUP_PREFIX) or name


def place_of_position(path: tuple[str, ...]) -> tuple[str, str, int] | None:
    """Return group, topic and partition of a position file's path; None for another path.

    The paths are `…/TOPIC/VERSION/0032-0063/consumers/GROUP.offset` and
    `consumer_offsets/GROUP/TOPIC/1/offset`.
    """
    match path:
        case (*_, topic, _, directory, "consumers", name) if name.endswith(".offset"):
            try:
                partition = partition_of(directory)
            except ValueError:
                return None
            return group_id_of(name.removesuffix(".offset")), topic, partition
        case (*_, "consumer_offsets", group, topic, number, "offset") if number.isdecimal():
            return group_id_of(group), topic, int(number)
        case _:
            return None


# Values


def _entry(fields: dict[str, Any]) -> LedgerEntry:
    named = {}
    for field, names in _NAMES.items():
        for name in names:
            if name in fields:
                named[field] = fields[name]
                break
        else:
            raise LedgerFormatError(f"{field} is missing")
    text = named["topic_partition"]
    if not isinstance(text, str):
        raise LedgerFormatError(f"topic_partition is no text: {text!r}")
    return LedgerEntry(
        *split_topic_partition(text),
        _number(named, "kafka_offset"),
        _number(named, "smq_timestamp"),
        _number(named, "message_size", _MAX_INT32),
    )


def _number(fields: dict[str, Any], name: str, limit: int = _MAX_INT64) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise LedgerFormatError(f"{name} is no whole number: {value!r}")
    if not 0 <= value <= limit:
        raise LedgerFormatError(f"{name} is out of range: {value}")
    return value


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        raise LedgerFormatError("not JSON") from None
    if not isinstance(fields, dict):
        raise LedgerFormatError("not a JSON object")
    return fields


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise LedgerFormatError("the text is not UTF-8") from None


# Decodes only the protobuf of two small messages: RecordValue {map<string, Value> fields = 1},
# where Value is one of int32_value = 2, int64_value = 3, string_value = 7; LogEntry {data = 3, key
# = 4}.


def _record_value(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, pair in _fields(content):
        if number != 1 or not isinstance(pair, bytes):
            raise LedgerFormatError("neither JSON nor a RecordValue")
        parts = dict(_fields(pair))
        name, value = parts.get(1, b""), parts.get(2, b"")
        if not (isinstance(name, bytes) and isinstance(value, bytes)):
            raise LedgerFormatError("not a field of a RecordValue")
        found[_text(name)] = _value(value)
    return found


def _value(content: bytes) -> object:
    for number, value in _fields(content):
        if number in {2, 3} and isinstance(value, int):
            return value - (1 << 64) if value >> 63 else value
        if number == 7 and isinstance(value, bytes):
            return _text(value)
    return None


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field of a message. Raises LedgerFormatError."""
    position = 0
    while position < len(content):
        tag, position = _varint(content, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, position = _varint(content, position)
            yield number, value
            continue
        if wire_type == 2:
            length, position = _varint(content, position)
        elif wire_type in {1, 5}:
            length = 8 if wire_type == 1 else 4
        else:
            raise LedgerFormatError("not protobuf")
        end = position + length
        if end > len(content):
            raise LedgerFormatError("a protobuf field is cut short")
        yield number, content[position:end]
        position = end


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(content):
            raise LedgerFormatError("a protobuf number is cut short")
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), position
    raise LedgerFormatError("a protobuf number is too long")
