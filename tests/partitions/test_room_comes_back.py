"""What retention and DeleteRecords remove gives its room back, the active segment's, too."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from copy import deepcopy
from random import Random
from threading import Event
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.backend.embedded.driver import DIRECT
from tests.handlers.support import (
    batch,
    call,
    create_topic,
    produce,
    produce_request,
    produced,
    topic_of,
)
from tests.simulated_disk import CrashMode
from tests.simulated_fs import Fault, FaultKind, SimulatedFs
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kgw.backend.base import Backend, PartitionLog
    from kgw.backend.seaweedmq.filer import Chunk, FilerEntry

ROOT = "/data"
PRODUCER = 7


def embedded(fs: SimulatedFs, state: MemoryStateStore, clock: ManualClock) -> Backend:
    """Return a data directory on a simulated disk."""
    return EmbeddedBackend(ROOT, DIRECT, fs=fs, state=state, clock=clock)


def new_disk() -> SimulatedFs:
    """Return one with an empty data directory."""
    fs = SimulatedFs()
    fs.make_directory_durably(ROOT)
    return fs


async def fill(gateway: InProcessGateway, first: int = 0, count: int = 10) -> None:
    """Append records of one idempotent producer."""
    for number in range(first, first + count):
        answer = await produce(gateway, batch(producer_id=PRODUCER, base_sequence=number))
        assert ErrorCode.NONE == answer.error_code


async def delete(gateway: InProcessGateway, offset: int = -1) -> int:
    """Delete records and return where the partition begins."""
    response = await call(
        gateway,
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": "orders", "partitions": [{"partition_index": 0, "offset": offset}]}],
        timeout_ms=1000,
    )
    (answer,) = response.topics[0].partitions
    assert ErrorCode.NONE == answer.error_code
    return int(answer.low_watermark)


def log_of(gateway: InProcessGateway) -> PartitionLog:
    """Return the log of the only partition."""
    return topic_of(gateway).partitions[0].log


def log_bytes(fs: SimulatedFs, log: PartitionLog) -> int:
    """Return how much all segment files of a partition take, those set aside included."""
    directory = f"{ROOT}/partitions/{log.key}"
    size_bytes = 0
    for name in fs.listdir(directory):
        if ".log" in name:
            # A thread may have removed the file since.
            with suppress(FileNotFoundError):
                size_bytes += len(fs.content(f"{directory}/{name}"))
    return size_bytes


@pytest.mark.parametrize("offset", [-1, 10])
async def test_all_of_the_active_segment_is_deleted(offset: int) -> None:
    """Its file goes after file.delete.delay.ms, and the log goes on at the same offset."""
    fs, clock = new_disk(), ManualClock()
    backend = embedded(fs, MemoryStateStore(), clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await create_topic(gateway, file_delete_delay_ms="60000")
        await fill(gateway)
        log = log_of(gateway)
        assert 10 == await delete(gateway, offset)
        assert (10, 10, 10, 0) == (
            log.log_start_offset,
            log.high_watermark,
            log.end_offset,
            log.size_bytes,
        )
        assert log_bytes(fs, log) > 0
        clock.advance(60)
        while log_bytes(fs, log):
            await turns(5)
        await fill(gateway, first=10, count=1)
        assert 11 == log.high_watermark


async def test_all_is_deleted_while_producers_go_on() -> None:
    """What is on its way to the disk then does not keep what was there before."""
    fs, clock = new_disk(), ManualClock()
    backend = embedded(fs, MemoryStateStore(), clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await create_topic(gateway, file_delete_delay_ms="0")
        await fill(gateway)
        goes_on = Event()

        def wait(call: str, path: str) -> None:
            if call == "fdatasync" and path.endswith(".log"):
                goes_on.wait(patience.seconds(10))

        fs.on_operation = wait
        pending = gateway.start(produce_request(batch(producer_id=PRODUCER, base_sequence=10)), 9)
        deleting = asyncio.ensure_future(delete(gateway))
        await turns(50)
        goes_on.set()
        assert 11 == await deleting
        assert ErrorCode.NONE == (await produced(pending)).error_code
        log = log_of(gateway)
        assert (11, 0, 0) == (log.log_start_offset, log.size_bytes, log_bytes(fs, log))


async def test_a_part_of_the_active_segment_is_deleted() -> None:
    """What is left stays where it is: no segment is begun for it."""
    fs, clock = new_disk(), ManualClock()
    backend = embedded(fs, MemoryStateStore(), clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await create_topic(gateway)
        await fill(gateway)
        size_bytes = log_of(gateway).size_bytes
        assert 9 == await delete(gateway, 9)
        assert size_bytes == log_of(gateway).size_bytes


@pytest.mark.parametrize(("name", "value"), [("retention.ms", "1000"), ("retention.bytes", "0")])
async def test_retention_takes_the_active_segment(name: str, value: str) -> None:
    """As Kafka does, when all of it is due."""
    fs, clock = new_disk(), ManualClock()
    backend = embedded(fs, MemoryStateStore(), clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        topic = await create_topic(gateway, file_delete_delay_ms="0")
        await gateway.topic_manager.configure(topic, lambda own: {**own, name: value})
        await fill(gateway)
        log = log_of(gateway)
        clock.advance(2)
        await gateway.log_manager.retain()
        assert (10, 10, 0, 0) == (
            log.log_start_offset,
            log.end_offset,
            log.size_bytes,
            log_bytes(fs, log),
        )


async def test_a_shorter_retention_acts_at_once() -> None:
    """Whoever sets it wants the room: it does not wait for the next regular run."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway)
        await fill(gateway)
        gateway.manual_clock.advance(31)
        await turns(50)
        log = log_of(gateway)
        topic = topic_of(gateway)
        gateway.manual_clock.advance(2)
        await gateway.topic_manager.configure(topic, lambda own: {**own, "retention.ms": "1000"})
        await turns(50)
        assert (10, 10) == (log.log_start_offset, log.end_offset)
        await fill(gateway, first=10, count=1)
        gateway.manual_clock.advance(297)
        await turns(50)
        assert 10 == log.log_start_offset
        gateway.manual_clock.advance(1)
        await turns(50)
        assert 11 == log.log_start_offset


async def test_in_seaweedfs() -> None:
    """The file that was appended to goes there, too."""
    clock = ManualClock()
    store = FilerStore()
    filer = MemoryFiler(store, clock)
    backend = SeaweedMqBackend(filer, "kafka", MemoryStateStore(), clock=clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await create_topic(gateway)
        await fill(gateway)
        assert 10 == await delete(gateway)
        await turns(50)
        log = log_of(gateway)
        assert (10, 10, 0) == (log.log_start_offset, log.end_offset, log.size_bytes)
        await fill(gateway, first=10, count=1)
        assert 11 == log.high_watermark


async def test_what_could_not_be_closed_goes_with_retention() -> None:
    """On a disk that is full to the last byte no segment can be begun."""
    fs, clock = new_disk(), ManualClock()
    backend = embedded(fs, MemoryStateStore(), clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await create_topic(gateway, file_delete_delay_ms="0")
        await fill(gateway)
        log = log_of(gateway)
        await gateway.checkpoint()
        await topic_of(gateway).partitions[0].save_snapshot()
        fs.inject(Fault(FaultKind.ENOSPC, 1, persistent=True, suffix=f"{10:020d}.log"))
        assert 10 == await delete(gateway)
        assert log.size_bytes > 0
        fs.inject(None)
        await gateway.log_manager.retain()
        assert (10, 10, 0) == (log.log_start_offset, log.end_offset, log.size_bytes)


async def _delete_all(gateway: InProcessGateway) -> None:
    await delete(gateway)


async def _retain(gateway: InProcessGateway) -> None:
    gateway.manual_clock.advance(2)
    await gateway.log_manager.retain()


@pytest.mark.slow
@pytest.mark.parametrize("has_snapshot", [False, True], ids=["no_snapshot", "snapshot"])
@pytest.mark.parametrize("mode", [None, CrashMode.NOTHING, CrashMode.RANDOM], ids=str)
@pytest.mark.parametrize("work", [_delete_all, _retain])
async def test_a_crash_at_each_step(
    work: Callable[[InProcessGateway], Awaitable[None]], mode: CrashMode | None, has_snapshot: bool
) -> None:
    """Killed, or without power, before any operation: no offset moves, no producer is forgotten."""
    fs, clock, state = new_disk(), ManualClock(), MemoryStateStore()
    crashed: list[tuple[str, SimulatedFs, MemoryStateStore]] = []
    async with InProcessGateway(backend=embedded(fs, state, clock), clock=clock) as gateway:
        await create_topic(gateway, file_delete_delay_ms="0", retention_ms="1000")
        await fill(gateway)
        if has_snapshot:
            await gateway.checkpoint()

        def crash(call: str, path: str) -> None:
            if call not in {"read", "read_into", "peek"}:
                other = fs.clone() if mode is None else fs.power_loss(Random(len(crashed)), mode)
                crashed.append((f"{call} {path}", other, deepcopy(state)))

        fs.on_operation = crash
        await work(gateway)
        fs.on_operation = None
        assert (10, 10, 0) == (
            log_of(gateway).log_start_offset,
            log_of(gateway).end_offset,
            log_of(gateway).size_bytes,
        )
    assert len(crashed) > 15
    starts = set()
    for step, disk, rows in crashed:
        backend = embedded(disk, rows, clock)
        async with InProcessGateway(backend=backend, clock=clock) as gateway:
            log = log_of(gateway)
            starts.add(log.log_start_offset)
            assert (10, 10) == (log.high_watermark, log.end_offset), step
            # What is sent again is known.
            again = await produce(gateway, batch(producer_id=PRODUCER, base_sequence=9))
            assert (ErrorCode.NONE, 9, 10) == (again.error_code, again.base_offset, log.end_offset)
            await fill(gateway, first=10, count=1)
            assert 11 == log.end_offset
    assert {0, 10} == starts


async def test_what_could_not_be_closed_in_seaweedfs_goes_with_retention() -> None:
    """The log begins behind all that its only file holds: retention begins another one."""
    clock = ManualClock()
    filer = MemoryFiler(FilerStore(), clock)
    backend = SeaweedMqBackend(filer, "kafka", MemoryStateStore(), clock=clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await create_topic(gateway)
        await fill(gateway)
        await gateway.checkpoint()
        log = log_of(gateway)
        # Past the partition, which would begin a file first.
        await log.drop_before(10)
        assert log.size_bytes > 0
        await gateway.log_manager.retain()
        assert (10, 10, 0) == (log.log_start_offset, log.end_offset, log.size_bytes)


class WatchedStore(FilerStore):
    """A filer's store that says when it is about to change."""

    before_change: Callable[[], None] | None = None

    def _tell(self) -> None:
        if self.before_change is not None:
            self.before_change()

    def put(self, directory: str, entry: FilerEntry) -> None:
        self._tell()
        super().put(directory, entry)

    def update(self, directory: str, entry: FilerEntry, expected: Mapping[str, bytes]) -> None:
        self._tell()
        super().update(directory, entry, expected)

    def create(self, directory: str, entry: FilerEntry) -> None:
        self._tell()
        super().create(directory, entry)

    def delete(self, directory: str, name: str, *, is_recursive: bool) -> None:
        self._tell()
        super().delete(directory, name, is_recursive=is_recursive)

    def upload(self, data: bytes, now_ns: int) -> Chunk:
        self._tell()
        return super().upload(data, now_ns)


def copy_of(store: FilerStore) -> FilerStore:
    """Return what a filer has now, for a gateway that starts on it."""
    other = FilerStore()
    other.directories, other.chunks = deepcopy((store.directories, store.chunks))
    return other


@pytest.mark.slow
@pytest.mark.parametrize("has_snapshot", [False, True], ids=["no_snapshot", "snapshot"])
@pytest.mark.parametrize("work", [_delete_all, _retain])
async def test_a_kill_at_each_step_in_seaweedfs(
    work: Callable[[InProcessGateway], Awaitable[None]], has_snapshot: bool
) -> None:
    """As on a disk: no offset moves, no producer is forgotten, and what is left goes later."""
    clock, state, store = ManualClock(), MemoryStateStore(), WatchedStore()
    killed: list[tuple[FilerStore, MemoryStateStore]] = []
    backend = SeaweedMqBackend(MemoryFiler(store, clock), "kafka", state, clock=clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await create_topic(gateway, retention_ms="1000")
        await fill(gateway)
        if has_snapshot:
            await gateway.checkpoint()
        store.before_change = lambda: killed.append((copy_of(store), deepcopy(state)))
        await work(gateway)
        await turns(50)
        store.before_change = None
    starts = set()
    for left, rows in killed:
        backend = SeaweedMqBackend(MemoryFiler(left, clock), "kafka", rows, clock=clock)
        async with InProcessGateway(backend=backend, clock=clock) as gateway:
            log = log_of(gateway)
            starts.add(log.log_start_offset)
            assert (10, 10) == (log.high_watermark, log.end_offset)
            again = await produce(gateway, batch(producer_id=PRODUCER, base_sequence=9))
            assert (ErrorCode.NONE, 9, 10) == (again.error_code, again.base_offset, log.end_offset)
            gateway.manual_clock.advance(2)
            await gateway.log_manager.retain()
            assert (10, 0) == (log.log_start_offset, log.size_bytes)
            await fill(gateway, first=10, count=1)
            assert 11 == log.end_offset
    assert {0, 10} == starts
