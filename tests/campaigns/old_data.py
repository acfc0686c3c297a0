"""D13: data directories as the last revision before each change of format left them.

Today's code opens each: stopped in order and killed; again after its first open was interrupted, at
an operation on a file or between two steps of the database; and after a kill at any moment.
`old_data_fixture` makes them. Run as `python -m tests.campaigns.old_data --full --seed N`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from kgw.backend.embedded import layout
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.fs import RealFile, RealFs
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
from kgw.state.sql.migrations import MIGRATIONS
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.state.sql.store import SqlStateStore
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from kgw.testing.process import SERVE, GatewayProcess
from tests.campaigns.old_data_fixture import DIRECTORY, GROUP, SUFFIX
from tests.campaigns.support import Report, main, replaced
from tests.handlers.support import fetch_request, produce_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kgw.state.base import Row
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
LONGEST_OPEN_S = 0.6
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
    """Return all of them, the oldest first."""
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
    backend = EmbeddedBackend(data, OPTIONS, fs=fs, clock=clock)
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
        for path in sorted(self._data.rglob("*")):
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


def interrupt_migration(report: Report, fixture: Fixture, parent: Path, steps: int) -> None:
    """Open what is left when the database has taken some of its steps, each a transaction."""
    data = fixture.unpack(parent)
    store = SqliteStateStore(data / "meta.sqlite", migrations=MIGRATIONS[:steps])
    try:
        asyncio.run(_open_store(store))
    except DataDirectoryError:
        shutil.rmtree(data)
        return  # its steps go further already
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
    data = fixture.unpack(parent)
    gateway = GatewayProcess(data, *SETTINGS)
    command = [*SERVE, "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    for _ in range(KILLED_OPENS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.1, LONGEST_OPEN_S))
        process.kill()
        process.wait()
        report.count("killed_opens")
    try:
        with gateway:
            asyncio.run(_judge_process(report, fixture, gateway))
    except RuntimeError as error:
        report.fail(f"{fixture.name}: killed while opening: NOT OPENED: {error}"[:2_000])


async def _judge_process(report: Report, fixture: Fixture, gateway: GatewayProcess) -> None:
    connection = await Connection.open(gateway.host, gateway.port)
    await Judge(report, fixture, "killed while opening", connection.send).judge()
    await connection.aclose()


# --- the campaign ---------------------------------------------------------------------------------


def _open_all(report: Report, random: Random, parent: Path, *, full: bool) -> None:
    interrupted = fixtures()
    # In the short form half of them, others with each seed.
    random.shuffle(interrupted)
    is_left = {one.name: not full and number % 2 == 1 for number, one in enumerate(interrupted)}
    for fixture in fixtures():
        report.count("fixtures")
        open_and_judge(report, fixture, fixture.unpack(parent), "opened")
        if is_left[fixture.name]:
            continue
        for _ in range(INTERRUPTED_OPENS if full else 1):
            nth = random.randint(1, MOST_OPERATIONS)
            while not interrupt(report, fixture, parent, nth):
                nth = random.randint(1, max(1, nth - 1))
        for step in range(1, len(MIGRATIONS)):
            interrupt_migration(report, fixture, parent, step)


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
    report.require("interrupted_opens", count * INTERRUPTED_OPENS if full else count // 2)
    report.require("interrupted_migrations", 3)
    report.require("killed_opens", count * KILLED_OPENS if full else 0)
    return report


if __name__ == "__main__":
    main(run)
