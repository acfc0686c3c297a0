"""Campaign P5's batches: every single-bit flip, and headers that lie under a CRC that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import KafkaError
from kgw.records.batch import CRC_START, HEADER, Compression, read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.crc import crc32c
from kgw.records.reader import read_records, unpack
from kgw.records.unfit import find_unfit
from tests.records.lies import LIES
from tests.records.lies import batch as lying_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from kgw.types import Buffer

SIZE_BYTES = 1024
RECORDS = 3
PRODUCER_ID = 4_000
_CRC_AT = slice(17, 21)
_FIELDS = (
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp_ms",
    "max_timestamp_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


class BadBatch(NamedTuple):
    """A batch that nobody should have to read."""

    kind: str
    content: bytearray


def good_batch(
    random: Random, now_ms: int, compression: Compression, base_sequence: int = -1
) -> bytearray:
    """Return a batch of 1 KB that tells the truth, of an idempotent producer with a sequence."""
    builder = BatchBuilder(
        compression=compression,
        producer_id=-1 if base_sequence < 0 else PRODUCER_ID,
        producer_epoch=-1 if base_sequence < 0 else 0,
        base_sequence=base_sequence,
    )
    # Bytes that no codec makes smaller: the flips reach every part of a payload.
    for index in range(RECORDS):
        builder.add(
            key=b"key%d" % index,
            value=random.randbytes(305 if index else 310),
            timestamp_ms=now_ms + index,
            headers=[("h", b"%d" % index)] if index == 1 else [],
        )
    return builder.build()


def flips(content: bytearray) -> Iterator[BadBatch]:
    """Yield the batch with each of its bits flipped, but for the leader epoch's.

    The server writes that itself, whatever a client sends there.
    """
    for bit in range(len(content) * 8):
        if 12 <= bit // 8 < 16:
            continue
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        yield BadBatch("a flipped bit", flipped)


def with_a_fitting_crc(bad: BadBatch) -> BadBatch:
    """Return the same batch, damaged before its CRC was made."""
    content = bad.content
    content[_CRC_AT] = crc32c(memoryview(content)[CRC_START:]).to_bytes(4, "big")
    return bad


def header_lie(
    number: int, random: Random, now_ms: int, compression: Compression, next_sequence: int
) -> BadBatch:
    """Return a batch that says one thing that is not so; the kinds of lie take turns."""
    kind = KINDS[number % len(KINDS)]
    if kind == "records":
        name = list(LIES)[number // len(KINDS) % len(LIES)]
        return BadBatch(kind, lying_batch(*LIES[name](), compression))
    content = good_batch(random, now_ms, compression, next_sequence)
    fields = dict(zip(_FIELDS, HEADER.unpack_from(content), strict=True))
    fields.update(_lie(kind, fields, random, now_ms))
    HEADER.pack_into(content, 0, *fields.values())
    return with_a_fitting_crc(BadBatch(kind, content))


KINDS = (
    "count",
    "count and last delta",
    "last delta",
    "sequence",
    "magic",
    "control bit",
    "transaction bit",
    "log append time bit",
    "unknown bits",
    "codec",
    "base timestamp",
    "max timestamp",
    "base offset",
    "length",
    "producer",
    "records",
)
PASS_BY_THE_HEADER = frozenset(
    {"count and last delta", "codec", "base timestamp", "max timestamp", "records"}
)
"""What nobody notices who reads the header alone: docs/decisions/0093-recompression.md."""


def _lie(kind: str, true: dict[str, int], random: Random, now_ms: int) -> dict[str, int]:
    """Return the fields of a header that lies."""
    off = random.choice((-2, -1, 1, 2, 5))
    attributes = true["attributes"]
    sequences = (true["base_sequence"] + random.randint(1, 1000), -1, -2, -(2**31))
    lies: dict[str, list[dict[str, int]]] = {
        "count": [{"record_count": one} for one in (RECORDS + off, 0, -1, 2**31 - 1)],
        "count and last delta": [
            {"record_count": one, "last_offset_delta": one - 1} for one in (1, 2, 4, 5, 100)
        ],
        "last delta": [{"last_offset_delta": one} for one in (RECORDS - 1 + off, -1, 2**31 - 1)],
        # Not one that has been: the window would answer where that is.
        "sequence": [{"base_sequence": one} for one in sequences],
        "magic": [{"magic": one} for one in (0, 1, 3, 4, 127, -1, -128)],
        "control bit": [{"attributes": attributes | 1 << 5}],
        "transaction bit": [{"attributes": attributes | 1 << 4}],
        "log append time bit": [{"attributes": attributes | 1 << 3}],
        "unknown bits": [{"attributes": attributes | 1 << bit} for bit in range(6, 15)],
        "codec": [
            {"attributes": attributes & ~7 | one} for one in range(8) if one != attributes & 7
        ],
        "base timestamp": [
            {"base_timestamp_ms": now_ms + one} for one in (-1_000, -1, 1, 2, 10**9, -(10**9))
        ],
        "max timestamp": [
            {"max_timestamp_ms": now_ms + one} for one in (-1_000, -1, 0, 1, 5, 10**9, 10**14)
        ],
        "base offset": [{"base_offset": one} for one in (1, -1, 2**40, -(2**63))],
        "length": [
            {"batch_length": true["batch_length"] + one} for one in (-1, 1, -900, 900, -2000)
        ],
        "producer": [
            {"producer_id": -2},
            {"producer_id": -(2**63)},
            {"producer_epoch": -1},
            {"producer_epoch": -(2**15)},
        ],
    }
    return random.choice(lies[kind])


def values_of(content: Buffer) -> list[bytes]:
    """Return what identifies the records of a good batch."""
    return [one.value or b"" for one in read_records(read_batch(content))]


def is_readable(content: Buffer) -> bool:
    """Whether a batch can be read to its end, and is what its header says."""
    batch = read_batch(content)
    try:
        find_unfit(
            batch,
            unpack(batch),
            needs_keys=False,
            time_range=None,
            holds_max_timestamp=True,
        )
    except KafkaError:
        return False
    return True
