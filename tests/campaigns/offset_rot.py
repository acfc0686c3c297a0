"""D19: flipped bits and cuts in everything but the records: no wrong offset is ever served.

A gateway with two partitions, three epochs, deleted records and two groups is stopped in order, or
killed. Then one bit of one file is flipped, or a file is cut: the database with its write-ahead log
and note, side files, indexes, snapshots, and every small file. The gateway is started, and log
starts, high watermarks, ends of epochs, look-ups by time, records and committed offsets are
compared. What is wrong must be reported or refused; what nobody reports must be nothing.

Run as `python -m tests.campaigns.offset_rot --full --seed N`.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import tempfile
import traceback
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.backup.control import SOCKET_NAME
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.offline.check import check_directory
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.errors import KgwError
from kgw.offsets.committed import DAMAGED_OFFSET
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kgw.state.sql import sqlite_file, store
from kgw.testing.batches import read_stored
from kgw.testing.gateway import InProcessGateway
from tests.campaigns.support import Report, main, replaced
from tests.handlers.support import START_MS, batch, create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.partitions.partition import Partition

TOPIC = "orders"
GROUPS = ("billing", "search")
PARTITIONS = 2
TRIALS_A_DIRECTORY = 200
CUT_SHARE = 0.3
DATABASE_SHARE = 0.4
OPTIONS = EmbeddedOptions(min_free_bytes=0, journal_bytes=32 << 10, journal_append_bytes=400)
DATABASE = layout.STATE_NAME
DERIVED = (
    # Written for Kafka's tools and never read.
    layout.OFFSET_INDEX_SUFFIX,
    layout.TIME_INDEX_SUFFIX,
    layout.EPOCHS_NAME,
    # Made anew by every recovery from the place of the checkpoint on.
    layout.SIDE_SUFFIX,
    # One of two that are kept, and the log behind them.
    layout.SNAPSHOT_SUFFIX,
    # Repeats what the segments hold.
    ".journal",
)


class PartitionView(NamedTuple):
    """What a partition tells of itself."""

    log_start_offset: int
    high_watermark: int
    next_offset: int
    epoch_ends: list[int | None]
    by_time: list[int | None]
    values: dict[int, bytes]


class View(NamedTuple):
    """What a gateway tells its clients of offsets."""

    partitions: list[PartitionView]
    committed: dict[tuple[str, int], int | None]
    leader_epochs: list[int]


class Built(NamedTuple):
    """A stopped directory and what it must serve."""

    path: Path
    is_clean: bool
    expected: View


class Damage(NamedTuple):
    """One flipped bit, or a cut at a byte."""

    name: str
    position: int
    mask: int

    def __str__(self) -> str:
        what = f"^ {self.mask:#x}" if self.mask else "cut"
        return f"{self.name} byte {self.position} {what}"

    @property
    def kind(self) -> str:
        """Which files it is one of."""
        return self.name.rsplit("/", 1)[-1].lstrip("0123456789")

    def apply(self, root: Path) -> None:
        path = root / self.name
        content = bytearray(path.read_bytes())
        if self.mask:
            content[self.position] ^= self.mask
        else:
            del content[self.position :]
        path.write_bytes(content)


class _Listener(logging.Handler):
    """What is logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record.getMessage())


def _gateway(path: Path) -> InProcessGateway:
    return InProcessGateway(backend=EmbeddedBackend(path, OPTIONS))


def _partitions(gateway: InProcessGateway) -> list[Partition]:
    topic = gateway.catalog.get(TOPIC)
    assert topic is not None
    return list(topic.partitions.values())


async def _produce(gateway: InProcessGateway, random: Random, count: int) -> None:
    for _ in range(count):
        size = random.choice((5, 60, 400))
        values = [random.randbytes(size) for _ in range(random.choice((1, 1, 3)))]
        times = [START_MS + random.randrange(-5_000, 5_000) for _ in values]
        answer = await produce(
            gateway,
            batch(*values, timestamps_ms=times),
            name=TOPIC,
            index=random.randrange(PARTITIONS),
        )
        assert answer.error_code == 0


async def _commit(gateway: InProcessGateway, group: str, offsets: dict[int, int]) -> None:
    response = await gateway.ask(
        OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                        for index, offset in offsets.items()
                    ],
                )
            ],
        ),
        8,
        OffsetCommitResponse,
    )
    assert all(one.error_code == 0 for one in response.topics[0].partitions)


async def _commit_somewhere(gateway: InProcessGateway, random: Random) -> None:
    for group in GROUPS:
        ends = {n: one.log.high_watermark for n, one in enumerate(_partitions(gateway))}
        await _commit(gateway, group, {n: random.randint(0, end) for n, end in ends.items()})


async def _kill(gateway: InProcessGateway, path: Path, target: Path) -> None:
    """Keep what a kill would leave, then stop."""
    # A socket cannot be copied, and a killed server's is nobody's. The lock names the directory
    # that was copied, so that a start says it is a copy: a kill leaves the directory itself.
    shutil.copytree(path, target, ignore=shutil.ignore_patterns(SOCKET_NAME, layout.LOCK_NAME))
    await gateway.aclose()


async def build(random: Random, folder: Path, *, is_clean: bool) -> Built:
    """Return a directory with a bit of everything, stopped in order or killed."""
    first, second, path = folder / "first", folder / "second", folder / "built"
    gateway = _gateway(first)
    await gateway.open()
    await create_topic(gateway, TOPIC, PARTITIONS, segment_bytes="2000")
    await _produce(gateway, random, 12)
    await _commit_somewhere(gateway, random)
    await _kill(gateway, first, second)
    gateway = _gateway(second)
    await gateway.open()
    await _produce(gateway, random, 10)
    for partition in _partitions(gateway):
        await partition.log.drop_before(partition.log.high_watermark // 4)
    await gateway.checkpoint()
    await _produce(gateway, random, 8)
    for partition in _partitions(gateway):
        # No checkpoint knows of it.
        await partition.log.drop_before(partition.log.high_watermark // 3)
    await _commit_somewhere(gateway, random)
    await _produce(gateway, random, 4)
    await _commit_somewhere(gateway, random)
    expected = await view(gateway)
    if is_clean:
        await gateway.aclose()
        second.rename(path)
    else:
        await _kill(gateway, second, path)
    return Built(path, is_clean, expected)


async def view(gateway: InProcessGateway, epochs: int = 3) -> View:
    """Ask for everything."""
    partitions = _partitions(gateway)
    committed: dict[tuple[str, int], int | None] = {}
    for group in GROUPS:
        table = gateway.groups.offsets(group)
        for index, partition in enumerate(partitions):
            found = None if table is None else table.get(partition.log.key.topic_id, index)
            committed[group, index] = None if found is None else found.offset
    return View(
        [await _view_partition(partition, epochs) for partition in partitions],
        committed,
        [partition.log.leader_epoch for partition in partitions],
    )


async def _view_partition(partition: Partition, epochs: int) -> PartitionView:
    log = partition.log
    start, end = log.log_start_offset, log.high_watermark
    by_time: list[int | None] = []
    for time_ms in range(START_MS - 5_000, START_MS + 5_001, 1_250):
        found = await log.find_by_time(time_ms, start, end, lambda batch: batch)
        by_time.append(None if found is None else found.base_offset)
    values: dict[int, bytes] = {}
    offset = start
    while offset < end:
        result = await log.read(offset, 1 << 20, end)
        for record in read_stored(result.buffers):
            values[record.offset] = record.value
        if result.next_offset <= offset:
            break
        offset = result.next_offset
    ends: list[int | None] = []
    for epoch in range(epochs):
        found_end = log.epoch_end(epoch)
        ends.append(None if found_end is None else found_end.end_offset)
    return PartitionView(start, end, log.end_offset, ends[:2], by_time, values)


def differences(expected: View, found: View) -> Iterator[str]:
    """Yield every offset that is told differently."""
    for index, (one, other) in enumerate(zip(expected.partitions, found.partitions, strict=True)):
        for name in PartitionView._fields:
            if getattr(one, name) != getattr(other, name):
                yield f"WRONG {name} of {index}: {getattr(other, name)} for {getattr(one, name)}"
        if found.leader_epochs[index] < expected.leader_epochs[index]:
            yield f"WRONG leader epoch of {index}: it went back"
    for partition, offset in expected.committed.items():
        if found.committed[partition] not in (offset, DAMAGED_OFFSET):
            yield f"WRONG commit of {partition}: {found.committed[partition]} for {offset}"


# --- one trial ----------------------------------------------------------------------------------


def choose(random: Random, built: Built) -> Damage:
    """Choose a kind of file, a file of it, and what happens to it."""
    by_kind: dict[str, list[tuple[str, int]]] = {}
    for path in sorted(built.path.rglob("*")):
        name = str(path.relative_to(built.path))
        if not path.is_file() or path.suffix == layout.LOG_SUFFIX or not path.stat().st_size:
            continue
        if (
            path.name == layout.LOCK_NAME
            or path.suffix == ".deleted"
            or (built.is_clean and path.suffix == ".journal")
        ):
            # The frames of an orderly stop are void.
            continue
        by_kind.setdefault(Damage(name, 0, 1).kind, []).append((name, path.stat().st_size))
    database = [kind for kind in by_kind if kind.startswith(DATABASE)]
    kinds = database if random.random() < DATABASE_SHARE else sorted(by_kind)
    name, size = random.choice(by_kind[random.choice(kinds)])
    mask = 0 if random.random() < CUT_SHARE else 1 << random.randrange(8)
    return Damage(name, random.randrange(size), mask)


async def try_damage(report: Report, built: Built, folder: Path, damage: Damage) -> None:
    """Start a gateway on a damaged copy and compare what it tells."""
    report.count("trials")
    report.count("cuts" if not damage.mask else "flips")
    report.count(f"trials {damage.kind}")
    report.count("trials of stopped directories" if built.is_clean else "trials of killed ones")
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(built.path, work)
    damage.apply(work)
    listener = _Listener()
    logger = logging.getLogger("kgw")
    logger.addHandler(listener)
    gateway = _gateway(work)
    trial = f"{'clean' if built.is_clean else 'killed'}, {damage}"
    try:
        try:
            await gateway.open()
        except KgwError as error:
            report.count("refused")
            if not str(error):
                report.fail(f"{trial}: refused without a word")
            return
        try:
            found = await view(gateway)
            problems = [*gateway.backend.health.problems, *listener.records]
        finally:
            await gateway.aclose()
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        report.fail(f"{trial}: {traceback.format_exc(limit=-5)}")
        return
    finally:
        logger.removeHandler(listener)
    for wrong in differences(built.expected, found):
        report.fail(f"{trial}: {wrong}; problems {problems}")
    if problems:
        report.count("reported")
    elif DAMAGED_OFFSET in found.committed.values():
        report.fail(f"{trial}: a damaged commit is not reported")
    else:
        await asyncio.to_thread(_judge_silence, report, built, folder, damage, trial)


def _judge_silence(report: Report, built: Built, folder: Path, damage: Damage, trial: str) -> None:
    """Say whether there was nothing to be said where nobody has said a word."""
    if any(damage.kind.endswith(kind) for kind in DERIVED):
        shutil.rmtree(folder / "work")
        shutil.copytree(built.path, folder / "work")
        damage.apply(folder / "work")
        if check_directory(str(folder / "work"), RealFs(), {}):
            report.count("derived, said by kgw log check")
        else:
            report.count("derived, made anew")
    elif damage.kind.startswith(DATABASE) and not built.is_clean:
        shutil.rmtree(folder / "work")
        shutil.copytree(built.path, folder / "work")
        damage.apply(folder / "work")
        if _dump(folder / "work") != _dump(built.path, folder / "intact"):
            report.fail(f"{trial}: UNDETECTED")
        else:
            report.count("unused bytes of the database")
    else:
        report.fail(f"{trial}: UNDETECTED")


def _dump(path: Path, copy: Path | None = None) -> list[str]:
    """Return everything that a database holds."""
    if copy is not None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        path = copy
    with closing(sqlite3.connect(path / DATABASE)) as connection:
        return list(connection.iterdump())


async def _run(report: Report, seed: int, trials: int, trials_a_directory: int) -> None:
    number = 0
    while report.counts["trials"] < trials and report.failure_count < 50:
        random = Random(seed * 1_000 + number)
        with tempfile.TemporaryDirectory(dir=_fast_directory()) as name:
            folder = Path(name)
            built = await build(random, folder, is_clean=number % 2 == 0)
            await _check_baseline(report, built, folder)
            for _ in range(min(trials_a_directory, trials - report.counts["trials"])):
                await try_damage(report, built, folder, choose(random, built))
        number += 1
    report.count("directories", number)


async def _check_baseline(report: Report, built: Built, folder: Path) -> None:
    """Without damage everything is told as it was, and nothing is reported."""
    shutil.copytree(built.path, folder / "work")
    gateway = _gateway(folder / "work")
    await gateway.open()
    found = await view(gateway)
    for wrong in differences(built.expected, found):
        report.fail(f"without damage: {wrong}")
    if gateway.backend.health.problems:
        report.fail(f"without damage: {gateway.backend.health.problems}")
    await gateway.aclose()


def _fast_directory() -> str | None:
    """Nothing here loses power: memory will do."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


# --- the controls -------------------------------------------------------------------------------


def _digits(content: bytes, marks: tuple[bytes, ...]) -> list[int]:
    """Return the positions of digits soon after one of the marks."""
    positions = []
    for mark in marks:
        at = content.find(mark)
        while at >= 0:
            start = at + len(mark)
            positions += [
                position
                for position in range(start, start + 14)
                if content[position : position + 1].isdigit()
            ]
            at = content.find(mark, start)
    return positions


def _flipped_digits(built: Built, suffixes: tuple[str, ...], *marks: bytes) -> Iterator[Damage]:
    """Flip the low bit of digits that stand behind a mark: a number becomes another one."""
    for path in sorted(built.path.rglob("*")):
        if path.name.endswith(suffixes) and path.is_file():
            for position in _digits(path.read_bytes(), marks)[:20]:
                yield Damage(str(path.relative_to(built.path)), position, 1)


def _cut_logs(built: Built, random: Random) -> Iterator[Damage]:
    """Cut the database's write-ahead log somewhere."""
    name = f"{DATABASE}-wal"
    size = (built.path / name).stat().st_size
    for _ in range(20):
        yield Damage(name, random.randrange(32, size), 0)


async def _try_until(
    report: Report, seed: int, alarm: str, damages: Callable[[Built, Random], Iterator[Damage]]
) -> None:
    """Try one damage after the other until the alarm is given."""
    random = Random(seed)
    with tempfile.TemporaryDirectory(dir=_fast_directory()) as name:
        folder = Path(name)
        built = await build(random, folder, is_clean=damages is not _cut_logs)
        for damage in damages(built, random):
            await try_damage(report, built, folder, damage)
            if any(alarm in failure for failure in report.failures):
                break


def _believe_small(data: bytes) -> dict[str, object]:
    import json

    try:
        fields = json.loads(data.partition(b"\n")[0])
    except ValueError as error:
        raise layout.SmallFileError(str(error)) from error
    return dict(fields)


def control(report: Report, seed: int) -> None:
    """With a check off, wrong offsets must be seen."""

    def flipped_rows(built: Built, _: Random) -> Iterator[Damage]:
        return _flipped_digits(built, (DATABASE,), b"[[0,", b'"next_offset":')

    def flipped_starts(built: Built, _: Random) -> Iterator[Damage]:
        return _flipped_digits(built, (layout.LOG_STATE_NAME,), b'"log_start_offset":')

    for name, check, alarm, damages in (
        (
            "rows without checksums",
            (store, "_is_intact", lambda *_: True),
            "WRONG commit",
            flipped_rows,
        ),
        (
            "small files without checksums",
            (layout, "decode_small", _believe_small),
            "WRONG",
            flipped_starts,
        ),
        (
            "commits that are not counted",
            (sqlite_file, "read_note", lambda _: None),
            "WRONG commit",
            _cut_logs,
        ),
    ):
        broken = Report(f"control: {name}", seed)
        with replaced(*check):
            asyncio.run(_try_until(broken, seed, alarm, damages))
        report.expect_alarm(broken, alarm)


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("offset-rot", seed)
    trials = 10_000 if full else 120
    # As many directories were killed as were stopped in order.
    asyncio.run(_run(report, seed, trials, TRIALS_A_DIRECTORY if full else trials // 2))
    report.require("trials", trials)
    report.require("trials of killed ones", trials // 2)
    report.require(f"trials {DATABASE}-wal", trials // 50)
    report.require("trials .journal", trials // 100)
    control(report, seed)
    return report


if __name__ == "__main__":
    main(run)
