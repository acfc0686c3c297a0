"""A namespace of a SeaweedFS in memory that no gateway serves, and what is stored in it."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.offline.check import check_namespace
from kgw.backend.seaweedmq.offline.log_place import NamespaceLogs
from kgw.backend.seaweedmq.offline.opening import Namespace, state_directory
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.partitions.topics.topic import TopicRow
from kgw.state.base import Change
from kgw.state.kinds import TOPIC
from kgw.testing.backend_harness import KEY, SETTINGS
from kgw.testing.backend_harness import TOPIC as NAME
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager, AsyncExitStack

    from kgw.backend.base import Backend
    from kgw.state.base import StateStore

ROW: Final = TopicRow(NAME, KEY.topic_id, 1, {})
VALUES: Final = (b"a", None, b"c")
"""Of the records of each batch."""


class Filers:
    """A SeaweedFS in memory, and what is opened on it."""

    def __init__(self) -> None:
        self.store = FilerStore()
        self.clock = ManualClock()

    def namespace(self) -> Namespace:
        """Return the namespace that the tests use."""
        return Namespace(MemoryFiler(self.store, self.clock), "kafka", self.clock)

    def backend(self) -> SeaweedMqBackend:
        """Return a backend that is not open."""
        filer = MemoryFiler(self.store, self.clock)
        state = ChainStateStore(filer, self.clock, state_directory("kafka"))
        return SeaweedMqBackend(filer, "kafka", state, None, self.clock)

    async def problems(self) -> list[str]:
        """Return what a check finds."""
        namespace = self.namespace()
        await namespace.filer.open()
        async with aclosing(namespace.filer):
            return [str(one) async for one in check_namespace(namespace, reads_records=True)]

    @property
    def partition(self) -> str:
        """Where the partition that the tests use is."""
        (found,) = (path for path in self.store.directories if path.endswith("/0000-0031"))
        return found


async def fill(
    backend: Backend,
    count: int = 10,
    *,
    start: int = 0,
    values: Sequence[bytes | None] = VALUES,
) -> list[bytes]:
    """Make the topic, append batches of three records, delete those below `start`."""
    await backend.open()
    async with aclosing(backend):
        await backend.state.apply([Change(TOPIC, ROW.key, ROW.encode())])
        log = await backend.create_partition(KEY, NAME, SETTINGS)
        for _ in range(count):
            await log.append([make_batch(values)])
        if start:
            await log.drop_before(start)
        return await stored(backend)


async def stored(backend: Backend) -> list[bytes]:
    """Return the log's end and bytes, as a reader sees them."""
    log = await backend.open_partition(KEY, NAME, SETTINGS)
    found = await log.read(log.log_start_offset, 1 << 30, log.high_watermark)
    return [
        b"%d %d %d" % (log.log_start_offset, log.high_watermark, log.leader_epoch),
        b"".join(bytes(one) for one in found.buffers),
    ]


async def reopened(backend: Backend) -> list[bytes]:
    """Open a backend, and return what a reader sees."""
    await backend.open()
    async with aclosing(backend):
        return await stored(backend)


async def namespace_logs(filers: Filers, stack: AsyncExitStack) -> NamespaceLogs:
    """Return the logs of the namespace, to be closed with the stack."""
    namespace = filers.namespace()
    await namespace.filer.open()
    await stack.enter_async_context(aclosing(namespace.filer))
    return await stack.enter_async_context(aclosing(NamespaceLogs(namespace)))


def opened_namespace_state(filers: Filers) -> AbstractAsyncContextManager[StateStore]:
    """Return the state of the namespace, opened for as long as it is used."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[StateStore]:
        namespace = filers.namespace()
        await namespace.filer.open()
        async with aclosing(namespace.filer):
            state = namespace.state()
            await state.open()
            async with aclosing(state):
                yield state

    return opened()
