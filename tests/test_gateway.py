from __future__ import annotations

import asyncio
from threading import Event
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.config import Config
from kgw.errors import ErrorCode, StorageError
from kgw.gateway import Gateway
from kgw.groups.requests import CommitRequest, JoinRequest, MemberProtocol
from kgw.offsets.committed import CommittedOffset
from kgw.state.base import Change
from kgw.state.kinds import BROKER_CONFIG
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from kgw.types import TopicId
from tests.clocks import WrongClock
from tests.handlers.support import batch, create_topic, produce
from tests.simulated_fs import SimulatedFs

YEAR_MS = 365 * 24 * 3_600_000

if TYPE_CHECKING:
    from kgw.backend.base import Snapshot


async def turns(count: int = 20) -> None:
    """Let the loop turn: what waits for nothing else happens."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_checkpoints_come_at_their_interval() -> None:
    """At the start and every kgw.checkpoint.interval.ms, whatever became of the one before."""

    class CountingBackend(MemoryBackend):
        checkpoints = 0

        async def checkpoint(self) -> None:
            self.checkpoints += 1
            if self.checkpoints == 2:
                raise StorageError("broken")

    backend = CountingBackend()
    async with InProcessGateway(Config.of(checkpoint_interval_ms=1000), backend) as gateway:
        for expected in (1, 2, 3):
            await turns()
            assert expected == backend.checkpoints
            gateway.manual_clock.advance(0.999)
            await turns()
            assert expected == backend.checkpoints
            gateway.manual_clock.advance(0.001)
            await turns()
            assert expected + 1 == backend.checkpoints


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions whose snapshots have been saved, in order; each takes a few turns."""
    saved: list[int] = []
    under_way: set[int] = set()
    real = MemoryPartitionLog.save_snapshot

    async def save_snapshot(log: MemoryPartitionLog, snapshot: Snapshot) -> None:
        assert log.key.partition not in under_way
        under_way.add(log.key.partition)
        await turns()
        await real(log, snapshot)
        under_way.remove(log.key.partition)
        saved.append(log.key.partition)

    monkeypatch.setattr(MemoryPartitionLog, "save_snapshot", save_snapshot)
    return saved


async def test_snapshots_are_saved_of_what_has_changed(saved: list[int]) -> None:
    """A checkpoint writes nothing for partitions that are as they were."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, partitions=3)
        await gateway.checkpoint()
        assert [] == saved
        await produce(gateway, batch(), index=1)
        await gateway.checkpoint()
        await gateway.checkpoint()
        assert [1] == saved
        await produce(gateway, batch(), index=2)
    assert [1, 2] == saved


async def test_checkpoints_that_meet_save_a_snapshot_once(saved: list[int]) -> None:
    """One by time and one by size would write the same file at once."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway)
        await produce(gateway, batch())
        await asyncio.gather(gateway.checkpoint(), gateway.checkpoint())
    assert [0] == saved


async def test_producers_expire_at_checkpoints() -> None:
    """After producer.id.expiration.ms without a batch, a producer may begin anywhere again."""
    async with InProcessGateway(Config.of(producer_id_expiration_ms=1000)) as gateway:
        topic = await create_topic(gateway)
        await produce(gateway, batch(producer_id=1, base_sequence=0))
        assert 1 == len(topic.partitions[0].producers)
        gateway.manual_clock.advance(1)
        await gateway.checkpoint()
        assert 0 == len(topic.partitions[0].producers)


@pytest.mark.parametrize("wrong_by_ms", [10 * YEAR_MS, -10 * YEAR_MS])
async def test_a_jump_of_the_clock_expires_no_producer(wrong_by_ms: int) -> None:
    """Neither there nor back: a retry is a retry, and is not stored once more."""
    clock = WrongClock()
    async with InProcessGateway(Config.of(producer_id_expiration_ms=1000), clock=clock) as gateway:
        topic = await create_topic(gateway)
        await produce(gateway, batch(producer_id=1, base_sequence=0))
        for wrong_ms in (wrong_by_ms, 0):
            clock.wrong_by_ms = wrong_ms
            await gateway.checkpoint()
            assert 1 == len(topic.partitions[0].producers)
        clock.advance(1)
        await gateway.checkpoint()
        assert 0 == len(topic.partitions[0].producers)


async def test_no_producer_expires_in_a_start_with_a_wrong_clock() -> None:
    """How long nothing ran is not known: the time of each begins anew."""
    backend = MemoryBackend()
    config = Config.of(producer_id_expiration_ms=1000)
    async with InProcessGateway(config, backend=backend) as gateway:
        await create_topic(gateway)
        await produce(gateway, batch(producer_id=1, base_sequence=0))
    clock = WrongClock()
    clock.wrong_by_ms = 10 * YEAR_MS
    async with InProcessGateway(config, backend=backend, clock=clock) as gateway:
        topic = gateway.catalog.get("orders")
        assert topic is not None
        await gateway.checkpoint()
        assert 1 == len(topic.partitions[0].producers)


async def test_close_survives_snapshots_that_cannot_be_saved(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They only save time: the backend is closed all the same."""
    backend = MemoryBackend()
    async with InProcessGateway(backend=backend) as gateway:
        topic = await create_topic(gateway)
        await produce(gateway, batch())

        async def fail(*_: object) -> None:
            raise StorageError("broken")

        monkeypatch.setattr(type(topic.partitions[0].log), "save_snapshot", fail)
    assert not backend.health.writable
    assert "broken" in caplog.text


async def test_failed_start_closes_the_backend() -> None:
    """The next start must not find the data directory held by this one."""
    backend = MemoryBackend()
    await backend.state.apply([Change("topic", "x", b"rubbish")])
    gateway = Gateway(Config(), backend, ManualClock())
    with pytest.raises(StorageError):
        await gateway.start()
    assert not backend.health.writable


async def test_stored_server_setting_of_another_version_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What this version cannot change does not keep it from starting."""
    backend = MemoryBackend()
    texts = b'{"of.the.future": "1", "message.max.bytes": "5000", "node.id": "9"}'
    await backend.state.apply([Change(BROKER_CONFIG, "cluster", texts)])
    async with InProcessGateway(backend=backend) as gateway:
        assert 5000 == gateway.config.get("message.max.bytes")
        assert 0 == gateway.placement.here.node_id
    assert "of.the.future" in caplog.text


class SlowSnapshots:
    """An embedded backend with one thread for snapshots, whose writes wait until they may go on."""

    def __init__(self) -> None:
        self.fs = SimulatedFs()
        self.fs.make_directory_durably("/data")
        self.backend = EmbeddedBackend(
            "/data",
            EmbeddedOptions(journal_bytes=256 << 10, min_free_bytes=0, io_threads=1),
            fs=self.fs,
            state=MemoryStateStore(),
        )
        self.has_begun = Event()
        self.may_go_on = Event()
        self.calls: list[str] = []
        """What was done to the snapshots' temporary files, in order."""

    def hold(self) -> None:
        """Let the next snapshots wait."""
        self.fs.on_operation = self._note

    def _note(self, call: str, path: str) -> None:
        if path.endswith(".state.tmp"):
            self.calls.append(call)
            if call == "truncate":
                self.has_begun.set()
                self.may_go_on.wait()


async def test_a_snapshot_is_written_behind_one_whose_checkpoint_was_cancelled() -> None:
    """The checkpoint at the stop begins right after it, and writes the same temporary file."""
    slow = SlowSnapshots()
    async with InProcessGateway(backend=slow.backend) as gateway:
        await create_topic(gateway, partitions=2)
        for index in (0, 1):
            await produce(gateway, batch(), index=index)
        slow.hold()
        try:
            checkpoint = asyncio.ensure_future(gateway.checkpoint())
            await asyncio.to_thread(slow.has_begun.wait)
            checkpoint.cancel()
            with pytest.raises(asyncio.CancelledError):
                await checkpoint
            again = asyncio.ensure_future(gateway.checkpoint())
            await turns()
        finally:
            slow.may_go_on.set()
        await again
    # Of the first checkpoint no thread had begun with the other snapshot.
    assert ["open", "truncate", "write", "fdatasync", "rename"] * 3 == slow.calls


def joining(name: str) -> JoinRequest:
    """Return what a new member asks for."""
    protocols = (MemberProtocol("any", b""),)
    return JoinRequest("", None, name, "/host", 10_000, 10_000, "workers", protocols, name)


async def test_group_asked_for_first_while_the_server_stops_waits_for_nobody() -> None:
    """What is made of groups so late refuses as what was there before does."""
    async with InProcessGateway() as gateway:
        gateway.begin_to_stop()
        replies = [gateway.groups.ask("group", joining(one)) for one in ("a", "b")]
        codes = [(await reply).error for reply in replies]
        # The second would wait for the first to join again.
        assert [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR] == codes


@pytest.mark.parametrize("is_readable", [True, False])
async def test_stored_groups_are_there_from_the_start(
    monkeypatch: pytest.MonkeyPatch, *, is_readable: bool
) -> None:
    """A start without any is spared the code for them; one that cannot tell is not."""
    backend = MemoryBackend()
    async with InProcessGateway(backend=backend) as gateway:
        committed = CommittedOffset(7, -1, "", 0, -1, 0.0)
        request = CommitRequest("", None, -1, {TopicId(b"t" * 16): {0: committed}})
        gateway.groups.commit("group", request)
        await turns()

    async def kinds(_: object) -> list[str]:
        raise StorageError("a kind cannot be read")

    if not is_readable:
        monkeypatch.setattr(type(backend.state), "kinds", kinds)
    async with InProcessGateway(backend=backend) as gateway:
        assert ["group"] == list(gateway.groups.ids())
