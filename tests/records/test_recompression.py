from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode
from kgw.records.batch import (
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    Compression,
    RecordBatch,
    read_batch,
)
from kgw.records.builder import BatchBuilder
from kgw.records.compression import compress
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS
from kgw.records.reader import read_records, unpack
from kgw.records.recompression import Recompression, recompress
from tests.records import strategies
from tests.records.strategies import Drawn, build

ANY_SIZE = 1 << 30
NOW_MS = 1_700_000_000_000


def become(batch: RecordBatch, wanted: Recompression, max_timestamp_ms: int | None = None) -> None:
    """Recompress a batch whose header tells the truth, unless told what that is."""
    greatest_ms = batch.max_timestamp_ms if max_timestamp_ms is None else max_timestamp_ms
    recompress(batch, unpack(batch), greatest_ms, wanted, DEFAULT_LIMITS)


def produced(compression: Compression, value: bytes = b"v" * 300) -> RecordBatch:
    """Return a batch of three records of a transactional producer."""
    builder = BatchBuilder(
        compression=compression,
        producer_id=7,
        producer_epoch=2,
        base_sequence=41,
        is_transactional=True,
    )
    for index in range(3):
        builder.add(key=b"k%d" % index, value=value, timestamp_ms=NOW_MS + index)
    return read_batch(builder.build())


@given(
    records=strategies.records,
    came=st.sampled_from(Compression),
    wanted=st.sampled_from(Compression),
)
def test_records_are_the_same_in_another_codec(
    records: list[Drawn], came: Compression, wanted: Compression
) -> None:
    """Offsets, times, keys, values and headers; and the bytes that come out are a whole batch."""
    batch = read_batch(build(records, compression=came))
    before = list(read_records(batch))
    become(batch, Recompression(wanted, None, ANY_SIZE))
    assert wanted is batch.compression
    again = read_batch(bytes(batch.buffer))
    assert again.crc_matches()
    assert repr(batch) == repr(again)
    assert (batch.crc, batch.attributes, batch.max_timestamp_ms) == (
        again.crc,
        again.attributes,
        again.max_timestamp_ms,
    )
    assert before == list(read_records(again))


@pytest.mark.parametrize("wanted", Compression)
@pytest.mark.parametrize("came", Compression)
def test_what_the_header_says_of_the_producer_stays(came: Compression, wanted: Compression) -> None:
    """Id, epoch, sequence and the transaction's bit: a retry is recognised, a fence holds."""
    batch = produced(came)
    become(batch, Recompression(wanted, None, ANY_SIZE))
    assert (7, 2, 41, 3, 2) == (
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
        batch.last_offset_delta,
    )
    assert TRANSACTIONAL_FLAG | wanted == batch.attributes
    assert NO_PRODUCER_ID != read_batch(batch.buffer).producer_id


def test_log_append_time_comes_with_it() -> None:
    """All records have the one time, by the header, under the same new CRC."""
    batch = produced(Compression.NONE)
    become(batch, Recompression(Compression.ZSTD, 3, ANY_SIZE, NOW_MS + 500))
    again = read_batch(bytes(batch.buffer))
    assert again.crc_matches()
    assert again.attributes & LOG_APPEND_TIME_FLAG
    assert {NOW_MS + 500} == {one.timestamp_ms for one in read_records(again)}


def test_the_greatest_timestamp_is_that_of_the_records() -> None:
    """What a header says wrongly is corrected, as Kafka's broker does."""
    batch = produced(Compression.NONE)
    become(batch, Recompression(Compression.LZ4, 9, ANY_SIZE), NOW_MS + 2)
    assert NOW_MS + 2 == read_batch(batch.buffer).max_timestamp_ms


@pytest.mark.parametrize(
    ("came", "wanted"),
    [(Compression.GZIP, Compression.NONE), (Compression.ZSTD, Compression.SNAPPY)],
)
def test_what_becomes_too_large_is_refused_and_left_as_it_was(
    came: Compression, wanted: Compression
) -> None:
    """max.message.bytes is inclusive and holds for what comes out: MESSAGE_TOO_LARGE."""
    batch = produced(came, bytes(5000))
    fitting = produced(came, bytes(5000))
    become(fitting, Recompression(wanted, None, ANY_SIZE))
    size_bytes = len(fitting.buffer)
    before = bytes(batch.buffer)
    with pytest.raises(RecordError, match=f"max.message.bytes={size_bytes - 1}") as caught:
        become(batch, Recompression(wanted, None, size_bytes - 1))
    assert ErrorCode.MESSAGE_TOO_LARGE is caught.value.code
    assert (before, came) == (bytes(batch.buffer), batch.compression)
    become(batch, Recompression(wanted, None, size_bytes))
    assert fitting.buffer == batch.buffer


WORDS = b"".join(b"%d bottles of beer on the wall, " % (index * 7919) for index in range(3000))


@pytest.mark.parametrize(
    ("codec", "level", "own_level"),
    [
        (Compression.GZIP, -1, -1),
        (Compression.GZIP, 1, 1),
        (Compression.GZIP, 9, 9),
        (Compression.LZ4, 9, 0),
        (Compression.LZ4, 1, 3),
        (Compression.LZ4, 12, 12),
        (Compression.LZ4, 17, 12),
        (Compression.ZSTD, 3, 3),
        (Compression.ZSTD, 19, 19),
        (Compression.ZSTD, -131_072, -131_072),
        (Compression.ZSTD, 22, 22),
    ],
)
def test_levels_are_those_of_kip_390(codec: Compression, level: int, own_level: int) -> None:
    """The range that Kafka allows is taken; lz4's 9 is the fast compressor, as in Java."""
    batch = produced(Compression.NONE, WORDS)
    payload = unpack(batch)
    become(batch, Recompression(codec, level, ANY_SIZE))
    assert compress(codec, payload, own_level) == batch.records


def test_higher_levels_make_less() -> None:
    """What a level costs, it gives back."""
    sizes = {}
    for codec, levels in (
        (Compression.GZIP, (1, 9)),
        (Compression.LZ4, (9, 12)),
        (Compression.ZSTD, (-50, 19)),
    ):
        for level in levels:
            batch = produced(Compression.NONE, WORDS)
            become(batch, Recompression(codec, level, ANY_SIZE))
            sizes[codec, level] = batch.size_bytes
        low, high = (sizes[codec, level] for level in levels)
        assert high < low, codec


@pytest.mark.parametrize(
    ("came", "wanted", "line"),
    [
        (Compression.NONE, Compression.LZ4, b" "),
        (Compression.NONE, Compression.ZSTD, b" "),
        (Compression.GZIP, Compression.ZSTD, WORDS[:20_000]),
    ],
)
def test_what_nobody_here_could_unpack_again_stays_as_it_came(
    came: Compression, wanted: Compression, line: bytes
) -> None:
    """Compaction and answers to old clients have the same limits; times are corrected even so."""
    batch = produced(came, line * ((3 << 20) // len(line)))
    before = bytes(batch.records)
    become(batch, Recompression(wanted, None, ANY_SIZE), NOW_MS + 1)
    again = read_batch(bytes(batch.buffer))
    assert (came, NOW_MS + 1) == (again.compression, again.max_timestamp_ms)
    assert before == bytes(again.records)
    assert again.crc_matches()
    assert 3 == len(list(read_records(again)))


@pytest.mark.parametrize("level", [19, 20, 22])
def test_any_level_of_zstd_can_be_unpacked_again(level: int) -> None:
    """Those from 20 on would ask for a window with which no more than 8 MB are taken."""
    batch = produced(Compression.NONE, random.Random(level).randbytes(100_000) * 31)
    become(batch, Recompression(Compression.ZSTD, level, ANY_SIZE))
    assert Compression.ZSTD is batch.compression
    assert 3 == len(list(read_records(batch)))
