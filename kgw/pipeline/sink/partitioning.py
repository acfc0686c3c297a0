"""Chooses the partitions of a whole column of rows at once. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kgw.client.partitioner import murmur2

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Uint32s = NDArray[np.uint32]
    Int64s = NDArray[np.int64]

_SEED: Final = np.uint32(0x9747B28C)
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_LONGEST_TOGETHER: Final = 256
"""Longer keys are hashed one by one: the loop over the words of all keys is as long as the longest
key."""


def murmur2_each(keys: pa.Array) -> Uint32s:
    """Return `kgw.client.partitioner.murmur2` of each key; an arbitrary value for null."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    is_long = lengths > _LONGEST_TOGETHER
    mixed = _SEED ^ lengths.astype(np.uint32)
    words = np.where(is_long, 0, lengths >> 2)
    for index in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > index)
        word = _little_endian(data, starts[rows] + 4 * index, 4) * _MULTIPLIER
        word ^= word >> np.uint32(24)
        mixed[rows] = (mixed[rows] * _MULTIPLIER) ^ (word * _MULTIPLIER)
    for size in (1, 2, 3):
        rows = np.flatnonzero(((lengths & 3) == size) & ~is_long)
        rest = _little_endian(data, starts[rows] + 4 * words[rows], size)
        mixed[rows] = (mixed[rows] ^ rest) * _MULTIPLIER
    mixed ^= mixed >> np.uint32(13)
    mixed *= _MULTIPLIER
    mixed ^= mixed >> np.uint32(15)
    for row in np.flatnonzero(is_long).tolist():
        mixed[row] = murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return mixed


def choose_partitions(
    row_count: int,
    keys: pa.Array | None,
    asked: pa.Array | None,
    *,
    partition_count: int,
    without_key: int,
) -> Int64s:
    """Return each row's partition: the asked one, else by its key, else `without_key`.

    `asked` is an int32 array with nulls, `keys` a binary array. Asked partitions may be higher than
    the number of partitions.
    """
    chosen = np.full(row_count, without_key, np.int64)
    if keys is not None and keys.null_count < row_count:
        hashed = (murmur2_each(keys) & np.uint32(0x7FFF_FFFF)) % np.uint32(partition_count)
        chosen = np.where(_is_given(keys), hashed, chosen)
    if asked is not None and asked.null_count < row_count:
        chosen = np.where(_is_given(asked), asked.fill_null(0).to_numpy(), chosen)
    return chosen


def _is_given(column: pa.Array) -> NDArray[Any]:
    return column.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _little_endian(data: NDArray[np.uint8], positions: Int64s, size: int) -> Uint32s:
    word = np.zeros(len(positions), np.uint32)
    for byte in range(size):
        word |= data[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
