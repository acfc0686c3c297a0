"""Converts SMQ's log entries to record batches with the same offsets. Pure.

An entry has a key, a value, a time and an offset. The time is when the broker received it, cut to
milliseconds. SMQ cannot distinguish empty from null. Kafka clients see an empty key as null,
because most such messages never had a key. They see an empty value as empty, because SMQ has no
tombstones, which a null value would mean.

Batches are built without compression and without a producer. A batch has no gap in its offsets, so
that it can end at the high watermark.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.entries.layouts import Damage, DecodedChunk
from kgw.backend.seaweedmq.entries.log_entries import EntryError, walk
from kgw.records.batch import read_batch
from kgw.records.builder import encode_batch
from kgw.records.record import append_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kgw.backend.seaweedmq.entries.log_entries import LogEntry
    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer

_BATCH_BYTES: Final = 64 << 10
"""A batch ends with the record that makes it at least this large."""
_NS_PER_MS: Final = 1_000_000
LEADER_EPOCH: Final = 0
"""SMQ's brokers have no leader epochs."""


class EntryWindow(NamedTuple):
    """The entries of one read of a log file, in the order of their offsets. For any thread."""

    decoded: DecodedChunk
    entries: list[LogEntry]
    damage: str | None = None
    """The reason why later entries could not be read."""


def decode_window(data: Buffer) -> EntryWindow:
    """Return the entries in a chunk of a log file, and their batches. Never raises."""
    entries: list[LogEntry] = []
    damage = None
    try:
        entries.extend(walk(data))
    except EntryError as error:
        damage = str(error)
    return window_of(entries, len(data), damage)


def window_of(
    entries: Iterable[LogEntry], size_bytes: int, damage: str | None = None
) -> EntryWindow:
    """Return entries in the order of their offsets, without repeated ones, and their batches.

    If two publishers write at the same time, some entries in the file are out of order.
    """
    by_offset: dict[int, LogEntry] = {}
    for entry in entries:
        by_offset.setdefault(entry.offset, entry)
    ordered = [by_offset[offset] for offset in sorted(by_offset)]
    batches: list[RecordBatch] = []
    times_ns: list[int] = []
    for run in _runs(ordered):
        times_ns.append(run[0].ts_ns)
        batches.append(_batch(run))
    end_offset = batches[-1].next_offset if batches else 0
    decoded = DecodedChunk(
        batches,
        [batch.base_offset for batch in batches],
        times_ns,
        () if damage is None else (Damage(end_offset, end_offset + 1, size_bytes, damage),),
        max((entry.ts_ns for entry in ordered), default=0),
        sum(batch.size_bytes for batch in batches),
    )
    return EntryWindow(decoded, ordered, damage)


def decode(data: Buffer, _base_offset: int, _end_offset: int) -> DecodedChunk:
    """Return the batches of a chunk of a log file, ignoring the given offsets. Never raises."""
    return decode_window(data).decoded


def _runs(entries: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
    """Yield runs of entries without a gap, up to the size of a batch."""
    start = size_bytes = 0
    for number, (entry, following) in enumerate(pairwise(entries), 1):
        size_bytes += len(entry.data) + len(entry.key)
        if following.offset != entry.offset + 1 or size_bytes >= _BATCH_BYTES:
            yield entries[start:number]
            start, size_bytes = number, 0
    if entries:
        yield entries[start:]


def _batch(entries: Sequence[LogEntry]) -> RecordBatch:
    base_offset = entries[0].offset
    times_ms = [entry.ts_ns // _NS_PER_MS for entry in entries]
    payload = bytearray()
    for number, (entry, time_ms) in enumerate(zip(entries, times_ms, strict=True)):
        record = bytearray(1)
        append_varint(record, time_ms - times_ms[0])
        append_varint(record, number)
        append_varint(record, len(entry.key) or -1)
        record += entry.key
        append_varint(record, len(entry.data))
        record += entry.data
        append_varint(record, 0)
        append_varint(payload, len(record))
        payload += record
    return read_batch(
        encode_batch(
            payload,
            base_offset=base_offset,
            leader_epoch=LEADER_EPOCH,
            last_offset_delta=len(entries) - 1,
            base_timestamp_ms=times_ms[0],
            max_timestamp_ms=max(times_ms),
            record_count=len(entries),
        )
    )
