"""Produce of batches whose records are not what their header says: kgw.validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError
from kgw.protocol.api_keys import ApiKey
from kgw.records.batch import Compression, read_batch, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.crc import crc32c
from kgw.records.reader import read_records
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import START_MS, call, create_topic, fetch, fetch_request, produce
from tests.records.lies import LIES, batch, honest

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch

LARGE = 1000
"""So many records are walked in a thread."""


async def stored(gateway: InProcessGateway) -> list[RecordBatch]:
    """Return what a reader of the topic is served."""
    data = await fetch(gateway, fetch_request(0))
    assert data.records is None or isinstance(data.records, bytes | bytearray | memoryview)
    return split_batches(data.records or b"")


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("name", LIES)
async def test_a_lying_batch_is_refused_where_records_are_validated(
    gateway: InProcessGateway, name: str, compression: Compression
) -> None:
    """Whatever the lie: INVALID_RECORD, nothing of it is stored, and what follows is."""
    await create_topic(gateway, kgw_validation="records")
    answer = await produce(gateway, batch(*LIES[name](), compression))
    assert (ErrorCode.INVALID_RECORD, -1) == (answer.error_code, answer.base_offset)
    assert answer.error_message
    assert 0 == (await produce(gateway, batch(honest(3), 3, compression))).base_offset
    assert [3] == [len(list(read_records(one))) for one in await stored(gateway)]
    assert {} == gateway.internal_errors


@pytest.mark.parametrize("compression", Compression)
async def test_a_large_lying_batch_is_refused_in_its_turn(
    gateway: InProcessGateway, compression: Compression
) -> None:
    """A producer's sequence goes on behind a refusal that a thread has come to."""
    await create_topic(gateway, kgw_validation="records")
    lie = batch(honest(LARGE), LARGE + 1, compression, producer_id=7, base_sequence=0)
    assert ErrorCode.INVALID_RECORD == (await produce(gateway, lie)).error_code
    sent = batch(honest(LARGE), LARGE, compression, producer_id=7, base_sequence=0)
    assert 0 == (await produce(gateway, sent)).base_offset
    follows = batch(honest(1), 1, compression, producer_id=7, base_sequence=LARGE)
    assert LARGE == (await produce(gateway, follows)).base_offset


async def test_by_default_a_batch_is_believed(gateway: InProcessGateway) -> None:
    """The header alone is checked: a batch of one record that claims three takes three offsets."""
    await create_topic(gateway)
    lie = batch(*LIES["three records claimed, one there"]())
    assert 0 == (await produce(gateway, lie)).base_offset
    assert 3 == (await produce(gateway, batch(honest(1), 1))).base_offset
    (first, second) = await stored(gateway)
    with pytest.raises(KafkaError, match="record 1"):
        list(read_records(first))
    assert 1 == len(list(read_records(second)))


@pytest.mark.parametrize("compression", [one for one in Compression if one is not Compression.NONE])
async def test_a_payload_that_is_not_its_codecs_is_corrupt(
    gateway: InProcessGateway, compression: Compression
) -> None:
    """A compressed batch is stored by its header, and refused where records are validated."""
    damaged = batch(honest(3), 3, compression)
    garbage = batch(honest(3), 3)
    garbage[21:23] = damaged[21:23]
    garbage[17:21] = crc32c(memoryview(garbage)[21:]).to_bytes(4, "big")
    assert read_batch(garbage).crc_matches()
    await create_topic(gateway, "strict", kgw_validation="records")
    await create_topic(gateway, "loose")
    answer = await produce(gateway, bytearray(garbage), name="strict")
    assert (ErrorCode.CORRUPT_MESSAGE, -1) == (answer.error_code, answer.base_offset)
    assert ErrorCode.NONE == (await produce(gateway, garbage, name="loose")).error_code


@pytest.mark.parametrize(
    "setting", [{"kgw_validation": "records"}, {"cleanup_policy": "compact"}], ids=str
)
async def test_a_bomb_is_refused_where_records_are_read(setting: dict[str, Any]) -> None:
    """Decompression ends at its limit: MESSAGE_TOO_LARGE, and nothing is stored."""
    async with InProcessGateway(Config.of(decompressed_bytes_max=1 << 20)) as gateway:
        await create_topic(gateway, **setting)
        for codec in (Compression.GZIP, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD):
            builder = BatchBuilder(compression=codec)
            builder.add(key=b"k", value=bytes(2 << 20), timestamp_ms=START_MS)
            answer = await produce(gateway, builder.build())
            assert ErrorCode.MESSAGE_TOO_LARGE == answer.error_code
        assert [] == await stored(gateway)
        assert {} == gateway.internal_errors


async def test_a_time_behind_the_header_is_held_to_the_topics_range(
    gateway: InProcessGateway,
) -> None:
    """With kgw.validation=records a header that hides a record of next year does not help it."""
    builder = BatchBuilder()
    for ahead_ms in (0, 1 << 35, 0):
        builder.add(value=b"v", timestamp_ms=START_MS + ahead_ms)
    hidden = builder.build()
    hidden[35:43] = START_MS.to_bytes(8, "big")
    hidden[17:21] = crc32c(memoryview(hidden)[21:]).to_bytes(4, "big")
    await create_topic(gateway, kgw_validation="records")
    answer = await produce(gateway, hidden)
    assert ErrorCode.INVALID_TIMESTAMP == answer.error_code
    assert [1] == [one.batch_index for one in answer.record_errors]


@pytest.mark.parametrize("claimed_ms", [START_MS - 5000, START_MS, START_MS + 2])
async def test_a_header_with_another_greatest_time_is_refused_where_records_are_validated(
    gateway: InProcessGateway, claimed_ms: int
) -> None:
    """Look-ups by time and retention believe it; by default, and where time is ours, it enters."""
    builder = BatchBuilder()
    for timestamp_ms in (START_MS, START_MS + 1):
        builder.add(value=b"v", timestamp_ms=timestamp_ms)
    lie = builder.build()
    lie[35:43] = claimed_ms.to_bytes(8, "big")
    lie[17:21] = crc32c(memoryview(lie)[21:]).to_bytes(4, "big")
    await create_topic(gateway, "strict", kgw_validation="records")
    await create_topic(gateway, "loose")
    await create_topic(
        gateway,
        "ours",
        kgw_validation="records",
        message_timestamp_type="LogAppendTime",
    )
    answers = {
        name: (await produce(gateway, bytearray(lie), name=name)).error_code
        for name in ("strict", "loose", "ours")
    }
    none = ErrorCode.NONE
    assert {"strict": ErrorCode.INVALID_RECORD, "loose": none, "ours": none} == answers


async def test_records_without_a_time_are_what_their_header_says(gateway: InProcessGateway) -> None:
    """All of them, or those beside others that have one."""
    await create_topic(gateway, kgw_validation="records")
    for times in ((-1, -1), (-1, START_MS), (START_MS, -1)):
        builder = BatchBuilder()
        for timestamp_ms in times:
            builder.add(value=b"v", timestamp_ms=timestamp_ms)
        assert ErrorCode.NONE == (await produce(gateway, builder.build())).error_code


async def test_a_topic_without_keys_may_be_validated(gateway: InProcessGateway) -> None:
    """Only a compacted topic needs keys."""
    await create_topic(gateway, kgw_validation="records")
    builder = BatchBuilder()
    builder.add(value=None)
    assert ErrorCode.NONE == (await produce(gateway, builder.build())).error_code


async def test_validation_changes_while_the_server_runs(gateway: InProcessGateway) -> None:
    """For all topics by the server's setting, for one by its own, which comes first."""
    lie = batch(*LIES["three records claimed, one there"]())
    for name in ("orders", "loose"):
        await create_topic(gateway, name)

    async def alter(resource_type: int, resource: str, value: str) -> ErrorCode:
        config = {"name": "kgw.validation", "config_operation": 0, "value": value}
        named = {"resource_type": resource_type, "resource_name": resource, "configs": [config]}
        changed = await call(gateway, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[named])
        return ErrorCode(changed.responses[0].error_code)

    assert ErrorCode.NONE == (await produce(gateway, bytearray(lie))).error_code
    assert ErrorCode.NONE is await alter(4, "", "records")
    assert ErrorCode.INVALID_RECORD == (await produce(gateway, bytearray(lie))).error_code
    assert ErrorCode.NONE is await alter(2, "loose", "headers")
    assert ErrorCode.NONE == (await produce(gateway, bytearray(lie), name="loose")).error_code
    assert ErrorCode.INVALID_CONFIG is await alter(2, "loose", "payloads")
    assert ErrorCode.NONE == (await produce(gateway, bytearray(lie), name="loose")).error_code


async def test_a_value_that_is_not_served_is_refused(gateway: InProcessGateway) -> None:
    """A topic with kgw.validation=payloads is not created: INVALID_CONFIG names both values."""
    configs = [{"name": "kgw.validation", "value": "payloads"}]
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1, "configs": configs}
    response = await call(gateway, ApiKey.CREATE_TOPICS, 7, topics=[topic])
    (answer,) = response.topics
    assert ErrorCode.INVALID_CONFIG == answer.error_code
    assert "headers or records" in (answer.error_message or "")
    assert gateway.catalog.get("orders") is None
