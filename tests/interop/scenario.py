"""What every client library is put through, in this language and in others (e2e/).

The records hold everything that a record can: headers (several, repeated, empty, null), null and
empty keys and values, text beyond ASCII, and a value of 1 MB that does not compress.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kgw.client import AdminClient, AsyncClient, ServerRefusedError
from tests.interop.client import DriverError
from tests.interop.drivers.loop import Record

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITION = 1
PARTITIONS = 2
START_MS = 1_700_000_000_000
STEP_MS = 1_000
# The largest round size that fits, with its framing, in the default message.max.bytes of 1,048,588.
LARGE_BYTES = 1_000_000
# Enough that no library has sent all of it by the time that a quarter is stored.
MANY = 10_000
MANY_BYTES = 2_000


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller, the same ones every time."""
    return hashlib.shake_128(b"kgw").digest(size)


class Limits(NamedTuple):
    """What a library cannot do, whatever the server; docs/clients/ says more."""

    sends_neither_key_nor_value: bool = True
    sends_null_headers: bool = True
    tells_empty_from_null: bool = True
    is_idempotent: bool = True
    sets_incrementally: bool = True
    sets_all_at_once: bool = True
    resends_other_settings: bool = False
    deletes_records: bool = True
    tells_deleted_offsets: bool = True


NO_LIMITS = Limits()
LIMITS = {
    "kafka-python-2": Limits(
        sends_neither_key_nor_value=False, sends_null_headers=False, sets_incrementally=False
    ),
    "kafka-python-3": Limits(
        sends_neither_key_nor_value=False, sends_null_headers=False, resends_other_settings=True
    ),
    "aiokafka": Limits(sends_neither_key_nor_value=False, sets_incrementally=False),
    "kafka-go": Limits(
        tells_empty_from_null=False,
        is_idempotent=False,
        deletes_records=False,
        tells_deleted_offsets=False,
    ),
    "java-4": Limits(sets_all_at_once=False),
}


def records(client: Client) -> list[Record]:
    """The records that a client can send, one second apart."""
    kinds: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"key", b"value", []),
        (None, b"null key", []),
        (b"null value", None, []),
        (b"", b"", []),
        ("ключ".encode(), "値".encode(), [("заголовок", "🜁".encode())]),
        (
            b"headers",
            b"headers",
            [("one", b"1"), ("two", b"2"), ("one", b"again"), ("empty", b"")],
        ),
        (b"headers alone", None, [("alone", b"\x00\xff")]),
        (b"large", noise(LARGE_BYTES), []),
        (b"compressible", b"all work and no play " * 2_000, [("h", b"v" * 300)]),
        *((f"key {index}".encode(), f"value {index}".encode(), []) for index in range(40)),
    ]
    limits = LIMITS.get(client.name, NO_LIMITS)
    if limits.sends_neither_key_nor_value:
        kinds.append((None, None, [("all that there is", b"x")]))
    if limits.sends_null_headers:
        kinds.append((b"null header", b"", [("null", None)]))
    return [
        Record(key, value, headers, START_MS + index * STEP_MS)
        for index, (key, value, headers) in enumerate(kinds)
    ]


def stored(sent: list[Record]) -> list[Record]:
    """The same records as they must be read back: offsets dense from 0."""
    return [record._replace(offset=offset) for offset, record in enumerate(sent)]


def as_read_by(client: Client, expected: list[Record]) -> list[Record]:
    """The records as a client can tell them: to some, empty bytes and null are the same."""
    if LIMITS.get(client.name, NO_LIMITS).tells_empty_from_null:
        return expected
    return [
        record._replace(
            key=record.key or None,
            value=record.value or None,
            headers=[(name, value or None) for name, value in record.headers],
        )
        for record in expected
    ]


def write(
    client: Client, gateway: GatewayProcess, topic: str, *, codec: str, idempotent: bool
) -> list[Record]:
    """Creates the topic, sends the records, and returns what a reader must find."""
    sent = records(client)
    client.create_topic(gateway.bootstrap, topic, PARTITIONS)
    offsets = client.produce(
        gateway.bootstrap, topic, PARTITION, sent, codec=codec, idempotent=idempotent
    )
    assert list(range(len(sent))) == offsets
    return stored(sent)


def check_reading(
    client: Client, gateway: GatewayProcess, topic: str, expected: list[Record]
) -> None:
    """All records from the start, and from an offset in the middle of a batch."""
    expected = as_read_by(client, expected)
    everything = client.consume(gateway.bootstrap, topic, PARTITION, offset=0, count=len(expected))
    assert expected == everything
    middle = len(expected) - 17
    rest = client.consume(gateway.bootstrap, topic, PARTITION, offset=middle, count=17)
    assert expected[middle:] == rest


def check_bounds(
    client: Client, gateway: GatewayProcess, topic: str, expected: list[Record]
) -> None:
    """Earliest and latest offset of the partition, and of its empty neighbour."""
    assert (0, len(expected)) == client.bounds(gateway.bootstrap, topic, PARTITION)
    assert (0, 0) == client.bounds(gateway.bootstrap, topic, 1 - PARTITION)


def check_times(
    client: Client, gateway: GatewayProcess, topic: str, expected: list[Record]
) -> None:
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
    answers = {
        timestamp_ms: client.offset_for_time(gateway.bootstrap, topic, PARTITION, timestamp_ms)
        for timestamp_ms in questions
    }
    assert questions == answers


def check_disordered_times(client: Client, gateway: GatewayProcess, topic: str) -> None:
    """Seek by time among records whose times do not rise, before and after some were deleted.

    The libraries write the batches, so that the greatest time that a header tells is theirs.
    """
    random = Random(11)
    times_ms = [START_MS + random.randint(0, 1_000) for _ in range(60)]
    sent = [Record(None, b"%d" % number, [], at_ms) for number, at_ms in enumerate(times_ms)]
    client.create_topic(gateway.bootstrap, topic, PARTITIONS)
    for part in (sent[:1], sent[1:40], sent[40:]):
        client.produce(gateway.bootstrap, topic, PARTITION, part, codec="none", idempotent=False)
    for start in (0, 25):
        asyncio.run(_delete_before(gateway, topic, start))
        assert (start, 60) == client.bounds(gateway.bootstrap, topic, PARTITION)
        kept = list(enumerate(times_ms))[start:]
        for asked_ms in (0, *random.sample(times_ms, 8), START_MS + 500, START_MS + 1_001):
            expected = next((offset for offset, at_ms in kept if at_ms >= asked_ms), None)
            found = client.offset_for_time(gateway.bootstrap, topic, PARTITION, asked_ms)
            assert expected == found, asked_ms


async def _delete_before(gateway: GatewayProcess, topic: str, offset: int) -> int:
    async with AsyncClient([(gateway.host, gateway.port)]) as kgw_client:
        wanted = {PARTITION: offset}
        answer = (await AdminClient(kgw_client).delete_records(topic, wanted))[PARTITION]
    if isinstance(answer, ServerRefusedError):
        raise answer
    return answer


def check_all(client: Client, gateway: GatewayProcess, topic: str, expected: list[Record]) -> None:
    """Everything that a reader can ask about a topic that was written."""
    check_reading(client, gateway, topic, expected)
    check_bounds(client, gateway, topic, expected)
    check_times(client, gateway, topic, expected)


def check_restarts(client: Client, gateway: GatewayProcess, topic: str) -> None:
    """The same records at the same offsets after a kill right behind the last ack, and a stop."""
    expected = write(client, gateway, topic, codec="zstd", idempotent=False)
    gateway.kill()
    gateway.start()
    check_all(client, gateway, topic, expected)
    assert gateway.stop() == 0
    gateway.start()
    check_all(client, gateway, topic, expected)
    # What is written next follows without a gap.
    more = records(client)[:5]
    offsets = client.produce(
        gateway.bootstrap, topic, PARTITION, more, codec="none", idempotent=False
    )
    assert [len(expected) + index for index in range(len(more))] == offsets


def check_kill_while_producing(client: Client, gateway: GatewayProcess, topic: str) -> None:
    """A kill and a restart while a client sends: what it was told is true, and nothing is moved.

    From an idempotent producer every record is stored exactly once and in order. Without
    idempotence a batch whose answer was lost is sent again, so copies are allowed between.
    """
    limits = LIMITS.get(client.name, NO_LIMITS)
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
    client.create_topic(gateway.bootstrap, topic, PARTITIONS)
    client.start_produce(
        gateway.bootstrap, topic, PARTITION, sent, codec="lz4", idempotent=limits.is_idempotent
    )
    asyncio.run(_wait_for_offset(gateway, topic, MANY // 4))
    gateway.kill()
    was_busy = client.is_busy()
    gateway.start()
    offsets = client.finish_produce()
    assert was_busy, f"{client.name} had sent everything before the kill"
    _, end = client.bounds(gateway.bootstrap, topic, PARTITION)
    found = client.consume(gateway.bootstrap, topic, PARTITION, offset=0, count=end)
    assert list(range(end)) == [record.offset for record in found]
    assert stored_at(sent, offsets) == [found[offset] for offset in offsets]
    if limits.is_idempotent:
        assert list(range(MANY)) == offsets
        assert MANY == end
    else:
        assert sorted(set(offsets)) == offsets
        keys = {record.key: record for record in sent}
        assert found == [keys[one.key]._replace(offset=one.offset) for one in found]


def stored_at(sent: list[Record], offsets: list[int]) -> list[Record]:
    """The records with the offsets that a producer was told."""
    return [record._replace(offset=offset) for record, offset in zip(sent, offsets, strict=True)]


async def _wait_for_offset(gateway: GatewayProcess, topic: str, offset: int) -> None:
    """Returns as soon as the partition reaches beyond an offset, by long polls."""
    async with AsyncClient([(gateway.host, gateway.port)]) as kgw_client:
        end = 0
        while end <= offset:
            for part in await kgw_client.fetch(topic, {PARTITION: end}, max_wait_ms=10_000):
                end = part.high_watermark


def check_admin(client: Client, gateway: GatewayProcess, topic: str) -> None:
    """Settings are obeyed, topics grow and go, refusals are told, and a kill loses none of it."""
    limits = LIMITS.get(client.name, NO_LIMITS)
    bootstrap = gateway.bootstrap

    def configs() -> list[str]:
        names = ("segment.bytes", "max.message.bytes")
        return [client.topic_config(bootstrap, topic, name) for name in names]

    expected = write(client, gateway, topic, codec="none", idempotent=False)
    assert ["1073741824", "1048588"] == configs()
    if limits.sets_incrementally:
        client.set_topic_config(bootstrap, topic, "segment.bytes", "1000000", incremental=True)
        assert ["1000000", "1048588"] == configs()
        client.set_topic_config(bootstrap, topic, "max.message.bytes", "2000", incremental=True)
        assert ["1000000", "2000"] == configs()
    if limits.sets_all_at_once:
        keeps = limits.resends_other_settings
        client.set_topic_config(bootstrap, topic, "segment.bytes", "2000000", incremental=False)
        assert ["2000000", "2000" if keeps else "1048588"] == configs()
        client.set_topic_config(bootstrap, topic, "max.message.bytes", "2000", incremental=False)
        assert ["2000000" if keeps else "1073741824", "2000"] == configs()
    before = configs()
    for name, value in (("no.such.setting", "1"), ("cleanup.policy", "shred")):
        with pytest.raises(DriverError):
            client.set_topic_config(
                bootstrap, topic, name, value, incremental=limits.sets_incrementally
            )
    assert before == configs()

    client.create_partitions(bootstrap, topic, PARTITIONS + 3)
    with pytest.raises(DriverError):
        client.create_partitions(bootstrap, topic, PARTITIONS)
    gateway.kill()
    gateway.start()
    assert before == configs()
    small, large = expected[0], expected[7]
    assert [0] == client.produce(
        bootstrap, topic, PARTITIONS + 2, [small], codec="none", idempotent=False
    )
    with pytest.raises(DriverError):
        client.produce(bootstrap, topic, PARTITION, [large], codec="none", idempotent=False)
    assert (0, len(expected)) == client.bounds(bootstrap, topic, PARTITION)
    check_reading(client, gateway, topic, expected)

    client.delete_topic(bootstrap, topic)
    with pytest.raises(DriverError):
        client.topic_config(bootstrap, topic, "segment.bytes")
    gateway.kill()
    gateway.start()
    with pytest.raises(DriverError):
        client.topic_config(bootstrap, topic, "segment.bytes")
    # A topic of the same name begins anew.
    client.create_topic(bootstrap, topic, PARTITIONS)
    assert ["1073741824", "1048588"] == configs()
    assert (0, 0) == client.bounds(bootstrap, topic, PARTITION)


def check_deletion(client: Client, gateway: GatewayProcess, topic: str) -> None:
    """Deleted records are gone at once and after a kill; the others keep their offsets."""
    bootstrap = gateway.bootstrap
    expected = as_read_by(client, write(client, gateway, topic, codec="lz4", idempotent=False))
    end = len(expected)
    assert end - 20 == delete_records(client, gateway, topic, end - 20)
    for _ in range(2):
        assert (end - 20, end) == client.bounds(bootstrap, topic, PARTITION)
        rest = client.consume(bootstrap, topic, PARTITION, offset=end - 20, count=20)
        assert expected[-20:] == rest
        if LIMITS.get(client.name, NO_LIMITS).tells_deleted_offsets:
            with pytest.raises(DriverError):
                client.consume(bootstrap, topic, PARTITION, offset=end - 21, count=1)
        with pytest.raises((DriverError, ServerRefusedError)):
            delete_records(client, gateway, topic, end + 1)
        assert end - 20 == delete_records(client, gateway, topic, 0)
        gateway.kill()
        gateway.start()
    assert end == delete_records(client, gateway, topic, -1)
    assert (end, end) == client.bounds(bootstrap, topic, PARTITION)
    [offset] = client.produce(
        bootstrap, topic, PARTITION, [expected[0]], codec="none", idempotent=False
    )
    assert end == offset


def delete_records(client: Client, gateway: GatewayProcess, topic: str, offset: int) -> int:
    """Delete what lies below an offset by the client's own call, by kgw's where it has none."""
    if LIMITS.get(client.name, NO_LIMITS).deletes_records:
        return client.delete_records(gateway.bootstrap, topic, PARTITION, offset)
    return asyncio.run(_delete_before(gateway, topic, offset))


def check_compaction(client: Client, gateway: GatewayProcess, topic: str) -> None:
    """Of each key the newest record is read, at its own offset, over batches that are empty now."""
    bootstrap = gateway.bootstrap
    is_idempotent = LIMITS.get(client.name, NO_LIMITS).is_idempotent
    client.create_topic(bootstrap, topic, PARTITIONS)
    kgw(
        *("topics", "alter", topic, "--bootstrap", bootstrap),
        # Every batch begins a segment, and only the last one is never compacted.
        *("--set", "cleanup.policy=compact", "--set", "segment.bytes=1024"),
        *("--set", "delete.retention.ms=0"),
    )
    written: list[Record] = []
    # Each call has a producer of its own: what all of its records leave behind is its last batch,
    # which is kept, without records, for the sequence of an idempotent producer.
    rounds: list[dict[bytes, bytes | None]] = [
        {b"%d" % key: noise(75) for key in range(first, first + 10)} for first in (0, 0, 3, 3, 5)
    ]
    rounds += [{b"0": None, b"4": None}, {b"last": noise(1000)}, {b"last": noise(1001)}]
    for one in rounds:
        sent = [
            Record(key, value, [], START_MS + at * STEP_MS)
            for at, (key, value) in enumerate(one.items(), len(written))
        ]
        offsets = client.produce(
            bootstrap, topic, PARTITION, sent, codec="none", idempotent=is_idempotent
        )
        written += stored_at(sent, offsets)
        if b"last" in one:
            # The second run finds tombstones that have been there for delete.retention.ms.
            assert gateway.stop() == 0
            kgw("log", "compact", str(gateway.data_dir), "--topic", topic)
            gateway.start()
    keyless = [Record(None, b"without a key", [], START_MS)]
    with pytest.raises(DriverError):
        client.produce(bootstrap, topic, PARTITION, keyless, codec="none", idempotent=False)
    # What only the active segment has a newer record of stays, as in Kafka.
    newest = {one.key: one for one in written[:-1] if one.value is not None}
    expected = sorted(
        (one for one in newest.values() if one.key not in {b"0", b"4"}),
        key=lambda one: one.offset,
    )
    expected.append(written[-1])
    assert 15 == len(expected)
    end = len(written)
    assert (0, end) == client.bounds(bootstrap, topic, PARTITION)
    for offset in (0, expected[0].offset + 1, expected[-2].offset):
        rest = [one for one in expected if one.offset >= offset]
        found = client.consume(bootstrap, topic, PARTITION, offset=offset, count=len(rest))
        assert rest == found, [one.offset for one in found]
    for at, offset in ((0, expected[0].offset), (expected[3].offset + 1, expected[4].offset)):
        time_ms = START_MS + at * STEP_MS
        assert offset == client.offset_for_time(bootstrap, topic, PARTITION, time_ms)
    more = [Record(b"last", b"again", [], START_MS)]
    assert [end] == client.produce(
        bootstrap, topic, PARTITION, more, codec="none", idempotent=is_idempotent
    )


def kgw(*arguments: str) -> None:
    """Run one of our own commands."""
    subprocess.run([sys.executable, "-m", "kgw", *arguments], check=True, capture_output=True)
