"""Decodes the batches of a Fetch response into Arrow columns.

One Python loop visits the batches and another the record lengths, since each record's position
depends on the record before it. numpy and Arrow do the rest for all records of the response at
once. On an error, the gateway's own reader reads the batch again and makes the error text.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from kgw.errors import ErrorCode
from kgw.pipeline.arrow.columns import ALL_COLUMNS, HEADERS_TYPE, SCHEMA
from kgw.pipeline.arrow.damage import BatchError
from kgw.pipeline.arrow.varints import read_varints
from kgw.records.aborted import aborted_batches
from kgw.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_POSITION,
    PREFIX_BYTES,
    read_batch,
)
from kgw.records.compression import decompress
from kgw.records.crc import KEEP_GIL, crc32c
from kgw.records.errors import RecordError
from kgw.records.limits import MAX_HEADERS, DecompressionLimits
from kgw.records.reader import read_headers, unpack, walk
from kgw.records.record import read_varint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from kgw.pipeline.arrow.varints import Flags, Int64s
    from kgw.types import Buffer

MAX_DATA_BYTES: Final = (1 << 31) - 1
"""The limit of Arrow's signed 32-bit offsets, which point into the response itself if no batch is
compressed."""
DEFAULT_MAX_BYTES: Final = 128 << 20
"""Roughly the memory that one call uses for decompressed batches and its arrays, some of which
exist two or three times at once."""
LIMITS: Final = DecompressionLimits(max_bytes=256 << 20, max_ratio=MAX_DATA_BYTES)
"""Higher than a gateway's default limits: servers store compressed batches of any size, and other
clients can read them."""
_RECORD_WORK_BYTES: Final = 128
"""Estimated memory for the arrays of each record's numbers."""
_LEAST_RECORD_BYTES: Final = 7
"""The smallest record: length, attributes, two deltas, two lengths of -1 and a header count of
0."""

_START: Final = Struct(">qiiB")
"""The start of a batch header: base offset, batch length, leader epoch, magic."""
_HEADER_TYPE: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "u1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"),
        ("max_timestamp_ms", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)


class Decoded(NamedTuple):
    """The decoded records of some batches; `kgw.pipeline.arrow` describes each field."""

    batch: pa.RecordBatch
    next_offset: int
    control_ranges: list[tuple[int, int]]
    is_partial: bool
    missing: Sequence[tuple[int, int]] = ()
    altered_keys: int = 0


class _Batches(NamedTuple):
    """The complete batches of a response: their positions, and their header fields as arrays."""

    positions: Int64s
    headers: NDArray[Any]
    base_offsets: Int64s
    next_offsets: Int64s

    def pick(self, which: slice | Flags) -> _Batches:
        return _Batches(*(field[which] for field in self))


class _Payloads(NamedTuple):
    """The records of all batches, decompressed and without the batch headers, in one buffer."""

    data: bytes
    starts: list[int]
    ends: list[int]


def decode_batches(
    data: Buffer,
    *,
    first_offset: int,
    end_offset: int | None = None,
    columns: Collection[str] = ALL_COLUMNS,
    aborted: Iterable[tuple[int, int]] = (),
    check_crcs: bool = True,
    limits: DecompressionLimits = LIMITS,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Decoded:
    """Return the records of a response's batches from `first_offset` up to `end_offset`.

    `aborted` has the producer id and first offset of each aborted transaction in the response. Only
    the columns in `columns` are decoded. Invalid UTF-8 in header keys is replaced, as in Java's
    clients.

    Raises BatchError, which has the base offset of the batch: CORRUPT_MESSAGE for a wrong CRC,
    length or offset; INVALID_RECORD for unreadable records; UNSUPPORTED_FOR_MESSAGE_FORMAT for
    formats before 2, which Fetch does not return from version 4 on; MESSAGE_TOO_LARGE for a batch
    that decompresses to more than `limits` allow. Raises ValueError if `columns` is empty or has an
    unknown name, and for `data` of more than `MAX_DATA_BYTES`.
    """
    whole = data if isinstance(data, bytes) else bytes(data)
    if len(whole) > MAX_DATA_BYTES:
        raise ValueError(f"{len(whole)} bytes at once, where {MAX_DATA_BYTES} are the most")
    if not columns or not ALL_COLUMNS.issuperset(columns):
        # An Arrow batch without columns has no number of rows.
        raise ValueError(f"columns {sorted(columns)}: one at least of {SCHEMA.names}, and no other")
    batches, is_past_end = _find_batches(whole, end_offset)
    batches = batches.pick(batches.next_offsets > first_offset)
    transactions = list(aborted)
    dropped = aborted_batches([whole], transactions) if transactions else frozenset()
    has_data = (batches.headers["attributes"] & CONTROL_FLAG) == 0
    has_data &= batches.headers["record_count"] != 0
    if dropped:
        has_data &= ~np.isin(batches.base_offsets, list(dropped))
    payloads, taken = _unpack_batches(
        whole, batches, has_data, limits, max_bytes, check_crcs=check_crcs
    )
    is_partial = taken < len(batches.positions)
    batches, has_data = batches.pick(slice(taken)), has_data[:taken]
    next_offset = first_offset
    if is_past_end and not is_partial and end_offset is not None:
        next_offset = max(first_offset, end_offset)
    elif taken:
        next_offset = int(batches.next_offsets[-1])
        if end_offset is not None:
            next_offset = max(first_offset, min(next_offset, end_offset))
    silent = batches.pick(~has_data)
    batches = batches.pick(has_data)
    fields = _read_fields(whole, batches, payloads, limits)
    fields = fields.between(first_offset, end_offset)
    record_batch, altered_keys = _columns(
        whole, batches, payloads, fields, frozenset(columns), limits
    )
    firsts = np.clip(silent.base_offsets, first_offset, next_offset)
    ends = np.clip(silent.next_offsets, first_offset, next_offset)
    # Whether a batch has offsets in the range; a batch that begins at or after the last wanted
    # offset has none.
    is_left = firsts < ends
    firsts, ends = firsts[is_left], ends[is_left]
    missing = []
    if len(fields.offsets) + int((ends - firsts).sum()) != next_offset - first_offset:
        missing = _gaps(
            np.sort(np.concatenate([fields.offsets, firsts])),
            np.sort(np.concatenate([fields.offsets + 1, ends])),
            first_offset,
            next_offset,
        )
    return Decoded(
        record_batch, next_offset, _joined(firsts, ends), is_partial, missing, altered_keys
    )


def read_batch_headers(
    data: Buffer, *, first_offset: int, end_offset: int | None = None
) -> NDArray[Any]:
    """Return the headers of batches with offsets from `first_offset` up to `end_offset`.

    The fields are named as in the gateway's own reader. Nothing is decompressed, and no CRC is
    checked. Raises RecordError for wrong headers, as `decode_batches` does.
    """
    batches, _ = _find_batches(bytes(data), end_offset)
    return batches.headers[batches.next_offsets > first_offset]


def _find_batches(data: bytes, end_offset: int | None) -> tuple[_Batches, bool]:
    """Return the complete batches before `end_offset`, and whether another batch follows them."""
    positions: list[int] = []
    position = 0
    last = len(data) - HEADER_BYTES
    is_past_end = False
    read_start = _START.unpack_from
    while position <= last:
        base_offset, batch_length, _, magic = read_start(data, position)
        if magic != MAGIC or batch_length < HEADER_BYTES - PREFIX_BYTES:
            _refuse(base_offset, _reason_against(data, position))
        if end_offset is not None and base_offset >= end_offset:
            is_past_end = True
            break
        after = position + PREFIX_BYTES + batch_length
        if after > len(data):
            break
        positions.append(position)
        position = after
    else:
        if position + MAGIC_POSITION < len(data) and data[position + MAGIC_POSITION] != MAGIC:
            # More bytes would not help: the batch has an old or unknown format.
            base_offset = int.from_bytes(data[position : position + 8], "big", signed=True)
            _refuse(base_offset, _reason_against(data, position))
    at = np.array(positions, np.int64)
    raw = np.frombuffer(data, np.uint8)
    headers = raw[at[:, None] + np.arange(HEADER_BYTES)].view(_HEADER_TYPE)[:, 0]
    base_offsets = headers["base_offset"].astype(np.int64)
    next_offsets = base_offsets + headers["last_offset_delta"] + 1
    wrong = (base_offsets < 0) | (next_offsets <= base_offsets) | (headers["record_count"] < 0)
    wrong[1:] |= base_offsets[1:] < next_offsets[:-1]
    if wrong.any():
        index = int(wrong.argmax())
        batch = read_batch(data, positions[index])
        before = int(next_offsets[index - 1]) if index else 0
        _refuse(
            batch.base_offset,
            RecordError(
                f"{batch.record_count} records, a last offset delta of {batch.last_offset_delta}, "
                f"where offset {before} is due at least"
            ),
        )
    return _Batches(at, headers, base_offsets, next_offsets), is_past_end


def _reason_against(data: bytes, position: int) -> RecordError:
    try:
        read_batch(data, position)
    except RecordError as error:
        return error
    # Unreachable: the caller has already found that the header cannot be read.
    return RecordError("the header is damaged")  # pragma: no cover


def _refuse(base_offset: int, reason: RecordError) -> NoReturn:
    text = f"the batch at offset {base_offset}: {reason}"
    raise BatchError(text, reason.code, base_offset) from reason


def _unpack_batches(
    data: bytes,
    batches: _Batches,
    has_data: Flags,
    limits: DecompressionLimits,
    max_bytes: int,
    *,
    check_crcs: bool,
) -> tuple[_Payloads, int]:
    """Decompress batches with data up to `max_bytes`; return how many were decompressed.

    Always decompresses the first batch with data, whatever its size. Checks the CRC of each
    decompressed batch.
    """
    view = memoryview(data)
    starts: list[int] = []
    ends: list[int] = []
    parts: list[Any] = []
    codecs = batches.headers["attributes"] & COMPRESSION_MASK
    is_plain = not (codecs[has_data] != 0).any()
    counts = batches.headers["record_count"].tolist()
    lengths = batches.headers["batch_length"].tolist()
    crcs = batches.headers["crc"].tolist()
    work_bytes = end = taken = 0
    for position, length, crc, count, is_wanted in zip(
        batches.positions.tolist(), lengths, crcs, counts, has_data.tolist(), strict=True
    ):
        if is_wanted and work_bytes > max_bytes:
            break
        after = position + PREFIX_BYTES + length
        if check_crcs and crc32c(view[position + CRC_START : after], 0, KEEP_GIL) != crc:
            _refuse(
                int(batches.base_offsets[taken]), RecordError("the CRC does not match its bytes")
            )
        if is_wanted:
            if is_plain:
                start = position + HEADER_BYTES
                end = after
            else:
                batch = read_batch(data, position)
                try:
                    part = decompress(batch.compression, batch.records, limits)
                except RecordError as error:
                    _refuse(batch.base_offset, error)
                parts.append(part)
                start = end
                end = start + len(part)
            if count * _LEAST_RECORD_BYTES > end - start:
                _refuse_records(data, position, limits)
            starts.append(start)
            ends.append(end)
            work_bytes += end - start + count * _RECORD_WORK_BYTES
        taken += 1
    return _Payloads(data if is_plain else b"".join(parts), starts, ends), taken


def _refuse_records(data: bytes, position: int, limits: DecompressionLimits) -> NoReturn:
    """Raise the error of the gateway's own reader for the records of a batch."""
    batch = read_batch(data, position)
    try:
        payload = unpack(batch, limits)
        for one in walk(payload, batch):
            read_headers(payload, one)
    except RecordError as error:
        _refuse(batch.base_offset, error)
    _refuse(batch.base_offset, RecordError("its records cannot be read", ErrorCode.INVALID_RECORD))


def _joined(firsts: Int64s, ends: Int64s) -> list[tuple[int, int]]:
    """Return ranges as pairs, in order, with adjacent ranges joined."""
    if not len(firsts):
        return []
    is_apart = firsts[1:] > ends[:-1]
    first_ones, last_ones = np.append(True, is_apart), np.append(is_apart, True)
    return list(zip(firsts[first_ones].tolist(), ends[last_ones].tolist(), strict=True))


def _gaps(
    firsts: Int64s, ends: Int64s, first_offset: int, next_offset: int
) -> list[tuple[int, int]]:
    """Return the gaps between ranges, from `first_offset` up to `next_offset`."""
    firsts, ends = np.append(firsts, next_offset), np.append(first_offset, ends)
    at = np.flatnonzero(firsts > ends)
    return list(zip(ends[at].tolist(), firsts[at].tolist(), strict=True))


class _Fields(NamedTuple):
    """The numbers in each record, and the positions of its fields in the payload bytes."""

    batches: Int64s
    """The index of the batch that each record is in."""
    offsets: Int64s
    timestamp_deltas_ms: Int64s
    key_starts: Int64s
    key_lengths: Int64s
    """The length of each key; -1 for null."""
    value_starts: Int64s
    value_lengths: Int64s
    """The length of each value; -1 for null."""
    header_starts: Int64s
    """The position of each record's header count."""
    ends: Int64s

    def between(self, first_offset: int, end_offset: int | None) -> _Fields:
        start = int(np.searchsorted(self.offsets, first_offset))
        end = len(self.offsets)
        if end_offset is not None:
            end = int(np.searchsorted(self.offsets, end_offset))
        if start == 0 and end == len(self.offsets):
            return self
        return _Fields(*(field[start:end] for field in self))


def _read_fields(
    data: bytes, batches: _Batches, payloads: _Payloads, limits: DecompressionLimits
) -> _Fields:
    """Read the numbers in all records.

    Raises BatchError for the same records as the gateway's reader.
    """
    headers = batches.headers
    counts = headers["record_count"].astype(np.int64)
    ends = _record_ends(data, batches, payloads, counts.tolist(), limits)
    firsts = np.cumsum(counts) - counts
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    starts[firsts] = payloads.starts
    of_batch = np.repeat(np.arange(len(counts)), counts)

    bytes_ = np.frombuffer(payloads.data, np.uint8)
    wrong = np.zeros(len(ends), np.bool_)
    lengths, position = read_varints(bytes_, starts, wrong)
    wrong |= position + lengths != ends
    # Skip the record's attributes byte, which has no meaning.
    timestamp_deltas_ms, position = read_varints(bytes_, position + 1, wrong, 64)
    offset_deltas, position = read_varints(bytes_, position, wrong)
    key_lengths, key_starts = read_varints(bytes_, position, wrong)
    position = key_starts + np.maximum(key_lengths, 0)
    value_lengths, value_starts = read_varints(bytes_, position, wrong)
    header_starts = value_starts + np.maximum(value_lengths, 0)
    previous_deltas = np.empty_like(offset_deltas)
    previous_deltas[1:] = offset_deltas[:-1]
    previous_deltas[firsts] = -1
    wrong |= (
        (header_starts >= ends)
        | (key_lengths < -1)
        | (value_lengths < -1)
        | (offset_deltas <= previous_deltas)
        | (offset_deltas > headers["last_offset_delta"].astype(np.int64)[of_batch])
    )
    if wrong.any():
        _refuse_records(data, int(batches.positions[of_batch[wrong.argmax()]]), limits)
    return _Fields(
        of_batch,
        batches.base_offsets[of_batch] + offset_deltas,
        timestamp_deltas_ms,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        header_starts,
        ends,
    )


def _record_ends(
    data: bytes,
    batches: _Batches,
    payloads: _Payloads,
    counts: list[int],
    limits: DecompressionLimits,
) -> Int64s:
    """Return the end position of each record.

    Raises BatchError unless the last record ends with its batch.
    """
    payload = payloads.data
    ends: list[int] = []
    note = ends.append
    for index, (start, end, count) in enumerate(
        zip(payloads.starts, payloads.ends, counts, strict=True)
    ):
        position = start
        try:
            for _ in range(count):
                length = payload[position]
                if length < 0x80:
                    # A zigzag-encoded positive number is twice its value. Negative lengths are
                    # detected later.
                    position += 1 + (length >> 1)
                elif (byte := payload[position + 1]) < 0x80:
                    position += 2 + (byte << 6 | (length & 0x7F) >> 1)
                else:
                    length, position = read_varint(payload, position)
                    position += abs(length)
                note(position)
        except (IndexError, RecordError):
            position = -1
        if position != end:
            _refuse_records(data, int(batches.positions[index]), limits)
    return np.array(ends, np.int64)


def _columns(
    data: bytes,
    batches: _Batches,
    payloads: _Payloads,
    fields: _Fields,
    columns: frozenset[str],
    limits: DecompressionLimits,
) -> tuple[pa.RecordBatch, int]:
    """Return the columns, and how many header keys were not valid UTF-8."""
    made: dict[str, pa.Array] = {}
    altered_keys = 0
    headers = batches.headers
    of_batch = fields.batches
    appended = (headers["attributes"] & LOG_APPEND_TIME_FLAG) != 0
    if "offset" in columns:
        made["offset"] = pa.array(fields.offsets)
    if "timestamp_ms" in columns:
        # Sums wrap on overflow, as in every client.
        times_ms = headers["base_timestamp_ms"].astype(np.int64)[of_batch]
        times_ms += fields.timestamp_deltas_ms
        if appended.any():
            append_times_ms = headers["max_timestamp_ms"].astype(np.int64)[of_batch]
            times_ms = np.where(appended[of_batch], append_times_ms, times_ms)
        made["timestamp_ms"] = pa.array(times_ms)
    if "timestamp_type" in columns:
        made["timestamp_type"] = pa.array(appended.astype(np.int32)[of_batch])
    if "leader_epoch" in columns:
        made["leader_epoch"] = pa.array(headers["leader_epoch"].astype(np.int32)[of_batch])
    if "key" in columns:
        made["key"] = _take(payloads.data, fields.key_starts, fields.key_lengths)
    if "value" in columns:
        made["value"] = _take(payloads.data, fields.value_starts, fields.value_lengths)
    if "headers" in columns:
        column, wrong, altered_keys = _headers(payloads.data, fields)
        if wrong.any():
            _refuse_records(data, int(batches.positions[of_batch[wrong.argmax()]]), limits)
        made["headers"] = column
    schema = pa.schema([field for field in SCHEMA if field.name in columns])
    batch = pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)
    return batch, altered_keys


def _take(data: bytes, starts: Int64s, lengths: Int64s) -> pa.Array:
    """Copy byte strings from ascending `starts` into a column; a length of -1 is a null.

    Makes an array over all of `data` without a copy, whose elements are alternately a wanted string
    and the bytes up to the next one, and takes every other element.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + np.maximum(lengths, 0)
    spans = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    nulls = lengths < 0
    every_other = np.arange(0, 2 * count, 2, dtype=np.int32)
    return spans.take(pa.array(every_other, mask=nulls if nulls.any() else None))


def _headers(data: bytes, fields: _Fields) -> tuple[pa.Array, Flags, int]:
    """Return the column of headers, which records have bad headers, and the altered key count."""
    bytes_ = np.frombuffer(data, np.uint8)
    wrong = np.zeros(len(fields.ends), np.bool_)
    counts, position = read_varints(bytes_, fields.header_starts, wrong)
    wrong |= (counts < 0) | (counts > MAX_HEADERS) | ((counts == 0) & (position != fields.ends))
    wrong |= counts * 2 > fields.ends - position
    if wrong.any():
        return None, wrong, 0
    lists = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=lists[1:])
    total = int(lists[-1])
    key_starts, key_lengths, value_starts, value_lengths = np.zeros((4, total), np.int64)
    rows = np.flatnonzero(counts)
    position = position[rows]
    index = 0
    # Each round reads one header of every record that has one left.
    while rows.size:
        wrong_here = np.zeros(len(rows), np.bool_)
        at = lists[rows] + index
        key_lengths[at], key_start = read_varints(bytes_, position, wrong_here)
        key_starts[at] = key_start
        position = key_start + np.maximum(key_lengths[at], 0)
        value_lengths[at], value_start = read_varints(bytes_, position, wrong_here)
        value_starts[at] = value_start
        position = value_start + np.maximum(value_lengths[at], 0)
        index += 1
        is_last = counts[rows] == index
        wrong_here |= (key_lengths[at] < 0) | (value_lengths[at] < -1)
        wrong_here |= (position > fields.ends[rows]) | (is_last & (position != fields.ends[rows]))
        if wrong_here.any():
            wrong[rows[wrong_here]] = True
            return None, wrong, 0
        rows, position = rows[~is_last], position[~is_last]
    keys, altered_keys = _text(_take(data, key_starts, key_lengths))
    structs = pa.StructArray.from_arrays(
        [
            keys,
            _take(data, value_starts, value_lengths),
        ],
        fields=list(HEADERS_TYPE.value_type),
    )
    has_none = counts == 0
    mask = pa.array(has_none) if has_none.any() else None
    offsets = pa.array(lists)
    column = pa.ListArray.from_arrays(offsets, structs, type=HEADERS_TYPE, mask=mask)
    return column, wrong, altered_keys


def _text(column: pa.Array) -> tuple[pa.Array, int]:
    """Return bytes as strings, and how many of them were altered."""
    try:
        return column.cast(pa.string()), 0
    except pa.ArrowInvalid:
        stored = column.to_pylist()
        texts = [key.decode("utf-8", "replace") for key in stored]
        altered = sum(text.encode() != key for text, key in zip(texts, stored, strict=True))
        return pa.array(texts, pa.string()), altered
