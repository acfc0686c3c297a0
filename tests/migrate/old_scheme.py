"""What the gateways of the old scheme stored, byte for byte: for tests of the reader."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from kgw.migrate.ledger import LEDGER_KEY, LedgerEntry, ring_range

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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


def slots_directory(partition: int) -> str:
    """How SeaweedMQ names the directory of a partition: four digits at least."""
    start, stop = ring_range(partition)
    return f"{start:04d}-{stop:04d}"


def position_file(group: str, topic: str, partition: int) -> str:
    """Where the filer keeps a group's position, below /topics."""
    directory = f"kafka/{topic}/v1970-01-01-00-00-00/{slots_directory(partition)}"
    return f"{directory}/consumers/{group}.offset"


def position_content(old_offset: int) -> bytes:
    """What the filer keeps there."""
    return json.dumps({"KafkaOffset": old_offset, "Timestamp": 1, "Size": 0}).encode()


class OldTopic(NamedTuple):
    """A small topic of the old scheme with an anomaly of every kind, as its parts are found."""

    name: str
    records: dict[int, list[tuple[int, bytes]]]
    """By partition, in the order of the log: milliseconds and value."""
    entries: list[LedgerEntry]
    """As they came into the ledger."""
    positions: dict[str, dict[int, int]]
    """By group: partition and old offset."""

    def write(self, directory: Path) -> tuple[Path, Path]:
        """Write what an operator copies from the filer; return where ledger and positions are."""
        ledger = directory / "kafka-system/offset-mappings/v2025-09-11-21-37-21/0000-0157"
        ledger.mkdir(parents=True)
        (ledger.parent.parent / "topic.conf").write_text("{}")
        half = len(self.entries) // 2
        # A message that a crash of the volume server left damaged stands between.
        damaged = len(b"\xff\xff").to_bytes(4, "big") + b"\xff\xff"
        (ledger / "2025-09-11-21-37-21").write_bytes(log_file(self.entries[:half]) + damaged)
        (ledger / "2025-09-11-21-37-26").write_bytes(log_file(self.entries[half:]))
        (ledger / "checkpoint.offset").write_bytes(half.to_bytes(8, "big"))
        for group, offsets in self.positions.items():
            for partition, old_offset in offsets.items():
                path = directory / position_file(group, self.name, partition)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(position_content(old_offset))
        return ledger.parent.parent, directory / "kafka"


def old_topic(name: str = "orders-eu") -> OldTopic:
    """Make the topic: two partitions, the second without anomalies."""
    first_ns = 1_757_628_000_000_000_000
    times_ns = {old_offset: first_ns + old_offset * 2_000_111 for old_offset in range(30)}
    times_ns[6] = times_ns[7] = times_ns[5] + 1_000  # equal milliseconds, told apart by size
    times_ns[11] = times_ns[12] = times_ns[10] + 1_000  # equal milliseconds and sizes
    sizes = {old_offset: 40 + old_offset % 7 for old_offset in range(30)}
    sizes[11] = sizes[12] = sizes[10]
    entries = [LedgerEntry(name, 0, one, times_ns[one], sizes[one]) for one in range(30)]
    log = [one for one in range(30) if one not in {12, 15}]  # records that were lost
    place = log.index(21)
    log[place : place + 2] = [22, 21]  # two writers: one overtook the other
    del entries[18]  # an entry that was lost
    entries.append(entries[3])  # an entry that was written twice
    plain_entries = [
        LedgerEntry(name, 1, one, first_ns + one * 3_000_007, 10 + one) for one in range(20)
    ]
    gone = LedgerEntry("deleted-long-ago", 0, 0, first_ns, 5)
    return OldTopic(
        name,
        {
            0: [(times_ns[one] // 1_000_000, b"%-*d" % (sizes[one], one)) for one in log],
            1: [
                (one.ts_ns // 1_000_000, b"%-*d" % (one.size_bytes, one.old_offset))
                for one in plain_entries
            ],
        },
        [*entries[:20], gone, *plain_entries, *entries[20:]],
        {
            "kafka-cg-billing": {0: 16, 1: 20},
            "audit": {0: 11, 1: 0},
            "kafka-cg-reports": {0: 9},
            "writers": {0: 22},
            LEDGER_KEY: {0: 29, 1: 19},
        },
    )
