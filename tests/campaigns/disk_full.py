"""D7: the disk of a real process fills up and is freed again, over and over.

The gateway fills it up to its reserve; then somebody else takes the reserve, too, to the last byte.
A group goes on all the time. The disk is an ext4 in a file where the system has loop devices, else
a tmpfs; the report counts which, and in full size only an ext4 will do.

Run as `python -m tests.campaigns.disk_full --full --seed N`. Needs the right to mount.
"""

from __future__ import annotations

import asyncio
import errno
import math
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kgw.client.admin import AdminClient
from kgw.client.client import AsyncClient
from kgw.client.connection import Connection
from kgw.client.errors import ClientError, ServerRefusedError
from kgw.client.groups import GroupClient
from kgw.errors import ErrorCode
from kgw.testing.batches import make_batch, read_stored
from kgw.testing.process import GatewayProcess
from tests import patience
from tests.campaigns.support import Report, main
from tests.groups.wire import WireMember, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

DISK_BYTES = 96 << 20
"""The quota of 64 MB, and the journal's two files of 16 MB."""
RESERVE_BYTES = 8 << 20
BALLAST_BYTES = 12 << 20
BATCH_BYTES = 512 << 10
SMALL_BYTES = 1_500
EXT4_BYTES = 12 << 20
"""What an ext4 of that size has for itself."""
GROUP = "kept-group"
COMMITS = 5
TRIED_AGAIN = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""What a client that commits takes for a reason to try again."""
TAKEN = frozenset({ErrorCode.NONE, *TRIED_AGAIN})
KEPT = "kept"
LOOKS = 3
"""How often everything is tried while the disk is full, and again without the reserve."""
READS = 4
FILLS_TRIED = 10
"""How often the disk is filled up at most: the gateway may free a block meanwhile."""
REFUSAL_S = 1.0
"""Judged in full size only."""
SESSION_MS = 120_000
RETURN_S = 5.0
FLOORS = {
    "cycles": 1,
    "times_full": 1,
    "times_without_reserve": 1,
    "refusals": LOOKS + 1,
    "reads": LOOKS * READS,
    "reads_without_reserve": LOOKS * READS,
    "state_commits": LOOKS * 3,
    "heartbeats": LOOKS * 2,
    "commits": LOOKS * COMMITS,
}
"""What is done in each cycle, no more and no less."""


def may_mount() -> bool:
    """Whether this process may mount a file system; a container's root often may not."""
    # CAP_SYS_ADMIN is number 21.
    status = Path("/proc/self/status").read_text()
    effective = status.partition("CapEff:")[2].split()[0]
    return bool(int(effective, 16) >> 21 & 1)


@contextmanager
def small_disk(report: Report, size_bytes: int = DISK_BYTES) -> Iterator[Path]:
    """Mount a file system of a few megabytes, or of another size."""
    with tempfile.TemporaryDirectory() as parent:
        image, directory = Path(parent) / "image", Path(parent) / "disk"
        directory.mkdir()
        kind = "ext4" if _mount_ext4(image, directory, size_bytes) else "tmpfs"
        if kind == "tmpfs":
            options = f"size={size_bytes},mode=0700"
            subprocess.run(["mount", "-t", kind, "-o", options, kind, directory], check=True)
        report.count(f"disks: {kind}")
        try:
            yield directory
        finally:
            subprocess.run(["umount", "-l", directory], check=True)


def _mount_ext4(image: Path, directory: Path, size_bytes: int) -> bool:
    """Mount an ext4 that lies in a file; False where the system does not let one."""
    with image.open("wb") as file:
        file.truncate(size_bytes + EXT4_BYTES)
    make = ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)]
    mount = ["mount", "-t", "ext4", "-o", "loop", str(image), str(directory)]
    try:
        for command in (make, mount):
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return False
    return True


def fill_up(path: Path) -> None:
    """Take all the space that is left, beside what this file has taken before."""
    with path.open("ab", buffering=0) as file:
        for size_bytes in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size_bytes)) == size_bytes:
                    """There was room for that."""
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


class Group:
    """A member that sends heartbeats and commits, and what it was told."""

    def __init__(self, report: Report, gateway: GatewayProcess) -> None:
        self._report = report
        self._gateway = gateway
        self._connection: Connection | None = None
        self._member: WireMember
        self._number = 0
        self.acknowledged = -1

    async def join(self) -> None:
        """Become the group's only member."""
        connection = await Connection.open(self._gateway.host, self._gateway.port)
        self._connection = connection
        # The disk is on trial here, not how often a busy machine lets a heartbeat through.
        self._member = WireMember(GROUP, connection.send, session_ms=SESSION_MS)
        await settle([self._member])

    async def expect_alive(self) -> None:
        """Send a heartbeat, which needs no disk."""
        self._report.count("heartbeats")
        code = await self._member.heartbeat()
        if code is not ErrorCode.NONE:
            self._report.fail(f"a heartbeat is answered with {code.name} while the disk is full")

    async def commit(self) -> ErrorCode:
        """Commit the next offset."""
        self._number += 1
        code = await self._member.commit(KEPT, {0: self._number})
        if code is ErrorCode.NONE:
            self.acknowledged = self._number
        return code

    async def expect_commits(self) -> None:
        """Commit out of the reserve."""
        for _ in range(COMMITS):
            self._report.count("commits")
            code = await self.commit()
            if code is not ErrorCode.NONE:
                self._report.fail(f"a commit is answered with {code.name} out of the reserve")

    async def try_commits(self) -> None:
        """Commit where there is not a byte: taken, or refused with what clients try again."""
        for _ in range(COMMITS):
            code = await self.commit()
            self._report.count(f"commits_without_reserve: {code.name}")
            if code not in TAKEN:
                self._report.fail(f"a commit is answered with {code.name} without a reserve")

    async def expect_return(self) -> None:
        """Commit as soon as there is space again."""
        limit = patience.Limit(RETURN_S)
        while (code := await self.commit()) is not ErrorCode.NONE:
            if limit.is_over:
                self._report.fail(f"commits are still answered with {code.name} 5 s after")
                return
            await asyncio.sleep(0.05)

    async def expect_stored(self, client: AsyncClient) -> None:
        """See that the last commit that was acknowledged, or one after it, is there."""
        offsets = await GroupClient(client).offsets(GROUP)
        found = offsets[KEPT, 0].offset if (KEPT, 0) in offsets else -1
        if not self.acknowledged <= found <= self._number:
            self._report.fail(f"LOST commit {self.acknowledged}: {found} is there")

    async def aclose(self) -> None:
        """Go without a word."""
        if self._connection is not None:
            await self._connection.aclose()


class Cycles:
    """Fills the disk, looks at what still works, frees it."""

    def __init__(
        self,
        report: Report,
        random: Random,
        client: AsyncClient,
        disk: Path,
        group: Group,
        refusal_s: float,
    ) -> None:
        self._report = report
        self._refusal_s = refusal_s
        self._group = group
        self._random = random
        self._client = client
        self._admin = AdminClient(client)
        self._disk = disk
        self.kept: dict[int, bytes] = {}

    async def run(self, number: int) -> None:
        """Go through one cycle."""
        report = self._report
        ballast = self._disk / "ballast"
        await asyncio.to_thread(ballast.write_bytes, bytes(BALLAST_BYTES))
        bulk = f"bulk-{number}"
        await self._admin.create_topic(bulk, partitions=2)
        await self._keep()
        stored: dict[tuple[int, int], bytes] = {}
        # What is refused before that is refused for another reason.
        full_bytes = RESERVE_BYTES + BATCH_BYTES // 16
        is_full = await self._is_filled(full_bytes, lambda: self._fill(bulk, stored))
        report.count("times_full", is_full)
        for _ in range(LOOKS):
            await self._expect_refusal(bulk)
            await self._expect_reads(bulk, stored, "reads")
            await self._expect_state_commits(number)
            await self._group.expect_alive()
            await self._group.expect_commits()
        await self._without_reserve(bulk, stored)
        if number % 2:
            await self._admin.delete_topic(bulk)
        else:
            await asyncio.to_thread(ballast.unlink)
        await self._expect_return()
        await self._group.expect_return()
        await self._group.expect_stored(self._client)
        if number % 2:
            await asyncio.to_thread(ballast.unlink)
        else:
            await self._expect_reads(bulk, stored, "reads_once_freed", len(stored))
            await self._admin.delete_topic(bulk)

    async def _without_reserve(self, bulk: str, stored: dict[tuple[int, int], bytes]) -> None:
        """Let somebody else take the last byte: what needs no new space goes on."""
        filler = self._disk / "filler"
        is_full = await self._is_filled(SMALL_BYTES, lambda: asyncio.to_thread(fill_up, filler))
        self._report.count("times_without_reserve", is_full)
        await self._expect_refusal(bulk)
        for _ in range(LOOKS):
            await self._group.expect_alive()
            await self._group.try_commits()
            await self._expect_reads(bulk, stored, "reads_without_reserve")
        await asyncio.to_thread(filler.unlink)

    async def _is_filled(self, below_bytes: int, fill: Callable[[], Awaitable[None]]) -> bool:
        """Fill the disk until less than that is free; False when that has not come to pass."""
        for _ in range(FILLS_TRIED):
            await fill()
            if await self._free_bytes() < below_bytes:
                return True
            self._report.count("times_not_full_yet")
        return False

    async def _free_bytes(self) -> int:
        return (await asyncio.to_thread(shutil.disk_usage, self._disk)).free

    async def _keep(self) -> None:
        """Store a record that has to be there at the end."""
        value = b"kept-%d" % len(self.kept)
        batch = bytes(make_batch([value]).buffer)
        produced = await self._client.produce(KEPT, 0, batch, retry=False)
        if produced.base_offset in self.kept:
            self._report.fail(f"offset {produced.base_offset} of {KEPT} is GIVEN TWICE")
        self.kept[produced.base_offset] = value

    async def _fill(self, bulk: str, stored: dict[tuple[int, int], bytes]) -> None:
        """Append until even a small batch is refused."""
        for size_bytes in (BATCH_BYTES, BATCH_BYTES // 16, SMALL_BYTES):
            while await self._store(bulk, size_bytes, stored):
                self._report.count("appended")

    async def _store(
        self, bulk: str, size_bytes: int, stored: dict[tuple[int, int], bytes]
    ) -> bool:
        partition = len(stored) % 2
        value = self._random.randbytes(size_bytes)
        batch = bytes(make_batch([value]).buffer)
        try:
            produced = await self._client.produce(bulk, partition, batch, retry=False)
        except ServerRefusedError as error:
            self._check_code(error)
            return False
        place = partition, produced.base_offset
        if place in stored:
            self._report.fail(f"offset {produced.base_offset} of {bulk} is GIVEN TWICE")
        stored[place] = value
        return True

    def _check_code(self, error: ServerRefusedError) -> None:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            self._report.fail(f"a full disk is answered with {error.code.name}: {error}")

    async def _expect_refusal(self, bulk: str) -> None:
        batch = bytes(make_batch([bytes(BATCH_BYTES)]).buffer)
        began_s = time.monotonic()
        try:
            await self._client.produce(bulk, 0, batch, retry=False)
        except ServerRefusedError as error:
            self._check_code(error)
            self._report.count("refusals")
        else:
            self._report.fail("a large append was taken although the disk is full")
        elapsed_s = time.monotonic() - began_s
        slowest_ms = max(self._report.counts["slowest_refusal_ms"], int(elapsed_s * 1_000))
        self._report.counts["slowest_refusal_ms"] = slowest_ms
        if elapsed_s > self._refusal_s:
            self._report.fail(f"the refusal took {elapsed_s:.2f} s")

    async def _expect_reads(
        self, bulk: str, stored: dict[tuple[int, int], bytes], what: str, count: int = READS
    ) -> None:
        for partition, offset in self._random.sample(sorted(stored), count):
            self._report.count(what)
            value = await self._read(bulk, partition, offset)
            if value != stored[partition, offset]:
                self._report.fail(f"{bulk}-{partition} offset {offset} is not served")

    async def _read(self, topic: str, partition: int, offset: int) -> bytes | None:
        try:
            fetched = await self._client.fetch(topic, {partition: offset}, partition_max_bytes=1)
        except ClientError as error:
            self._report.fail(f"a read failed: {error}")
            return None
        for record in read_stored([one.records for one in fetched]):
            if record.offset == offset:
                return record.value
        return None

    async def _expect_state_commits(self, number: int) -> None:
        try:
            await self._client.init_producer_id()
            await self._client.cluster()
            name = f"tiny-{number}-{self._random.randrange(1 << 30)}"
            await self._admin.create_topic(name, partitions=1)
            await self._admin.delete_topic(name)
        except ClientError as error:
            self._report.fail(f"a state commit failed on the full disk: {error}")
        self._report.count("state_commits", 3)

    async def _expect_return(self) -> None:
        limit = patience.Limit(RETURN_S)
        began_s = time.monotonic()
        while True:
            try:
                await self._keep()
                break
            except ServerRefusedError as error:
                self._check_code(error)
                if limit.is_over:
                    self._report.fail("appends are still refused 5 s after space has come back")
                    return
                await asyncio.sleep(0.05)
        longest_ms = int((time.monotonic() - began_s) * 1_000)
        self._report.counts["slowest_return_ms"] = max(
            self._report.counts["slowest_return_ms"], longest_ms
        )

    async def check_kept(self, client: AsyncClient | None = None) -> None:
        """Compare what was answered with what is there, after a restart with another client."""
        self._client = client or self._client
        await self._group.expect_stored(self._client)
        for offset, value in self.kept.items():
            self._report.count("kept_records")
            if await self._read(KEPT, 0, offset) != value:
                self._report.fail(f"LOST offset {offset} of {KEPT}")


async def _run_cycles(
    report: Report, gateway: GatewayProcess, disk: Path, cycles: int, refusal_s: float
) -> Cycles:
    """Go through the cycles; return what knows what has to be there after the next start."""
    async with AsyncClient([(gateway.host, gateway.port)], retry_s=0) as client:
        await AdminClient(client).create_topic(KEPT, partitions=1)
        group = Group(report, gateway)
        await group.join()
        runner = Cycles(report, Random(report.seed), client, disk, group, refusal_s)
        for number in range(cycles):
            await runner.run(number)
            report.count("cycles")
        await runner.check_kept()
        await group.aclose()
    return runner


async def _check_again(report: Report, gateway: GatewayProcess, before: Cycles) -> None:
    async with AsyncClient([(gateway.host, gateway.port)], retry_s=0) as client:
        await before.check_kept(client)


def run_cycles(
    report: Report,
    cycles: int,
    reserve_bytes: int,
    *,
    starts_again: bool = True,
    refusal_s: float = math.inf,
) -> None:
    """Fill and free a small disk so many times; then see what the next start serves."""
    with small_disk(report) as disk:
        gateway = GatewayProcess(disk / "data", f"kgw.min.free.bytes={reserve_bytes}")
        with gateway:
            try:
                done = asyncio.run(_run_cycles(report, gateway, disk, cycles, refusal_s))
                if (status := gateway.stop()) != 0:
                    report.fail(f"exit status {status}")
                if starts_again:
                    gateway.start()
                    asyncio.run(_check_again(report, gateway, done))
            except ClientError as error:
                report.fail(f"{error}; the gateway logged: {gateway.log()[-2_000:]}")


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("disk-full", seed)
    # In the short form a disk that is freed of its topic, and one that is freed of somebody else.
    cycles = 20 if full else 2
    run_cycles(report, cycles, RESERVE_BYTES, refusal_s=REFUSAL_S if full else math.inf)
    if full:
        report.require("disks: ext4", 1)
    # Each cycle does exactly so many.
    for what, each in FLOORS.items():
        report.require(what, cycles * each)
    commits = sum(report.counts[f"commits_without_reserve: {code.name}"] for code in TAKEN)
    if commits < cycles * LOOKS * COMMITS:
        report.fail(f"commits without a reserve: only {commits}")
    control = Report("control: no reserve", seed)
    run_cycles(control, 1, 0, starts_again=False)
    report.expect_alarm(control, "on the full disk")
    report.expect_alarm(control, "out of the reserve")
    return report


if __name__ == "__main__":
    main(run)
