"""Snapshots of what a partition knows of its producers: made in turns, checked when read. Pure.

Producers with their windows and open transactions, and the aborted transactions of the partition.

A partition may know a hundred thousand of them, which takes a third of a second to pack. So others
come between, and what is stored then is packed once more, until all of it is of one moment: a
snapshot must know nothing that lies beyond its offset, for a relaxed log may lose that, and a retry
of a lost batch would be called stored.
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
"""So many producers are packed in a turn of the loop (docs/decisions/0068)."""
WRITTEN_PER_TURN = 10_000
"""So many packed producers are put together in a turn."""
_ABORTED_IN_A_TURN: Final = 1 << 20
"""A larger index gets a turn of its own, of half a millisecond for each megabyte."""

SNAPSHOT_VERSION: Final = 2
"""2 has the last marker of each producer, and what was aborted. 1 is still read."""
_MAGIC: Final = b"kgwp"
_HEADER: Final = Struct(">4sHI")
_ENTRY: Final = Struct(">qhiqqqiB")
_ENTRY_OF_VERSION_1: Final = Struct(">qhiqqB")
_SIZE: Final = Struct(">Q")
"""Of the index of aborted transactions, in bytes."""
_BATCH: Final = Struct(">iiqiq")
_CHECKSUM: Final = Struct(">I")


class SnapshotError(KgwError):
    """A snapshot that cannot be read; the state is rebuilt from the log instead."""


class SnapshotContents(NamedTuple):
    """What a snapshot says: the arguments of `ProducerState.load`."""

    producers: list[LoadedProducer]
    aborted: AbortedIndex | None


def has_few_producers(state: ProducerState) -> bool:
    """Whether packing is so little that as many as are saved side by side may do it in one turn."""
    return len(state) <= PACKED_PER_TURN // 10


def pack_producers(
    state: ProducerState, per_turn: int = PACKED_PER_TURN
) -> Generator[None, None, dict[int, bytes] | None]:
    """Return everything that is stored, with the whole window of every producer, by producer.

    It is what the state says in the turn in which this returns, and stands for any offset from then
    on up to the end of the last completed append: replaying a batch again that it knows already is
    harmless. Producers that were forgotten meanwhile may be in it. None when the state was cleared.
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
            # Hardly ever as many as in a turn. Twice the turn sees to it that this ends.
            per_turn *= 2
            todo = list(changed)
            changed.clear()
    finally:
        if state.changed is changed:
            state.changed = None
    return packed


def _pack(newest: ProducerEntry, transaction_first_offset: int) -> bytes | None:
    """Return what is stored of a producer; None when nothing is."""
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
    """Return what `decode_snapshot` reads; `aborted` is what `AbortedIndex.pack` returned."""
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
    """Return what it says. Raises SnapshotError where it is damaged or of an unknown version."""
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
    """Return a producer and where the next one begins. Raises StructError."""
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
