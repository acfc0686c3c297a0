"""D13: data directories as the last revision before each change of format left them.

Today's code opens each: stopped in order and killed; again after its first open was interrupted, at
an operation on a file or between two steps of the database; and after kills between the moment at
which a process has the directory's lock and the one at which it is ready.
`old_data_fixture` makes them. Run as `python -m tests.campaigns.old_data --full --seed N`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from kgw.backend.embedded import layout
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.files.fs import RealFile, RealFs
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.client import Connection
from kgw.config.load import load_config
from kgw.errors import DataDirectoryError, ErrorCode, KgwError
from kgw.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kgw.protocol.messages.heartbeat import HeartbeatRequest
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kgw.protocol.messages.metadata import MetadataRequest
from kgw.protocol.messages.offset_fetch import OffsetFetchRequest
from kgw.records.batch import split_batches
from kgw.records.reader import read_records
from kgw.state.kinds import GROUP_OFFSETS
from kgw.state.sql import sqlite_file
from kgw.state.sql.migrations import MIGRATIONS, pending_migrations
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.state.sql.store import SqlStateStore
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from kgw.testing.process import SERVE, GatewayProcess
from tests import patience
from tests.campaigns.old_data_fixture import DIRECTORY, GROUP, SUFFIX
from tests.campaigns.support import Report, main, replaced
from tests.handlers.support import fetch_request, produce_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from kgw.state.base import Row
    from kgw.state.sql.migrations import Migration
    from kgw.types import Buffer
    from tests.groups.wire import Ask

EARLIEST, LATEST = -2, -1
SETTINGS = (
    # Where a process is asked whose clock nobody sets: a fixture grows old.
    "offsets.retention.minutes=2147483647",
    "producer.id.expiration.ms=2147483647",
    "log.cleaner.enable=false",
)
OPTIONS = EmbeddedOptions(min_free_bytes=0)
FIXTURES = 21
KILLED_OPENS = 3
INTERRUPTED_OPENS = 4
INTERRUPTED_MIGRATIONS = 54
"""All that there are: an open that takes two steps has one place between them. Half are killed."""
OPENS_TRIED = 12
LONGEST_OPEN_S = 0.06
"""From the lock to being ready: what is drawn from first, and halved where opens are quicker."""
LOCK_S = 60.0
"""Within that a process has the directory's lock, however busy the machine is."""
LOOK_S = 0.001
LOCKS = Path("/proc/locks")
COPIES_TRIED = 20
MOST_OPERATIONS = 60
"""Of one open, more or less."""


class Fixture:
    """One directory, and what it has to hold."""

    def __init__(self, manifest: Path) -> None:
        self.name = manifest.stem
        self._packed = manifest.with_name(manifest.stem + SUFFIX)
        self.manifest: dict[str, Any] = json.loads(manifest.read_text())

    @property
    def was_stopped(self) -> bool:
        """Whether its server ended in order."""
        return bool(self.manifest["ended"] == "stopped")

    def unpack(self, parent: Path) -> Path:
        """Return a new directory with its content; what was a hole takes no space."""
        data = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=parent))
        with tarfile.open(self._packed) as packed:
            packed.extractall(data, filter="data")
        return data


def fixtures() -> list[Fixture]:
    """Return all of them by name, which begins with the revision's number: the oldest is first."""
    return [Fixture(manifest) for manifest in sorted(DIRECTORY.glob("*.json"))]


class Judge:
    """Compares what a gateway serves with what a fixture has to hold."""

    def __init__(self, report: Report, fixture: Fixture, place: str, ask: Ask) -> None:
        self._report = report
        self._fixture = fixture
        self._place = place
        self._ask: Callable[[Any, int], Any] = ask

    def _fail(self, what: str) -> None:
        self._report.fail(f"{self._fixture.name}: {self._place}: {what}")

    async def judge(self) -> None:
        """Look at everything, and let the members and the producer go on."""
        manifest = self._fixture.manifest
        answer = await self._ask(MetadataRequest(topics=None), 5)
        found = sorted(one.name for one in answer.topics)
        if found != sorted(manifest["topics"]):
            self._fail(f"topics {found} for {sorted(manifest['topics'])}")
            return
        for name, topic in manifest["topics"].items():
            await self._judge_config(name, topic["config"])
            for number, partition in enumerate(topic["partitions"]):
                await self._judge_partition(name, number, partition)
        for group_id, offsets in manifest["groups"].items():
            await self._judge_offsets(group_id, offsets)
        await self._judge_members()
        await self._judge_producer()

    async def _judge_config(self, name: str, expected: dict[str, str]) -> None:
        resource = DescribeConfigsResource(
            resource_type=2, resource_name=name, configuration_keys=list(expected)
        )
        answer = await self._ask(DescribeConfigsRequest(resources=[resource]), 1)
        found = {one.name: one.value for one in answer.results[0].configs}
        self._report.count("settings", len(expected))
        if found != expected:
            self._fail(f"settings of {name}: {found} for {expected}")

    async def _bound(self, name: str, number: int, timestamp: int) -> int:
        part = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        topic = ListOffsetsTopic(name=name, partitions=[part])
        answer = await self._ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 3)
        return int(answer.topics[0].partitions[0].offset)

    async def _judge_partition(self, name: str, number: int, expected: dict[str, Any]) -> None:
        start = await self._bound(name, number, EARLIEST)
        end = await self._bound(name, number, LATEST)
        # A relaxed log that was killed leaves out what it had reserved.
        is_orderly = self._fixture.was_stopped and self._place.startswith("opened")
        may_skip = name == "relaxed" and not is_orderly
        if start != expected["start"] or end < expected["next"]:
            self._fail(f"{name}-{number}: {start}..{end} for {expected['start']}..")
        elif end != expected["next"] and not may_skip:
            self._fail(f"{name}-{number}: the next offset is {end}, not {expected['next']}")
        found = await self._records(name, number, start, expected["next"])
        wanted = {offset: (key, value) for offset, key, value in expected["records"]}
        self._report.count("records", len(found))
        must = dict(wanted)
        if expected.get("is_compacted"):
            newest = {key: offset for offset, (key, _) in wanted.items()}
            must = {offset: wanted[offset] for offset in newest.values()}
        for offset, record in must.items():
            if offset not in found:
                self._fail(f"LOST offset {offset} of {name}-{number}")
            elif found[offset] != record:
                self._fail(f"WRONG at {offset} of {name}-{number}: {found[offset]} for {record}")
        for offset, record in found.items():
            if wanted.get(offset) != record:
                self._fail(f"PHANTOM at {offset} of {name}-{number}: {record}")

    async def _records(
        self, name: str, number: int, offset: int, end: int
    ) -> dict[int, tuple[str | None, str | None]]:
        found: dict[int, tuple[str | None, str | None]] = {}
        while offset < end:
            answer = await self._ask(fetch_request(offset, name=name, index=number), 11)
            data = answer.responses[0].partitions[0]
            if data.error_code:
                self._fail(f"{name}-{number} at {offset}: {ErrorCode(data.error_code).name}")
                break
            batches = list(split_batches(data.records or b""))
            if not batches:
                break
            for batch in batches:
                for record in read_records(batch):
                    found[record.offset] = (_text(record.key), _text(record.value))
            offset = batches[-1].last_offset + 1
        return found

    async def _judge_offsets(self, group_id: str, expected: dict[str, int]) -> None:
        answer = await self._ask(OffsetFetchRequest(group_id=group_id, topics=None), 5)
        found = {
            f"{topic.name}/{one.partition_index}": one.committed_offset
            for topic in answer.topics
            for one in topic.partitions
        }
        self._report.count("commits", len(expected))
        if found != expected:
            self._fail(f"offsets of {group_id}: {found} for {expected}")

    async def _judge_members(self) -> None:
        for member in self._fixture.manifest["members"]:
            request = HeartbeatRequest(
                group_id=GROUP,
                generation_id=member["generation"],
                member_id=member["id"],
                group_instance_id=member["instance"],
            )
            code = ErrorCode((await self._ask(request, 3)).error_code)
            self._report.count("members")
            if code is not ErrorCode.NONE:
                self._fail(f"member {member['id']} is told {code.name}")

    async def _judge_producer(self) -> None:
        """Send the last five batches again: each has the offset that it had."""
        producer = self._fixture.manifest["producer"]
        for sequence, offset, values in producer["batches"]:
            times = [producer["made_ms"]] * len(values)
            batch = make_batch(
                [value.encode() for value in values],
                timestamps_ms=times,
                producer_id=producer["id"],
                producer_epoch=producer["epoch"],
                base_sequence=sequence,
            )
            request = produce_request(bytearray(batch.buffer), name="retried")
            answer = await self._ask(request, 7)
            found = answer.responses[0].partition_responses[0]
            self._report.count("retries")
            if found.error_code or found.base_offset != offset:
                code = ErrorCode(found.error_code).name
                self._fail(f"a retry of {sequence} gets {found.base_offset} ({code}), not {offset}")


def _text(data: Any) -> str | None:
    return None if data is None else bytes(data).decode()


# --- opening --------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(fixture: Fixture, data: Path, fs: RealFs | None = None) -> AsyncIterator[Ask]:
    """Serve a directory in this process, soon after it was made."""
    clock = ManualClock(wall_ms=fixture.manifest["made_ms"] + 60_000)
    settings = [one.partition("=") for one in SETTINGS]
    config = load_config(overrides=[(name, text, "the campaign") for name, _, text in settings])
    backend = EmbeddedBackend(data, OPTIONS, fs=fs or RealFs(), clock=clock)
    async with InProcessGateway(config, backend, clock) as gateway:
        yield gateway.request


def open_and_judge(report: Report, fixture: Fixture, data: Path, place: str) -> None:
    """Open a directory and look at everything, twice: once more as today's stop has left it.

    The directory is removed then.
    """
    for when in (place, f"{place}, and opened again"):
        try:
            asyncio.run(_judge_opened(report, fixture, data, when))
        except KgwError as error:
            report.fail(f"{fixture.name}: {when}: NOT OPENED: {error!r}")
            break
    else:
        report.count("opened")
    shutil.rmtree(data)


async def _judge_opened(report: Report, fixture: Fixture, data: Path, place: str) -> None:
    async with opened(fixture, data) as ask:
        await Judge(report, fixture, place, ask).judge()


class CopyingFs(RealFs):
    """Takes a copy of the directory after the n-th operation that changes a file or a name."""

    def __init__(self, data: Path, copy: Path, nth: int) -> None:
        super().__init__()
        self._data = data
        self._copy = copy
        self._left = nth

    def count(self) -> None:
        """Take the copy when it is time: what a kill leaves here."""
        self._left -= 1
        if self._left == 0:
            self._take_copy()

    def _take_copy(self) -> None:
        """Copy what stands still: another thread may be in the middle of something."""
        for _ in range(COPIES_TRIED):
            before = self._picture()
            places = (f"{self._data}/.", str(self._copy))
            cp = ["cp", "-a", "--sparse=always", *places]
            taken = subprocess.run(cp, check=False, stderr=subprocess.DEVNULL)
            if not taken.returncode and before == self._picture():
                return
            shutil.rmtree(self._copy)
            self._copy.mkdir()

    def _picture(self) -> list[tuple[str, int, int]]:
        """Return what would show that something has changed."""
        found: list[tuple[str, int, int]] = []
        names = [
            Path(directory, name)
            # Unlike `rglob`, it passes over a directory that goes away meanwhile.
            for directory, directories, files in os.walk(self._data)
            for name in [*directories, *files]
        ]
        for path in sorted(names):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            found.append((str(path), status.st_size, status.st_mtime_ns))
        return found

    def open(self, path: str, *, create: bool = False) -> RealFile:
        plain = super().open(path, create=create)
        file = _CountedFile(path, os.dup(plain.fileno()))
        plain.close()
        file.fs = self
        if create:
            self.count()
        return file

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.count()

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.count()

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self.count()

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        self.count()


class _CountedFile(RealFile):
    """A file whose changes are counted."""

    fs: CopyingFs

    def write_once(self, buffers: Sequence[Buffer], position: int) -> int:
        written = super().write_once(buffers, position)
        self.fs.count()
        return written

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self.fs.count()


def interrupt(report: Report, fixture: Fixture, parent: Path, nth: int) -> bool:
    """Open what a first open has left after n operations; False when nothing was to be had."""
    data, copy = fixture.unpack(parent), parent / f"{fixture.name}-copy-{nth}"
    copy.mkdir()
    asyncio.run(_open_and_close(fixture, data, CopyingFs(data, copy, nth)))
    shutil.rmtree(data)
    if not any(copy.iterdir()):
        copy.rmdir()
        return False
    report.count("interrupted_opens")
    open_and_judge(report, fixture, copy, f"interrupted after operation {nth}")
    return True


async def _open_and_close(fixture: Fixture, data: Path, fs: CopyingFs) -> None:
    async with opened(fixture, data, fs):
        """It has been opened."""


def interrupt_somewhere(report: Report, fixture: Fixture, parent: Path, random: Random) -> None:
    """Interrupt an open after some operation of those that it makes."""
    nth = random.randint(1, MOST_OPERATIONS)
    while not interrupt(report, fixture, parent, nth):
        if nth == 1:
            report.fail(f"{fixture.name}: an open changes no file: it cannot be INTERRUPTED")
            return
        nth = random.randint(1, nth - 1)


@contextmanager
def noted_steps(pending: list[int]) -> Iterator[None]:
    """Note of each database that is opened how many steps it has before it."""

    def noted(applied: Any, known: tuple[Migration, ...], name: str) -> tuple[Migration, ...]:
        steps = pending_migrations(applied, known, name)
        pending.append(len(steps))
        return steps

    with replaced(sqlite_file, "pending_migrations", noted):
        yield


def interrupt_migration(report: Report, fixture: Fixture, parent: Path, steps: int) -> None:
    """Open what is left when the database has taken some of its steps, each a transaction."""
    data = fixture.unpack(parent)
    store = SqliteStateStore(data / "meta.sqlite", migrations=MIGRATIONS[:steps])
    asyncio.run(_open_store(store))
    report.count("interrupted_migrations")
    if fixture.was_stopped:
        # The marker of an orderly stop says how the database was left.
        (data / "clean.json").unlink(missing_ok=True)
    open_and_judge(report, fixture, data, f"interrupted after step {steps} of the database")


async def _open_store(store: SqliteStateStore) -> None:
    await store.open()
    await store.aclose()


def kill_opening(report: Report, fixture: Fixture, parent: Path, random: Random) -> None:
    """Kill a process while it opens a directory, a few times, and look at what the next serves."""
    data, killed, longest_s = fixture.unpack(parent), 0, LONGEST_OPEN_S
    for _ in range(OPENS_TRIED):
        try:
            is_killed = _is_killed_opening(data, random.uniform(0.0, longest_s))
        except RuntimeError as error:
            report.fail(f"{fixture.name}: {error}, after {killed} kills while opening")
            return
        if is_killed:
            killed += 1
            report.count("killed_opens")
        else:
            # There is nothing old about that directory any more.
            report.count("opens_that_were_ready")
            shutil.rmtree(data)
            data, killed = fixture.unpack(parent), 0
            longest_s /= 2
        if killed == KILLED_OPENS:
            break
    else:
        report.fail(f"{fixture.name}: no {KILLED_OPENS} opens in a row were KILLED in time")
    gateway = GatewayProcess(data, *SETTINGS)
    try:
        with gateway:
            asyncio.run(judge_process(report, fixture, gateway, "killed while opening"))
    except RuntimeError as error:
        report.fail(f"{fixture.name}: killed while opening: NOT OPENED: {error}"[:2_000])


def _is_killed_opening(data: Path, after_s: float) -> bool:
    """Kill an open so long after it has taken the lock; False when it was ready by then.

    Raises:
        RuntimeError: The process has ended by itself, or not taken the lock in all that time.
    """
    command = [*SERVE, "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        lock, until_s = data / layout.LOCK_NAME, time.monotonic() + patience.seconds(LOCK_S)
        is_locked = False
        while process.poll() is None and not is_locked and time.monotonic() < until_s:
            time.sleep(LOOK_S)
            is_locked = _is_locked(lock, process.pid)
        if is_locked:
            time.sleep(after_s)
        process.kill()
        said, _ = process.communicate()
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"NOT OPENED: exit status {process.returncode}")
    if not is_locked:
        raise RuntimeError(f"NOT OPENED: no LOCK is taken within {LOCK_S:.0f} s")
    return b"ready" not in said


def _is_locked(path: Path, pid: int) -> bool:
    """Whether that process has the lock, without trying it, which would get in its way."""
    if not path.exists():
        return False
    # A line has a number, FLOCK, ADVISORY, WRITE, the process, and the inode behind its device.
    wanted = (str(pid), str(path.stat().st_ino))
    locks = (line.split() for line in LOCKS.read_text().splitlines() if " FLOCK " in line)
    return any(wanted == (one[4], one[5].rpartition(":")[2]) for one in locks)


async def judge_process(
    report: Report, fixture: Fixture, gateway: GatewayProcess, place: str
) -> None:
    """Compare what a process serves with what a fixture has to hold."""
    connection = await Connection.open(gateway.host, gateway.port)
    await Judge(report, fixture, place, connection.send).judge()
    await connection.aclose()


# --- the campaign ---------------------------------------------------------------------------------


def _open_all(report: Report, random: Random, parent: Path, *, full: bool) -> None:
    interrupted = fixtures()
    # In the short form a quarter of them, others with each seed.
    random.shuffle(interrupted)
    is_left = {one.name: not full and number % 4 > 0 for number, one in enumerate(interrupted)}
    for fixture in fixtures():
        report.count("fixtures")
        pending: list[int] = []
        with noted_steps(pending):
            open_and_judge(report, fixture, fixture.unpack(parent), "opened")
        # In the short form only where the log of the database is still there.
        for left in range(1, pending[0] if full or not fixture.was_stopped else 1):
            interrupt_migration(report, fixture, parent, len(MIGRATIONS) - left)
        if not is_left[fixture.name]:
            for _ in range(INTERRUPTED_OPENS if full else 1):
                interrupt_somewhere(report, fixture, parent, random)


def _refuse_older(_: bytes) -> None:
    raise DataDirectoryError("the data directory has a format that this program does not know")


async def _forget_offsets(self: SqliteStateStore, kind: str) -> dict[str, Row]:
    return {} if kind == GROUP_OFFSETS else await SqlStateStore.load(self, kind)


def _run_controls(report: Report, seed: int, parent: Path) -> None:
    first = fixtures()[0]
    for owner, name, broken, found in (
        (layout, "check_format", _refuse_older, "NOT OPENED"),
        (SqliteStateStore, "load", _forget_offsets, "offsets of workers"),
    ):
        control = Report(f"control: {found}", seed)
        with replaced(owner, name, broken):
            open_and_judge(control, first, first.unpack(parent), "opened")
        report.expect_alarm(control, found)


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("old-data", seed)
    random = Random(seed)
    # What is synced is none of this campaign's: in memory where there is such a file system.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kgw-old-data-", dir=memory) as name:
        parent = Path(name)
        _open_all(report, random, parent, full=full)
        if full:
            for fixture in fixtures():
                kill_opening(report, fixture, parent, random)
        _run_controls(report, seed, parent)
    count = len(fixtures())
    report.require("fixtures", FIXTURES)
    report.require("interrupted_opens", count * INTERRUPTED_OPENS if full else count // 4)
    report.require("interrupted_migrations", INTERRUPTED_MIGRATIONS // (1 if full else 2))
    report.require("killed_opens", count * KILLED_OPENS if full else 0)
    return report


if __name__ == "__main__":
    main(run)
