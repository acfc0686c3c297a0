"""The rules of compaction, computed on Arrow columns. Pure.

A record is removed if a later record of its partition has the same key. A tombstone, a record with
a null value, is removed when it is older than the tombstone retention. A record without a key
stays.

Clean files have each key at most once. They are the files at the front of the partition, up to the
first one that is not of kind `compacted`. All files from there on are dirty. Only the keys of dirty
files are held in memory; the clean files are then searched for these keys.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kgw.pipeline.archive.columns import NS_PER_MS, SCHEMA, decode
from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import COMPACTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kgw.pipeline.archive.coverage import PartitionCoverage

# Keys are divided into parts by at most this many leading bits of their hash. Each part costs one
# pass over the keys.
_MAX_BITS: Final = 16
# Arrow addresses the bytes of a column of keys with 32-bit offsets.
_MAX_HELD_BYTES: Final = 1 << 30
# Memory of Arrow's grouping, as a multiple of its input: it took 415 MB for 115 MB of rows with 2.4
# M keys of 11 bytes.
_GROUPING_FACTOR: Final = 4
# Odd, so that it has an inverse modulo 2**64.
_BASE: Final = 0x9E3779B97F4A7C15
_INVERSE: Final = pow(_BASE, -1, 2**64)
_HASHED_BYTES: Final = 1 << 16
_MIX: Final = np.uint64(0xBF58476D1CE4E5B9)
_VALUE_INDEX: Final = SCHEMA.get_field_index("_value")
_TIME_INDEX: Final = SCHEMA.get_field_index("_ts_ns")


class Parts(NamedTuple):
    """The clean and the dirty files of a partition."""

    clean: tuple[DataFile, ...]
    dirty: tuple[DataFile, ...]

    @property
    def dirty_ratio(self) -> float:
        """The part of the bytes that is dirty, from 0 to 1."""
        dirty_bytes = sum(one.bytes for one in self.dirty)
        all_bytes = dirty_bytes + sum(one.bytes for one in self.clean)
        return dirty_bytes / all_bytes if all_bytes else 0.0


def parts_of(coverage: PartitionCoverage) -> Parts:
    """Return the clean and the dirty files of a partition."""
    files = [one for one in coverage.pieces if isinstance(one, DataFile)]
    count = next((at for at, one in enumerate(files) if one.kind != COMPACTED), len(files))
    return Parts(tuple(files[:count]), tuple(files[count:]))


class Superseded(NamedTuple):
    """The rows to remove from each file, because a later record has the same key."""

    clean: tuple[Any, ...]
    """A numpy array of booleans for each file."""
    dirty: tuple[Any, ...]
    without_key: int
    """The number of rows without a key, in the files that were read."""


def find_superseded(
    parts: Parts, read_keys: Callable[[DataFile], pa.ChunkedArray], *, key_memory_bytes: int
) -> Superseded:
    """Return the rows whose key a later record has.

    `read_keys` returns the column `_key` of a file. If the keys do not fit into the memory, they
    are divided into parts by their hash, and `read_keys` is called for each part again. It is not
    called if there are no dirty files. Raises ArchiveError if the memory is too small.
    """
    clean = tuple(np.zeros(one.rows, np.bool_) for one in parts.clean)
    ends = np.cumsum([one.rows for one in parts.dirty], dtype=np.int64)
    if not parts.dirty:
        return Superseded(clean, (), 0)
    without_key: dict[str, Any] = {}

    def read(piece: DataFile) -> pa.ChunkedArray:
        keys = read_keys(piece)
        without_key[piece.path] = keys.is_null().to_numpy() if keys.null_count else None
        return keys

    fallen = np.ones(ends[-1], np.bool_)
    shares = [_HashPrefix(0, 0)]
    while shares:
        share = shares.pop()
        newest = _newest(map(read, parts.dirty), share, key_memory_bytes)
        if newest is None:
            if share.bits == _MAX_BITS:
                raise ArchiveError(
                    f"partition {parts.dirty[0].partition}: {key_memory_bytes} bytes of memory are "
                    "too few for its keys"
                )
            shares += share.halves()
            continue
        fallen[newest.column("row").to_numpy()] = False
        keys = newest.column("key").combine_chunks()
        for rows, piece in zip(clean, parts.clean, strict=True):
            np.logical_or(rows, pc.is_in(read(piece), value_set=keys).to_numpy(), out=rows)
    dirty = tuple(np.split(fallen, ends[:-1]))
    for rows, piece in zip(dirty, parts.dirty, strict=True):
        if (none := without_key[piece.path]) is not None:
            rows[none] = False
    counts = (int(none.sum()) for none in without_key.values() if none is not None)
    return Superseded(clean, dirty, sum(counts))


def expired_tombstones(batch: pa.RecordBatch, before_ms: int) -> Any:
    """Return which records are tombstones older than `before_ms`; None if none is."""
    values = batch.column("_value")
    if not values.null_count:
        return None
    times_ms = decode(batch, frozenset({"timestamp_ms"})).column(0)
    is_tombstone = pc.and_(values.is_null(), batch.column("_key").is_valid())
    expired = pc.and_(is_tombstone, pc.less(times_ms, before_ms)).to_numpy(zero_copy_only=False)
    return expired if expired.any() else None


def may_hold_expired(metadata: Any, before_ms: int) -> bool:
    """Return whether a file may have tombstones older than `before_ms`, by its footer."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        values, times_ns = (group.column(at).statistics for at in (_VALUE_INDEX, _TIME_INDEX))
        may_have_tombstone = values is None or not values.has_null_count or values.null_count > 0
        # A time that does not fit nanoseconds is null in this column.
        may_be_early = (
            times_ns is None
            or not times_ns.has_min_max
            or times_ns.null_count != 0
            or times_ns.physical_type != "INT64"
            or times_ns.min // NS_PER_MS < before_ms
        )
        if may_have_tombstone and may_be_early:
            return True
    return False


def pack_rows(rows: Any) -> bytes | None:
    """Return booleans as a compressed bitmap; None if all are false."""
    return zlib.compress(np.packbits(rows).tobytes(), 1) if rows.any() else None


def unpack_rows(packed: bytes, count: int) -> Any:
    """Return the booleans of a bitmap from `pack_rows`."""
    return np.unpackbits(np.frombuffer(zlib.decompress(packed), np.uint8), count=count).astype(
        np.bool_
    )


class _HashPrefix(NamedTuple):
    """The keys whose hash begins with the given bits."""

    bits: int
    value: int

    def halves(self) -> list[_HashPrefix]:
        return [_HashPrefix(self.bits + 1, self.value * 2 + bit) for bit in (0, 1)]

    def has(self, keys: pa.Array) -> pa.Array:
        """Return for each key whether its hash has this prefix; false for null."""
        if not self.bits:
            return keys.is_valid()
        begin = _hashes(keys) >> np.uint64(64 - self.bits)
        return pc.and_(pa.array(begin == self.value), keys.is_valid())


def _newest(
    columns: Iterable[pa.ChunkedArray], share: _HashPrefix, key_memory_bytes: int
) -> pa.Table | None:
    """Return the last row of each key; None if they do not fit into the memory."""
    held_bytes = min(_MAX_HELD_BYTES, key_memory_bytes // _GROUPING_FACTOR)
    held: list[pa.Table] = []
    size_bytes = first = 0
    for column in columns:
        for keys in column.chunks:
            rows = pa.array(np.arange(first, first + len(keys)))
            first += len(keys)
            table = pa.table({"key": keys, "row": rows})
            if share.bits or keys.null_count:
                table = table.filter(share.has(keys))
            held.append(table)
            size_bytes += table.nbytes
            if size_bytes > held_bytes:
                held = [_group(held)]
                size_bytes = held[0].nbytes
                if size_bytes * 2 > held_bytes:
                    return None
    return _group(held)


def _group(tables: Sequence[pa.Table]) -> pa.Table:
    grouped = (
        pa.concat_tables(tables)
        # One thread, because a Spark task has one processor.
        .group_by("key", use_threads=False)
        .aggregate([("row", "max")])
    )
    return grouped.select(["key", "row_max"]).rename_columns(["key", "row"])


def _hashes(keys: pa.Array) -> Any:
    """Return a 64-bit hash of each key: a polynomial of its bytes.

    The hash is the difference of two prefix sums, and the sums are computed for many keys at once.
    """
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    octets = np.frombuffer(data or b"", np.uint8)
    hashes = np.empty(len(keys), np.uint64)
    # Chunks of this size fit into the processor's cache.
    cuts = bounds.searchsorted(np.arange(bounds[0], bounds[-1], _HASHED_BYTES))
    for low, high in pairwise(np.unique([0, *cuts, len(keys)])):
        first, end = bounds[low], bounds[high]
        starts, ends = bounds[low:high] - first, bounds[low + 1 : high + 1] - first
        sums = np.zeros(end - first + 1, np.uint64)
        # Add one to each byte, so that zero bytes change the hash.
        terms = (octets[first:end].astype(np.uint64) + np.uint64(1)) * _powers(_BASE, end - first)
        np.cumsum(terms, out=sums[1:])
        hashes[low:high] = (sums[ends] - sums[starts]) * _powers(_INVERSE, end - first + 1)[starts]
    return hashes * _MIX


def _powers(base: int, count: int) -> Any:
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers)
