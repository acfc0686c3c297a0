"""Snapshots of a partition's producer state: packed in slices, checked when read. Pure.

A snapshot has the producers with their windows and open transactions, and the aborted transactions
of the partition.

A partition may have a hundred thousand producers, which take a third of a second to pack. So
packing yields to the event loop, and producers whose batches are stored meanwhile are packed again,
until the whole snapshot shows one moment. It must not contain a batch beyond its offset: a relaxed
log may lose such a batch, and its retry would be taken for a duplicate.
"""

from __future__ import annotations

from itertools import islice
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import KgwError
from kgw.partitions.append.producer_entry import (
    IN_FLIGHT_OFFSET,
    BatchEntry,
    LoadedProducer,
    ProducerEntry,
)
from kgw.records.crc import crc32c
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Generator

    from kgw.partitions.append.producer_state import ProducerState
    from kgw.partitions.append.transactions import AbortedIndex
    from kgw.types import Buffer

PACKED_PER_TURN = 300
"""Producers that are packed in one iteration of the event loop (docs/decisions/0068)."""
WRITTEN_PER_TURN = 10_000
"""Packed producers that are concatenated in one iteration of the event loop."""
_ABORTED_IN_A_TURN: Final = 1 << 20
"""A larger index, in bytes, is written in its own turn of the loop: 1 MB takes half a
millisecond."""

SNAPSHOT_VERSION: Final = 2
"""Version 2 adds each producer's last marker and the aborted transactions. 1 is still read."""
_MAGIC: Final = b"kgwp"
_HEADER: Final = Struct(">4sHI")
_ENTRY: Final = Struct(">qhiqqqiB")
_ENTRY_OF_VERSION_1: Final = Struct(">qhiqqB")
_SIZE: Final = Struct(">Q")
"""The size in bytes of the index of aborted transactions."""
_BATCH: Final = Struct(">iiqiq")
_CHECKSUM: Final = Struct(">I")


class SnapshotError(KgwError):
    """A snapshot cannot be read; the state is rebuilt from the log instead."""


class SnapshotContents(NamedTuple):
    """A decoded snapshot: the arguments of `ProducerState.load`."""

    producers: list[LoadedProducer]
    aborted: AbortedIndex | None


def has_few_producers(state: ProducerState) -> bool:
    """Return whether the producers are few enough to be packed without yielding.

    Partitions whose snapshots are saved at the same time may all do so in one turn of the loop.
    """
    return len(state) <= PACKED_PER_TURN // 10


def pack_producers(
    state: ProducerState, per_turn: int = PACKED_PER_TURN
) -> Generator[None, None, dict[int, bytes] | None]:
    """Return the stored state of every producer, with its whole window, by producer id.

    The result is the state at the moment of return. It may be saved later under any offset up to
    the end of the last completed append, as replaying a batch that it contains is harmless. It may
    contain producers that were forgotten meanwhile. None if the state was replaced.
    """
    packed: dict[int, bytes] = {}
    changed = state.changed = set[int]()
    try:
        todo = state.ids()
        while todo:
            for number, producer_id in enumerate(todo, 1):
                entry = state.get(producer_id)
                one = None if entry is None else _pack(entry, state.stored_transaction(producer_id))
                if one is not None:
                    packed[producer_id] = one
                if not number % per_turn:
                    yield
                    if state.changed is not changed:
                        return None
            # Usually few producers have changed. The slice is doubled so that the loop ends.
            per_turn *= 2
            todo = list(changed)
            changed.clear()
    finally:
        if state.changed is changed:
            state.changed = None
    return packed


def _pack(newest: ProducerEntry, transaction_first_offset: int) -> bytes | None:
    """Return the packed stored state of a producer; None if nothing is stored."""
    entry: ProducerEntry | None = newest
    while entry is not None and not entry.is_stored:
        entry = entry.replaced
    if entry is None:
        return None
    stored = [known for known in entry.batches if known.base_offset != IN_FLIGHT_OFFSET]
    head = _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        entry.coordinator_epoch,
        transaction_first_offset,
        entry.marker_offset,
        entry.written_ms,
        entry.first_sequence,
        len(stored),
    )
    batches = [
        _BATCH.pack(
            known.base_sequence,
            known.last_sequence,
            known.base_offset,
            known.record_count,
            known.max_timestamp_ms,
        )
        for known in stored
    ]
    return b"".join((head, *batches))


def encode_snapshot(
    packed: dict[int, bytes], aborted: bytes = b"", per_turn: int = WRITTEN_PER_TURN
) -> Generator[None, None, bytearray]:
    """Return a snapshot for `decode_snapshot`; `aborted` is the result of `AbortedIndex.pack`."""
    data = bytearray(_HEADER.pack(_MAGIC, SNAPSHOT_VERSION, len(packed)))
    checksum = crc32c(data)
    producers = iter(packed.values())
    for first in range(0, len(packed), per_turn):
        if first:
            yield
        some = b"".join(islice(producers, per_turn))
        checksum = crc32c(some, checksum)
        data += some
    if len(aborted) > _ABORTED_IN_A_TURN:
        yield
    data += _SIZE.pack(len(aborted))
    data += aborted
    checksum = crc32c(aborted, crc32c(_SIZE.pack(len(aborted)), checksum))
    data += _CHECKSUM.pack(checksum)
    return data


def decode_snapshot(snapshot: Buffer) -> SnapshotContents:
    """Decode a snapshot. Raises SnapshotError if it is damaged or of an unknown version."""
    view = memoryview(snapshot)
    if len(view) < _HEADER.size + _CHECKSUM.size:
        raise SnapshotError(f"a producer snapshot of {len(view)} bytes is cut off")
    body = view[: -_CHECKSUM.size]
    magic, version, count = _HEADER.unpack_from(body)
    if magic != _MAGIC:
        raise SnapshotError("not a producer snapshot")
    if _CHECKSUM.unpack_from(view, len(body))[0] != crc32c(body):
        raise SnapshotError("a producer snapshot fails its checksum")
    if version not in {1, SNAPSHOT_VERSION}:
        raise SnapshotError(f"producer snapshot version {version} is unknown")
    producers: list[LoadedProducer] = []
    aborted: AbortedIndex | None = None
    position = _HEADER.size
    try:
        for _ in range(count):
            one, position = _unpack(body, position, version)
            producers.append(one)
        if version > 1:
            (size_bytes,) = _SIZE.unpack_from(body, position)
            position += _SIZE.size
            if size_bytes:
                aborted = _unpack_aborted(body[position : position + size_bytes])
                position += size_bytes
    except (StructError, ValueError) as error:
        raise SnapshotError(f"a producer snapshot is cut off: {error}") from error
    if position != len(body):
        raise SnapshotError(f"a producer snapshot has {len(body) - position} bytes left over")
    return SnapshotContents(producers, aborted)


def _unpack(body: memoryview, position: int, version: int) -> tuple[LoadedProducer, int]:
    """Return a producer and the position of the next one. Raises StructError."""
    marker_offset, first_sequence = NO_OFFSET, 0
    if version == 1:
        fields = _ENTRY_OF_VERSION_1.unpack_from(body, position)
        position += _ENTRY_OF_VERSION_1.size
        producer_id, epoch, coordinator_epoch, first_offset, written_ms, count = fields
    else:
        fields = _ENTRY.unpack_from(body, position)
        position += _ENTRY.size
        producer_id, epoch, coordinator_epoch, first_offset, *rest = fields
        marker_offset, written_ms, first_sequence, count = rest
    entry = ProducerEntry(producer_id, epoch)
    entry.is_stored = True
    entry.coordinator_epoch = coordinator_epoch
    entry.marker_offset = marker_offset
    entry.first_sequence = first_sequence
    entry.last_update_ms = entry.written_ms = written_ms
    for _ in range(count):
        entry.batches.append(BatchEntry(entry, *_BATCH.unpack_from(body, position)))
        position += _BATCH.size
    return LoadedProducer(entry, first_offset), position


def _unpack_aborted(data: memoryview) -> AbortedIndex:
    from kgw.partitions.append.transactions import AbortedIndex

    return AbortedIndex.unpack(data)
