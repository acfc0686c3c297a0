"""A real SeaweedFS to which somebody does what kgw cannot live with, while it serves from there."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import ChannelOptions
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.offline.examine import Setup as DoctorSetup
from kgw.backend.seaweedmq.offline.examine import examine
from kgw.backend.seaweedmq.offline.findings import Severity
from kgw.backend.seaweedmq.offline.opening import state_directory
from kgw.backend.seaweedmq.path_rules import MOUNTS_DIRECTORY, MOUNTS_NAME
from kgw.backend.seaweedmq.protos import remote_pb2
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.clock import SystemClock
from kgw.errors import DataDirectoryError, StorageError
from kgw.metrics import Metrics
from kgw.problems import EXPIRING
from kgw.testing.backend_harness import KEY, SETTINGS, TOPIC
from kgw.testing.batches import make_batch, read_stored
from tests import patience
from tests.seaweedfs.binary import weed
from tests.seaweedfs.cluster import SYNCED_STORE, Setup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kgw.backend.base import PartitionLog
    from kgw.backend.seaweedmq.path_rules import PathRule
    from tests.seaweedfs.cluster import Cluster
    from tests.seaweedfs.fixtures import NewSeaweedfs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def channel_to(cluster: Cluster, namespace: str) -> FilerChannel:
    """Return a channel that is not open, as `kgw serve` makes it."""
    options = ChannelOptions(cluster.address("filer"), path=f"/topics/{namespace}/")
    return FilerChannel(options, SystemClock(), Metrics())


@asynccontextmanager
async def served(cluster: Cluster, namespace: str) -> AsyncIterator[SeaweedMqBackend]:
    """Open a backend with its state."""
    channel, clock = channel_to(cluster, namespace), SystemClock()
    state = ChainStateStore(channel, clock, state_directory(namespace))
    backend = SeaweedMqBackend(channel, namespace, state, None, clock)
    await backend.open()
    async with aclosing(backend):
        yield backend


async def shell(cluster: Cluster, *lines: str) -> None:
    """Run lines of `weed shell`."""
    command = [
        str(weed()),
        "shell",
        f"-master={cluster.address('master')}",
        f"-filer={cluster.address('filer')}",
    ]
    await asyncio.to_thread(
        subprocess.run,
        command,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=patience.seconds(30),
    )


async def append_until(log: PartitionLog, says: str, values: list[bytes]) -> None:
    """Append until one is refused with these words, or taken where there are none.

    What was acknowledged is added to the values.
    """
    limit = patience.Limit(60)
    while not limit.is_over:
        value = b"%d" % time.monotonic_ns()
        try:
            await log.append([make_batch([value])])
        except StorageError as error:
            if says and says in str(error):
                return
        else:
            values.append(value)
            if not says:
                return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"no append was answered with {says!r}")


async def test_a_second_filer_stops_writes_and_loses_nothing(new_seaweedfs: NewSeaweedfs) -> None:
    """It joins under load, and is killed: every acknowledged record is there, after a kill, too."""
    cluster = new_seaweedfs(Setup(filers=2))
    cluster.kill("filer2")
    values: list[bytes] = []
    async with _served_once_alone(cluster) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await append_until(log, "", values)
        starting = asyncio.ensure_future(asyncio.to_thread(cluster.start, "filer2"))
        await append_until(log, "has 2 filers", values)
        await starting
        assert ["filers"] == [problem.reason.name for problem in backend.health.found]
        assert values == await _values(log)
        cluster.kill("filer2")
        await append_until(log, "", values)
        assert () == backend.health.found
        await backend.abandon()
    async with served(cluster, "watched") as again:
        log = await again.open_partition(KEY, TOPIC, SETTINGS)
        assert values == await _values(log)


@asynccontextmanager
async def _served_once_alone(cluster: Cluster) -> AsyncIterator[SeaweedMqBackend]:
    """Open a backend once the masters know of one filer alone."""
    limit = patience.Limit(30)
    while True:
        try:
            async with served(cluster, "watched") as backend:
                yield backend
            return
        except DataDirectoryError as error:
            if limit.is_over or "2 filers" not in str(error):
                raise
        await asyncio.sleep(0.2)


async def _values(log: PartitionLog) -> list[bytes | None]:
    """Return all records: one read ends after so many chunks, and each append has made one."""
    values: list[bytes | None] = []
    next_offset = 0
    while next_offset < log.high_watermark:
        found = await log.read(next_offset, 1 << 30, log.high_watermark)
        assert next_offset < found.next_offset
        values += [record.value for record in read_stored(found.buffers)]
        next_offset = found.next_offset
    return values


RULES: dict[str, tuple[Sequence[str], str]] = {
    "ttl": (["-ttl=7d"], "expire"),
    "read-only": (["-readOnly"], "read-only"),
    "worm": (["-worm"], "forbids to change or remove"),
    "names": (["-maxFileNameLength=40"], "names of 40 characters"),
}


@pytest.mark.parametrize(("options", "says"), RULES.values(), ids=RULES)
async def test_a_rule_is_refused_at_the_start_and_while_serving(
    seaweedfs: Cluster, options: Sequence[str], says: str
) -> None:
    """As `fs.configure` writes it; all goes on when it is taken away."""
    namespace = seaweedfs.new_namespace()
    prefix = f"-locationPrefix=/topics/{namespace}/"
    values: list[bytes] = []
    async with served(seaweedfs, namespace) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await shell(seaweedfs, f"fs.configure {prefix} {' '.join(options)} -apply")
        await append_until(log, says, values)
        with pytest.raises(DataDirectoryError, match=says):
            async with served(seaweedfs, namespace):
                pass
        assert values == await _values(log)
        await shell(seaweedfs, f"fs.configure {prefix} -delete -apply")
        await append_until(log, "", values)
        assert values == await _values(log)


async def test_what_was_stored_under_a_ttl_is_told_by_later_starts_and_the_doctor(
    seaweedfs: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule is gone by then. A gateway that sees no rules has what others have for a moment."""
    namespace = seaweedfs.new_namespace()
    prefix = f"-locationPrefix=/topics/{namespace}/"
    async with served(seaweedfs, namespace) as backend:
        await backend.create_partition(KEY, TOPIC, SETTINGS)
        await backend.checkpoint()
        assert () == backend.health.found
    await shell(seaweedfs, f"fs.configure {prefix} -ttl=7d -apply")
    with monkeypatch.context() as patch:
        patch.setattr(FilerChannel, "rules", _no_rules)
        async with served(seaweedfs, namespace) as backend:
            log = await backend.open_partition(KEY, TOPIC, SETTINGS)
            for _ in range(3):
                await log.append([make_batch([b"a"])])
    channel = channel_to(seaweedfs, namespace)
    await channel.open()
    async with aclosing(channel):
        # Entries get the TTL when they are made, and the next update takes it from them.
        await channel.create(f"/topics/{namespace}", FilerEntry("made", extended={"a": b"1"}))
        made = await channel.look_up(f"/topics/{namespace}", "made")
        assert made is not None
        week_later_s = made.modified_s + 7 * 86_400
        assert week_later_s <= made.expires_s <= week_later_s + 1
        await channel.update(f"/topics/{namespace}", made, {"a": b"1"})
        made = await channel.look_up(f"/topics/{namespace}", "made")
        assert made is not None
        assert not made.expires_s
        await channel.delete(f"/topics/{namespace}", "made")
        await shell(seaweedfs, f"fs.configure {prefix} -delete -apply")
        async with served(seaweedfs, namespace) as backend:
            log = await backend.open_partition(KEY, TOPIC, SETTINGS)
            await log.append([make_batch([b"b"])])
            await backend.checkpoint()
            found = backend.health.found
        assert {EXPIRING} == {problem.reason for problem in found}
        told = [problem.text for problem in found]
        (text,) = [text for text in told if "/0000-0031: " in text]
        assert re.search(r": 3 of 4 chunks are in volumes with a TTL \(", text)
        setup = DoctorSetup(
            namespace, "000", "000", "", "", is_synced=True, is_secured=True, is_mirrored=True
        )
        findings = [
            one async for one in examine(channel, setup, "probe", 0, 0.0, channel.volume_servers)
        ]
        said = [one for one in findings if one.subject == "expiry"]
        assert {Severity.PROBLEM} == {one.severity for one in said}
        assert text in [one.detail for one in said]


async def _no_rules(_: FilerChannel) -> tuple[PathRule, ...]:
    return ()


async def test_a_filer_that_takes_short_names_alone_is_refused(
    new_seaweedfs: NewSeaweedfs,
) -> None:
    """Names of 64 characters must be possible, as kgw's own have up to 40: 63 are not enough."""
    for longest in (63, 64):
        options = f"[filer.options]\nmax_file_name_length = {longest}\n"
        cluster = new_seaweedfs(
            Setup(files={"filer.toml": f"{options}{SYNCED_STORE['filer.toml']}"})
        )
        if longest < 64:
            with pytest.raises(DataDirectoryError, match=r"cannot be tested: .*fence-.* too long"):
                async with served(cluster, "named"):
                    pass
        else:
            async with served(cluster, "named") as backend:
                log = await backend.create_partition(KEY, TOPIC, SETTINGS)
                await log.append([make_batch([b"a"])])
                assert [b"a"] == await _values(log)
        cluster.stop(signal.SIGKILL)


async def test_places_of_a_rule_are_obeyed(seaweedfs: Cluster) -> None:
    """Collection and disk: by the filer, which is told where the files will be."""
    namespace = seaweedfs.new_namespace()
    prefix = f"-locationPrefix=/topics/{namespace}/"
    await shell(seaweedfs, f"fs.configure {prefix} -collection=ruled -disk=hdd -apply")
    async with served(seaweedfs, namespace) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await log.append([make_batch([b"-where-does-this-lie-"])])
    stored = [
        path.name
        for path in seaweedfs.directory.rglob("*.dat")
        if b"-where-does-this-lie-" in path.read_bytes()
    ]
    assert 1 == len(stored)
    assert stored[0].startswith("ruled_")


async def test_a_remote_mount_over_the_namespace_is_refused(seaweedfs: Cluster) -> None:
    """As the filer keeps it; one elsewhere is nobody's matter."""
    namespace = seaweedfs.new_namespace()
    async with _mounted(seaweedfs, "/topics/elsewhere"), served(seaweedfs, namespace):
        pass
    async with _mounted(seaweedfs, f"/topics/{namespace}"):
        with pytest.raises(DataDirectoryError, match=f"mounted at /topics/{namespace} "):
            async with served(seaweedfs, namespace):
                pass


@asynccontextmanager
async def _mounted(cluster: Cluster, directory: str) -> AsyncIterator[None]:
    """Have another storage mounted at a directory, in what the filer keeps of mounts."""
    channel = channel_to(cluster, "kafka")
    await channel.open()
    async with aclosing(channel):
        cloud = remote_pb2.RemoteStorageLocation(name="cloud", bucket="bucket", path="/")
        mapping = remote_pb2.RemoteStorageMapping(mappings={directory: cloud})
        entry = FilerEntry(MOUNTS_NAME, content=mapping.SerializeToString())
        await channel.put(MOUNTS_DIRECTORY, entry)
        try:
            yield
        finally:
            await channel.delete(MOUNTS_DIRECTORY, MOUNTS_NAME)
