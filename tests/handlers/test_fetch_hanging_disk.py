"""Fetch from the embedded backend over a file system that hangs for some partitions."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread
from threading import enumerate as enumerate_threads
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.clock import SystemClock
from kgw.errors import ErrorCode
from kgw.protocol.messages.fetch import FetchResponse
from kgw.state.memory import MemoryStateStore
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.handlers.support import batch, create_topic, fetch_many, produce
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HUNG = range(50)
HEALTHY = range(50, 100)


class Disk:
    """A gateway on a file system that hangs when it is told to."""

    def __init__(self, gateway: InProcessGateway, fs: SimulatedFs) -> None:
        self.gateway = gateway
        self.fs = fs
        self._may_go_on = Event()

    def hang(self) -> None:
        """Let reads of some partitions hang."""
        (topic,) = self.gateway.catalog.topics.values()
        for index in HUNG:
            key = topic.partitions[index].log.key
            self.fs.hanging[f"/{key}/"] = self._may_go_on

    def go_on(self) -> None:
        """Let them come."""
        self.fs.hanging.clear()
        self._may_go_on.set()

    async def read(self, indexes: list[int], max_wait_ms: int) -> set[int]:
        """Return the partitions that a Fetch has records of; there are no errors."""
        request = fetch_many(indexes, max_wait_ms=max_wait_ms)
        response = await self.gateway.ask(request, 12, FetchResponse)
        (topic,) = response.responses
        assert {ErrorCode.NONE} == {ErrorCode(one.error_code) for one in topic.partitions}
        return {one.partition_index for one in topic.partitions if one.records}


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    """A hundred partitions of one record, none of them in memory."""
    fs = SimulatedFs()
    fs.make_directory_durably("/data")
    options = EmbeddedOptions(cache_bytes=0, min_free_bytes=0, journal_append_bytes=0)
    clock = SystemClock()
    backend = EmbeddedBackend("/data", options, fs=fs, state=MemoryStateStore(), clock=clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await create_topic(gateway, partitions=100)
        for index in range(100):
            await produce(gateway, batch(b"x" * 500), index=index)
        fs.drop_page_cache()
        disk = Disk(gateway, fs)
        try:
            yield disk
        finally:
            disk.go_on()


@pytest.mark.slow
@pytest.mark.parametrize("is_reversed", [False, True])
async def test_partitions_that_hang_hold_up_no_others(disk: Disk, is_reversed: bool) -> None:
    """Fifty hang: the others are read beside them, and those when they can be."""
    disk.hang()
    indexes = [*HUNG, *HEALTHY]
    if is_reversed:
        indexes.reverse()
    wait_ms = int(1000 * patience.seconds(0.5))
    found: set[int] = set()
    # One request is enough unless the machine stands still for a third of a second: a request
    # that has records gives up its late reads then.
    for _ in range(5):
        found |= await disk.read(indexes, wait_ms)
        if len(found) == len(HEALTHY):
            break
    assert set(HEALTHY) == found
    disk.go_on()
    async with asyncio.timeout(patience.seconds(10)):
        found = set()
        while len(found) < 100:
            found |= await disk.read(indexes, wait_ms)


@pytest.mark.slow
async def test_a_topic_is_created_beside_reads_that_hang(disk: Disk) -> None:
    """There are more of these than I/O threads."""
    disk.hang()
    await disk.read([*HUNG][:6], 100)
    await create_topic(disk.gateway, "others")


@pytest.mark.slow
async def test_a_stop_waits_for_reads_that_hang(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends when they have, and leaves no thread behind."""
    disk.hang()
    await disk.read([*HUNG][:6], 100)
    shutdown, hang = ThreadPoolExecutor.shutdown, SimulatedFs.hang
    hung_at_stop: list[int] = []

    def go_on() -> None:
        if not hung_at_stop:
            hung_at_stop.append(len(_reading_threads()))
            disk.go_on()

    def stop(executor: ThreadPoolExecutor, *args: bool, **kwargs: bool) -> None:
        go_on()
        shutdown(executor, *args, **kwargs)

    def hang_unless_flushed(fs: SimulatedFs, path: str) -> None:
        # Before threads are ended, the indexes of what was written may have to be made.
        if current_thread().name == "kgw-flusher":
            go_on()
        hang(fs, path)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", stop)
    monkeypatch.setattr(SimulatedFs, "hang", hang_unless_flushed)
    await disk.gateway.aclose()
    assert 6 <= hung_at_stop[0]
    limit = patience.Limit(10)
    while _reading_threads():
        assert not limit.is_over
        await asyncio.sleep(0.001)


def _reading_threads() -> list[str]:
    return [thread.name for thread in enumerate_threads() if thread.name.startswith("kgw-io")]
