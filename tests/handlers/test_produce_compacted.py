"""Produce to topics whose rules are about each record: keys, and a limit of the past."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode, ProtocolError
from kgw.partitions import admission
from kgw.records.batch import Compression
from kgw.records.builder import BatchBuilder
from tests import patience
from tests.handlers.support import (
    START_MS,
    batch,
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
    from collections.abc import Sequence

    from kgw.protocol.messages.produce import PartitionProduceResponse
    from kgw.testing.gateway import InProcessGateway


LARGE = 1000


def keyed(
    *keys: bytes | None,
    compression: Compression = Compression.NONE,
    timestamps_ms: Sequence[int] = (),
    producer_id: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Return a batch with one record for each key."""
    builder = BatchBuilder(
        compression=compression,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=base_sequence,
    )
    for place, key in enumerate(keys):
        timestamp_ms = timestamps_ms[place] if timestamps_ms else START_MS
        builder.add(key=key, value=b"v", timestamp_ms=timestamp_ms)
    return builder.build()


def named(answer: PartitionProduceResponse) -> list[int]:
    """Return the places of the records that the answer blames."""
    return [one.batch_index for one in answer.record_errors]


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("count", [1, LARGE])
async def test_records_without_a_key_are_refused_by_name(
    gateway: InProcessGateway, compression: Compression, count: int
) -> None:
    """Compressed or not, small or walked in a thread; nothing of the batch is stored."""
    await create_topic(gateway, cleanup_policy="compact")
    keys: list[bytes | None] = [b"k"] * count
    answer = await produce(gateway, keyed(*keys, compression=compression))
    assert (ErrorCode.NONE, 0) == (answer.error_code, answer.base_offset)
    keys[0] = keys[-1] = None
    answer = await produce(gateway, keyed(*keys, compression=compression))
    assert (ErrorCode.INVALID_RECORD, -1) == (answer.error_code, answer.base_offset)
    assert sorted({0, count - 1}) == named(answer)
    assert "needs a key" in (answer.record_errors[0].batch_index_error_message or "")
    assert count == (await produce(gateway, keyed(b"k"))).base_offset


async def test_before_version_8_there_are_no_names(gateway: InProcessGateway) -> None:
    """Older clients get the code alone (KIP-467)."""
    await create_topic(gateway, cleanup_policy="compact")
    answer = await produce(gateway, keyed(None), version=7)
    assert (ErrorCode.INVALID_RECORD, []) == (answer.error_code, named(answer))


async def test_an_empty_key_is_a_key(gateway: InProcessGateway) -> None:
    """As in Kafka: only null is none."""
    await create_topic(gateway, cleanup_policy="compact")
    assert ErrorCode.NONE == (await produce(gateway, keyed(b""))).error_code


async def test_a_payload_that_is_not_its_records_is_refused(gateway: InProcessGateway) -> None:
    """What a compacted topic holds can be read later: a count that lies would stop that."""
    await create_topic(gateway, cleanup_policy="compact")
    lie = lying_batch(*LIES["three records claimed, one there"]())
    assert ErrorCode.INVALID_RECORD == (await produce(gateway, lie)).error_code


async def test_order_is_kept_behind_a_large_batch(gateway: InProcessGateway) -> None:
    """What comes while a batch is walked in a thread enters after it, refused or not."""
    await create_topic(gateway, cleanup_policy="compact")
    large = keyed(*[b"k"] * LARGE, producer_id=7, base_sequence=0)
    bad = keyed(*[b"k"] * LARGE, None)
    small = keyed(b"k", producer_id=7, base_sequence=LARGE)
    pending = [gateway.start(produce_request(one), 9) for one in (large, bad, small)]
    assert [False] * 3 == [one.done for one in pending]
    answers = [await produced(one) for one in pending]
    assert [0, -1, LARGE] == [one.base_offset for one in answers]
    assert [LARGE] == named(answers[1])
    again = keyed(*[b"k"] * LARGE, producer_id=7, base_sequence=0)
    assert 0 == (await produce(gateway, again)).base_offset
    data = await fetch(gateway, fetch_request(0))
    assert [(0, LARGE - 1), (LARGE, LARGE)] == offsets_in(data)


async def test_order_is_kept_when_the_rules_fall_away_meanwhile(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody has to look at any more still enters behind what is being looked at."""
    topic = await create_topic(gateway, cleanup_policy="compact")
    may_pass = Event()
    monkeypatch.setattr(
        admission, "prepare_records", lambda *_: may_pass.wait(patience.seconds(20))
    )
    large = keyed(*[b"k"] * LARGE, producer_id=7, base_sequence=0)
    small = keyed(b"k", producer_id=7, base_sequence=LARGE)
    pending = [gateway.start(produce_request(large), 9)]
    await gateway.topic_manager.configure(topic, lambda _: {})
    pending.append(gateway.start(produce_request(small), 9))
    may_pass.set()
    answers = [await produced(one) for one in pending]
    assert [(ErrorCode.NONE, 0), (ErrorCode.NONE, LARGE)] == [
        (one.error_code, one.base_offset) for one in answers
    ]


async def test_acks_0_closes_on_a_refusal_that_comes_late(gateway: InProcessGateway) -> None:
    """There is no other way to tell, whenever the records have been read."""
    await create_topic(gateway, cleanup_policy="compact")
    assert gateway.start(produce_request(keyed(b"k"), acks=0), 9).done
    pending = gateway.start(produce_request(keyed(*[b"k"] * LARGE), acks=0), 9)
    assert await pending.response() is None
    pending = gateway.start(produce_request(keyed(*[b"k"] * LARGE, None), acks=0), 9)
    with pytest.raises(ProtocolError, match="INVALID_RECORD"):
        await pending.response()
    with pytest.raises(ProtocolError, match="INVALID_RECORD"):
        gateway.start(produce_request(keyed(None), acks=0), 9)


async def test_a_policy_that_changes_holds_for_what_comes(gateway: InProcessGateway) -> None:
    """A topic with keyless records may become compacted; from then on none is taken."""
    topic = await create_topic(gateway)
    assert ErrorCode.NONE == (await produce(gateway, batch(b"v"))).error_code
    await gateway.topic_manager.configure(topic, lambda _: {"cleanup.policy": "compact,delete"})
    assert ErrorCode.INVALID_RECORD == (await produce(gateway, batch(b"v"))).error_code
    assert ErrorCode.NONE == (await produce(gateway, keyed(b"k"))).error_code
    await gateway.topic_manager.configure(topic, lambda _: {})
    assert ErrorCode.NONE == (await produce(gateway, batch(b"v"))).error_code


async def test_a_limit_of_the_past_holds_for_each_record(gateway: InProcessGateway) -> None:
    """Also for those in the middle, of which the header says nothing."""
    await create_topic(gateway, message_timestamp_before_max_ms="1000")
    times = (START_MS, START_MS - 1000, START_MS - 1001, -1, START_MS)
    answer = await produce(gateway, keyed(*[b"k"] * 5, timestamps_ms=times))
    assert ErrorCode.INVALID_TIMESTAMP == answer.error_code
    assert [2] == named(answer)
    answer = await produce(gateway, keyed(*[b"k"] * 2, timestamps_ms=times[:2]))
    assert ErrorCode.NONE == answer.error_code


async def test_log_append_time_needs_no_times(gateway: InProcessGateway) -> None:
    """The clients' times do not count; the keys do."""
    await create_topic(
        gateway,
        cleanup_policy="compact",
        message_timestamp_before_max_ms="0",
        message_timestamp_type="LogAppendTime",
    )
    answer = await produce(gateway, keyed(b"k", timestamps_ms=(1,)))
    assert (ErrorCode.NONE, START_MS) == (answer.error_code, answer.log_append_time_ms)
    answer = await produce(gateway, keyed(*[b"k"] * LARGE, timestamps_ms=(1,) * LARGE))
    assert (ErrorCode.NONE, START_MS) == (answer.error_code, answer.log_append_time_ms)


async def test_a_topic_deleted_meanwhile_is_unknown(gateway: InProcessGateway) -> None:
    """A batch that is being walked when its topic goes is answered as any other."""
    topic = await create_topic(gateway, cleanup_policy="compact")
    pending = gateway.start(produce_request(keyed(*[b"k"] * LARGE)), 9)
    deleted = asyncio.ensure_future(gateway.topic_manager.delete(topic))
    answer = await produced(pending)
    await deleted
    assert answer.error_code in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
