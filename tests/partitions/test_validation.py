from __future__ import annotations

from struct import Struct

import pytest
from crc32c import crc32c

from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.append.validation import (
    BatchRules,
    RecordRules,
    read_produced_batch,
    record_rules,
    validate_batch,
)
from kgw.records.batch import HEADER_BYTES, Compression
from kgw.records.builder import BatchBuilder
from kgw.records.recompression import Recompression

NOW_MS = 1_700_000_000_000
FIELDS = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp_ms": (27, ">q"),
    "max_timestamp_ms": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def build(count: int = 3, compression: Compression = Compression.NONE) -> bytearray:
    """Return a batch as an idempotent producer sends it."""
    builder = BatchBuilder(
        compression=compression, producer_id=7, producer_epoch=0, base_sequence=0
    )
    for index in range(count):
        builder.add(key=b"key", value=b"v" * 20, timestamp_ms=NOW_MS + index)
    return builder.build()


def lie(raw: bytearray, **fields: int) -> bytearray:
    """Return the batch with other header fields and a CRC that fits them."""
    for name, value in fields.items():
        position, form = FIELDS[name]
        Struct(form).pack_into(raw, position, value)
    raw[17:21] = crc32c(raw[21:]).to_bytes(4, "big")
    return raw


def verdict(
    raw: bytes | bytearray | None,
    rules: BatchRules = BatchRules(),  # noqa: B008 - never changes
    *,
    zstd_allowed: bool = True,
) -> ErrorCode:
    """Return what a Produce request with these records is answered."""
    try:
        validate_batch(read_produced_batch(raw), rules, NOW_MS, zstd_allowed=zstd_allowed)
    except KafkaError as error:
        return error.code if error.message else ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("count", [1, 2, 100])
def test_what_producers_send_enters(compression: Compression, count: int) -> None:
    """Batches of every codec and size pass."""
    assert ErrorCode.NONE is verdict(build(count, compression))


def test_producers_without_an_id_and_records_without_a_time_enter() -> None:
    """Neither idempotence nor timestamps are required."""
    builder = BatchBuilder()
    builder.add(value=None)

    assert ErrorCode.NONE is verdict(builder.build())


def test_the_smallest_records_fit() -> None:
    """Seven bytes are a record, and as many as fit may be claimed."""
    builder = BatchBuilder()
    for _ in range(60):
        builder.add(timestamp_ms=NOW_MS)
    raw = builder.build()

    assert HEADER_BYTES + 60 * 7 == len(raw)
    assert ErrorCode.NONE is verdict(raw)


def test_the_largest_batch_enters_and_one_byte_more_does_not() -> None:
    """max.message.bytes is inclusive and counts the header."""
    raw = build()

    assert ErrorCode.NONE is verdict(raw, BatchRules(max_message_bytes=len(raw)))
    assert ErrorCode.MESSAGE_TOO_LARGE is verdict(raw, BatchRules(max_message_bytes=len(raw) - 1))


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 2},
        {"record_count": 4},
        {"last_offset_delta": 1},
        {"last_offset_delta": -1},
        {"last_offset_delta": 2**31 - 1},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": 5_000, "last_offset_delta": 4_999},
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"base_offset": 1},
        {"base_offset": -1},
        {"attributes": 1 << 5},
        {"attributes": 1 << 6},
        {"attributes": 1 << 7},
        {"attributes": 1 << 14},
        {"attributes": -(1 << 15)},
        {"producer_id": -2},
        {"producer_epoch": -1},
        {"base_sequence": -1},
        {"base_sequence": -2},
        {"producer_id": -1, "attributes": 1 << 4},
    ],
)
def test_header_lies_are_invalid(fields: dict[str, int]) -> None:
    """Counts, offsets, flags and producer fields that do not go together are refused."""
    assert ErrorCode.INVALID_RECORD is verdict(lie(build(), **fields))


GZIPPED = build(1, Compression.GZIP)
ENDLESS = {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}
OTHERS: dict[str, tuple[bytes | bytearray | None, ErrorCode]] = {
    "nothing": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "two batches": (build() + build(), ErrorCode.INVALID_RECORD),
    "bytes behind the batch": (build() + b"x", ErrorCode.INVALID_RECORD),
    "bytes that are shorter than a header": (b"rubbish", ErrorCode.INVALID_RECORD),
    "a batch without its last byte": (build()[:-1], ErrorCode.INVALID_RECORD),
    "bytes without a length": (b"?" * 11, ErrorCode.INVALID_RECORD),
    "a damaged payload": (build()[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    "a few bytes for all offsets": (lie(GZIPPED[:], **ENDLESS), ErrorCode.INVALID_RECORD),
    "no payload": (lie(GZIPPED[:HEADER_BYTES], batch_length=49), ErrorCode.INVALID_RECORD),
    "log append time": (lie(build(), attributes=1 << 3), ErrorCode.INVALID_TIMESTAMP),
    # Whether there is such a transaction is for others to say.
    "transactional": (lie(build(), attributes=1 << 4), ErrorCode.NONE),
} | {
    f"codec {one}": (lie(build(), attributes=one), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    for one in (5, 6, 7)
}


@pytest.mark.parametrize(("records", "expected"), OTHERS.values(), ids=OTHERS)
def test_what_else_may_come(records: bytes | bytearray | None, expected: ErrorCode) -> None:
    """Produce takes exactly one whole batch of format 2 for a partition, as Kafka does."""
    assert expected is verdict(records)


@pytest.mark.parametrize("flags", [0, 1 << 4])
def test_zstd_needs_its_version(flags: int) -> None:
    """Older Produce versions cannot carry zstd (KIP-110), with or without other flags."""
    raw = build(compression=Compression.ZSTD)

    refused = verdict(lie(raw, attributes=4 | flags), zstd_allowed=False)

    assert ErrorCode.UNSUPPORTED_COMPRESSION_TYPE is refused
    assert ErrorCode.NONE is verdict(build(compression=Compression.LZ4), zstd_allowed=False)


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (NOW_MS - 1_000, ErrorCode.NONE),
        (NOW_MS + 500, ErrorCode.NONE),
        (NOW_MS - 1_001, ErrorCode.INVALID_TIMESTAMP),
        (NOW_MS + 501, ErrorCode.INVALID_TIMESTAMP),
        (-1, ErrorCode.NONE),
        (-2, ErrorCode.INVALID_TIMESTAMP),
        (2**63 - 1, ErrorCode.INVALID_TIMESTAMP),
    ],
)
@pytest.mark.parametrize("field", ["base_timestamp_ms", "max_timestamp_ms"])
def test_timestamps_are_held_to_the_topics_range(
    field: str, timestamp_ms: int, expected: ErrorCode
) -> None:
    """Both limits are inclusive; a record may have no time at all."""
    times = {"base_timestamp_ms": NOW_MS, "max_timestamp_ms": NOW_MS, field: timestamp_ms}
    rules = BatchRules(timestamp_before_max_ms=1_000, timestamp_after_max_ms=500)

    assert expected is verdict(lie(build(), **times), rules)


def test_timestamps_do_not_matter_with_log_append_time() -> None:
    """The server's clock replaces them, so that a client's wrong one does no harm."""
    raw = lie(build(), base_timestamp_ms=5, max_timestamp_ms=2**62)
    rules = BatchRules(uses_log_append_time=True, timestamp_before_max_ms=1)

    assert ErrorCode.NONE is verdict(raw, rules)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("compression", list(Compression))
def test_no_flipped_bit_is_stored(compression: Compression) -> None:
    """Campaign P5: of every bit of a 1 KB batch, only the leader epoch's may be flipped.

    The epoch is overwritten at append, whatever the client sent.
    """
    builder = BatchBuilder(compression=compression)
    for index in range(26):
        builder.add(key=b"key %d" % index, value=b"value" * 5, timestamp_ms=NOW_MS)
    raw = builder.build()
    assert ErrorCode.NONE is verdict(raw)

    accepted: list[int] = []
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        if verdict(flipped) is ErrorCode.NONE:
            accepted.append(bit)

    assert list(range(12 * 8, 16 * 8)) == accepted


def test_the_control_of_the_bit_flips() -> None:
    """With a CRC that fits the damage a flipped payload bit does pass: the CRC is what finds it."""
    raw = build()
    raw[-1] ^= 1

    assert ErrorCode.NONE is verdict(lie(raw))


def test_records_are_looked_at_only_where_the_header_does_not_say_enough() -> None:
    """Without keys to check and a limit of the past no payload is decompressed."""
    before_max_ms = BatchRules(timestamp_before_max_ms=1000)
    assert None is record_rules(BatchRules(), NOW_MS, 0)
    assert None is record_rules(before_max_ms._replace(uses_log_append_time=True), NOW_MS, 0)
    assert RecordRules(
        needs_keys=False, time_range=(NOW_MS - 1000, NOW_MS + before_max_ms.timestamp_after_max_ms)
    ) == record_rules(before_max_ms, NOW_MS, 0)


@pytest.mark.parametrize("flags", [0, 1 << 4])
def test_records_are_looked_at_where_they_are_compressed_anew(flags: int) -> None:
    """And only there: a batch in the topic's codec is judged by its header."""
    rules = BatchRules(compression=Compression.ZSTD, compression_level=7, max_message_bytes=900)
    assert None is record_rules(rules, NOW_MS, Compression.ZSTD | flags)
    checked = record_rules(rules, NOW_MS, Compression.LZ4 | flags)
    assert checked is not None
    assert Recompression(Compression.ZSTD, 7, 900) == checked.recompression
    assert (0, NOW_MS + rules.timestamp_after_max_ms) == checked.time_range
    stamped = record_rules(rules._replace(uses_log_append_time=True), NOW_MS, flags)
    assert stamped is not None
    assert stamped.time_range is None
    assert Recompression(Compression.ZSTD, 7, 900, NOW_MS) == stamped.recompression
