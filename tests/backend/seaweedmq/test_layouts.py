from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.seaweedmq.entries.layouts import DecodedChunk, Layout, decode, encode
from kgw.backend.seaweedmq.entries.log_entries import walk
from kgw.backend.seaweedmq.entries.record_entries import key_hash
from kgw.records.batch import Compression, RecordBatch, read_batch
from kgw.records.builder import BatchBuilder, encode_batch
from kgw.records.compaction import make_filler
from kgw.records.reader import read_records
from kgw.testing.batches import make_batch

if TYPE_CHECKING:
    from collections.abc import Sequence


def _placed(batches: Sequence[RecordBatch], base_offset: int = 0) -> list[RecordBatch]:
    """Give batches their offsets, one after the other."""
    for batch in batches:
        batch.assign(base_offset, 3)
        base_offset = batch.next_offset
    return list(batches)


def _encoded(batches: Sequence[RecordBatch], layout: Layout = Layout.BATCHES) -> bytes:
    encoded = encode(batches, layout, 1_000)
    data = b"".join(encoded.pieces)
    assert (len(data), sum(batch.size_bytes for batch in encoded.batches)) == (
        encoded.size_bytes,
        encoded.batch_bytes,
    )
    assert encoded.largest_timestamp_ms == max(batch.max_timestamp_ms for batch in encoded.batches)
    return data


def _decoded(data: bytes, batches: Sequence[RecordBatch]) -> DecodedChunk:
    return decode(data, batches[0].base_offset, batches[-1].next_offset)


nullable = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3)
times = st.integers(-1, 1 << 45)


@st.composite
def a_batch(draw: st.DrawFn) -> RecordBatch:
    """Return what a producer may send."""
    has_id = draw(st.booleans())
    builder = BatchBuilder(
        compression=draw(st.sampled_from(Compression)),
        producer_id=draw(st.integers(0, 1 << 40)) if has_id else -1,
        producer_epoch=draw(st.integers(0, 9)) if has_id else -1,
        base_sequence=draw(st.integers(0, 1 << 20)) if has_id else -1,
        is_transactional=draw(st.booleans()) and has_id,
        log_append_time_ms=draw(st.none() | times),
    )
    for _ in range(draw(st.integers(1, 4))):
        builder.add(
            key=draw(nullable),
            value=draw(nullable),
            timestamp_ms=draw(times),
            headers=draw(headers),
        )
    return read_batch(builder.build())


@given(st.lists(st.tuples(a_batch(), st.sampled_from(Layout)), min_size=1, max_size=6))
def test_what_is_read_says_what_was_written(cases: list[tuple[RecordBatch, Layout]]) -> None:
    """Of batches and records, in either layout, also side by side in one chunk."""
    batches = _placed([batch for batch, _ in cases], 7)
    data = b"".join(
        _encoded([batch], layout) for batch, (_, layout) in zip(batches, cases, strict=True)
    )
    decoded = _decoded(data, batches)
    assert ((), len(batches)) == (decoded.damages, len(decoded.batches))
    for batch, found, (_, layout) in zip(batches, decoded.batches, cases, strict=True):
        assert list(read_records(batch)) == list(read_records(found))
        assert found.crc_matches()
        for name in [
            "base_offset",
            "last_offset",
            "leader_epoch",
            "base_timestamp_ms",
            "max_timestamp_ms",
            "producer_id",
            "producer_epoch",
            "base_sequence",
            "is_transactional",
            "uses_log_append_time",
        ]:
            assert getattr(batch, name) == getattr(found, name), name
        if layout is Layout.BATCHES:
            assert batch.buffer == found.buffer


@given(st.lists(a_batch(), min_size=1, max_size=3), st.sampled_from(Layout), st.data())
def test_no_flipped_bit_is_served(
    given_batches: list[RecordBatch], layout: Layout, data: st.DataObject
) -> None:
    """What is served is what was written; the offsets of the rest are named as damaged."""
    batches = _placed(given_batches, 5)
    written = bytearray(_encoded(batches, layout))
    expected = {
        batch.base_offset: bytes(batch.buffer)
        for batch in _decoded(bytes(written), batches).batches
    }
    place = data.draw(st.integers(0, len(written) * 8 - 1))
    written[place // 8] ^= 1 << place % 8
    decoded = _decoded(bytes(written), batches)
    covered: list[tuple[int, int]] = [(one.start_offset, one.end_offset) for one in decoded.damages]
    for batch in decoded.batches:
        assert expected[batch.base_offset] == batch.buffer
        covered.append((batch.base_offset, batch.next_offset))
    next_offset = 5
    for start, end in sorted(covered):
        assert next_offset == start
        next_offset = end
    assert batches[-1].next_offset == next_offset


@pytest.mark.parametrize("layout", Layout)
def test_batches_without_records_for_people_stay_batches(layout: Layout) -> None:
    """Markers, and what compaction has emptied; in any layout byte for byte."""
    marker = make_batch([b"\0\0\0\0"], producer_id=4, producer_epoch=1, is_control=True)
    filler = make_filler(0, 10, 0)
    emptied = read_batch(
        encode_batch(
            b"",
            base_offset=0,
            leader_epoch=0,
            last_offset_delta=4,
            producer_id=4,
            producer_epoch=1,
            base_sequence=9,
        )
    )
    batches = _placed([marker, filler, emptied])
    decoded = _decoded(_encoded(batches, layout), batches)
    assert [batch.buffer for batch in batches] == [batch.buffer for batch in decoded.batches]


def test_a_batch_that_cannot_be_unpacked_stays_a_batch() -> None:
    """What a producer claimed to be records is not lost in layout `records` either."""
    builder = BatchBuilder()
    builder.add(value=b"x")
    batch = read_batch(builder.build())
    batch.replace_records(b"no zstd", Compression.ZSTD, 0)
    batches = _placed([batch])
    decoded = _decoded(_encoded(batches, Layout.RECORDS), batches)
    assert [batch.buffer] == [one.buffer for one in decoded.batches]


@pytest.mark.parametrize("layout", Layout)
def test_gaps_in_a_batch_stay(layout: Layout) -> None:
    """Compaction leaves them: offsets are those of the records, the last one the batch's."""
    whole = make_batch([b"a", b"b", b"c"])
    batch = read_batch(
        encode_batch(
            bytes(whole.records[:8]),
            base_offset=0,
            leader_epoch=0,
            last_offset_delta=4,
            base_timestamp_ms=0,
            max_timestamp_ms=0,
            record_count=1,
        )
    )
    batches = _placed([batch], 10)
    (found,) = _decoded(_encoded(batches, layout), batches).batches
    assert [(10, 14)] == [(record.offset, found.last_offset) for record in read_records(found)]


def test_others_read_keys_values_and_offsets() -> None:
    """Of layout `records`, with times that rise."""
    batches = _placed(
        [make_batch([b"a", None], keys=[b"k", None]), make_batch([b"c"], keys=[b"k2"])], 100
    )
    entries = list(walk(_encoded(batches, Layout.RECORDS)))
    assert [(100, b"k", b"a"), (101, b"", b""), (102, b"k2", b"c")] == [
        (one.offset, bytes(one.key), bytes(one.data)) for one in entries
    ]
    assert [1_000, 1_001, 1_002] == [one.ts_ns for one in entries]
    assert [key_hash(b"k"), key_hash(b""), key_hash(b"k2")] == [one.key_hash for one in entries]
    # The first four bytes of an MD5, which RFC 1321 lists.
    assert int.from_bytes(bytes.fromhex("d41d8cd9"), "big", signed=True) == key_hash(b"")


def test_offsets_find_their_batch() -> None:
    """Also those in the middle of one, and those behind all."""
    batches = _placed([make_batch([b"a", b"b"]), make_batch([b"c"]), make_batch([b"d"] * 3)])
    decoded = _decoded(_encoded(batches), batches)
    assert [0, 0, 1, 2, 2, 2, 3] == [decoded.place_of(offset) for offset in range(7)]
    assert decoded.damage_from(0) is None


def test_entries_of_others_are_damage() -> None:
    """Nothing but kgw writes to the files that a list of ours names."""
    foreign = bytes.fromhex("1a0161 220162 2805")
    decoded = decode(len(foreign).to_bytes(4, "big") + foreign, 5, 6)
    (damage,) = decoded.damages
    assert (5, 6, 0) == damage[:3]
    assert "not written" in damage.reason
