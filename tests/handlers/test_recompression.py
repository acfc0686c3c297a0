"""Produce into topics with a compression.type of their own (KIP-390)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.records.batch import Compression, read_batch, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import (
    START_MS,
    LoopTurns,
    batch,
    call,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    produce,
    produce_request,
    produced,
)
from tests.records.lies import LIES
from tests.records.lies import batch as lying_batch

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch

TYPES = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
LARGE = 1000
"""So many records are compressed in a thread."""


async def stored(gateway: InProcessGateway, name: str = "orders") -> list[RecordBatch]:
    """Return what a reader of the topic is served."""
    data = await fetch(gateway, fetch_request(0, name=name))
    assert data.records is None or isinstance(data.records, bytes | bytearray | memoryview)
    return split_batches(data.records or b"")


@pytest.mark.parametrize("came", Compression)
@pytest.mark.parametrize("name", TYPES)
async def test_whatever_comes_is_stored_in_the_topics_codec(
    gateway: InProcessGateway, name: str, came: Compression
) -> None:
    """Small batches and large ones; the records, their offsets and their producer are the same."""
    await create_topic(gateway, compression_type=name)
    small, large = (b"one", b"two"), (b"v" * 100,) * LARGE
    sent = [
        batch(*small, compression=came, producer_id=5, base_sequence=0),
        batch(*large, compression=came, producer_id=5, base_sequence=2),
    ]
    answers = [await produce(gateway, bytearray(one)) for one in sent]
    assert [(0, 0), (0, 2)] == [(one.error_code, one.base_offset) for one in answers]
    kept = await stored(gateway)
    assert [TYPES[name]] * 2 == [one.compression for one in kept]
    assert all(one.crc_matches() for one in kept)
    assert [(5, 0, 0), (5, 0, 2)] == [
        (one.producer_id, one.producer_epoch, one.base_sequence) for one in kept
    ]
    assert [*small, *large] == [one.value for each in kept for one in read_records(each)]
    assert list(range(2 + LARGE)) == [one.offset for each in kept for one in read_records(each)]
    assert {} == gateway.internal_errors


async def test_a_batch_in_the_topics_codec_is_stored_as_it_came(
    gateway: InProcessGateway,
) -> None:
    """It is not even opened: levels are for what is compressed here, and lies stay lies."""
    await create_topic(gateway, compression_type="gzip", compression_gzip_level="9")
    sent = batch(b"v" * 1000, compression=Compression.GZIP)
    lie = lying_batch(*LIES["three records claimed, one there"](), Compression.GZIP)
    for one in (sent, lie):
        assert ErrorCode.NONE == (await produce(gateway, bytearray(one))).error_code
    first, second = await stored(gateway)
    assert read_batch(sent).records == first.records
    assert read_batch(lie).records == second.records
    metrics = gateway.metrics
    metrics.refresh()
    assert (0, {"came": 0, "stored": 0}) == (
        metrics.recompressed_batches,
        metrics.recompressed_bytes,
    )


@pytest.mark.parametrize("name", LIES)
async def test_a_lying_batch_is_refused_where_it_would_be_compressed_anew(
    gateway: InProcessGateway, name: str
) -> None:
    """A CRC of ours says that the records are what the header says: INVALID_RECORD."""
    await create_topic(gateway, compression_type="lz4")
    for came in (Compression.NONE, Compression.ZSTD):
        answer = await produce(gateway, lying_batch(*LIES[name](), came))
        assert ErrorCode.INVALID_RECORD == answer.error_code
    assert [] == await stored(gateway)


async def test_a_wrong_greatest_timestamp_is_corrected(gateway: InProcessGateway) -> None:
    """As in Kafka, for clients that leave it out; with kgw.validation=records it is refused."""
    await create_topic(gateway, compression_type="zstd")
    await create_topic(gateway, "strict", compression_type="zstd", kgw_validation="records")
    lie = read_batch(batch(b"a", b"b", timestamps_ms=(START_MS, START_MS + 5)))
    lie.replace_records(lie.records, lie.attributes, -1)
    assert ErrorCode.NONE == (await produce(gateway, bytearray(lie.buffer))).error_code
    (kept,) = await stored(gateway)
    assert START_MS + 5 == kept.max_timestamp_ms
    answer = await produce(gateway, bytearray(lie.buffer), name="strict")
    assert ErrorCode.INVALID_RECORD == answer.error_code


@pytest.mark.parametrize("count", [2, LARGE])
async def test_log_append_time_is_given_with_it(gateway: InProcessGateway, count: int) -> None:
    """The producer's times do not count, and the answer names the server's."""
    await create_topic(gateway, compression_type="snappy", message_timestamp_type="LogAppendTime")
    sent = batch(*[b"v"] * count, timestamps_ms=[5] * count)
    answer = await produce(gateway, sent)
    assert (ErrorCode.NONE, START_MS) == (answer.error_code, answer.log_append_time_ms)
    (kept,) = await stored(gateway)
    assert (True, True) == (kept.crc_matches(), kept.uses_log_append_time)
    assert {START_MS} == {one.timestamp_ms for one in read_records(kept)}


async def test_order_is_kept_behind_a_large_batch(gateway: InProcessGateway) -> None:
    """What comes while a batch is compressed enters after it, refused or not."""
    await create_topic(gateway, compression_type="zstd")
    large = batch(*[b"v" * 50] * LARGE, producer_id=7, base_sequence=0)
    lie = lying_batch(*LIES["bytes behind the last record"](), Compression.GZIP)
    same = batch(b"v", compression=Compression.ZSTD, producer_id=7, base_sequence=LARGE)
    small = batch(b"v", producer_id=7, base_sequence=LARGE + 1)
    sent = (large, lie, same, small)
    pending = [gateway.start(produce_request(bytearray(one)), 9) for one in sent]
    assert [False] * 4 == [one.done for one in pending]
    answers = [await produced(one) for one in pending]
    assert [0, -1, LARGE, LARGE + 1] == [one.base_offset for one in answers]
    # Sent again, each is recognised.
    again = [await produce(gateway, bytearray(one)) for one in (large, same, small)]
    assert [0, LARGE, LARGE + 1] == [one.base_offset for one in again]
    data = await fetch(gateway, fetch_request(0))
    assert [(0, LARGE - 1), (LARGE, LARGE), (LARGE + 1, LARGE + 1)] == offsets_in(data)


async def test_the_loop_turns_while_a_large_batch_is_compressed(
    gateway: InProcessGateway,
) -> None:
    """It takes a slow codec long, and nobody else."""
    await create_topic(gateway, compression_type="zstd", compression_zstd_level="19")
    values = [b"%d" % (index * 7919) * 20 for index in range(LARGE)]
    async with LoopTurns() as turns:
        assert ErrorCode.NONE == (await produce(gateway, batch(*values))).error_code
    assert turns.count > 10


async def test_the_size_counts_before_and_after(gateway: InProcessGateway) -> None:
    """max.message.bytes refuses what comes too large, and what would become too large."""
    await create_topic(gateway, "small", compression_type="gzip", max_message_bytes="2000")
    await create_topic(gateway, "open", compression_type="uncompressed", max_message_bytes="2000")
    zeros = bytes(3000)
    packed = batch(zeros, compression=Compression.ZSTD)
    assert len(packed) < 2000
    answers = [
        (await produce(gateway, batch(zeros), name="small")).error_code,
        (await produce(gateway, bytearray(packed), name="small")).error_code,
        (await produce(gateway, bytearray(packed), name="open")).error_code,
        (await produce(gateway, batch(bytes(1800)), name="open")).error_code,
    ]
    expected = ["MESSAGE_TOO_LARGE", "NONE", "MESSAGE_TOO_LARGE", "NONE"]
    assert expected == [ErrorCode(one).name for one in answers]
    assert [] == [one for one in await stored(gateway, "open") if one.size_bytes > 2000]


async def test_a_bomb_is_refused_where_it_would_be_compressed_anew() -> None:
    """Decompression ends at its limit: MESSAGE_TOO_LARGE, and nothing is stored."""
    async with InProcessGateway(Config.of(decompressed_bytes_max=1 << 20)) as gateway:
        await create_topic(gateway, compression_type="uncompressed", max_message_bytes="99999999")
        for codec in (Compression.GZIP, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD):
            builder = BatchBuilder(compression=codec)
            builder.add(key=b"k", value=bytes(2 << 20), timestamp_ms=START_MS)
            answer = await produce(gateway, builder.build())
            assert ErrorCode.MESSAGE_TOO_LARGE == answer.error_code
        assert [] == await stored(gateway)
        assert {} == gateway.internal_errors


async def test_records_at_fault_are_named(gateway: InProcessGateway) -> None:
    """A limit of the past holds for each record that is compressed anew, whatever the header."""
    await create_topic(gateway, compression_type="gzip", message_timestamp_after_max_ms="1000")
    times = (START_MS, START_MS + 1001, START_MS)
    hidden = read_batch(batch(b"a", b"b", b"c", timestamps_ms=times))
    hidden.replace_records(hidden.records, hidden.attributes, START_MS)
    answer = await produce(gateway, bytearray(hidden.buffer))
    assert ErrorCode.INVALID_TIMESTAMP == answer.error_code
    assert [1] == [one.batch_index for one in answer.record_errors]


async def test_a_retry_is_told_the_log_append_time_of_what_is_stored(
    gateway: InProcessGateway,
) -> None:
    """Also one that waited for its turn, in flight with the first one or long after it."""
    await create_topic(gateway, compression_type="zstd", message_timestamp_type="LogAppendTime")
    sent = batch(*[b"v"] * LARGE, producer_id=5, base_sequence=0)
    first = asyncio.create_task(produce(gateway, bytearray(sent)))
    await asyncio.sleep(0)
    gateway.manual_clock.advance(1)
    answers = [await produce(gateway, bytearray(sent)), await first]
    gateway.manual_clock.advance(1)
    answers.append(await produce(gateway, bytearray(sent)))
    (kept,) = await stored(gateway)
    assert [(ErrorCode.NONE, 0, kept.max_timestamp_ms)] * 3 == [
        (one.error_code, one.base_offset, one.log_append_time_ms) for one in answers
    ]


async def test_the_type_changes_while_the_server_runs(gateway: InProcessGateway) -> None:
    """For all topics by the server's setting, for one by its own; what is stored stays."""
    for name in ("orders", "own"):
        await create_topic(gateway, name)

    async def alter(resource_type: int, resource: str, **settings: str) -> ErrorCode:
        configs = [
            {"name": name.replace("_", "."), "config_operation": 0, "value": value}
            for name, value in settings.items()
        ]
        named = {"resource_type": resource_type, "resource_name": resource, "configs": configs}
        changed = await call(gateway, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[named])
        return ErrorCode(changed.responses[0].error_code)

    async def kept(name: str) -> list[Compression]:
        await produce(gateway, batch(b"v"), name=name)
        return [one.compression for one in await stored(gateway, name)]

    none, gzip, zstd = Compression.NONE, Compression.GZIP, Compression.ZSTD
    assert [none] == await kept("orders")
    assert [none] == await kept("own")
    assert ErrorCode.NONE is await alter(4, "", compression_type="gzip", compression_gzip_level="1")
    assert ErrorCode.NONE is await alter(2, "own", compression_type="zstd")
    assert [none, gzip] == await kept("orders")
    assert [none, zstd] == await kept("own")
    assert ErrorCode.NONE is await alter(2, "own", compression_type="producer")
    assert [none, zstd, none] == await kept("own")
    for name, value in (
        ("compression_type", "brotli"),
        ("compression_gzip_level", "0"),
        ("compression_lz4_level", "18"),
        ("compression_zstd_level", "23"),
    ):
        assert ErrorCode.INVALID_CONFIG is await alter(2, "own", **{name: value})


async def test_what_it_saved_is_counted(gateway: InProcessGateway) -> None:
    """Batches, and their bytes before and after, of small ones and of large ones."""
    await create_topic(gateway, compression_type="zstd")
    sent = [batch(bytes(500)), batch(*[b"v"] * LARGE), batch(b"v", compression=Compression.ZSTD)]
    came = sum(len(one) for one in sent[:2])
    for one in sent:
        await produce(gateway, bytearray(one))
    kept = await stored(gateway)
    metrics = gateway.metrics
    metrics.refresh()
    after = sum(one.size_bytes for one in kept[:2])
    assert (2, {"came": came, "stored": after}) == (
        metrics.recompressed_batches,
        metrics.recompressed_bytes,
    )


@pytest.mark.parametrize("version", [4, 9, 10, 12])
async def test_old_readers_are_told_of_zstd_topics(gateway: InProcessGateway, version: int) -> None:
    """KIP-110: below Fetch v10 such a topic is UNSUPPORTED_COMPRESSION_TYPE, and others are not."""
    await create_topic(gateway, compression_type="zstd")
    await create_topic(gateway, "others", compression_type="gzip")
    for name in ("orders", "others"):
        await produce(gateway, batch(b"v"), name=name)
    told = await fetch(gateway, fetch_request(0), version)
    other = await fetch(gateway, fetch_request(0, name="others"), version)
    refused = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (refused if version < 10 else ErrorCode.NONE) == told.error_code
    assert bool(told.records) == (version >= 10)
    assert (ErrorCode.NONE, True) == (other.error_code, bool(other.records))
