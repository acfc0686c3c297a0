"""Batches to Arrow: what comes out is what the gateway's reader finds, record by record."""

from __future__ import annotations

from struct import pack_into
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode
from kgw.pipeline.arrow import decode
from kgw.pipeline.arrow.columns import ALL_COLUMNS, SCHEMA
from kgw.pipeline.arrow.damage import BatchError, damage_end
from kgw.pipeline.arrow.decode import decode_batches
from kgw.records.batch import (
    TRANSACTIONAL_FLAG,
    Compression,
    RecordBatch,
    read_batch,
    split_batches,
)
from kgw.records.builder import BatchBuilder, encode_batch
from kgw.records.compaction import make_filler
from kgw.records.errors import RecordError
from kgw.records.limits import DecompressionLimits
from tests.pipeline.arrow.answers import Answer, answers, covered, expected_rows, read_answer, rows
from tests.records import strategies
from tests.records.bombs import gzip_zeros
from tests.records.message_sets import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.pipeline.arrow.answers import Row
    from tests.records.strategies import Drawn

REFUSAL = "the batch at offset "


@pytest.mark.slow
@given(answer=answers(), data=st.data())
def test_all_of_an_answer(answer: Answer, data: st.DataObject) -> None:
    """Rows, next offset and ranges without data, from any offset to any other."""
    expected = expected_rows(answer)
    batches = split_batches(answer.data)
    start = batches[0].base_offset if batches else 5
    end = batches[-1].next_offset if batches else 5
    first_offset = data.draw(st.integers(max(0, start - 3), end + 3))
    end_offset = data.draw(st.none() | st.integers(first_offset, end + 5))

    decoded = decode_batches(
        answer.data, first_offset=first_offset, end_offset=end_offset, aborted=answer.aborted
    )

    limit = end + 100 if end_offset is None else end_offset
    assert [row for row in expected if first_offset <= row[0] < limit] == rows(decoded.batch)
    # Without any batch there is nothing to tell what comes next.
    assert max(first_offset, min(end if batches else 0, limit)) == decoded.next_offset
    assert not decoded.is_partial
    spanned = {row[0] for row in expected}
    silent, missing = covered(decoded.control_ranges), covered(decoded.missing)
    reached = set(range(first_offset, decoded.next_offset))
    of_batches = {at for one in batches for at in range(one.base_offset, one.next_offset)}
    assert (reached & of_batches) - spanned == silent
    assert reached - of_batches == missing


@pytest.mark.slow
@given(answer=answers(), columns=st.sets(st.sampled_from(SCHEMA.names), min_size=1))
def test_some_columns(answer: Answer, columns: set[str]) -> None:
    """Those asked for are as they are among all, in the same order."""
    whole = decode_batches(answer.data, first_offset=0, aborted=answer.aborted)
    some = decode_batches(answer.data, first_offset=0, aborted=answer.aborted, columns=columns)
    names = [name for name in SCHEMA.names if name in columns]
    assert whole.batch.select(names).equals(some.batch)
    # Keys that were not decoded were not altered.
    assert whole[1:-1] == some[1:-1]


def test_nothing_of_a_batch_without_records() -> None:
    """A range that is empty, within a batch that compaction has left, has no offsets to tell of."""
    filler = make_filler(0, 4, leader_epoch=0)
    decoded = decode_batches(bytes(filler.buffer), first_offset=3, end_offset=3)
    assert (3, [], []) == (decoded.next_offset, decoded.control_ranges, [*decoded.missing])


@pytest.mark.slow
@given(answer=answers(), data=st.data())
def test_cut_anywhere(answer: Answer, data: st.DataObject) -> None:
    """An answer that is cut off holds its whole batches, and the next fetch begins behind them."""
    cut = answer.data[: data.draw(st.integers(0, len(answer.data)))]
    size_bytes = 0
    whole: list[RecordBatch] = []
    for batch in split_batches(answer.data):
        size_bytes += batch.size_bytes
        if size_bytes <= len(cut):
            whole.append(batch)
    decoded = decode_batches(cut, first_offset=0)
    assert read_answer(whole) == rows(decoded.batch)
    assert (whole[-1].next_offset if whole else 0) == decoded.next_offset


@pytest.mark.slow
@given(answer=answers(), max_bytes=st.integers(0, 20_000))
def test_in_parts(answer: Answer, max_bytes: int) -> None:
    """What is too large at once comes in parts that make the whole, with every range once."""
    first_offset = 0
    found = []
    ranges: set[int] = set()
    start = split_batches(answer.data)[0].base_offset if answer.data else 0
    first_offset = start
    while True:
        decoded = decode_batches(
            answer.data, first_offset=first_offset, aborted=answer.aborted, max_bytes=max_bytes
        )
        found += rows(decoded.batch)
        silent = covered(decoded.control_ranges) | covered(decoded.missing)
        assert not ranges & silent
        ranges |= silent
        assert not decoded.is_partial or decoded.next_offset > first_offset
        first_offset = decoded.next_offset
        if not decoded.is_partial:
            break
    assert expected_rows(answer) == found
    assert set(range(start, first_offset)) == ranges | {row[0] for row in found}


def build_damaged(records: list[Drawn], changes: list[tuple[int, int]]) -> bytes:
    """Return a batch with other bytes in its records, and a CRC that fits them."""
    batch = read_batch(strategies.build(records))
    payload = bytearray(batch.records)
    for position, byte in changes:
        payload[position % len(payload)] = byte
    return bytes(
        encode_batch(
            payload,
            base_offset=7,
            leader_epoch=1,
            last_offset_delta=batch.last_offset_delta,
            base_timestamp_ms=batch.base_timestamp_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            record_count=batch.record_count,
        )
    )


@pytest.mark.slow
@given(
    records=strategies.records,
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3),
)
def test_records_that_lie(records: list[Drawn], changes: list[tuple[int, int]]) -> None:
    """What the reader refuses is refused in its words, and what it reads is read alike."""
    raw = build_damaged(records, changes)
    expected = attempt(lambda: read_answer([read_batch(raw)]))
    found = attempt(lambda: rows(decode_batches(raw, first_offset=0).batch))

    if isinstance(expected, RecordError):
        assert isinstance(found, RecordError)
        assert f"{REFUSAL}7: {expected}" == str(found)
        assert expected.code == found.code
        return
    assert not isinstance(found, RecordError)
    # Header keys that are not UTF-8: the reader keeps their bytes, Arrow cannot.
    assert [row[:6] for row in expected] == [row[:6] for row in found]
    for row, other in zip(expected, found, strict=True):
        assert [
            (key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
            for key, value in row[6] or []
        ] == (other[6] or [])


def attempt(read: Callable[[], list[Row]]) -> list[Row] | RecordError:
    """Return what was read, or what was wrong with it."""
    try:
        return read()
    except RecordError as error:
        return error


@pytest.mark.slow
@given(
    answer=answers(),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1),
    check_crcs=st.booleans(),
)
def test_damage(answer: Answer, changes: list[tuple[int, int]], *, check_crcs: bool) -> None:
    """Damaged bytes are refused or read as something, and nothing else comes of them."""
    damaged = bytearray(answer.data or b"\0")
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    text = REFUSAL
    try:
        decoded = decode_batches(
            damaged, first_offset=0, aborted=answer.aborted, check_crcs=check_crcs
        )
        decoded.batch.validate(full=True)
    except RecordError as error:
        text = str(error)
    assert text.startswith(REFUSAL)


@given(data=st.binary(max_size=200))
def test_noise(data: bytes) -> None:
    """Bytes of no meaning are refused, or wait for more."""
    text, next_offset = REFUSAL, 3
    try:
        next_offset = decode_batches(data, first_offset=3).next_offset
    except RecordError as error:
        text = str(error)
    assert text.startswith(REFUSAL)
    assert 3 == next_offset


def test_a_wrong_crc() -> None:
    """It is refused, with the offset of its batch, unless the caller does not ask for checks."""
    raw = strategies.build([(b"k", b"value", 5, [])], base_offset=41)
    raw[-3] ^= 1
    with pytest.raises(RecordError, match=r"the batch at offset 41: the CRC") as caught:
        decode_batches(raw, first_offset=41)
    assert ErrorCode.CORRUPT_MESSAGE == caught.value.code
    assert 1 == decode_batches(raw, first_offset=41, check_crcs=False).batch.num_rows
    # It is not looked at where it is not asked for.
    assert 0 == decode_batches(raw, first_offset=42).batch.num_rows


def test_offsets_that_do_not_rise() -> None:
    """The same batch twice is no log."""
    raw = bytes(strategies.build([(b"k", b"v", 5, [])] * 2, base_offset=41))
    with pytest.raises(RecordError, match=r"the batch at offset 41: .* offset 43 is due"):
        decode_batches(raw * 2, first_offset=0)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(magic: int) -> None:
    """A message of an old format is refused by its name, however short."""
    raw = bytes(message(magic, b"value", offset=9))
    with pytest.raises(RecordError, match=rf"offset 9: a message of format {magic}") as caught:
        decode_batches(raw, first_offset=0)
    assert ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT == caught.value.code


def test_a_bomb() -> None:
    """What unpacks to more than the limits allow is refused."""
    raw = encode_batch(
        gzip_zeros(4 << 20),
        base_offset=3,
        leader_epoch=0,
        attributes=Compression.GZIP,
        last_offset_delta=0,
        record_count=1,
    )
    with pytest.raises(RecordError, match="the batch at offset 3: ") as caught:
        decode_batches(raw, first_offset=0, limits=DecompressionLimits(always_bytes=1 << 20))
    assert ErrorCode.MESSAGE_TOO_LARGE == caught.value.code


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_what_compresses_very_well(codec: Compression) -> None:
    """A batch of zeros is no bomb: the gateway has stored it, and other clients read it."""
    builder = BatchBuilder(base_offset=3, compression=codec)
    builder.add(value=bytes(3 << 20))
    raw = builder.build()
    assert len(raw) * 200 < 3 << 20
    assert [bytes(3 << 20)] == decode_batches(raw, first_offset=0).batch["value"].to_pylist()


def test_a_count_that_cannot_be() -> None:
    """Two thousand million records in a few bytes are refused before room is made for them."""
    raw = strategies.build([(b"k", b"v", 5, [])], base_offset=1)
    pack_into(">i", raw, 57, (1 << 31) - 1)
    pack_into(">i", raw, 23, (1 << 31) - 2)
    with pytest.raises(RecordError, match="the batch at offset 1: record 1"):
        decode_batches(raw, first_offset=0, check_crcs=False)


def test_an_aborted_transaction_begun_before() -> None:
    """A reader that begins in the middle of an aborted transaction skips the rest of it."""
    builder = BatchBuilder(base_offset=10, producer_id=4, is_transactional=True)
    builder.add(value=b"aborted")
    builder.add(value=b"aborted")
    raw = builder.build()
    assert TRANSACTIONAL_FLAG & read_batch(raw).attributes
    decoded = decode_batches(raw, first_offset=11, aborted=[(4, 2)])
    assert (0, 12, [(11, 12)], False, [], 0) == (decoded.batch.num_rows, *decoded[1:])


def test_where_a_damaged_batch_ends() -> None:
    """By its header, unless that and what follows disagree: then nothing is known."""
    batches = []
    for first, count in (10, 3), (13, 2):
        builder = BatchBuilder(base_offset=first)
        for _ in range(count):
            builder.add(value=b"v")
        batches.append(bytearray(builder.build()))
    spoilt = batches[0].copy()
    spoilt[-1] ^= 1
    longer = batches[0].copy()
    # The last offset delta.
    pack_into(">i", longer, 23, 1 << 20)
    data = bytes(batches[0] + batches[1])
    assert [13, 15] == [damage_end(data, 10), damage_end(data, 13)]
    for batch, expected in (spoilt, 13), (longer, None):
        with pytest.raises(BatchError, match="CRC") as caught:
            decode_batches(bytes(batch), first_offset=11)
        assert 10 == caught.value.base_offset
        assert expected == damage_end(batch, 10)
        assert expected == damage_end(batch + batches[1], 10)
    assert [None, None] == [damage_end(data, 11), damage_end(data[:70], 10)]


def test_offsets_that_have_nothing_are_told_from_those_that_a_batch_covers() -> None:
    """Before a batch, in it and behind it; a marker and an empty batch are no such thing."""
    builder = BatchBuilder()
    for _ in range(2):
        builder.add(value=b"v")
    # As compaction leaves it: the first and the last of four.
    records = bytearray(read_batch(builder.build()).records)
    second = len(records) // 2
    assert 2 == records[second + 3]
    records[second + 3] = 6
    data = encode_batch(
        bytes(records), base_offset=12, leader_epoch=0, last_offset_delta=4, record_count=2
    )
    data += encode_batch(b"", base_offset=17, leader_epoch=0, last_offset_delta=1)
    marker = BatchBuilder(base_offset=21, producer_id=4, is_transactional=True, is_control=True)
    marker.add(key=bytes([0, 0, 0, 1]), value=bytes(6))
    data += marker.build()
    decoded = decode_batches(data, first_offset=10, end_offset=25)
    assert [12, 15] == decoded.batch.column("offset").to_pylist()
    assert [(17, 19), (21, 22)] == decoded.control_ranges
    assert [(10, 12), (13, 15), (16, 17), (19, 21)] == decoded.missing
    # From inside of the batch, and up to it.
    decoded = decode_batches(data, first_offset=13, end_offset=16)
    assert ([], [(13, 15)], 16) == (decoded.control_ranges, decoded.missing, decoded.next_offset)


def test_header_keys_that_are_no_text() -> None:
    """Their bytes are replaced, as in Java's clients."""
    builder = BatchBuilder()
    builder.add(value=b"v", headers=[("\udcff", b"1"), ("b", None)])
    decoded = decode_batches(builder.build(), first_offset=0, columns={"headers"})
    assert [[{"key": "\ufffd", "value": b"1"}, {"key": "b", "value": None}]] == decoded.batch[
        0
    ].to_pylist()
    assert 1 == decoded.altered_keys


def test_other_buffers() -> None:
    """Bytes, bytearrays and views are all read."""
    raw = strategies.build([(b"k", b"v", 5, [])])
    for data in (raw, bytes(raw), memoryview(raw)):
        assert [b"v"] == decode_batches(data, first_offset=0).batch["value"].to_pylist()


@pytest.mark.parametrize("columns", [set(), {"offset", "topic"}])
def test_unknown_columns(columns: set[str]) -> None:
    """A column that is none of ours is refused, and none at all."""
    with pytest.raises(ValueError, match="columns"):
        decode_batches(b"", first_offset=0, columns=columns)


def test_more_than_arrow_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused and not counted wrong."""
    monkeypatch.setattr(decode, "MAX_DATA_BYTES", 10)
    with pytest.raises(ValueError, match="11 bytes at once, where 10 are the most"):
        decode_batches(bytes(11), first_offset=0)


def test_nothing() -> None:
    """No bytes are no rows, with the columns in their types."""
    decoded = decode_batches(b"", first_offset=12, end_offset=20)
    assert SCHEMA == decoded.batch.schema
    assert ALL_COLUMNS == set(decoded.batch.schema.names)
    assert (0, 12, [], False, [], 0) == (decoded.batch.num_rows, *decoded[1:])
