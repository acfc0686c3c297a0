"""Every client library with every codec, alone, with each other, and across restarts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.client import AdminClient, AsyncClient, ServerRefusedError
from tests.interop.client import DriverError, Topic
from tests.interop.drivers.loop import Record
from tests.interop.libraries import EMBEDDED, NAMES, ON_BOTH
from tests.interop.scenario import (
    CODECS,
    START_MS,
    STEP_MS,
    limits_of,
    noise,
    records,
    stored,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

# Enough that no library has sent all of it by the time that a quarter is stored.
MANY = 10_000
MANY_BYTES = 2_000


@pytest.fixture(params=NAMES)
def client(request: pytest.FixtureRequest, clients: Callable[[str], Client]) -> Client:
    """Each library."""
    return clients(request.param)


@pytest.fixture
def topic(client: Client, own_gateway: GatewayProcess) -> Topic:
    """A topic, not yet created, of a gateway that the test may kill."""
    return Topic(client, own_gateway, "topic")


def restart_after_kill(topic: Topic) -> None:
    """Kill the gateway and start it again."""
    topic.gateway.kill()
    topic.gateway.start()


# --- reading what was written ---------------------------------------------------------------------


def as_read_by(client: Client, expected: list[Record]) -> list[Record]:
    """The records as a client can tell them: to some, empty bytes and null are the same."""
    if limits_of(client).tells_empty_from_null:
        return expected
    return [
        record._replace(
            key=record.key or None,
            value=record.value or None,
            headers=[(name, value or None) for name, value in record.headers],
        )
        for record in expected
    ]


def check_reading(topic: Topic, expected: list[Record]) -> None:
    """All records from the start, and from an offset in the middle of a batch."""
    expected = as_read_by(topic.client, expected)
    assert expected == topic.consume(0, len(expected))
    middle = len(expected) - 17
    assert expected[middle:] == topic.consume(middle, 17)


def check_times(topic: Topic, expected: list[Record]) -> None:
    """Seek by time: exactly, between two records, before the first, after the last."""
    last = len(expected) - 1
    questions = {
        START_MS: 0,
        START_MS + 3 * STEP_MS: 3,
        START_MS + 3 * STEP_MS + 1: 4,
        START_MS - 3_600_000: 0,
        START_MS + last * STEP_MS: last,
        START_MS + last * STEP_MS + 1: None,
    }
    assert questions == {time_ms: topic.offset_for_time(time_ms) for time_ms in questions}


def check_all(topic: Topic, expected: list[Record]) -> None:
    """Everything that a reader can ask about a topic that was written."""
    check_reading(topic, expected)
    assert (0, len(expected)) == topic.bounds()
    assert (0, 0) == replace(topic, partition=0).bounds()
    check_times(topic, expected)


@pytest.mark.parametrize("codec", CODECS)
def test_reads_back_what_it_wrote(client: Client, gateway: GatewayProcess, codec: str) -> None:
    """A client finds its records unchanged, from any offset and by time."""
    topic = Topic(client, gateway, f"alone-{client.name}-{codec}")
    check_all(topic, write(topic, codec))


@pytest.mark.parametrize("codec", CODECS)
def test_reads_what_its_topic_has_compressed_anew(
    client: Client, gateway: GatewayProcess, codec: str
) -> None:
    """Whatever the topic's compression.type has made of what came in another codec."""
    topic = Topic(client, gateway, f"anew-{client.name}-{codec}")
    topic.create()
    type_ = "uncompressed" if codec == "none" else codec
    kgw(
        *("topics", "alter", topic.name, "--bootstrap", gateway.bootstrap),
        *("--set", f"compression.type={type_}"),
    )
    sent = records(client)
    offsets = topic.produce(sent, "gzip" if codec == "none" else "none")
    check_all(topic, stored(sent, offsets))


# kafka-go has no idempotent producer.
@pytest.mark.parametrize("client", [name for name in NAMES if name != "kafka-go"], indirect=True)
def test_idempotent_producer(client: Client, gateway: GatewayProcess) -> None:
    """An idempotent producer writes each record once."""
    topic = Topic(client, gateway, f"idempotent-{client.name}")
    check_reading(topic, write(topic, "lz4", idempotent=True))


def test_others_read_what_it_wrote(
    client: Client, clients: Callable[[str], Client], gateway: GatewayProcess
) -> None:
    """Every other client reads the same records, offsets and timestamps."""
    topic = Topic(client, gateway, f"shared-{client.name}")
    expected = write(topic, "snappy")
    for reader in NAMES:
        check_reading(replace(topic, client=clients(reader)), expected)


def test_times_that_do_not_rise(client: Client, gateway: GatewayProcess) -> None:
    """The first record at or past a time, wherever it is; never one that was deleted.

    The libraries write the batches, so that the greatest time that a header tells is theirs.
    """
    topic = Topic(client, gateway, f"disordered-{client.name}")
    random = Random(11)
    times_ms = [START_MS + random.randint(0, 1_000) for _ in range(60)]
    sent = [Record(None, b"%d" % number, [], at_ms) for number, at_ms in enumerate(times_ms)]
    topic.create()
    for part in (sent[:1], sent[1:40], sent[40:]):
        topic.produce(part)
    for start in (0, 25):
        asyncio.run(_delete_before(topic, start))
        assert (start, 60) == topic.bounds()
        kept = list(enumerate(times_ms))[start:]
        for asked_ms in (0, *random.sample(times_ms, 8), START_MS + 500, START_MS + 1_001):
            expected = next((offset for offset, at_ms in kept if at_ms >= asked_ms), None)
            assert expected == topic.offset_for_time(asked_ms), asked_ms


# --- restarts -------------------------------------------------------------------------------------


@ON_BOTH
def test_restarts_and_kills_change_nothing(topic: Topic) -> None:
    """Acknowledged records survive a kill and a stop, and the next offset follows."""
    expected = write(topic, "zstd")
    restart_after_kill(topic)
    check_all(topic, expected)
    assert topic.gateway.stop() == 0
    topic.gateway.start()
    check_all(topic, expected)
    # What is written next follows without a gap.
    end = len(expected)
    assert list(range(end, end + 5)) == topic.produce(records(topic.client)[:5])


def test_kill_while_producing(topic: Topic) -> None:
    """A producer that lives through a kill has each record stored where it was told.

    From an idempotent producer every record is stored exactly once and in order. Without
    idempotence a batch whose answer was lost is sent again, so copies are allowed between.
    """
    is_idempotent = limits_of(topic.client).is_idempotent
    payload = noise(MANY * MANY_BYTES)
    sent = [
        Record(
            b"%d" % index,
            payload[index * MANY_BYTES : (index + 1) * MANY_BYTES],
            [],
            START_MS + index,
        )
        for index in range(MANY)
    ]
    topic.create()
    topic.start_produce(sent, "lz4", idempotent=is_idempotent)
    asyncio.run(_wait_for_offset(topic, MANY // 4))
    topic.gateway.kill()
    was_busy = topic.client.is_busy()
    topic.gateway.start()
    offsets = topic.finish_produce()
    assert was_busy, f"{topic.client.name} had sent everything before the kill"
    _, end = topic.bounds()
    found = topic.consume(0, end)
    assert list(range(end)) == [record.offset for record in found]
    assert stored(sent, offsets) == [found[offset] for offset in offsets]
    if is_idempotent:
        assert list(range(MANY)) == offsets
        assert MANY == end
    else:
        assert sorted(set(offsets)) == offsets
        keys = {record.key: record for record in sent}
        assert found == [keys[one.key]._replace(offset=one.offset) for one in found]


async def _wait_for_offset(topic: Topic, offset: int) -> None:
    """Returns as soon as the partition reaches beyond an offset, by long polls."""
    async with AsyncClient([(topic.gateway.host, topic.gateway.port)]) as kgw_client:
        end = 0
        while end <= offset:
            wanted = {topic.partition: end}
            for part in await kgw_client.fetch(topic.name, wanted, max_wait_ms=10_000):
                end = part.high_watermark


# --- administration -------------------------------------------------------------------------------


def test_administration(topic: Topic) -> None:
    """Settings are obeyed, topics grow and go, refusals are told, and a kill loses none of it."""
    limits = limits_of(topic.client)

    def configs() -> list[str]:
        return [topic.config(name) for name in ("segment.bytes", "max.message.bytes")]

    expected = write(topic, "none")
    assert ["1073741824", "1048588"] == configs()
    if limits.sets_incrementally:
        topic.set_config("segment.bytes", "1000000", incremental=True)
        assert ["1000000", "1048588"] == configs()
        topic.set_config("max.message.bytes", "2000", incremental=True)
        assert ["1000000", "2000"] == configs()
    if limits.sets_all_at_once:
        keeps = limits.resends_other_settings
        topic.set_config("segment.bytes", "2000000", incremental=False)
        assert ["2000000", "2000" if keeps else "1048588"] == configs()
        topic.set_config("max.message.bytes", "2000", incremental=False)
        assert ["2000000" if keeps else "1073741824", "2000"] == configs()
    before = configs()
    for name, value in (("no.such.setting", "1"), ("cleanup.policy", "shred")):
        with pytest.raises(DriverError):
            topic.set_config(name, value, incremental=limits.sets_incrementally)
    assert before == configs()

    topic.grow(5)
    with pytest.raises(DriverError):
        topic.grow(2)
    restart_after_kill(topic)
    assert before == configs()
    small, large = expected[0], expected[7]
    assert [0] == replace(topic, partition=4).produce([small])
    with pytest.raises(DriverError):
        topic.produce([large])
    assert (0, len(expected)) == topic.bounds()
    check_reading(topic, expected)

    topic.delete()
    with pytest.raises(DriverError):
        topic.config("segment.bytes")
    restart_after_kill(topic)
    with pytest.raises(DriverError):
        topic.config("segment.bytes")
    # A topic of the same name begins anew.
    topic.create()
    assert ["1073741824", "1048588"] == configs()
    assert (0, 0) == topic.bounds()


@ON_BOTH
def test_deletion_of_records(topic: Topic) -> None:
    """Deleted records are gone at once and after a kill; the others keep their offsets."""
    expected = as_read_by(topic.client, write(topic, "lz4"))
    end = len(expected)
    assert end - 20 == delete_records(topic, end - 20)
    for _ in range(2):
        assert (end - 20, end) == topic.bounds()
        assert expected[-20:] == topic.consume(end - 20, 20)
        if limits_of(topic.client).tells_deleted_offsets:
            with pytest.raises(DriverError):
                topic.consume(end - 21, 1)
        with pytest.raises((DriverError, ServerRefusedError)):
            delete_records(topic, end + 1)
        assert end - 20 == delete_records(topic, 0)
        restart_after_kill(topic)
    assert end == delete_records(topic, -1)
    assert (end, end) == topic.bounds()
    assert [end] == topic.produce([expected[0]])


def delete_records(topic: Topic, offset: int) -> int:
    """Delete what lies below an offset by the client's own call, by kgw's where it has none."""
    if limits_of(topic.client).deletes_records:
        return topic.delete_records(offset)
    return asyncio.run(_delete_before(topic, offset))


async def _delete_before(topic: Topic, offset: int) -> int:
    async with AsyncClient([(topic.gateway.host, topic.gateway.port)]) as kgw_client:
        answers = await AdminClient(kgw_client).delete_records(
            topic.name, {topic.partition: offset}
        )
    answer = answers[topic.partition]
    if isinstance(answer, ServerRefusedError):
        raise answer
    return answer


def test_compacted_topics(topic: Topic, backend: str) -> None:
    """Compacted topics are read over their gaps and empty batches, from any offset and by time.

    Compaction writes compressed batches anew.
    """
    if backend != EMBEDDED:
        pytest.skip("kgw log compact is for directories; test_thirty_days.py has the other way")
    is_idempotent = limits_of(topic.client).is_idempotent
    codec = "zstd" if limits_of(topic.client).reads_compacted_codecs else "none"
    topic.create()
    kgw(
        *("topics", "alter", topic.name, "--bootstrap", topic.gateway.bootstrap),
        # Every batch begins a segment, and only the last one is never compacted.
        *("--set", "cleanup.policy=compact", "--set", "segment.bytes=1024"),
        *("--set", "delete.retention.ms=0"),
    )
    written: list[Record] = []
    # Each call has a producer of its own: what all of its records leave behind is its last batch,
    # which is kept, without records, for the sequence of an idempotent producer.
    rounds: list[dict[bytes, bytes | None]] = [
        {b"%d" % key: noise(75 * (20 * number + key + 1))[-75:] for key in range(first, first + 10)}
        for number, first in enumerate((0, 0, 3, 3, 5))
    ]
    rounds += [{b"0": None, b"4": None}, {b"last": noise(1000)}, {b"last": noise(1001)}]
    for one in rounds:
        sent = [
            Record(key, value, [], START_MS + at * STEP_MS)
            for at, (key, value) in enumerate(one.items(), len(written))
        ]
        written += stored(sent, topic.produce(sent, codec, idempotent=is_idempotent))
        if b"last" in one:
            # The second run finds tombstones that have been there for delete.retention.ms.
            assert topic.gateway.stop() == 0
            kgw("log", "compact", str(topic.gateway.data_dir), "--topic", topic.name)
            topic.gateway.start()
    with pytest.raises(DriverError):
        topic.produce([Record(None, b"without a key", [], START_MS)])
    # What only the active segment has a newer record of stays, as in Kafka.
    newest = {one.key: one for one in written[:-1] if one.value is not None}
    expected = sorted(
        (one for one in newest.values() if one.key not in {b"0", b"4"}),
        key=lambda one: one.offset,
    )
    expected.append(written[-1])
    assert 15 == len(expected)
    end = len(written)
    assert (0, end) == topic.bounds()
    for offset in (0, expected[0].offset + 1, expected[-2].offset):
        rest = [one for one in expected if one.offset >= offset]
        found = topic.consume(offset, len(rest))
        assert rest == found, [one.offset for one in found]
    for at, offset in ((0, expected[0].offset), (expected[3].offset + 1, expected[4].offset)):
        assert offset == topic.offset_for_time(START_MS + at * STEP_MS)
    again = Record(b"last", b"again", [], START_MS)
    assert [end] == topic.produce([again], idempotent=is_idempotent)


def kgw(*arguments: str) -> None:
    """Run one of our own commands."""
    subprocess.run([sys.executable, "-m", "kgw", *arguments], check=True, capture_output=True)
