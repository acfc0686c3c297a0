"""Compaction's rules: which records stay, and what becomes of the batches that held the others.

Of each key the newest record below a bound stays. Offsets and order never change. A batch of which
everything stays is returned as it is, any other is written again with its header's base offset,
last offset, epoch, producer fields and codec. What Kafka's cleaner does, with one difference: where
it leaves a gap in the offsets, one empty batch (Kafka's own form of a batch without records) covers
the run of removed batches, so that batches still follow each other without a gap.

Tombstones stay for consumers to see until the delete horizon (KIP-534): when a batch with a
tombstone is first cleaned, attribute bit 6 is set and the base timestamp becomes the horizon;
records' timestamps are relative to it from then on.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode
from kgw.records.batch import (
    COMPRESSION_MASK,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PREFIX_BYTES,
    read_batch,
)
from kgw.records.compression import compress, decompress
from kgw.records.crc import crc32c
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS, DecompressionLimits
from kgw.records.record import MAX_TIMESTAMP_MS, append_varint, as_int64, read_varint
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer

KEY_BYTES: Final = 176
"""What a key costs in the map of keys: its hash, its offset, and the places for them in a dict that
has just grown. Measured: 155 with 500,000 keys, 172 with 710,000."""
_HASH_BYTES: Final = 16
_MAX_OFFSET_DELTA: Final = (1 << 31) - 1
MAX_FILLER_OFFSETS: Final = 1 << 31
"""What one empty batch can stand for."""
_NO_KEY: Final = -1
_NULL_LENGTH: Final = 1
"""-1 as a varint: the length of a value that is null."""


class _Place(NamedTuple):
    """Where a record lies in a batch's payload, and what compaction asks of it."""

    start: int
    end: int
    times: int
    """Where its timestamp's delta begins."""
    offset_delta: int
    key_start: int
    key_end: int
    """_NO_KEY for a null key."""
    is_tombstone: bool


class NewestOffsets:
    """The newest offset of each key, by a 128-bit hash of the key; so many keys and no more."""

    def __init__(self, memory_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._limit = max(1, memory_bytes // KEY_BYTES)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def by_hash(self) -> Mapping[bytes, int]:
        return self._offsets

    def add(
        self,
        batch: RecordBatch,
        start_offset: int,
        end_offset: int,
        limits: DecompressionLimits = DEFAULT_LIMITS,
    ) -> int | None:
        """Take the keys of a whole batch's records from `start_offset` to below `end_offset`.

        Returns the offset of the first record for whose key there is no room, None when all have
        been taken. Batches come in order. Raises RecordError.
        """
        if batch.is_control or not batch.record_count:
            return None
        data = _payload(batch, limits)
        offsets = self._offsets
        is_full = len(offsets) + batch.record_count > self._limit
        base_offset = batch.base_offset
        for place in _walk(data, batch):
            if place.key_end == _NO_KEY:
                continue
            offset = base_offset + place.offset_delta
            if not start_offset <= offset < end_offset:
                continue
            digest = blake2b(
                data[place.key_start : place.key_end], digest_size=_HASH_BYTES
            ).digest()
            if is_full and digest not in offsets and len(offsets) >= self._limit:
                return offset
            offsets[digest] = offset
        return None


class CleaningRules(NamedTuple):
    """What is decided for a whole run."""

    newest: Mapping[bytes, int]
    """By hash of the key: its newest offset below `end_offset`, where there may be older ones."""
    end_offset: int
    """Records at or above it stay."""
    now_ms: int
    delete_retention_ms: int
    kept_batches: frozenset[int] = frozenset()
    """Base offsets of batches whose headers stay although no record does."""


class Tally:
    """What a run has done so far."""

    __slots__ = ("records_after", "records_before", "tombstones_removed")

    def __init__(self) -> None:
        self.records_before = 0
        self.records_after = 0
        self.tombstones_removed = 0


def clean_batches(
    batches: Iterable[RecordBatch],
    rules: CleaningRules,
    tally: Tally,
    limits: DecompressionLimits = DEFAULT_LIMITS,
) -> Iterator[tuple[RecordBatch, bool]]:
    """Yield what the batches become, each with whether it is as it was.

    They come whole, in order and without a gap, and so do the results, over the same offsets. The
    CRC is the caller's to check. Raises RecordError.
    """
    run: _EmptyRun | None = None
    for batch in batches:
        tally.records_before += batch.record_count
        cleaned = clean_batch(batch, rules, tally, limits)
        if cleaned is None:
            if run is None or not run.extend(batch):
                if run is not None:
                    yield from run.batches()
                run = _EmptyRun(batch)
            continue
        if run is not None:
            yield from run.batches()
            run = None
        tally.records_after += cleaned.record_count
        yield cleaned, cleaned is batch
    if run is not None:
        yield from run.batches()


class _EmptyRun:
    """Batches in a row without a record, under one leader epoch."""

    __slots__ = ("_fillers", "_leader_epoch", "_next_offset", "_start_offset")

    def __init__(self, batch: RecordBatch) -> None:
        self._start_offset = batch.base_offset
        self._next_offset = batch.base_offset
        self._leader_epoch = batch.leader_epoch
        self._fillers: list[RecordBatch] | None = []
        """What they are when all of them were so before: they are left alone then."""
        self.extend(batch)

    def extend(self, batch: RecordBatch) -> bool:
        """Take the next batch; False when it does not go with the others."""
        if (
            batch.leader_epoch != self._leader_epoch
            or batch.last_offset - self._start_offset > _MAX_OFFSET_DELTA
        ):
            return False
        self._next_offset = batch.next_offset
        if not is_filler(batch):
            self._fillers = None
        elif self._fillers is not None:
            self._fillers.append(batch)
        return True

    def batches(self) -> Iterator[tuple[RecordBatch, bool]]:
        if self._fillers is not None:
            for filler in self._fillers:
                yield filler, True
            return
        filler = make_filler(self._start_offset, self._next_offset, self._leader_epoch)
        yield filler, False


def is_filler(batch: RecordBatch) -> bool:
    """Whether a batch stands for removed offsets and nothing else."""
    return not batch.record_count and not batch.has_producer_id and not batch.is_control


def make_filler(start_offset: int, end_offset: int, leader_epoch: int) -> RecordBatch:
    """Return an empty batch over offsets; at most 2^31 of them."""
    return _build(
        (
            start_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            0,
            end_offset - start_offset - 1,
            NO_TIMESTAMP_MS,
            NO_TIMESTAMP_MS,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            0,
        ),
        b"",
    )


def clean_batch(
    batch: RecordBatch,
    rules: CleaningRules,
    tally: Tally,
    limits: DecompressionLimits = DEFAULT_LIMITS,
) -> RecordBatch | None:
    """Return what becomes of one whole batch: itself, another one, or None when nothing stays.

    Control batches stay: a consumer must see where each transaction ended. Raises RecordError.
    """
    if batch.is_control or batch.base_offset >= rules.end_offset:
        return batch
    is_kept = batch.base_offset in rules.kept_batches
    if not batch.record_count:
        return batch if is_kept and batch.has_producer_id else None
    data = _payload(batch, limits)
    places = _walk(data, batch)
    kept, has_tombstones = _kept_records(batch, data, places, rules, tally)
    if not kept:
        return _emptied(batch) if is_kept else None
    needs_horizon = (
        has_tombstones
        and batch.delete_horizon_ms is None
        # The horizon is that of all of the batch: tombstones beyond the end, before which older
        # records may lie yet, would have less time. The next run begins inside and sets it.
        and batch.next_offset <= rules.end_offset
    )
    if len(kept) == len(places) and not needs_horizon:
        return batch
    return _rewritten(batch, data, kept, rules, needs_horizon=needs_horizon)


def _kept_records(
    batch: RecordBatch,
    data: bytes | bytearray,
    places: list[_Place],
    rules: CleaningRules,
    tally: Tally,
) -> tuple[list[_Place], bool]:
    """Return the records that stay, and whether one of them is a tombstone."""
    newest, end_offset, base_offset = rules.newest, rules.end_offset, batch.base_offset
    horizon_ms = batch.delete_horizon_ms
    is_past_horizon = horizon_ms is not None and rules.now_ms >= horizon_ms
    kept: list[_Place] = []
    has_tombstones = False
    for place in places:
        offset = base_offset + place.offset_delta
        if offset < end_offset:
            if place.key_end == _NO_KEY:
                # From before the topic was compacted: nothing could ever take its place.
                continue
            digest = blake2b(
                data[place.key_start : place.key_end], digest_size=_HASH_BYTES
            ).digest()
            if newest.get(digest, offset) > offset:
                continue
            if place.is_tombstone:
                if is_past_horizon:
                    tally.tombstones_removed += 1
                    continue
                has_tombstones = True
        kept.append(place)
    return kept, has_tombstones


def _rewritten(
    batch: RecordBatch,
    data: bytes | bytearray,
    kept: list[_Place],
    rules: CleaningRules,
    *,
    needs_horizon: bool,
) -> RecordBatch:
    attributes = batch.attributes
    base_timestamp_ms = batch.base_timestamp_ms
    deltas_ms = [read_varint(data, place.times, 64) for place in kept]
    payload = bytearray()
    if needs_horizon:
        attributes |= DELETE_HORIZON_FLAG
        # A time that never comes is one that a header can hold.
        base_timestamp_ms = min(rules.now_ms + rules.delete_retention_ms, MAX_TIMESTAMP_MS)
        moved_ms = batch.base_timestamp_ms - base_timestamp_ms
        for place, (delta_ms, position) in zip(kept, deltas_ms, strict=True):
            head = bytearray(data[place.times - 1 : place.times])
            append_varint(head, as_int64(delta_ms + moved_ms))
            append_varint(payload, len(head) + place.end - position)
            payload += head
            payload += data[position : place.end]
    else:
        for place in kept:
            payload += data[place.start : place.end]
    if attributes & LOG_APPEND_TIME_FLAG:
        max_timestamp_ms = batch.max_timestamp_ms
    else:
        max_timestamp_ms = max(
            as_int64(batch.base_timestamp_ms + delta_ms) for delta_ms, _ in deltas_ms
        )
    return _build(
        (
            batch.base_offset,
            0,
            batch.leader_epoch,
            MAGIC,
            0,
            attributes,
            batch.last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            len(kept),
        ),
        compress(batch.compression, payload),
    )


def _emptied(batch: RecordBatch) -> RecordBatch:
    """Return a batch's header without its records, as Kafka's cleaner writes it."""
    return _build(
        (
            batch.base_offset,
            0,
            batch.leader_epoch,
            MAGIC,
            0,
            batch.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_FLAG),
            batch.last_offset_delta,
            NO_TIMESTAMP_MS,
            batch.max_timestamp_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            0,
        ),
        b"",
    )


def _build(
    fields: tuple[int, int, int, int, int, int, int, int, int, int, int, int, int], payload: Buffer
) -> RecordBatch:
    """Return a batch from its header, in which length and CRC are filled in, and its payload."""
    base_offset, _, leader_epoch, magic, _, *rest = fields
    length = HEADER_BYTES - PREFIX_BYTES + len(payload)
    covered = HEADER.pack(base_offset, length, leader_epoch, magic, 0, *rest)[CRC_START:]
    crc = crc32c(payload, crc32c(covered))
    header = HEADER.pack(base_offset, length, leader_epoch, magic, crc, *rest)
    return read_batch(header + payload)


def _payload(batch: RecordBatch, limits: DecompressionLimits) -> bytes | bytearray:
    payload = decompress(batch.compression, batch.records, limits)
    # A view is slow to index.
    return bytes(payload) if isinstance(payload, memoryview) else payload


def _walk(data: bytes | bytearray, batch: RecordBatch) -> list[_Place]:
    """Return where the records are. Raises RecordError when they are not what the header says.

    The variable-length numbers are read in place: calls for them would take most of the time.
    """
    places: list[_Place] = []
    position = 0
    size_bytes = len(data)
    previous_delta = -1
    try:
        for _ in range(batch.record_count):
            start = position
            length, position = (
                (data[position] >> 1, position + 1)
                if data[position] < 0x80
                else read_varint(data, position)
            )
            end = position + length
            times = position = position + 1  # behind the attributes, which have no meaning yet
            while data[position] >= 0x80:
                position += 1
            position += 1
            offset_delta, position = (
                (data[position] >> 1, position + 1)
                if data[position] < 0x80
                else read_varint(data, position)
            )
            length = data[position]
            if length == _NULL_LENGTH:
                key_start = position = position + 1
                key_end = _NO_KEY
            else:
                key_length, key_start = (
                    (length >> 1, position + 1) if length < 0x80 else read_varint(data, position)
                )
                key_end = position = key_start + key_length
            is_tombstone = data[position] == _NULL_LENGTH
            if not (
                previous_delta < offset_delta <= batch.last_offset_delta
                and key_start <= position < end <= size_bytes
            ):
                _refuse(len(places), batch)
            previous_delta = offset_delta
            places.append(_Place(start, end, times, offset_delta, key_start, key_end, is_tombstone))
            position = end
    except IndexError:
        _refuse(len(places), batch)
    if position != size_bytes:
        _refuse(len(places), batch)
    return places


def _refuse(number: int, batch: RecordBatch) -> None:
    raise RecordError(
        f"record {number} of the batch at offset {batch.base_offset} does not fit in with the rest",
        ErrorCode.INVALID_RECORD,
    )
