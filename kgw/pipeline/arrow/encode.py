"""Encodes Arrow columns as record batches.

numpy encodes the numbers of all rows at once, and Arrow joins them with keys, values and headers.
The joined buffer has the payloads of all batches, one after the other.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kgw.errors import ErrorCode
from kgw.pipeline.arrow.columns import HEADERS_TYPE
from kgw.pipeline.arrow.varints import MAX_VARINT_BYTES, varint_sizes, write_varints
from kgw.records.batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MODULUS,
    TRANSACTIONAL_FLAG,
    Compression,
)
from kgw.records.builder import encode_batch
from kgw.records.compaction import make_filler
from kgw.records.compression import compress
from kgw.records.errors import RecordError
from kgw.types import NO_LEADER_EPOCH, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.pipeline.arrow.varints import Int64s

_JOINED_BYTES: Final = 256 << 20
"""About how many bytes are joined in one call: Arrow's binary columns have signed 32-bit
offsets."""
_INT32_OFFSETS: Final = 1 << 31
"""The most offsets that one batch can span."""
_FAR: Final = 1 << 30
"""The widest allowed gap before a batch's first record, and the most offsets from its first record
to its last."""
_COLUMNS: Final = frozenset({"key", "value", "headers", "timestamp_ms"})


class EncodedBatch(NamedTuple):
    """One record batch with base offset 0, as a producer sends it."""

    data: bytearray
    record_count: int


class _Rows(NamedTuple):
    """The rows to encode; `header_offsets` has one more element than there are rows."""

    keys: pa.Array
    values: pa.Array
    header_counts: Int64s
    headers: pa.Array
    """The headers of all rows, each as the bytes of its key and value with their lengths."""
    header_offsets: Int64s
    timestamps_ms: Int64s
    offsets: Int64s


def encode_batches(
    batch: pa.RecordBatch,
    *,
    compression: Compression = Compression.NONE,
    max_batch_bytes: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> list[EncodedBatch]:
    """Return the rows as record batches, in order; an empty list for no rows.

    Columns are key, value, headers and timestamp_ms (int64). A missing column is null for every
    row; a null timestamp is written as -1. The uncompressed batch has at most `max_batch_bytes`,
    unless it has a single record. Sequence numbers continue from batch to batch.

    Raises RecordError for a header without a key; ValueError for an unknown column, or if both key
    and value are missing.
    """
    names = set(batch.schema.names)
    if not names <= _COLUMNS or not names & {"key", "value"}:
        raise ValueError(f"columns {batch.schema.names}: key, value, headers and timestamp_ms only")
    if not batch.num_rows:
        return []
    rows = _rows(batch, np.arange(batch.num_rows))
    sequence = base_sequence
    encoded: list[EncodedBatch] = []
    for payload, timestamps_ms, _ in _payloads(rows, 0, max_batch_bytes):
        count = len(timestamps_ms)
        data = encode_batch(
            compress(compression, payload),
            base_offset=0,
            leader_epoch=NO_LEADER_EPOCH,
            attributes=compression | (TRANSACTIONAL_FLAG if is_transactional else 0),
            last_offset_delta=count - 1,
            base_timestamp_ms=int(timestamps_ms[0]),
            max_timestamp_ms=max(NO_TIMESTAMP_MS, int(timestamps_ms.max())),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            record_count=count,
        )
        encoded.append(EncodedBatch(data, count))
        if sequence != NO_SEQUENCE:
            sequence = (sequence + count) % SEQUENCE_MODULUS
    return encoded


def encode_at_offsets(
    batch: pa.RecordBatch,
    base_offset: int,
    end_offset: int,
    *,
    compression: Compression = Compression.NONE,
    max_batch_bytes: int,
) -> list[EncodedBatch]:
    """Return the rows as record batches that keep their offsets and cover the whole range.

    The batch has a column `offset` (int64) besides those of `encode_batches`. Offsets without a row
    belong to the batch of the next row; after the last row, to the last batch. If such a gap is too
    wide, or if there are no rows, empty batches cover it. Raises as `encode_batches`, and
    ValueError unless the offsets ascend from `base_offset` and are below `end_offset`.
    """
    offsets = batch.column("offset").to_numpy()
    if len(offsets) and not (
        base_offset <= offsets[0] and offsets[-1] < end_offset and (np.diff(offsets) > 0).all()
    ):
        raise ValueError(f"offsets do not rise from {base_offset} to {end_offset - 1}")
    if not len(offsets):
        return list(_fillers(base_offset, end_offset))
    rows = _rows(batch, offsets)
    encoded: list[EncodedBatch] = []
    end = base_offset
    for payload, timestamps_ms, (first, last) in _payloads(rows, base_offset, max_batch_bytes):
        encoded += _fillers(end, first)
        end = last + 1
        if last == offsets[-1] and end_offset - first <= _INT32_OFFSETS:
            end = end_offset
        data = encode_batch(
            compress(compression, payload),
            base_offset=first,
            leader_epoch=NO_LEADER_EPOCH,
            attributes=compression,
            last_offset_delta=end - first - 1,
            base_timestamp_ms=int(timestamps_ms[0]),
            max_timestamp_ms=max(NO_TIMESTAMP_MS, int(timestamps_ms.max())),
            record_count=len(timestamps_ms),
        )
        encoded.append(EncodedBatch(data, len(timestamps_ms)))
    encoded += _fillers(end, end_offset)
    return encoded


def _fillers(start: int, end: int) -> Iterator[EncodedBatch]:
    """Yield empty batches that cover a range."""
    while start < end:
        next_start = min(end, start + _INT32_OFFSETS - 1)
        filler = make_filler(start, next_start, NO_LEADER_EPOCH)
        yield EncodedBatch(bytearray(filler.buffer), 0)
        start = next_start


def _rows(batch: pa.RecordBatch, offsets_of_rows: Int64s) -> _Rows:
    count = batch.num_rows

    def column(name: str, of_type: pa.DataType) -> pa.Array:
        if name not in batch.schema.names:
            return pa.nulls(count, of_type)
        found = batch.column(name)
        return found if found.type == of_type else found.cast(of_type)

    timestamps_ms = column("timestamp_ms", pa.int64()).fill_null(NO_TIMESTAMP_MS).to_numpy()
    lists = column("headers", HEADERS_TYPE)
    counts = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    headers = pa.array([], pa.binary())
    if offsets[-1]:
        structs = lists.flatten()
        keys = pc.struct_field(structs, "key").cast(pa.binary())
        if keys.null_count:
            raise RecordError("a header has no key", ErrorCode.INVALID_RECORD)
        values = pc.struct_field(structs, "value")
        headers = _join(_framed(_lengths(keys)), keys, _framed(_lengths(values)), values)
    ends = np.append(0, np.cumsum(_lengths(headers)))
    return _Rows(
        column("key", pa.binary()),
        column("value", pa.binary()),
        counts,
        headers,
        ends[offsets],
        timestamps_ms,
        offsets_of_rows,
    )


def _sizes(rows: _Rows, base_offset: int) -> Int64s:
    """Return the largest size that each record can have, for any base offset and base timestamp."""
    times_ms = rows.timestamps_ms
    # The largest timestamp delta in any batch; deltas may wrap.
    span_ms = int(times_ms.max()) - int(times_ms.min())
    delta_bytes = min(MAX_VARINT_BYTES, (span_ms.bit_length() + 1 + 6) // 7)
    span = min(int(rows.offsets[-1]) - base_offset + 1, _INT32_OFFSETS)
    offset_bytes = (span.bit_length() + 1 + 6) // 7
    sizes = np.diff(rows.header_offsets) + varint_sizes(rows.header_counts)
    for column in (rows.keys, rows.values):
        lengths = _lengths(column)
        sizes += np.maximum(lengths, 0) + varint_sizes(lengths)
    sizes += 1 + delta_bytes + offset_bytes
    return sizes + varint_sizes(sizes)


def _cuts(sizes: Int64s, offsets: Int64s, max_payload_bytes: int) -> list[int]:
    """Return the index of each batch's first row, and finally the number of rows."""
    ends = np.cumsum(sizes)
    cuts = [0]
    while cuts[-1] < len(sizes):
        first = cuts[-1]
        before = int(ends[first - 1]) if first else 0
        fit = int(np.searchsorted(ends, before + max_payload_bytes, "right"))
        near = int(np.searchsorted(offsets, offsets[first] + _FAR))
        cuts.append(max(min(fit, near), first + 1))
    return cuts


def _groups(cuts: list[int], sizes: Int64s) -> Iterator[list[int]]:
    """Yield groups of adjacent cuts; the rows of a group are joined in one call."""
    ends = np.append(0, np.cumsum(sizes))
    group = [0]
    for cut in cuts[1:]:
        if len(group) > 1 and ends[cut] - ends[group[0]] > _JOINED_BYTES:
            yield group
            group = [group[-1]]
        group.append(cut)
    yield group


def _payloads(
    rows: _Rows, base_offset: int, max_batch_bytes: int
) -> Iterator[tuple[memoryview, Int64s, tuple[int, int]]]:
    """Yield each batch's payload, its timestamps, and its base and last offset.

    A batch begins where the one before ends, or at its first record if the gap is too wide.
    """
    sizes = _sizes(rows, base_offset)
    cuts = _cuts(sizes, rows.offsets, max_batch_bytes - HEADER_BYTES)
    firsts = rows.offsets[cuts[:-1]]
    bases = np.append(base_offset, rows.offsets[np.array(cuts[1:-1], np.int64) - 1] + 1)
    bases = np.where(firsts - bases > _FAR, firsts, bases)
    number = 0
    for group in _groups(cuts, sizes):
        group_bases = bases[number : number + len(group) - 1]
        for payload, timestamps_ms in _joined(rows, group, group_bases):
            last = int(rows.offsets[cuts[number + 1] - 1])
            yield payload, timestamps_ms, (int(bases[number]), last)
            number += 1


def _joined(rows: _Rows, cuts: list[int], bases: Int64s) -> Iterator[tuple[memoryview, Int64s]]:
    """Yield each batch's payload and timestamps; the rows of all batches are joined in one call."""
    start, end = cuts[0], cuts[-1]
    lengths = np.diff(cuts)
    batch_starts = np.repeat(cuts[:-1], lengths)
    times_ms = rows.timestamps_ms[start:end]
    deltas_ms = times_ms - rows.timestamps_ms[batch_starts]
    offset_deltas = rows.offsets[start:end] - np.repeat(bases, lengths)
    keys = rows.keys.slice(start, end - start)
    values = rows.values.slice(start, end - start)
    key_lengths, value_lengths = _lengths(keys), _lengths(values)
    header_counts = rows.header_counts[start:end]
    header_edges = rows.header_offsets[start : end + 1]
    framing_bytes = 1 + varint_sizes(deltas_ms) + varint_sizes(offset_deltas)
    record_lengths = (
        framing_bytes
        + (varint_sizes(key_lengths) + np.maximum(key_lengths, 0))
        + (varint_sizes(value_lengths) + np.maximum(value_lengths, 0))
        + (varint_sizes(header_counts) + np.diff(header_edges))
    )
    attributes = np.zeros_like(record_lengths)
    parts = [
        _framed(record_lengths, attributes, deltas_ms, offset_deltas, key_lengths),
        keys,
        _framed(value_lengths),
        values,
        _framed(header_counts) if header_counts.any() else b"\x00",
    ]
    if header_counts.any():
        parts.append(_binary(header_edges, rows.headers.buffers()[2]))
    joined = _join(*parts)
    edges = np.frombuffer(joined.buffers()[1], np.int32)[: end - start + 1]
    payload = memoryview(joined.buffers()[2])
    for first, last in pairwise(cuts):
        yield (
            payload[edges[first - start] : edges[last - start]],
            times_ms[first - start : last - start],
        )


def _join(*parts: Any) -> pa.Array:
    """Concatenate the columns of each row as bytes; null counts as empty."""
    return pc.binary_join_element_wise(
        *(pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts),
        b"",
        null_handling="replace",
        null_replacement=b"",
    )


def _framed(*numbers: Int64s) -> pa.Array:
    """Encode each row's numbers as varints."""
    data, offsets = write_varints(numbers)
    return _binary(offsets, pa.py_buffer(data))


def _binary(offsets: Int64s, data: pa.Buffer) -> pa.Array:
    edges = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, edges, data])


def _lengths(column: pa.Array) -> Int64s:
    """Return the length of each element; -1 for null."""
    lengths: Int64s = pc.binary_length(column).fill_null(-1).to_numpy().astype(np.int64)
    return lengths
