"""For each reason of the table, what brings it about on a gateway, and what ends it."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kgw import problems
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.lease import LeaseStatus
from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.channel.servers import READING
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.config import Listener
from kgw.errors import CorruptionError, DiskFullError, ErrorCode, StorageError
from kgw.problems import REFUSED_LATELY_S
from kgw.server.limits import Limits
from kgw.server.server import Server
from kgw.state.base import Change
from kgw.state.memory import MemoryStateStore
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler
from kgw.testing.gateway import InProcessGateway
from kgw.types import PartitionKey, TopicId, TopicName
from tests.backend.embedded.driver import DIRECT
from tests.clocks import WrongClock
from tests.handlers.support import batch, create_topic, fetch, fetch_request, produce
from tests.leases import lease_of
from tests.simulated_fs import Fault, FaultKind, SimulatedFs
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import pytest

    from kgw.backend.base import Backend, LogSettings, PartitionLog
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.problems import Reason
    from kgw.state.base import StateStore

ROOT = "/data"
_RESERVE_BYTES = 100_000


class Caused(NamedTuple):
    """A gateway on which something is wrong."""

    gateway: InProcessGateway
    end: Callable[[], Awaitable[object]] | None = None
    """Puts it right; None: it stays until the process ends."""
    is_served: bool = True
    """Whether it answers clients."""


Cause: TypeAlias = "Callable[[Path, pytest.MonkeyPatch], AbstractAsyncContextManager[Caused]]"


class Disk(SimulatedFs):
    """One that refuses to open files when it is told to."""

    __slots__ = ("opens",)

    def __init__(self) -> None:
        super().__init__()
        self.make_directory_durably(ROOT)
        self.opens = True

    def leave(self, free_bytes: int) -> None:
        """Have so much room from now on."""
        self.capacity_bytes += free_bytes - self.free_bytes(ROOT)

    def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]  # noqa: ANN201
        if not self.opens:
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, create=create)


@asynccontextmanager
async def _embedded(
    fs: SimulatedFs,
    options: EmbeddedOptions = DIRECT,
    state: StateStore | None = None,
) -> AsyncIterator[InProcessGateway]:
    clock = ManualClock()
    backend = EmbeddedBackend(ROOT, options, fs=fs, state=state or MemoryStateStore(), clock=clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        yield gateway


async def _refused(gateway: InProcessGateway, *values: bytes) -> None:
    answer = await produce(gateway, batch(*values))
    assert ErrorCode.KAFKA_STORAGE_ERROR == answer.error_code


def _later(gateway: InProcessGateway) -> Callable[[], Awaitable[object]]:
    async def wait() -> None:
        gateway.manual_clock.advance(REFUSED_LATELY_S)

    return wait


# --- the process ----------------------------------------------------------------------------------


@asynccontextmanager
async def _starting(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    gateway = InProcessGateway()
    yield Caused(gateway, gateway.open, is_served=False)
    await gateway.aclose()


@asynccontextmanager
async def _stopping(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    async with InProcessGateway() as gateway:
        gateway.begin_to_stop()
        yield Caused(gateway)


@asynccontextmanager
async def _not_leading(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    backend = MemoryBackend()
    lease = lease_of(backend)
    async with InProcessGateway(backend=backend) as gateway:
        lease.become(LeaseStatus.UNCONFIRMED)

        async def confirm() -> None:
            lease.become(LeaseStatus.LEADING)

        yield Caused(gateway, confirm)


@asynccontextmanager
async def _closed(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    async with InProcessGateway() as gateway:
        backend = gateway.backend
        await backend.aclose()
        yield Caused(gateway, backend.open)


# --- room -----------------------------------------------------------------------------------------


@asynccontextmanager
async def _room(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """Something else has filled the disk: nothing was appended since."""
    fs = Disk()
    options = DIRECT._replace(min_free_bytes=_RESERVE_BYTES)
    async with _embedded(fs, options) as gateway:
        fs.leave(_RESERVE_BYTES - 1)

        async def make_room() -> None:
            fs.leave(_RESERVE_BYTES)

        yield Caused(gateway, make_room)


@asynccontextmanager
async def _batch_room(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    fs = Disk()
    options = DIRECT._replace(min_free_bytes=_RESERVE_BYTES)
    async with _embedded(fs, options) as gateway:
        await create_topic(gateway)
        fs.leave(_RESERVE_BYTES + 20_000)
        await _refused(gateway, b"x" * 50_000)
        assert ErrorCode.NONE == (await produce(gateway, batch())).error_code

        async def make_room() -> None:
            fs.leave(2 * _RESERVE_BYTES)

        yield Caused(gateway, make_room)


@asynccontextmanager
async def _fault(fault: Fault, *, is_final: bool = False) -> AsyncIterator[Caused]:
    """An append that meets an error of the disk."""
    fs = Disk()
    async with _embedded(fs) as gateway:
        await create_topic(gateway)
        await produce(gateway, batch())
        fs.inject(fault)
        await _refused(gateway)
        fs.inject(None)
        yield Caused(gateway, None if is_final else _later(gateway))


def _no_space(_: Path, __: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Caused]:
    return _fault(Fault(FaultKind.ENOSPC, 1, suffix=".log"))


def _disk_error(_: Path, __: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Caused]:
    return _fault(Fault(FaultKind.EIO, 1, spared=frozenset({"fdatasync"}), suffix=".log"))


def _disk(_: Path, __: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Caused]:
    spared = frozenset({"write", "open", "truncate"})
    return _fault(Fault(FaultKind.EIO, 1, spared=spared, suffix=".log"), is_final=True)


@asynccontextmanager
async def _descriptors(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    fs = Disk()
    async with _embedded(fs) as gateway:
        await create_topic(gateway)
        fs.opens = False
        await _refused(gateway)
        fs.opens = True
        assert ErrorCode.NONE == (await produce(gateway, batch())).error_code
        yield Caused(gateway, _later(gateway))


# --- the state ------------------------------------------------------------------------------------


class BrokenState(MemoryStateStore):
    """A state store whose disk has failed."""

    @property
    def failure(self) -> str | None:
        return "the state store cannot sync"


@asynccontextmanager
async def _state(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    async with _embedded(Disk(), state=BrokenState()) as gateway:
        yield Caused(gateway)


@asynccontextmanager
async def _state_room(path: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    state = SqliteStateStore(path / "state.sqlite")
    async with _embedded(Disk(), state=state) as gateway:
        ((pages,),) = await state.fetch("PRAGMA page_count", ())
        await state.fetch(f"PRAGMA max_page_count = {pages + 2}", ())
        with suppress(DiskFullError):
            await state.apply([Change("topic", "large", bytes(1 << 20))])

        async def commit() -> None:
            await state.apply([Change("small", "one", b"x")])

        yield Caused(gateway, commit)


# --- what is stored -------------------------------------------------------------------------------


@asynccontextmanager
async def _damage(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    fs = Disk()
    options = DIRECT._replace(cache_bytes=0, read_ahead=0)
    async with _embedded(fs, options) as gateway:
        topic = await create_topic(gateway, segment_bytes="1024")
        for _number in range(3):
            await produce(gateway, batch(b"x" * 1_000))
        (log,) = gateway.backend.partitions.values()
        fs.content(f"{ROOT}/partitions/{log.key}/{0:020d}.log")[150] ^= 1
        data = await fetch(gateway, fetch_request(0))
        assert ErrorCode.CORRUPT_MESSAGE == data.error_code

        async def remove() -> None:
            await topic.partitions[0].delete_before(1)

        yield Caused(gateway, remove)


@asynccontextmanager
async def _storage(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    fs = Disk()
    async with _embedded(fs):
        pass
    fs.content(f"{ROOT}/clean.json")[3] ^= 1
    async with _embedded(fs) as gateway:
        yield Caused(gateway)


@asynccontextmanager
async def _unclaimed(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """Their topic was in a state that is lost."""
    fs = Disk()
    async with _embedded(fs) as gateway:
        await create_topic(gateway)
    async with _embedded(fs) as gateway:
        yield Caused(gateway)


class SlowToOpen(MemoryBackend):
    """A backend one of whose partitions cannot be opened for a while."""

    start_waits_s = 0.0
    is_broken = False

    async def open_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        if self.is_broken:
            raise StorageError("its file is gone")
        return await super().open_partition(key, topic, settings)


@asynccontextmanager
async def _unopened(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    backend = SlowToOpen()
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway)
    backend.is_broken = True
    async with InProcessGateway(backend=backend) as gateway:
        await turns()

        async def mend() -> None:
            backend.is_broken = False
            await turns()
            gateway.manual_clock.advance(10.0)
            await turns()

        yield Caused(gateway, mend)


# --- SeaweedFS ------------------------------------------------------------------------------------

_KEY = PartitionKey(TopicId(bytes(range(16))), 0)


class InSeaweedFs(NamedTuple):
    """A gateway over a filer in memory, and the log of its topic."""

    gateway: InProcessGateway
    filer: MemoryFiler

    @property
    def log(self) -> PartitionLog:
        """The only partition."""
        (log,) = self.gateway.backend.partitions.values()
        return log

    async def wait(self, seconds: int) -> None:
        """Let time pass."""
        for _number in range(seconds):
            await turns(3)
            self.gateway.manual_clock.advance(1)
        await turns(50)


@asynccontextmanager
async def _in_seaweedfs(
    options: SeaweedMqOptions | None = None, partitions: int = 1, **configs: str
) -> AsyncIterator[InSeaweedFs]:
    clock = ManualClock()
    filer = MemoryFiler(FilerStore(), clock)
    backend: Backend = SeaweedMqBackend(filer, "kafka", MemoryStateStore(), options, clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await create_topic(gateway, partitions=partitions, **configs)
        yield InSeaweedFs(gateway, filer)


@asynccontextmanager
async def _away(partitions: int) -> AsyncIterator[Caused]:
    """One append waits for a filer that does not answer."""
    async with _in_seaweedfs(partitions=partitions) as there:
        there.filer.is_away = True
        log = min(there.gateway.backend.partitions.values(), key=lambda one: one.key)
        append = log.append([make_batch([b"x"])])
        await there.wait(15)

        async def come_back() -> None:
            there.filer.is_away = False
            await there.wait(15)
            assert append.is_done

        yield Caused(there.gateway, come_back)


def _no_partition(_: Path, __: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Caused]:
    return _away(1)


@asynccontextmanager
async def _stopped(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """The file that a partition appends to is gone; the topic is deleted then."""
    async with _in_seaweedfs(partitions=2) as there:
        backend = there.gateway.backend
        assert isinstance(backend, SeaweedMqBackend)
        log = min(backend.partitions.values(), key=lambda one: one.key)
        await log.append([make_batch([b"x"])])
        directory = await backend.directory_of(log.key)
        assert directory is not None
        names = there.filer.store.directories[directory]
        for name in [one for one in names if one != LEADER]:
            names.pop(name)
        refused = log.append([make_batch([b"y"])])
        await there.wait(15)
        assert isinstance(refused.error, StorageError)

        async def delete() -> None:
            (topic,) = there.gateway.catalog.topics.values()
            await there.gateway.topic_manager.delete(topic)

        yield Caused(there.gateway, delete)


def _seaweedfs(_: Path, __: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Caused]:
    return _away(2)


@asynccontextmanager
async def _no_volume(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """One append waits for a volume."""
    async with _in_seaweedfs() as there:
        there.filer.store.is_full = True
        append = there.log.append([make_batch([b"x"])])
        await there.wait(2)

        async def make_room() -> None:
            there.filer.store.is_full = False
            await there.wait(15)
            assert append.is_done

        yield Caused(there.gateway, make_room)


@asynccontextmanager
async def _volume_server(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """One has been silent twice."""
    async with _in_seaweedfs() as there:
        server = "memory:8080"
        for _again in range(2):
            there.filer.troubled.note_trouble(server, READING, "no answer for 0.25 s")
            await there.wait(2)

        async def come_back() -> None:
            there.filer.troubled.note_answer(server, READING)

        yield Caused(there.gateway, come_back)


@asynccontextmanager
async def _reads(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """A chunk cannot be read."""
    options = SeaweedMqOptions(cache_bytes=0, chunk_cache_bytes=0)
    async with _in_seaweedfs(options) as there:
        await there.log.append([make_batch([b"x"])])
        there.filer.fail_next(CallKind.READ_CHUNK)
        answer = await fetch(there.gateway, fetch_request())
        assert ErrorCode.KAFKA_STORAGE_ERROR == answer.error_code
        yield Caused(there.gateway, _later(there.gateway))


@asynccontextmanager
async def _waiting(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    options = SeaweedMqOptions(waiting_bytes=100)
    async with _in_seaweedfs(options) as there:
        there.filer.is_away = True
        waits = there.log.append([make_batch([b"x" * 50])])
        refused = there.log.append([make_batch([b"y" * 50])])
        assert isinstance(refused.error, StorageError)
        there.filer.is_away = False
        await there.wait(15)
        assert waits.is_done
        yield Caused(there.gateway, _later(there.gateway))


@asynccontextmanager
async def _files(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    options = SeaweedMqOptions(many_files=4, most_files=6)
    async with _in_seaweedfs(options, segment_bytes="1024") as there:
        for _number in range(5):
            await there.log.append([make_batch([b"x" * 1_000])])

        async def remove() -> None:
            await there.log.drop_before(4)

        yield Caused(there.gateway, remove)


@asynccontextmanager
async def _strangers(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """Somebody else's file among ours."""
    from kgw.backend.seaweedmq.filer import FilerEntry

    async with _in_seaweedfs() as there:
        await there.log.append([make_batch([b"x"])])
        backend = there.gateway.backend
        assert isinstance(backend, SeaweedMqBackend)
        directory = await backend.directory_of(there.log.key)
        assert directory is not None
        name = "2030-01-01-00-00-00"
        await there.filer.put(directory, FilerEntry(name, content=b"x"))
        await backend.checkpoint()

        async def remove() -> None:
            await there.filer.delete(directory, name)
            await backend.checkpoint()

        yield Caused(there.gateway, remove)


@asynccontextmanager
async def _standbys(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    backend = MemoryBackend()
    lease = lease_of(backend)
    async with InProcessGateway(backend=backend) as gateway:
        lease.problems = ["clients are not told of the stand-by node 1"]

        async def end() -> None:
            lease.problems = []

        yield Caused(gateway, end)


@asynccontextmanager
async def _filers(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """Somebody scales the filer to two, and back."""
    async with _in_seaweedfs() as there:
        there.filer.addresses.append("other:8888")
        await there.wait(1)

        async def leave() -> None:
            there.filer.addresses.pop()
            await there.wait(10)

        yield Caused(there.gateway, leave)


@asynccontextmanager
async def _rules(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """Somebody lets everything expire, and thinks better of it."""
    from kgw.backend.seaweedmq.path_rules import PathRule

    async with _in_seaweedfs() as there:
        there.filer.path_rules = (PathRule("/topics/", ttl="7d"),)
        await there.wait(10)

        async def take_away() -> None:
            there.filer.path_rules = ()
            await there.wait(10)

        yield Caused(there.gateway, take_away)


@asynccontextmanager
async def _expiring(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """The rule is gone, and what was written while it was there is not."""
    from kgw.backend.seaweedmq.path_rules import PathRule

    async with _in_seaweedfs() as there:
        there.filer.path_rules = (PathRule("/topics/", ttl="7d"),)
        await there.wait(10)
        there.filer.path_rules = ()
        await there.wait(10)
        yield Caused(there.gateway)


@asynccontextmanager
async def _unwatched(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """The masters are out of reach; the filer is there."""
    async with _in_seaweedfs() as there:
        there.filer.is_mute = True
        await there.wait(20)

        async def come_back() -> None:
            there.filer.is_mute = False
            await there.wait(5)

        yield Caused(there.gateway, come_back)


# --- what goes on beside --------------------------------------------------------------------------


@asynccontextmanager
async def _transactions(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    """As the table of transactions counts them."""
    async with InProcessGateway() as gateway:
        metrics = gateway.metrics
        metrics.transaction_ends_late += 1

        async def end() -> None:
            metrics.transaction_ends_late -= 1

        yield Caused(gateway, end)


@asynccontextmanager
async def _clock(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    clock = WrongClock()
    async with InProcessGateway(clock=clock) as gateway:
        log_manager = gateway.log_manager
        await log_manager.now_ms()
        clock.wrong_by_ms = 10_000_000_000
        await log_manager.now_ms()

        async def set_right() -> None:
            clock.wrong_by_ms = 0
            await log_manager.now_ms()

        yield Caused(gateway, set_right)


@asynccontextmanager
async def _held(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    async with InProcessGateway() as gateway:
        topic = await create_topic(gateway, kgw_archive_hold="archive", retention_bytes="0")
        for _number in range(10):
            await produce(gateway, batch())
        log_manager = gateway.log_manager
        await log_manager.retain()

        async def delete() -> None:
            await gateway.topic_manager.delete(topic)

        yield Caused(gateway, delete)


@asynccontextmanager
async def _rewriting(_: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    async def fail(*_: object) -> None:
        raise CorruptionError("a batch is damaged")

    patch.setattr(MemoryPartitionLog, "compact", fail)
    async with InProcessGateway() as gateway:
        topic = await create_topic(gateway, cleanup_policy="compact", segment_bytes="1024")
        log = topic.partitions[0].log
        for _number in range(30):
            await log.append([make_batch([b"x" * 500], keys=[b"k"])])
        await gateway.log_manager.compact()

        async def delete() -> None:
            await gateway.topic_manager.delete(topic)

        yield Caused(gateway, delete)


@asynccontextmanager
async def _bug(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    async with InProcessGateway() as gateway:
        gateway.gateway.report_internal_error("Produce", RuntimeError("a bug"))
        yield Caused(gateway, _later(gateway))


@asynccontextmanager
async def _connections(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[Caused]:
    async with InProcessGateway() as gateway:
        one = gateway.gateway
        server = Server(gateway.dispatcher, Limits(connections=0), gateway.clock, one.metrics)
        server.when_refused = partial(one.refusals.note, problems.CONNECTIONS)
        (bound,) = await server.open((Listener("PLAINTEXT", "127.0.0.1", 0),))
        reader, writer = await asyncio.open_connection("127.0.0.1", bound.port)
        assert b"" == await reader.read()
        writer.close()
        await server.drain(1.0)
        yield Caused(gateway, _later(gateway))


CAUSES: dict[Reason, Cause] = {
    problems.STARTING: _starting,
    problems.STOPPING: _stopping,
    problems.NOT_LEADING: _not_leading,
    problems.CLOSED: _closed,
    problems.ROOM: _room,
    problems.BATCH_ROOM: _batch_room,
    problems.NO_SPACE: _no_space,
    problems.DESCRIPTORS: _descriptors,
    problems.DISK_ERROR: _disk_error,
    problems.DISK: _disk,
    problems.STATE: _state,
    problems.STATE_ROOM: _state_room,
    problems.DAMAGE: _damage,
    problems.STORAGE: _storage,
    problems.UNOPENED: _unopened,
    problems.UNCLAIMED: _unclaimed,
    problems.NO_PARTITION: _no_partition,
    problems.STOPPED: _stopped,
    problems.NO_VOLUME: _no_volume,
    problems.SEAWEEDFS: _seaweedfs,
    problems.VOLUME_SERVER: _volume_server,
    problems.READS: _reads,
    problems.FILERS: _filers,
    problems.RULES: _rules,
    problems.EXPIRING: _expiring,
    problems.WAITING: _waiting,
    problems.FILES: _files,
    problems.STRANGERS: _strangers,
    problems.STANDBYS: _standbys,
    problems.UNWATCHED: _unwatched,
    problems.TRANSACTIONS: _transactions,
    problems.CLOCK_HELD: _clock,
    problems.HELD: _held,
    problems.REWRITING: _rewriting,
    problems.CONNECTIONS: _connections,
    problems.BUG: _bug,
}
