"""Batches of message sets, and message sets of batches, against independent implementations."""

from __future__ import annotations

import gzip
import struct
import warnings
from random import Random
from typing import TYPE_CHECKING

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode
from kgw.records.batch import Compression, read_batch
from kgw.records.builder import BatchBuilder, encode_batch
from kgw.records.conversion import Messages, to_batch, to_messages
from kgw.records.limits import DEFAULT_LIMITS
from kgw.records.reader import read_records
from tests.records import strategies
from tests.records.message_sets import CODECS, Read, message, read_theirs, wrapper

with warnings.catch_warnings():
    # It reads its definitions with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

if TYPE_CHECKING:
    from tests.records.strategies import Drawn

NOW_MS = 1_700_000_000_000
EVERYTHING = 1 << 30

magics = st.sampled_from([0, 1])
old_codecs = st.sampled_from(CODECS)


def batch(
    *values: bytes,
    codec: Compression = Compression.NONE,
    base_offset: int = 0,
    log_append_time_ms: int | None = None,
    is_control: bool = False,
) -> bytearray:
    """Return a stored batch with headers, each record a millisecond after the one before."""
    builder = BatchBuilder(
        compression=codec,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        is_control=is_control,
    )
    for index, value in enumerate(values):
        builder.add(
            key=b"k%d" % index,
            value=value,
            timestamp_ms=NOW_MS + index,
            headers=[("name", b"value")],
        )
    return builder.build()


def converted(
    *batches: bytearray,
    magic: int = 1,
    from_offset: int = 0,
    max_bytes: int = EVERYTHING,
    at_least_one: bool = True,
) -> Messages:
    """Return what batches become."""
    return to_messages(
        batches, magic, from_offset, max_bytes, DEFAULT_LIMITS, at_least_one=at_least_one
    )


# --- in -------------------------------------------------------------------------------------------


def test_an_uncompressed_set_becomes_these_bytes() -> None:
    """Nothing in them is left to choose: they are those of a batch of the same records."""
    builder = BatchBuilder()
    builder.add(key=b"k", value=b"a", timestamp_ms=NOW_MS)
    builder.add(key=None, value=None, timestamp_ms=NOW_MS - 5)
    sent = message(1, b"a", key=b"k", timestamp_ms=NOW_MS) + message(
        1, None, timestamp_ms=NOW_MS - 5
    )
    made = to_batch(sent, DEFAULT_LIMITS)
    assert builder.build() == made
    assert DefaultRecordBatch(bytes(made)).validate_crc()


@pytest.mark.slow
@given(records=strategies.records, magic=magics, codec=old_codecs)
def test_what_kafka_python_builds_becomes_one_batch(
    records: list[Drawn], magic: int, codec: Compression
) -> None:
    """Keys, values and times are those that were sent, and it stays in its codec."""
    # It needs one more package for format 0 with LZ4, which `message_sets` covers.
    if codec is Compression.LZ4 and magic == 0:
        codec = Compression.GZIP
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 24)
    for offset, (key, value, timestamp_ms, _) in enumerate(records):
        builder.append(offset, timestamp_ms, key, value)

    made = read_batch(to_batch(bytes(builder.build()), DEFAULT_LIMITS))

    assert made.crc_matches()
    assert codec is made.compression
    assert (0, len(records) - 1, len(records), -1) == (
        made.base_offset,
        made.last_offset,
        made.record_count,
        made.producer_id,
    )
    times = [timestamp_ms if magic else -1 for _, _, timestamp_ms, _ in records]
    assert (times[0], max(times)) == (made.base_timestamp_ms, made.max_timestamp_ms)
    assert [
        (offset, times[offset], key, value, []) for offset, (key, value, _, _) in enumerate(records)
    ] == [tuple(one) for one in read_records(made)]


def test_times_that_are_far_apart_wrap() -> None:
    """A difference of more than 64 bits wraps, as it does in every reader."""
    largest = (1 << 63) - 1
    sent = message(1, b"a", timestamp_ms=-1) + message(1, b"b", timestamp_ms=largest)
    made = read_batch(to_batch(sent, DEFAULT_LIMITS))
    assert [-1, largest] == [one.timestamp_ms for one in read_records(made)]


# --- out ------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    records=strategies.records,
    magic=magics,
    codec=old_codecs,
    base_offset=st.integers(0, 1 << 40),
    skipped=st.integers(0, 40),
    append_time_ms=st.none() | st.just(NOW_MS + 77),
)
def test_kafka_python_reads_what_batches_become(
    records: list[Drawn],
    magic: int,
    codec: Compression,
    base_offset: int,
    skipped: int,
    append_time_ms: int | None,
) -> None:
    """Offsets, times and their type, keys and values; what is below the offset only in wrappers."""
    stored = strategies.build(
        records,
        compression=codec,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
    )
    skipped = min(skipped, len(records) - 1)

    made = converted(stored, magic=magic, from_offset=base_offset + skipped)

    assert (base_offset + len(records), ErrorCode.NONE) == (made.next_offset, made.code)
    raw = b"".join(made.parts)
    assert made.size_bytes == len(raw)
    time_type = None if magic == 0 else 0 if append_time_ms is None else 1
    assert [
        Read(
            base_offset + index,
            None if magic == 0 else timestamp_ms if append_time_ms is None else append_time_ms,
            time_type,
            key,
            value,
        )
        for index, (key, value, timestamp_ms, _) in enumerate(records)
        if codec is not Compression.NONE or index >= skipped
    ] == read_theirs(raw, magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_bytes_of_a_wrapper(magic: int) -> None:
    """Its offset is the last one's, its time the greatest; inside, offsets are relative or not."""
    (raw,) = converted(batch(b"a", b"b", codec=Compression.GZIP, base_offset=40), magic=magic).parts
    offset, size, _, found_magic, attributes = struct.unpack_from(">qiIbb", raw)
    assert (41, len(raw) - 12, magic, Compression.GZIP) == (offset, size, found_magic, attributes)
    if magic == 1:
        assert (NOW_MS + 1,) == struct.unpack_from(">q", raw, 18)
    value_at = 26 if magic == 0 else 34
    first = 40 if magic == 0 else 0
    assert message(magic, b"a", key=b"k0", offset=first, timestamp_ms=NOW_MS) + message(
        magic, b"b", key=b"k1", offset=first + 1, timestamp_ms=NOW_MS + 1
    ) == gzip.decompress(raw[value_at:])


def test_lz4_has_the_wrong_checksum_in_format_0() -> None:
    """And the right one in format 1 (KAFKA-3160)."""
    stored = batch(b"a" * 100, codec=Compression.LZ4)
    (old,) = converted(stored, magic=0).parts
    (new,) = converted(stored, magic=1).parts
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(bytes(old[26:]))
    assert message(1, b"a" * 100, key=b"k0", timestamp_ms=NOW_MS) == lz4.frame.decompress(
        bytes(new[34:])
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_bytes_of_uncompressed_messages(magic: int) -> None:
    """One for each record from the offset on; log append time is an attribute of format 1."""
    stored = batch(b"a", b"b", b"c", base_offset=7, log_append_time_ms=NOW_MS + 9)
    made = converted(stored, magic=magic, from_offset=8)
    assert b"".join(
        message(
            magic,
            value,
            key=b"k%d" % index,
            offset=7 + index,
            timestamp_ms=NOW_MS + 9,
            attributes=8 if magic else 0,
        )
        for index, value in ((1, b"b"), (2, b"c"))
    ) == b"".join(made.parts)


def test_what_these_formats_have_no_word_for_is_left_out() -> None:
    """Control batches and batches without records; the offset behind them is told."""
    empty = encode_batch(b"", base_offset=2, leader_epoch=0, last_offset_delta=4)
    control = batch(b"marker", base_offset=7, is_control=True)
    made = converted(batch(b"a", b"b"), empty, control, batch(b"c", base_offset=8))
    assert [0, 1, 8] == [one.offset for one in read_theirs(b"".join(made.parts), 1)]
    nothing = converted(empty, control, from_offset=2)
    assert ([], 8, ErrorCode.NONE, False) == (
        nothing.parts,
        nothing.next_offset,
        nothing.code,
        nothing.is_cut,
    )


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_compaction_removed_leave_gaps(codec: Compression) -> None:
    """Offsets are those that are left; a wrapper of nothing but old offsets is left out."""
    builder = BatchBuilder(compression=codec)
    for value in (b"a", b"b"):
        builder.add(value=value, timestamp_ms=NOW_MS)
    whole = read_batch(builder.build())
    # The last record of three was removed: the header still ends with it.
    stored = encode_batch(
        bytes(whole.records),
        base_offset=10,
        leader_epoch=0,
        attributes=codec,
        last_offset_delta=2,
        base_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS,
        record_count=2,
    )
    made = converted(stored, from_offset=10)
    assert [10, 11] == [one.offset for one in read_theirs(b"".join(made.parts), 1)]
    behind = converted(stored, from_offset=12)
    assert ([], 13) == (behind.parts, behind.next_offset)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_where_it_comes_first(magic: int) -> None:
    """Behind other messages it is left to the next request (KIP-110)."""
    zstd = batch(b"z", codec=Compression.ZSTD, base_offset=1)
    refused = converted(zstd, magic=magic, from_offset=1)
    assert ([], ErrorCode.UNSUPPORTED_COMPRESSION_TYPE) == (refused.parts, refused.code)
    made = converted(batch(b"a"), zstd, magic=magic)
    assert (1, ErrorCode.NONE, 1) == (len(made.parts), made.code, made.next_offset)


def test_a_batch_that_lies_is_not_served() -> None:
    """What could be read of it comes first; then it is CORRUPT_MESSAGE."""
    whole = read_batch(batch(b"a", b"b"))
    lie = encode_batch(
        bytes(whole.records),
        base_offset=0,
        leader_epoch=0,
        last_offset_delta=2,
        base_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS,
        record_count=3,
    )
    made = converted(lie)
    assert (2, ErrorCode.NONE) == (len(made.parts), made.code)
    assert ErrorCode.CORRUPT_MESSAGE is converted(lie, from_offset=2).code


@pytest.mark.parametrize("codec", CODECS)
def test_whole_messages_within_the_limit_and_one_at_least(codec: Compression) -> None:
    """Cut between messages; without the promise of one, none."""
    batches = [batch(b"x" * 50, b"y" * 50, codec=codec, base_offset=2 * n) for n in range(5)]
    everything = converted(*batches)
    for max_bytes in range(0, everything.size_bytes + 50, 7):
        made = converted(*batches, max_bytes=max_bytes)
        assert made.parts == everything.parts[: len(made.parts)]
        assert made.parts
        assert made.size_bytes <= max_bytes or len(made.parts) == 1
        assert made.is_cut == (len(made.parts) < len(everything.parts))
        bare = converted(*batches, max_bytes=max_bytes, at_least_one=False)
        assert bare.size_bytes <= max_bytes


def test_much_inside_becomes_several_wrappers() -> None:
    """Memory stays bounded: ten times 1 MB come as two wrappers, offsets right in both."""
    values = [Random(5).randbytes(1 << 20)] * 10
    stored = batch(*values, codec=Compression.SNAPPY, base_offset=5)
    for magic in (0, 1):
        made = converted(stored, magic=magic)
        assert 2 == len(made.parts)
        assert list(range(5, 15)) == [
            one.offset for one in read_theirs(b"".join(made.parts), magic)
        ]
        second = converted(stored, magic=magic, from_offset=14)
        assert list(range(13, 15)) == [
            one.offset for one in read_theirs(b"".join(second.parts), magic)
        ]


@pytest.mark.slow
@given(records=strategies.records, magic=magics, codec=old_codecs)
def test_up_and_down_again(records: list[Drawn], magic: int, codec: Compression) -> None:
    """A set that becomes a batch and messages again is the same to its readers."""
    messages = [
        message(magic, value, key=key, offset=offset, timestamp_ms=timestamp_ms)
        for offset, (key, value, timestamp_ms, _) in enumerate(records)
    ]
    sent = wrapper(
        magic,
        codec,
        *messages,
        offset=len(records) - 1,
        timestamp_ms=max(timestamp_ms for _, _, timestamp_ms, _ in records),
    )
    if codec is Compression.NONE:
        sent = b"".join(messages)

    back = converted(to_batch(sent, DEFAULT_LIMITS), magic=magic)

    assert read_theirs(sent, magic) == read_theirs(b"".join(back.parts), magic)
    if codec is Compression.NONE:
        assert sent == b"".join(back.parts)
