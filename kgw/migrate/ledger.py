"""Decodes the offset ledger of the old scheme: entries, and the positions of groups. Pure.

Until September 2025 SeaweedFS's Kafka gateway addressed records by time and kept a ledger beside
them: each produced record became an entry of the topic `kafka-system/offset-mappings`, with the key
"TOPIC-PARTITION", the Kafka offset, SeaweedMQ's timestamp in nanoseconds and the record's size. An
entry's value was a protobuf `RecordValue` of four fields; exports of it are JSON.

SeaweedMQ divides the ring of a topic into ranges of slots. The scheme of September 2025, which kgw
can migrate, gave Kafka partition N the 32 slots from N*32 on, on a ring of 1,024 and later of 2,520
slots. Ranges include both ends. Newer versions divide the ring by the number of partitions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEDGER_KEY = "__persistent_ledger__"
"""The group under which the last gateways of the old scheme stored the end of their ledger."""

SLOTS_PER_PARTITION = 32
GROUP_PREFIX = "kafka-cg-"

_MAX_INT64 = (1 << 63) - 1
_MAX_INT32 = (1 << 31) - 1
# SeaweedMQ's messages are smaller; a larger number is not a length.
_MAX_LOG_ENTRY_BYTES = 64 << 20
# A native subscriber's file has nanoseconds as its "offset": real offsets are far smaller.
_LEAST_TIME_NS = 10**15
_LENGTH_BYTES = 4

# The fields' names in the topic, and in JSON of the gateway's own structure.
_NAMES = {
    "topic_partition": ("topic_partition", "TopicPartition"),
    "kafka_offset": ("kafka_offset", "KafkaOffset"),
    "smq_timestamp": ("smq_timestamp", "Timestamp"),
    "message_size": ("message_size", "Size"),
}


class LedgerFormatError(ValueError):
    """Bytes are not an entry or position; the text says why."""


class LedgerEntry(NamedTuple):
    """One record of the old scheme."""

    topic: str
    partition: int
    old_offset: int
    ts_ns: int
    size_bytes: int


class OldPosition(NamedTuple):
    """The old Kafka offset that a group would have read next."""

    group_id: str
    topic: str
    partition: int
    old_offset: int


class LogMessage(NamedTuple):
    """One message of a SeaweedMQ log file, with its position in the file."""

    position: int
    key: bytes
    value: bytes


def split_topic_partition(text: str) -> tuple[str, int]:
    """Return topic and partition of "TOPIC-PARTITION". The last dash counts: topics have dashes.

    Some versions wrote "TOPIC:PARTITION"; no topic has a colon. Raises LedgerFormatError.
    """
    topic, separator, number = text.rpartition(":" if ":" in text else "-")
    if not (separator and topic and number.isascii() and number.isdigit()):
        raise LedgerFormatError(f"not a topic and a partition: {text!r}")
    partition = int(number)
    if partition > _MAX_INT32:
        raise LedgerFormatError(f"no partition has this number: {text!r}")
    return topic, partition


def decode_entry(key: bytes | None, value: bytes | None) -> LedgerEntry:
    """Return the entry of a message of the ledger topic, protobuf or JSON.

    Raises LedgerFormatError if it is not an entry, if a field is missing or of another type, or if
    the key names another partition than the value.
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
    """Yield the messages of a SeaweedMQ log file: big-endian lengths and `LogEntry` protobufs.

    `read` returns as many bytes as asked for, and fewer only at the end. A message that cannot be
    decoded is yielded as an error and skipped. An impossible length ends the file, as the start of
    the next message is unknown. Control messages, which are empty, are left out.
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
    """Return the offset in a group's file, which old gateways wrote in three formats.

    These are JSON of an entry (KafkaOffset, Timestamp, Size), JSON of a position (type, value), and
    eight big-endian bytes. Raises LedgerFormatError, also for times, which native subscribers
    store.
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
    """Return the position of a JSON line with group, topic, partition, offset.

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
    """Return the first and the last slot of a Kafka partition."""
    start = partition * SLOTS_PER_PARTITION
    return start, start + SLOTS_PER_PARTITION - 1


def partition_of(directory: str) -> int:
    """Return the Kafka partition of a directory that is named after its slots, as 0032-0063.

    Raises ValueError for another name, and for slots that are not those of one partition.
    """
    start, dash, stop = directory.partition("-")
    if not dash or not (start + stop).isascii() or not (start.isdigit() and stop.isdigit()):
        raise ValueError(f"not a range of slots like 0032-0063: {directory!r}")
    partition = int(start) // SLOTS_PER_PARTITION
    if ring_range(partition) != (int(start), int(stop)):
        raise ValueError(f"slots {directory} are not those of one Kafka partition")
    return partition


def group_id_of(name: str) -> str:
    """Return the Kafka group of a name in SeaweedMQ.

    A name without the prefix is the group's id itself: the gateways of the old scheme used both.
    """
    return name.removeprefix(GROUP_PREFIX) or name


def place_of_position(path: tuple[str, ...]) -> tuple[str, str, int] | None:
    """Return group, topic and partition from the path of a filer's file; None for other paths.

    `…/TOPIC/VERSION/0032-0063/consumers/GROUP.offset` and `consumer_offsets/GROUP/TOPIC/1/offset`.
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


# The parts of protobuf that two small messages need: RecordValue {map<string, Value> fields = 1},
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
    """Yield number and value of a message's fields. Raises LedgerFormatError."""
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
