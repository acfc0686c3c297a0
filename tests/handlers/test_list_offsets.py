from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.errors import CorruptionError, ErrorCode, StorageError
from kgw.handlers.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from kgw.partitions.read.lookups_by_time import LOOKUPS_AT_ONCE
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kgw.records.batch import Compression
from kgw.state.memory import MemoryStateStore
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import (
    START_MS,
    batch,
    create_topic,
    fetch_request,
    let_be_stable_below,
    produce,
    produce_request,
)
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from kgw.backend.base import PartitionLog
    from kgw.backend.memory import MemoryBackend
    from kgw.records.batch import RecordBatch

VERSIONS = range(1, 12)


async def look_up(
    gateway: InProcessGateway,
    timestamp: int,
    version: int = 7,
    *,
    name: str = "orders",
    index: int = 0,
    current_leader_epoch: int = -1,
    max_num_offsets: int = 1,
) -> ListOffsetsPartitionResponse:
    """Ask for one partition, and return its answer."""
    place = ListOffsetsPartition(
        partition_index=index,
        timestamp=timestamp,
        current_leader_epoch=current_leader_epoch,
        max_num_offsets=max_num_offsets if version == 0 else 1,
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[place])]
    )
    response = await gateway.ask(request, version, ListOffsetsResponse)
    return response.topics[0].partitions[0]


async def offset_at(gateway: InProcessGateway, timestamp: int, version: int = 7) -> int:
    """Return the offset of a time."""
    answer = await look_up(gateway, timestamp, version)
    assert ErrorCode.NONE == answer.error_code
    return answer.offset


@pytest.mark.parametrize("version", VERSIONS)
async def test_both_ends(gateway: InProcessGateway, version: int) -> None:
    """Earliest is the log start, latest the high watermark, each with its leader epoch."""
    topic = await create_topic(gateway)
    assert (0, 0) == (
        await offset_at(gateway, EARLIEST, version),
        await offset_at(gateway, LATEST, version),
    )
    await produce(gateway, batch(b"a"))
    await produce(gateway, batch(b"b", b"c"))
    await topic.partitions[0].log.drop_before(1)
    answer = await look_up(gateway, EARLIEST, version)
    assert (1, -1) == (answer.offset, answer.timestamp)
    answer = await look_up(gateway, LATEST, version)
    assert (3, -1) == (answer.offset, answer.timestamp)
    assert (0 if version >= 4 else -1) == answer.leader_epoch


@pytest.mark.parametrize("version", VERSIONS)
async def test_by_time(gateway: InProcessGateway, version: int) -> None:
    """The first record at or past the time, also in the middle of a batch; none is -1."""
    await create_topic(gateway)
    start = START_MS
    await produce(gateway, batch(b"a", b"b", timestamps_ms=[start, start + 10]))
    await produce(gateway, batch(b"c", b"d", timestamps_ms=[start + 20, start + 30]))
    expected = {0: 0, start: 0, start + 1: 1, start + 10: 1, start + 11: 2, start + 25: 3}
    for timestamp, offset in expected.items():
        assert offset == await offset_at(gateway, timestamp, version)
    answer = await look_up(gateway, start + 31, version)
    assert (-1, -1) == (answer.offset, answer.timestamp)
    assert start + 30 == (await look_up(gateway, start + 25, version)).timestamp


async def test_max_timestamp(gateway: InProcessGateway) -> None:
    """-3 is the record with the greatest timestamp (KIP-734)."""
    await create_topic(gateway)
    answer = await look_up(gateway, MAX_TIMESTAMP)
    assert (-1, -1) == (answer.offset, answer.timestamp)
    times = [START_MS + 5, START_MS + 90, START_MS + 7]
    await produce(gateway, batch(b"a"))
    await produce(gateway, batch(b"b", b"c", b"d", timestamps_ms=times))
    await produce(gateway, batch(b"e", timestamps_ms=[START_MS + 8]))
    answer = await look_up(gateway, MAX_TIMESTAMP)
    assert (2, START_MS + 90) == (answer.offset, answer.timestamp)


async def test_special_times_need_their_versions(gateway: InProcessGateway) -> None:
    """A special time in a version that does not know it is UNSUPPORTED_VERSION."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a"))
    for timestamp, since in (
        (MAX_TIMESTAMP, 7),
        (EARLIEST_LOCAL, 8),
        (LATEST_TIERED, 9),
        (EARLIEST_PENDING_UPLOAD, 11),
    ):
        for version in VERSIONS:
            answer = await look_up(gateway, timestamp, version)
            code = ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION
            assert code == answer.error_code
    assert 0 == await offset_at(gateway, EARLIEST_LOCAL, 8)
    assert -1 == await offset_at(gateway, LATEST_TIERED, 9)
    assert ErrorCode.UNSUPPORTED_VERSION == (await look_up(gateway, -7, 11)).error_code


async def test_version_0_answers_lists(gateway: InProcessGateway) -> None:
    """The oldest version has room for several offsets and no timestamps."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a", b"b"))
    assert [2] == (await look_up(gateway, LATEST, 0)).old_style_offsets
    answer = await look_up(gateway, LATEST, 0, max_num_offsets=5)
    assert [2, 0] == answer.old_style_offsets
    assert [0] == (await look_up(gateway, EARLIEST, 0)).old_style_offsets
    assert [0] == (await look_up(gateway, START_MS, 0)).old_style_offsets
    assert [2] == (await look_up(gateway, START_MS + 1, 0)).old_style_offsets


async def test_unknown_topics_and_partitions(gateway: InProcessGateway) -> None:
    """Neither is created by asking."""
    await create_topic(gateway)
    for name, index in (("missing", 0), ("orders", 1), ("orders", -1)):
        answer = await look_up(gateway, LATEST, name=name, index=index)
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == answer.error_code


async def test_leader_epoch_is_checked(gateway: InProcessGateway) -> None:
    """A client that knows of a later leader is not answered by this one (KIP-320)."""
    await create_topic(gateway)
    answer = await look_up(gateway, LATEST, current_leader_epoch=1)
    assert ErrorCode.UNKNOWN_LEADER_EPOCH == answer.error_code
    answer = await look_up(gateway, LATEST, current_leader_epoch=0)
    assert ErrorCode.NONE == answer.error_code


async def test_latest_is_what_is_committed(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """An append in flight does not move the end that clients see."""
    await create_topic(gateway)
    backend.hold()
    held = gateway.start(produce_request(batch(b"a")), 9)
    assert 0 == await offset_at(gateway, LATEST)
    backend.release()
    await held.response()
    assert 1 == await offset_at(gateway, LATEST)


async def test_batch_that_cannot_be_read_is_answered_with_its_beginning(
    gateway: InProcessGateway,
) -> None:
    """A decompression bomb costs its limits only, and no record is missed."""
    await create_topic(gateway)
    await produce(gateway, batch(b"before", timestamps_ms=[START_MS - 100]))
    values = [bytes(4 << 20)] * 20
    times = [START_MS + number for number in range(20)]
    bomb = batch(*values, timestamps_ms=times, compression=Compression.GZIP)
    assert ErrorCode.NONE == (await produce(gateway, bomb)).error_code
    assert 1 == await offset_at(gateway, START_MS + 10)


async def test_failing_disks(gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage and a failing disk have the codes that Fetch gives them."""
    topic = await create_topic(gateway)
    for error, code in (
        (CorruptionError("a flipped bit"), ErrorCode.CORRUPT_MESSAGE),
        (StorageError("unreadable"), ErrorCode.KAFKA_STORAGE_ERROR),
    ):

        async def fail(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(type(topic.partitions[0].log), "find_by_time", fail)
        assert code == (await look_up(gateway, START_MS)).error_code


async def test_both_ends_wait_for_no_disk_and_for_no_long_poll() -> None:
    """They are known in memory: every I/O thread may hang, every other connection may wait."""
    options = EmbeddedOptions(min_free_bytes=0)
    backend = EmbeddedBackend("/data", options, fs=SimulatedFs(), state=MemoryStateStore())
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway)
        await produce(gateway, batch(b"a", b"b"))
        disk = threading.Event()
        hanging = [asyncio.ensure_future(backend.threads.run_in_io(disk.wait)) for _ in range(64)]
        polls = [gateway.start(fetch_request(2, max_wait_ms=60_000), 12) for _ in range(50)]
        by_time = gateway.start(_request(START_MS), 7)
        assert (0, 2) == (await offset_at(gateway, EARLIEST), await offset_at(gateway, LATEST))
        assert not by_time.done
        assert not any(poll.done for poll in polls)
        disk.set()
        await asyncio.gather(*hanging)
        response = await by_time.response()
        assert isinstance(response, ListOffsetsResponse)
        assert 0 == response.topics[0].partitions[0].offset
        for poll in polls:
            poll.cancel()


async def test_partitions_are_looked_up_side_by_side(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a request for several partitions, of any topics; one I/O thread is left to others."""
    names = ["orders", "others"]
    logs: list[PartitionLog] = []
    for name in names:
        topic = await create_topic(gateway, name, 3)
        logs += [partition.log for partition in topic.partitions.values()]
    waiting = 0
    met = asyncio.Event()

    async def look(*_: object) -> RecordBatch | None:
        nonlocal waiting
        waiting += 1
        assert waiting <= LOOKUPS_AT_ONCE < EmbeddedOptions().io_threads
        if waiting == LOOKUPS_AT_ONCE:
            met.set()
        await met.wait()
        waiting -= 1
        return None

    monkeypatch.setattr(type(logs[0]), "find_by_time", look)
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=START_MS)
                    for index in range(3)
                ],
            )
            for name in names
        ]
    )
    response = await gateway.ask(request, 7, ListOffsetsResponse)
    assert [[-1] * 3] * 2 == [[one.offset for one in topic.partitions] for topic in response.topics]


@pytest.mark.parametrize("timestamp", [LATEST, START_MS, MAX_TIMESTAMP])
async def test_read_committed_ends_at_the_last_stable_offset(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    """What is not stable yet is not found with isolation level 1."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a", timestamps_ms=[START_MS - 5]))
    await produce(gateway, batch(b"b", timestamps_ms=[START_MS]))
    let_be_stable_below(1, monkeypatch)
    offsets = []
    for isolation_level in (0, 1):
        request = _request(timestamp)
        request.isolation_level = isolation_level
        response = await gateway.ask(request, 7, ListOffsetsResponse)
        offsets.append(response.topics[0].partitions[0].offset)
    assert {LATEST: [2, 1], START_MS: [1, -1], MAX_TIMESTAMP: [1, 0]}[timestamp] == offsets


def _request(timestamp: int) -> ListOffsetsRequest:
    """Return a request for one partition."""
    place = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[place])]
    )
