"""A real SeaweedFS whose filer has `-encryptVolumeData`: what is in its volumes, who reads it."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.request import Request, urlopen

import pytest

from kgw.backend.base import Segmented, Snapshot
from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import ChannelOptions
from kgw.backend.seaweedmq.entries.layouts import Layout
from kgw.backend.seaweedmq.offline.opening import state_directory
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.clock import SystemClock
from kgw.metrics import Metrics
from kgw.state.base import Change
from kgw.testing.backend_harness import KEY, SETTINGS, TOPIC
from kgw.testing.batches import make_batch
from tests import patience
from tests.backend.seaweedmq.gateways import REFUSE_AT_ONCE
from tests.seaweedfs.binary import weed
from tests.seaweedfs.cluster import Setup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.base import PartitionLog
    from tests.seaweedfs.cluster import Cluster
    from tests.seaweedfs.fixtures import NewSeaweedfs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SECRET = b"-what-nobody-may-read-on-a-disk-"
ENCRYPTING = Setup(flags={"filer": ["-encryptVolumeData"]})


class Opened(NamedTuple):
    """A gateway's backend, and its channel."""

    channel: FilerChannel
    backend: SeaweedMqBackend


@asynccontextmanager
async def opened(cluster: Cluster, layout: Layout = Layout.BATCHES) -> AsyncIterator[Opened]:
    """Open a backend with its state; nothing is read from memory."""
    clock = SystemClock()
    channel = FilerChannel(ChannelOptions(cluster.address("filer")), clock, Metrics())
    state = ChainStateStore(channel, clock, state_directory("kafka"))
    options = REFUSE_AT_ONCE._replace(cache_bytes=0, chunk_cache_bytes=0, layout=layout)
    backend = SeaweedMqBackend(channel, "kafka", state, options, clock)
    await backend.open()
    async with aclosing(backend):
        yield Opened(channel, backend)


async def values_of(log: PartitionLog) -> bytes:
    """Return all that is stored, read from the volumes."""
    found = await log.read(log.log_start_offset, 1 << 30, log.high_watermark)
    return b"".join(bytes(one) for one in found.buffers)


def in_volumes(cluster: Cluster) -> int:
    """Return how often the secret stands in what volume servers keep."""
    return sum(path.read_bytes().count(SECRET) for path in cluster.directory.rglob("*.dat"))


@pytest.mark.parametrize("layout", Layout)
async def test_nothing_stands_in_the_volumes_and_tools_of_seaweedfs_read_all(
    new_seaweedfs: NewSeaweedfs, layout: Layout
) -> None:
    """Records in both layouts, the state, a snapshot; after a restart, too."""
    cluster = new_seaweedfs(ENCRYPTING)
    async with opened(cluster, layout) as (channel, backend):
        await backend.state.apply([Change("kind", "key", SECRET * 10)])
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        for _ in range(3):
            await log.append([make_batch((SECRET * 100, None, SECRET))])
        assert isinstance(log, Segmented)
        await log.roll()
        await log.append([make_batch((SECRET * 5000,))])
        await log.save_snapshot(Snapshot(log.high_watermark, SECRET * 1000))
        stored = await values_of(log)
        assert 3 * 101 + 5000 == stored.count(SECRET)
        directory = await backend.directory_of(KEY)
        assert directory is not None
        entries = [entry async for entry in channel.list_entries(directory)]
        chunks = [chunk for entry in entries for chunk in entry.chunks]
        assert len(chunks) >= 5
        assert all(chunk.cipher_key for chunk in chunks)
        assert len(chunks) == len({chunk.cipher_key for chunk in chunks})
        files = [entry for entry in entries if entry.chunks]
        for entry in files:
            read = [await channel.read_chunk(one, 0, one.size_bytes) for one in entry.chunks]
            url = f"http://{cluster.address('filer')}{directory}/{entry.name}"
            assert b"".join(read) == await asyncio.to_thread(_got, url)
            assert b"".join(read) == await asyncio.to_thread(_printed, url)
    assert 0 == await asyncio.to_thread(in_volumes, cluster)
    async with opened(cluster, layout) as (channel, backend):
        log = await backend.open_partition(KEY, TOPIC, SETTINGS)
        assert stored == await values_of(log)
        snapshot = await log.load_snapshot()
        assert snapshot is not None
        assert SECRET * 1000 == snapshot.data
        rows = await backend.state.load("kind")
        assert SECRET * 10 == rows["key"].value


async def test_it_may_be_switched_on_and_off_while_there_are_records(
    new_seaweedfs: NewSeaweedfs,
) -> None:
    """A gateway that serves follows within seconds, and reads what was written before."""
    cluster = new_seaweedfs()
    async with opened(cluster) as (channel, backend):
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await log.append([make_batch((SECRET,))])
        assert 1 == await asyncio.to_thread(in_volumes, cluster)
        cluster.kill("filer")
        await asyncio.to_thread(_start_encrypting, cluster)
        limit = patience.Limit(40)
        await _until(channel, limit, encrypts=True)
        await log.append([make_batch((SECRET, SECRET))])
        stored = await values_of(log)
        assert 3 == stored.count(SECRET)
        # The state is written in the clear before, if at all.
        assert 1 == await asyncio.to_thread(in_volumes, cluster)
        cluster.kill("filer")
        await asyncio.to_thread(cluster.start, "filer")
        await _until(channel, limit, encrypts=False)
        await log.append([make_batch((SECRET,))])
        assert stored in await values_of(log)
        assert 2 == await asyncio.to_thread(in_volumes, cluster)


def _start_encrypting(cluster: Cluster) -> None:
    """Start the filer that was killed with the option."""
    flags = cluster.setup.flags
    cluster.setup = replace(cluster.setup, flags={"filer": ["-encryptVolumeData"]})
    cluster.start("filer")
    cluster.setup = replace(cluster.setup, flags=flags)


async def test_what_tools_of_seaweedfs_have_encrypted_is_read(
    new_seaweedfs: NewSeaweedfs,
) -> None:
    """Whether they have compressed it first, or not; a part of it, too."""
    cluster = new_seaweedfs(ENCRYPTING)
    async with opened(cluster) as (channel, _):
        for name, kind in (("plain.bin", "application/octet-stream"), ("packed.txt", "text/plain")):
            content = SECRET * 3000
            await asyncio.to_thread(_put, cluster, f"/dir/{name}", content, kind)
            entry = await channel.look_up("/dir", name)
            assert entry is not None
            (chunk,) = entry.chunks
            assert chunk.cipher_key
            assert content == await channel.read_chunk(chunk, 0, len(content))
            assert content[7:99] == await channel.read_chunk(chunk, 7, 92)
    assert 0 == await asyncio.to_thread(in_volumes, cluster)


def _got(url: str) -> bytes:
    with urlopen(url, timeout=patience.seconds(10)) as answer:  # noqa: S310 - of the test
        return bytes(answer.read())


def _printed(url: str) -> bytes:
    """Return what `weed filer.cat` prints."""
    command = [str(weed()), "filer.cat", url]
    return subprocess.run(
        command, capture_output=True, check=True, timeout=patience.seconds(30)
    ).stdout


def _put(cluster: Cluster, path: str, content: bytes, kind: str) -> None:
    head = (
        '--b\r\nContent-Disposition: form-data; name="file"; '
        f'filename="{path.rpartition("/")[2]}"\r\nContent-Type: {kind}\r\n\r\n'
    )
    request = Request(
        f"http://{cluster.address('filer')}{path}",
        data=head.encode() + content + b"\r\n--b--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )
    with urlopen(request, timeout=patience.seconds(10)) as answer:  # noqa: S310 - as above
        assert 201 == answer.status


async def _until(channel: FilerChannel, limit: patience.Limit, *, encrypts: bool) -> None:
    """Wait until the gateway follows its filer."""
    while channel.encrypts is not encrypts:
        assert not limit.is_over
        await asyncio.sleep(0.1)
