"""Chooses the partition of a record with a key, as Kafka's Java client does."""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of the data with Kafka's seed, as an unsigned number.

    The function is Austin Appleby's, in the public domain; seed and use are those of Kafka's
    default partitioner, so that clients of all languages agree.
    """
    length = len(data)
    mixed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = (word * _MULTIPLIER) & _MASK
        word ^= word >> 24
        word = (word * _MULTIPLIER) & _MASK
        mixed = ((mixed * _MULTIPLIER) & _MASK) ^ word
    if whole < length:
        mixed ^= int.from_bytes(data[whole:], "little")
        mixed = (mixed * _MULTIPLIER) & _MASK
    mixed ^= mixed >> 13
    mixed = (mixed * _MULTIPLIER) & _MASK
    return mixed ^ (mixed >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key. As with every client, it changes when partitions are added."""
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count
