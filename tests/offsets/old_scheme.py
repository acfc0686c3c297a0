"""What the gateways of the old scheme stored, byte for byte: for tests of the reader."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kgw.offsets.ring import ring_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.offsets.ledger import LedgerEntry


def varint(value: int) -> bytes:
    """A protobuf number; negative ones as 64 bits, as Go writes them."""
    value &= (1 << 64) - 1
    content = bytearray()
    while value >= 0x80:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)


def nested(number: int, content: bytes) -> bytes:
    """A protobuf field that holds bytes, text or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def plain(number: int, value: int) -> bytes:
    """A protobuf field that holds a number."""
    return varint(number << 3) + varint(value)


def topic_partition(entry: LedgerEntry) -> str:
    """The name under which a partition is in the ledger."""
    return f"{entry.topic}-{entry.partition}"


def entry_value(entry: LedgerEntry) -> bytes:
    """The `RecordValue` of an entry."""
    values = {
        "topic_partition": nested(7, topic_partition(entry).encode()),
        "kafka_offset": plain(3, entry.old_offset),
        "smq_timestamp": plain(3, entry.ts_ns),
        "message_size": plain(2, entry.size_bytes),
    }
    return b"".join(
        nested(1, nested(1, name.encode()) + nested(2, value)) for name, value in values.items()
    )


def log_entry(ts_ns: int, key: bytes, value: bytes) -> bytes:
    """A message as it stands in a log file of SeaweedMQ: a length, and a `LogEntry`."""
    content = plain(1, ts_ns) + plain(2, 1234)
    content += (nested(3, value) if value else b"") + (nested(4, key) if key else b"")
    return len(content).to_bytes(4, "big") + content


def log_file(entries: Iterable[LedgerEntry]) -> bytes:
    """A log file of the ledger topic; it begins with the control message of its publisher."""
    return log_entry(1, b"", b"") + b"".join(
        log_entry(entry.ts_ns + 5_000, topic_partition(entry).encode(), entry_value(entry))
        for entry in entries
    )


def json_line(entry: LedgerEntry) -> str:
    """An entry as SeaweedFS's SQL tool exports it."""
    return json.dumps(
        {
            "topic_partition": topic_partition(entry),
            "kafka_offset": entry.old_offset,
            "smq_timestamp": entry.ts_ns,
            "message_size": entry.size_bytes,
        }
    )


def position_file(group: str, topic: str, partition: int) -> str:
    """Where the filer keeps a group's position, below /topics."""
    slots = ring_range(partition)
    return f"kafka/{topic}/v1970-01-01-00-00-00/{slots}/consumers/{group}.offset"


def position_content(old_offset: int) -> bytes:
    """What the filer keeps there."""
    return json.dumps({"KafkaOffset": old_offset, "Timestamp": 1, "Size": 0}).encode()
