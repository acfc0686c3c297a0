"""The channel and a real SeaweedFS: every promise of `Filer`, and processes that end or hang."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import time
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import ChannelOptions, load_security
from kgw.backend.seaweedmq.filer import FilerEntry, FilerError, OutcomeUnknownError
from kgw.clock import SystemClock
from kgw.metrics import Metrics
from kgw.testing.filer_suite import FilerSuite
from tests import patience
from tests.seaweedfs.binary import weed
from tests.seaweedfs.cluster import Setup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kgw.backend.seaweedmq.filer import Chunk
    from tests.seaweedfs.cluster import Cluster
    from tests.seaweedfs.fixtures import NewSeaweedfs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

PLACE = "/topics/a"
GONE_S = 30.0
SECURITY = """
[jwt.signing]
key = "of writers"
[jwt.signing.read]
key = "of readers"
"""


@asynccontextmanager
async def opened(cluster: Cluster, **options: object) -> AsyncIterator[FilerChannel]:
    """Open a channel to a SeaweedFS."""
    given = ChannelOptions(cluster.address("filer"), **options)  # type: ignore[arg-type] # by name
    channel = FilerChannel(given, SystemClock(), Metrics())
    await channel.open()
    try:
        yield channel
    finally:
        await channel.aclose()


class TestRealFiler(FilerSuite):
    many_entries = 300
    """Listed in pages of 128: a channel asks for no more at a time."""

    @pytest.fixture(autouse=True)
    def started(self, seaweedfs: Cluster) -> None:
        self.cluster = seaweedfs

    def make_filer(self) -> FilerChannel:
        options = ChannelOptions(self.cluster.address("filer"), collection="kgw", is_synced=True)
        return FilerChannel(options, SystemClock(), Metrics())


async def test_a_filer_says_which_filers_there_are(seaweedfs: Cluster) -> None:
    """The masters know of every one."""
    async with opened(seaweedfs) as channel:
        (address,) = await channel.filers()
        assert address.startswith(seaweedfs.address("filer"))


async def test_the_masters_say_which_volume_servers_there_are(seaweedfs: Cluster) -> None:
    """With room for volumes, and the volume that has a chunk."""
    async with opened(seaweedfs) as channel:
        chunk = await channel.upload([b"chunk"])
        volume = int(chunk.file_id.partition(",")[0])
        (server,) = await channel.volume_servers()
        assert seaweedfs.address("volume") == server.address
        assert 0 < server.free_volumes["hdd"] < server.max_volumes["hdd"]
        assert "000" == server.replications.get(volume, "000")
        assert "000" == await channel.default_replication()


async def test_a_filer_that_was_killed_is_found_again(new_seaweedfs: NewSeaweedfs) -> None:
    """While it is away a change is refused for certain, and a look-up waits for it."""
    cluster = new_seaweedfs()
    async with opened(cluster, timeout_s=30.0) as channel:
        await channel.create(PLACE, FilerEntry("file", extended={"count": b"1"}))
        cluster.kill("filer")

        async def refusal() -> FilerError:
            entry = FilerEntry("file", extended={"count": b"2"})
            with pytest.raises(FilerError) as caught:
                await channel.update(PLACE, entry, {"count": b"1"})
            return caught.value

        # Changes may meet the connection before its end is noticed.
        limit = patience.Limit(10)
        while isinstance(await refusal(), OutcomeUnknownError):
            assert not limit.is_over
        for _ in range(2):
            assert not isinstance(await refusal(), OutcomeUnknownError)
        look_up = asyncio.create_task(channel.look_up(PLACE, "file"))
        await asyncio.to_thread(cluster.start, "filer")
        found = await look_up
        assert found is not None
        assert b"1" == found.extended["count"]


async def test_a_change_that_a_hanging_filer_makes_later(new_seaweedfs: NewSeaweedfs) -> None:
    """Its outcome is unknown at the deadline, and rightly so: it is made after all."""
    cluster = new_seaweedfs()
    async with opened(cluster) as channel:
        await channel.create(PLACE, FilerEntry("file", extended={"count": b"1"}))
        cluster.send_signal("filer", signal.SIGSTOP)
        await asyncio.to_thread(_wait_until_stopped, cluster.pid("filer"))
        try:
            with pytest.raises(OutcomeUnknownError):
                await channel.update(
                    PLACE,
                    FilerEntry("file", extended={"count": b"2"}),
                    {"count": b"1"},
                    deadline_s=SystemClock().monotonic_s() + 0.5,
                )
        finally:
            cluster.send_signal("filer", signal.SIGCONT)
        found = await channel.look_up(PLACE, "file")
        assert found is not None
        assert found.extended["count"] in {b"1", b"2"}


async def test_an_upload_waits_for_a_volume_server(new_seaweedfs: NewSeaweedfs) -> None:
    """It is stored once one is there again."""
    cluster = new_seaweedfs()
    async with opened(cluster, timeout_s=60.0) as channel:
        first = await channel.upload([b"before"])
        cluster.kill("volume")
        upload = asyncio.create_task(channel.upload([b"after"]))
        await asyncio.to_thread(cluster.start, "volume")
        second = await upload
        assert b"after" == await channel.read_chunk(second, 0, 5)
        assert b"before" == await channel.read_chunk(first, 0, 6)


async def test_a_replica_is_read_when_its_twin_is_gone(new_seaweedfs: NewSeaweedfs) -> None:
    """A chunk is on both servers when the upload is done."""
    cluster = new_seaweedfs(Setup(volume_servers=2))
    async with opened(cluster, replication="001") as channel:
        chunk = await channel.upload([b"abc"])
        for name in ("volume", "volume2"):
            cluster.kill(name)
            assert b"abc" == await channel.read_chunk(chunk, 0, 3)
            await asyncio.to_thread(cluster.start, name)


async def test_tokens_are_what_volume_servers_ask_for(new_seaweedfs: NewSeaweedfs) -> None:
    """Those for uploads come from the filer, those for reads are signed here."""
    cluster = new_seaweedfs(Setup(files={"security.toml": SECURITY}))
    security = await asyncio.to_thread(load_security, cluster.directory / "filer" / "security.toml")
    async with opened(cluster, security=security) as channel:
        chunks = [await channel.upload([b"%d" % number]) for number in range(3)]
        assert b"2" == await channel.read_chunk(chunks[2], 0, 1)
        await channel.create(PLACE, FilerEntry("file", in_order(chunks)))
        found = await channel.look_up(PLACE, "file")
        assert found is not None
        assert chunks == [chunk._replace(position=0) for chunk in found.chunks]
        await channel.delete_chunks(chunks)
    async with opened(cluster) as channel:
        chunk = await channel.upload([b"abc"])
        with pytest.raises(FilerError, match=r"jwt\.signing\.read"):
            await channel.read_chunk(chunk, 0, 3)


async def test_chunks_go_with_the_file_that_names_them(seaweedfs: Cluster) -> None:
    """Whichever of the ids that were assigned together they have; and volume.fsck knows them."""
    async with opened(seaweedfs) as channel:
        chunks = [await channel.upload([b"%d" % number]) for number in range(3)]
        ids = {_without_cookie(chunk) for chunk in chunks}
        assert ids <= await asyncio.to_thread(_orphans, seaweedfs)
        await channel.create(PLACE, FilerEntry("file", in_order(chunks)))
        assert not ids & await asyncio.to_thread(_orphans, seaweedfs)
        await channel.delete(PLACE, "file")
        await asyncio.to_thread(_wait_until_gone, seaweedfs, chunks)


def in_order(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Return chunks of a byte each as those of a file."""
    return tuple(chunk._replace(position=number) for number, chunk in enumerate(chunks))


def _orphans(cluster: Cluster) -> set[str]:
    """Return the chunks, new ones as well, of which `weed shell` says that no file names them."""
    master, filer = cluster.address("master"), cluster.address("filer")
    said = subprocess.run(
        [weed(), "shell", f"-master={master}", f"-filer={filer}"],
        input="lock\nvolume.fsck -v -cutoffTimeAgo=0s\nunlock\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=patience.seconds(60),
    ).stdout
    return set(re.findall(r":(\d+,[0-9a-f]+)0{8}$", said, re.MULTILINE))


def _without_cookie(chunk: Chunk) -> str:
    """Return a chunk's id without the eight digits that nobody can guess."""
    return chunk.file_id[:-8]


def _wait_until_gone(cluster: Cluster, chunks: Sequence[Chunk]) -> None:
    """Wait until the volume server has none of them any more. Raises TimeoutError."""
    server = HTTPConnection(cluster.address("volume"))
    limit = patience.Limit(GONE_S)
    for chunk in chunks:
        status = 200
        while status != 404:
            if limit.is_over:
                raise TimeoutError(f"chunk {chunk.file_id} is still there: {status}")
            time.sleep(0.05)
            server.request("GET", f"/{chunk.file_id}")
            answer = server.getresponse()
            answer.read()
            status = answer.status
    server.close()


def _wait_until_stopped(pid: int | None) -> None:
    """Wait until no thread of a process runs any more: on a busy machine it takes a while."""
    while any(
        stat.read_text().rpartition(")")[2].split()[0] != "T"
        for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ):
        time.sleep(0.01)
