"""Recovery of segments with more batches than it holds side entries of at a time."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kgw.backend.embedded.layout import DamagedRange
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.log.side import ENTRY_BYTES, decode_entry, encode_batches
from kgw.backend.embedded.read import reading
from kgw.backend.embedded.recover.rebuilding import rebuild_side
from kgw.errors import CorruptionError
from kgw.testing.batches import make_batch, read_stored
from kgw.types import NO_TIMESTAMP_MS
from tests.backend.embedded.driver import DIRECT, RELAXED, Driver
from tests.backend.embedded.stops import stopped_anywhere
from tests.simulated_disk import CrashMode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulated_fs import SimulatedFs

VALUES = [b"record %03d" % number for number in range(24)]
AT_ONCE = DIRECT._replace(scanned_entries=1 << 16)


class Recovered(NamedTuple):
    """What a recovery leaves."""

    end_offset: int
    damaged: tuple[DamagedRange, ...]
    batches: bytes
    entries: bytes
    names: list[str]


def filled(scanned_entries: int, *, is_relaxed: bool = False) -> Driver:
    """Return a log of one segment and a killed process; no checkpoint is known of it."""
    options = DIRECT._replace(scanned_entries=scanned_entries)
    driver = Driver(options, RELAXED) if is_relaxed else Driver(options)
    for value in VALUES:
        driver.append(value)
    if not is_relaxed:
        driver.store.checkpoint()
    driver.store.abandon()
    return driver


def restarted(fs: SimulatedFs, scanned_entries: int) -> Driver:
    """Return a start on a copy of a disk."""
    driver = Driver(DIRECT._replace(scanned_entries=scanned_entries), fs=fs.clone())
    driver.log()
    return driver


def recovered(driver: Driver) -> Recovered:
    """Say what the log is now."""
    log = driver.log()
    return Recovered(
        log.offsets.next_offset,
        log.damaged,
        bytes(driver.fs.content(driver.segment_path())),
        bytes(driver.fs.content(driver.segment_path(suffix="checksums"))),
        sorted(name for name in driver.fs.listdir(driver.path("")) if "checksums" in name),
    )


def lose_entries(content: bytearray, random: Random) -> None:
    """Have the entries behind come to lie further in front."""
    first = random.randrange(24)
    del content[first * ENTRY_BYTES : (first + random.randint(1, 6)) * ENTRY_BYTES]


def double_entries(content: bytearray, random: Random) -> None:
    """Have the entries behind come to lie further back."""
    first = random.randrange(24) * ENTRY_BYTES
    content[first:first] = content[first : first + random.randint(1, 6) * ENTRY_BYTES]


def cut(content: bytearray, random: Random) -> None:
    """Lose the end, at a place that may lie inside an entry."""
    del content[random.randrange(len(content)) :]


def rot(content: bytearray, random: Random) -> None:
    """Spoil a run of bytes."""
    start = random.randrange(len(content))
    for position in range(start, min(start + random.choice((1, 40, 300)), len(content))):
        content[position] ^= 0x5A


def leave(content: bytearray, random: Random) -> None:
    """Change nothing."""


@pytest.mark.damages_storage("segments rot")
@pytest.mark.parametrize("side", [lose_entries, double_entries, cut, rot, leave])
@pytest.mark.parametrize("log", [rot, cut, leave])
def test_pieces_come_to_what_one_pass_comes_to(
    side: Callable[[bytearray, Random], None], log: Callable[[bytearray, Random], None]
) -> None:
    """Whatever has become of a segment and its side file: batches, entries and damage are equal."""
    source = filled(1)
    for seed in range(12):
        random = Random(seed)
        fs = source.fs.clone()
        side(fs.content(source.segment_path(suffix="checksums")), random)
        log(fs.content(source.segment_path()), random)
        expected = recovered(restarted(fs, 1 << 16))
        for scanned_entries in (1, 2, 7):
            assert expected == recovered(restarted(fs, scanned_entries)), seed


@pytest.mark.damages_storage("segments rot")
@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_recovery_in_pieces_may_be_interrupted_anywhere(mode: CrashMode) -> None:
    """The next one still knows where batches go on behind damage, by the old side file."""
    source = filled(2)
    file = source.fs.open(source.segment_path())
    size = file.size() // len(VALUES)
    file.pwrite((bytes(3 * size),), 5 * size)
    file.fdatasync()
    file.close()
    expected = recovered(restarted(source.fs, 1 << 16))
    assert (DamagedRange(5, 8),) == expected.damaged
    for stops, driver in stopped_anywhere(source, Driver.log, at_least=20):
        driver.lose_power(mode, seed=stops)
        assert expected == recovered(driver), stops


@pytest.mark.parametrize("seed", range(6))
def test_no_entry_of_a_piece_is_ahead_of_the_sync_of_its_batches(seed: int) -> None:
    """Or what a second crash tears off would be called damaged, though nobody vouched for it."""
    source = filled(1, is_relaxed=True)
    for stops, driver in stopped_anywhere(source, Driver.log, at_least=len(VALUES)):
        driver.lose_power(CrashMode.RANDOM, seed=seed * 1000 + stops)
        assert () == driver.log().damaged, stops
        values = driver.values()
        assert VALUES[: len(values)] == values


@pytest.mark.damages_storage("segments rot")
def test_a_rebuilding_in_pieces_may_be_interrupted_anywhere() -> None:
    """A start that takes the side file of a sealed segment as it is finds no batch in it twice."""
    source = Driver(DIRECT._replace(scanned_entries=2))
    for value in VALUES:
        source.append(value)
    source.store.roll(source.log())
    source.append(b"in another segment")
    source.checkpoint()
    source.stop()
    size = source.fs.file_size(source.segment_path()) // len(VALUES)
    for path, position, data in (
        (source.segment_path(), 5 * size, bytes(3 * size)),
        (source.segment_path(suffix="checksums"), 12 * ENTRY_BYTES, b"rot"),
    ):
        file = source.fs.open(path)
        file.pwrite((data,), position)
        file.close()

    def rebuild(driver: Driver) -> None:
        log = driver.log()
        rebuild_side(log.directory, log, log.segments[0])

    for stops, driver in stopped_anywhere(source, rebuild, at_least=10):
        driver.kill()
        driver.log()
        content = driver.fs.content(driver.segment_path(suffix="checksums"))
        entries = [decode_entry(content, at) for at in range(0, len(content), ENTRY_BYTES)]
        positions = [entry.position for entry in entries if entry is not None]
        assert sorted(set(positions)) == positions, stops
    assert len(VALUES) - 2 == len(positions)


def with_gaps() -> Driver:
    """Return a log whose first segment is sealed and has a gap before every batch, by its side."""
    driver = Driver()
    driver.append(*[b"v"] * 400)
    driver.store.roll(driver.log())
    driver.append(b"in another segment")
    driver.stop()
    batches = [make_batch([b"v"]) for _ in range(200)]
    for number, batch in enumerate(batches):
        batch.assign(2 * number + 1, 0)
    entries, _ = encode_batches(batches, 0, NO_TIMESTAMP_MS)
    log = b"".join(bytes(batch.buffer) for batch in batches)
    for suffix, content in (("log", log), ("checksums", entries)):
        file = driver.fs.open(driver.segment_path(suffix=suffix))
        file.truncate(0)
        file.pwrite((content,), 0)
        file.fdatasync()
        file.close()
    return driver


@pytest.mark.damages_storage("segments rot")
@pytest.mark.slow
@pytest.mark.parametrize("scanned_entries", [50, DIRECT.scanned_entries])
def test_a_power_loss_after_a_rebuilding_costs_no_batch_that_was_readable(
    scanned_entries: int,
) -> None:
    """Where only the side file vouches for gaps, none of its entries may be lost half-way."""
    source = with_gaps()
    source.options = DIRECT._replace(scanned_entries=scanned_entries)
    file = source.fs.open(source.segment_path(suffix="checksums"))
    for number in (100, 101):
        file.pwrite((b"rot",), number * ENTRY_BYTES + 5)
    file.fdatasync()
    file.close()
    for seed in range(20):
        driver = Driver(source.options, fs=source.fs.clone())
        driver.checkpoints = source.checkpoints
        log = driver.log()
        rebuild_side(log.directory, log, log.segments[0])
        before = readable(driver)
        assert 199 == len(before)
        driver.lose_power(CrashMode.RANDOM, seed)
        assert before == readable(driver), seed


def readable(driver: Driver) -> set[int]:
    """Return the offsets that a consumer gets that goes on behind damage."""
    log = driver.log()
    offset, end = log.offsets.log_start_offset, log.offsets.high_watermark
    offsets: set[int] = set()
    while offset < end:
        try:
            result = reading.read(log, offset, 1 << 20, end)
        except SideFileDamagedError as error:
            rebuild_side(log.directory, log, error.segment, error)
        except CorruptionError as error:
            offset = error.end_offset or end
        else:
            offsets.update(record.offset for record in read_stored(result.buffers))
            offset = result.next_offset
    return offsets


def test_what_an_interrupted_recovery_has_begun_is_removed() -> None:
    """The next one may not need it."""
    driver = filled(2)
    path = driver.segment_path(suffix="checksums.new")
    driver.fs.open(path, create=True).close()
    driver.kill()
    driver.log()
    assert not driver.fs.exists(path)


RECOVER = """
import os
import sys
from pathlib import Path
from kgw.backend.embedded.offline.check import check_directory
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.store import Store
from kgw.testing.process import process_usage
from tests.backend.embedded.recover.small_batches import write_segments
from tests.backend.embedded.driver import DIRECT, KEY, SETTINGS, TOPIC

root, count = sys.argv[1], int(sys.argv[2])
store = Store(RealFs(), root, DIRECT)
store.open()
log = store.create_log(KEY, TOPIC, SETTINGS)
write_segments(Path(log.path), count)
store.abandon()
store = Store(RealFs(), root, DIRECT)
store.open()
log = store.open_log(KEY, TOPIC, SETTINGS)
assert log.offsets.next_offset == count
# Cleaner than it was found: the indexes are written, too.
store.close()
store.mark_clean()
assert check_directory(root) == []
# Unlike ru_maxrss, which begins with that of the parent.
print(process_usage(os.getpid()).peak_bytes)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_batches(tmp_path: Path) -> None:
    """A log three times as long is recovered, indexed and checked in the same room."""
    peaks: list[int] = []
    for number, count in enumerate((80_000, 240_000)):
        root = tmp_path / str(number)
        root.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", RECOVER, str(root), str(count)],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stdout))
    # Gathered entries would take 6 MB more for the second, and as much again where they are
    # compared.
    assert peaks[1] - peaks[0] < 4 << 20, peaks
