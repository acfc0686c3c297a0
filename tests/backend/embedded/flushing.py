"""A backend whose syncs are those of the test, for stories about who writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch
from kgw.testing.faults import SimulatedFs
from tests.backend.embedded.driver import JOURNALED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.base import PartitionLog
    from kgw.backend.embedded.files.fs import File
    from kgw.backend.embedded.options import EmbeddedOptions


class HeldSyncs:
    """Stands in for the kernel's syncs: each set is synced when the test says so."""

    def __init__(self) -> None:
        self.files: list[File] = []
        self.done: Callable[[list[OSError | None]], None] | None = None
        self.refusal: OSError | None = None
        self.is_closed = False

    def sync(self, files: Sequence[File], done: Callable[[list[OSError | None]], None]) -> None:
        if self.refusal is not None:
            raise self.refusal
        assert self.done is None, "one set at a time"
        self.files = list(files)
        self.done = done

    def finish(self, error: OSError | None = None) -> None:
        """Sync what was asked for, or fail to: a callback of the loop."""
        done, self.done = self.done, None
        assert done is not None
        if error is None:
            for file in self.files:
                file.fdatasync()
        done([error] * len(self.files))

    def close(self) -> None:
        self.is_closed = True


async def open_held(
    fs: SimulatedFs | None = None, options: EmbeddedOptions = JOURNALED
) -> tuple[EmbeddedBackend, HeldSyncs]:
    """Return a backend that is ready to write, and what it has the kernel sync."""
    backend = EmbeddedBackend("/data", options, fs=fs or SimulatedFs(), state=MemoryStateStore())
    await backend.open()
    backend.prepare()
    assert backend._preparing is not None
    await backend._preparing
    syncs = HeldSyncs()
    assert backend._flusher is not None
    backend._flusher.kernel_syncs = syncs
    return backend, syncs


async def append_first(backend: EmbeddedBackend, log: PartitionLog) -> None:
    """Append a first batch, for which a segment must be created: the thread does that."""
    assert isinstance(log, EmbeddedPartitionLog)
    await log.append([make_batch([b"first"])])
    await asleep(backend)


async def asleep(backend: EmbeddedBackend) -> None:
    """Wait until the thread has nothing to do; the turn after that nobody writes."""
    flusher = backend._flusher
    assert flusher is not None
    while flusher._is_awake or flusher._pen.locked():  # noqa: ASYNC110 - a thread's state
        await asyncio.sleep(0.001)


async def until_due(syncs: HeldSyncs) -> None:
    """Wait until a sync is asked for."""
    while syncs.done is None:  # noqa: ASYNC110 - it is due within two turns
        await asyncio.sleep(0)
