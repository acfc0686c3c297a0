"""D5: one flipped bit a trial, in every kind of file.

Run as `python -m tests.campaigns.bit_rot --full --seed N`.
"""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.offline.check import check_directory
from kgw.errors import StorageError
from kgw.state.base import Change, DamagedRowsError
from kgw.state.sql.commit_note import NOTE_SUFFIX
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.types import PartitionKey
from tests.campaigns.client_reads import (
    AHEAD,
    CACHED,
    Clients,
    require_ways,
    unverified_headers,
    unverified_pages,
)
from tests.campaigns.crash_model import ROOT
from tests.campaigns.stored_logs import build_directory, serve_directory
from tests.campaigns.support import Report, main, replays
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from tests.campaigns.stored_logs import Served, StoredDirectory

TRIALS_A_DIRECTORY = 75
ROWS = 12


class Flip:
    """A bit of a file."""

    def __init__(self, path: str, position: int, mask: int) -> None:
        self.path = path
        self.position = position
        self.mask = mask
        self.kind = path.rsplit("/", 1)[1].lstrip("0123456789")

    def __str__(self) -> str:
        return f"{self.path} byte {self.position} ^ {self.mask:#x}"

    def apply(self, content: bytearray) -> None:
        content[self.position] ^= self.mask


def choose_flip(random: Random, directory: StoredDirectory) -> Flip:
    """Choose a kind of file, a file of it, and a bit that holds something."""
    files = [
        path
        for path in directory.fs.files(ROOT)
        # What was cut holds nothing, nor do the frames of a journal after an orderly stop.
        if f"/{layout.QUARANTINE_DIRECTORY}/" not in path
        and not (directory.is_clean and f"/{layout.JOURNAL_DIRECTORY}/" in path)
        and directory.fs.content(path)
    ]
    by_kind: dict[str, list[str]] = {}
    for path in files:
        by_kind.setdefault(Flip(path, 0, 1).kind, []).append(path)
    # Half of the trials go to the records themselves.
    kind = ".log" if random.random() < 0.4 else random.choice(sorted(by_kind))
    path = random.choice(by_kind[kind])
    content = directory.fs.content(path)
    if kind == ".journal":
        position = _meaningful_byte(random, content)
    else:
        position = random.randrange(len(content))
    return Flip(path, position, 1 << random.randrange(8))


def try_flip(report: Report, directory: StoredDirectory, flip: Flip, clients: Clients) -> None:
    """Flip one bit, start, read everything, judge."""
    report.count("flips")
    report.count(f"flips{flip.kind}")
    fs = directory.fs.clone()
    flip.apply(fs.content(flip.path))
    checked = [str(problem) for problem in check_directory(ROOT, fs, directory.checkpoints)]
    try:
        served = serve_directory(directory, fs, clients)
    except StorageError as error:
        if flip.kind == layout.FORMAT_NAME:
            # A format that cannot be told is refused, clearly, and nothing is touched.
            report.count("refused_clearly")
        else:
            report.fail(f"{flip}: the start failed: {error}")
        return
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        report.fail(f"{flip}: {traceback.format_exc(limit=-4)}")
        return
    _judge(report, directory, flip, served)
    hit = [batch for batch in served.unreadable if _is_in(batch.content, flip, directory)]
    if not (hit or checked or served.problems):
        left = _heals(directory, served, fs)
        report.count("unnoticed_and_healed" if left is None else "undetected")
        if left is not None:
            report.fail(f"{flip}: undetected: {left}")


def _judge(report: Report, directory: StoredDirectory, flip: Flip, served: Served) -> None:
    """Read on into what is in memory; say what is wrong of all that was served."""
    if served.store.writes.is_writable:
        for key in directory.logs:
            served.go_on(key)
    for wrong in served.wrong:
        report.fail(f"{flip}: {wrong}; problems {served.problems}")
    hit = [batch for batch in served.unreadable if _is_in(batch.content, flip, directory)]
    lost = [batch.base_offset for batch in served.unreadable if batch not in hit]
    if lost:
        report.fail(f"{flip}: intact batches at {lost} are unreadable; {served.problems}")


def try_running(report: Report, directory: StoredDirectory, flip: Flip, served: Served) -> None:
    """Flip one bit of what is being read, read everything again, and flip it back."""
    report.count("flips_while_running")
    fs = served.store.fs
    assert isinstance(fs, SimulatedFs)
    content = fs.content(flip.path)
    flip.apply(content)
    try:
        served.read_again()
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        report.fail(f"{flip} while running: {traceback.format_exc(limit=-4)}")
        return
    finally:
        flip.apply(content)
    for wrong in served.wrong:
        report.fail(f"{flip} while running: {wrong}")
    hit = [one for one in served.unreadable if _is_in(one.content, flip, directory)]
    report.count("flips_while_running_found", bool(hit))
    lost = [one.base_offset for one in served.unreadable if one not in hit]
    if lost:
        report.fail(f"{flip} while running: intact batches at {lost} are unreadable")


def choose_record_flip(random: Random, directory: StoredDirectory) -> Flip:
    """Choose a bit of a batch."""
    log = random.choice(list(directory.logs.values()))
    content = random.choice(log.batches).content
    for path in directory.fs.files(ROOT):
        start = bytes(directory.fs.content(path)).find(content)
        if path.endswith(layout.LOG_SUFFIX) and start >= 0:
            position = start + random.randrange(len(content))
            return Flip(path, position, 1 << random.randrange(8))
    raise AssertionError("a batch is in no segment")


def flip_running(report: Report, seed: int, trials: int) -> None:
    """Flip bits of records while they are read: in the page cache, where one looks first."""
    number = 0
    clients = Clients()
    while report.counts["flips_while_running"] < trials:
        random = Random(seed * 1_000 + number)
        directory = build_directory(random, is_clean=number % 2 == 0)
        number += 1
        served = serve_directory(directory, directory.fs.clone(), clients)
        for _ in range(min(TRIALS_A_DIRECTORY, trials - report.counts["flips_while_running"])):
            try_running(report, directory, choose_record_flip(random, directory), served)
    clients.tell(report)


def _meaningful_byte(random: Random, content: bytearray) -> int:
    """Return a place that is not in the middle of nothing."""
    while True:
        position = random.randrange(len(content))
        if any(content[max(0, position - 8) : position + 8]):
            return position


def _is_in(content: bytes, flip: Flip, directory: StoredDirectory) -> bool:
    """Whether the flipped byte lies in a batch."""
    if flip.kind != ".log":
        return False
    start = bytes(directory.fs.content(flip.path)).find(content)
    return 0 <= start <= flip.position < start + len(content)


def _heals(directory: StoredDirectory, served: Served, fs: SimulatedFs) -> str | None:
    """Stop in order; returns what is still wrong after a flip that nobody has noticed.

    Nothing needs to be said of what is made anew anyway: Kafka's indexes, older snapshots, a tail
    that the journal repeats. But nothing of it may stay.
    """
    store = served.store
    store.prepare_journal()
    checkpoints = {PartitionKey(one.topic_id, one.partition): one for one in store.close()}
    store.mark_clean()
    problems = check_directory(ROOT, fs, directory.checkpoints | checkpoints)
    return str(problems[0]) if problems else None


def flip_files(report: Report, seed: int, trials: int) -> None:
    """Flip bits of segments, side files, indexes, snapshots and small files."""
    number = 0
    clients = Clients()
    while report.counts["flips"] < trials:
        random = Random(seed * 1_000 + number)
        directory = build_directory(random, is_clean=number % 2 == 0)
        number += 1
        for _ in range(min(TRIALS_A_DIRECTORY, trials - report.counts["flips"])):
            try_flip(report, directory, choose_flip(random, directory), clients)
    clients.tell(report)


# --- the database -------------------------------------------------------------------------------


def flip_database(report: Report, seed: int, trials: int) -> None:
    """Flip bits of the SQLite file, its write-ahead log and its note."""
    asyncio.run(_flip_database(report, Random(seed), trials))


async def _flip_database(report: Report, random: Random, trials: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = await _build_database(folder / "original.sqlite")
        files = _read_files(folder / "original.sqlite")
        for _ in range(trials):
            suffix = random.choice(sorted(files))
            content = bytearray(files[suffix])
            position = _meaningful_byte(random, content)
            content[position] ^= 1 << random.randrange(8)
            _replace(folder / "copy.sqlite", files | {suffix: bytes(content)})
            report.count("flips")
            report.count(f"flips_sqlite{suffix}")
            outcome = await _read_database(folder / "copy.sqlite", expected)
            report.count(f"database_{outcome}")
            if outcome.startswith("wrong"):
                report.fail(f"sqlite{suffix} byte {position}: {outcome}")


async def _build_database(path: Path) -> dict[str, dict[str, bytes]]:
    """Write rows of several kinds; leave some in the file and some in the write-ahead log."""
    rows = {
        kind: {f"{kind}-{n}": f"value {n} of {kind} ".encode() * 5 for n in range(ROWS)}
        for kind in ("topic", "checkpoint-like", "group")
    }
    for kinds in (("topic", "checkpoint-like"), ("group",)):
        store = SqliteStateStore(str(path))
        await store.open()
        for kind in kinds:
            for key, value in rows[kind].items():
                await store.apply([Change(kind, key, value)])
        # As a kill leaves it: with its log beside it.
        killed = _read_files(path)
        await store.aclose()
    for suffix, content in killed.items():
        _write(path, suffix, content)
    return rows


def _read_files(path: Path) -> dict[str, bytes]:
    """Return the database, its write-ahead log and its note of commits, by suffix."""
    paths = {suffix: path.with_name(path.name + suffix) for suffix in ("", "-wal", NOTE_SUFFIX)}
    return {suffix: one.read_bytes() for suffix, one in paths.items() if one.exists()}


def _write(path: Path, suffix: str, content: bytes | bytearray) -> None:
    path.with_name(path.name + suffix).write_bytes(content)


def _replace(path: Path, files: dict[str, bytes]) -> None:
    """Put a database in place, and nothing that was derived from another one."""
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    for suffix, content in files.items():
        _write(path, suffix, content)


async def _read_database(path: Path, expected: dict[str, dict[str, bytes]]) -> str:
    """Open a database and say what became of the rows."""
    store = SqliteStateStore(str(path), quick_check=True)
    outcomes: Counter[str] = Counter()
    try:
        await store.open()
        for kind, rows in expected.items():
            try:
                found = await store.load(kind)
            except DamagedRowsError as error:
                found = error.intact
                outcomes["damaged_rows"] += 1
            for key, row in found.items():
                if rows.get(key) != row.value:
                    outcomes["wrong_value"] += 1
            missing = [key for key in rows if key not in found]
            if missing and not outcomes["damaged_rows"]:
                outcomes["wrong_rows_missing"] += 1
    except StorageError:
        outcomes["refused"] += 1
    finally:
        await store.aclose()
    for outcome in sorted(outcomes, reverse=True):
        return outcome
    return "unharmed"


# --- the control --------------------------------------------------------------------------------


def control(seed: int) -> int:
    """Flip base offsets with the header's checksum off; returns how often that was served."""
    random = Random(seed)
    directory = build_directory(random, is_clean=True)
    report = Report("control", seed)
    clients = Clients()
    with unverified_headers():
        for log in directory.logs.values():
            for batch in log.batches:
                for path in directory.fs.files(ROOT):
                    start = bytes(directory.fs.content(path)).find(batch.content)
                    if path.endswith(".log") and start >= 0:
                        flip = Flip(path, start + 7, 1 << random.randrange(8))
                        try_flip(report, directory, flip, clients)
    return sum("WRONG BYTES" in failure for failure in report.failures)


@replays
def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("bit-rot", seed)
    flip_files(report, seed, 8_500 if full else 300)
    flip_database(report, seed, 1_500 if full else 150)
    report.require("flips", 10_000 if full else 450)
    report.require("flips.journal", 60 if full else 2)
    flip_running(report, seed, 3_000 if full else 100)
    report.require("flips_while_running_found", 2_000 if full else 80)
    require_ways(report, 3_000 if full else 300)
    unverified = Report("control: pages that are not verified", seed)
    with unverified_pages():
        flip_running(unverified, seed, 20)
    for way in (CACHED, AHEAD):
        report.expect_alarm(unverified, f"by {way}")
    slipped = control(seed)
    report.count("control_slipped_through", slipped)
    if not slipped:
        report.fail("control: without the header's checksum no flipped base offset was served")
    return report


if __name__ == "__main__":
    main(run)
