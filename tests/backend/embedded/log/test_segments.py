"""What becomes of segments: rolled on demand, set aside, removed after a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.read import lookups
from kgw.errors import StorageError
from kgw.testing.backend_harness import KEY, SMALL_SEGMENTS, TOPIC
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from tests.backend.embedded.driver import (
    DIRECT,
    JOURNALED,
    OTHER_KEY,
    SETTINGS,
    Driver,
    drop_before,
    flush_group,
)
from tests.backend.embedded.driver import SMALL_SEGMENTS as SMALL
from tests.simulated_fs import Fault, FaultKind

if TYPE_CHECKING:
    from pathlib import Path


def names(driver: Driver) -> list[str]:
    """Return the segment files of the one partition, set aside ones too."""
    return [name for name in driver.fs.listdir(driver.path("")[:-1]) if ".log" in name]


def test_a_dropped_segment_is_set_aside_and_goes_later() -> None:
    """Its files keep their bytes under another name until `remove_files`."""
    driver = Driver(settings=SMALL)
    for number in range(6):
        driver.append(b"%d" % number * 100)
    log = driver.log()
    paths = drop_before(driver.store, log, log.segments[2].base_offset)
    aside = [path for path in paths if path.endswith(".log.deleted")]
    assert 2 == len(aside)
    assert all(driver.fs.exists(path) for path in paths)
    driver.store.trimmer.remove_files(paths)
    driver.store.trimmer.remove_files(paths)
    assert not any(driver.fs.exists(path) for path in paths)
    assert [] == driver.store.directory.problems


def test_what_was_set_aside_goes_at_the_next_start() -> None:
    """After an orderly stop and after a crash."""
    for stop in (Driver.stop, Driver.kill, Driver.lose_power):
        driver = Driver(settings=SMALL)
        for number in range(6):
            driver.append(b"%d" % number * 100)
        driver.checkpoint()
        log = driver.log()
        drop_before(driver.store, log, log.segments[2].base_offset)
        stop(driver)
        driver.log()
        assert not [name for name in names(driver) if name.endswith(".deleted")]
        assert 1 == len(names(driver))


def test_without_a_delay_files_go_at_once() -> None:
    """file.delete.delay.ms=0 leaves nothing behind."""
    driver = Driver(settings=SMALL._replace(delete_delay_ms=0))
    for number in range(6):
        driver.append(b"%d" % number * 100)
    log = driver.log()
    assert [] == drop_before(driver.store, log, log.segments[2].base_offset)
    assert 1 == len(names(driver))


@pytest.mark.damages_storage("a file takes a segment's name")
def test_a_reader_of_a_removed_segment_is_told_to_look_again() -> None:
    """Never an error about a file, and never the bytes of another one of that name."""
    driver = Driver(settings=SMALL)
    for number in range(6):
        driver.append(b"%d" % number * 100)
    log = driver.log()
    old = log.segments[0]
    drop_before(driver.store, log, log.segments[2].base_offset)
    with pytest.raises(SideFileDamagedError):
        old.read_bytes(0, 10)
    # Another file has got the name meanwhile.
    driver.fs.open(old.log_path, create=True).close()
    with pytest.raises(SideFileDamagedError):
        old.read_bytes(0, 10)


def test_a_rolled_log_survives_a_power_loss() -> None:
    """The sealed segment is durable, whether or not anything was appended after it."""
    driver = Driver()
    driver.append(b"a", b"b")
    driver.store.roll(driver.log())
    driver.lose_power()
    assert [b"a", b"b"] == driver.values()
    assert 2 == driver.append(b"c").result.base_offset
    assert [0, 2] == [one.base_offset for one in driver.log().segments]
    assert [] == driver.store.directory.problems


def test_a_roll_that_finds_no_space_changes_nothing() -> None:
    """It is refused, and appends go on in the segment that there is."""
    driver = Driver()
    driver.append(b"a")
    driver.fs.inject(Fault(FaultKind.ENOSPC, 1, spared=frozenset({"fdatasync"})))
    with pytest.raises(StorageError):
        driver.store.roll(driver.log())
    driver.fs.inject(None)
    driver.append(b"b")
    assert [b"a", b"b"] == driver.values()
    assert [0] == [one.base_offset for one in driver.log().segments]


def test_segments_are_described_without_reading_them() -> None:
    """Only side files are opened, and a few entries are read."""
    driver = Driver(settings=SMALL)
    for number in range(6):
        driver.append(b"%d" % number * 100, timestamp_ms=1_000 - number)
    driver.stop()
    log = driver.log()
    for segment in log.segments:
        driver.fs.unlink(segment.log_path)
    found = lookups.describe_segments(log)
    assert [1_000, 998, 996] == [one.largest_timestamp_ms for one in found]
    assert [1_000, 998, 996] == [one.begun_ms for one in found]


async def test_files_go_after_the_delay(tmp_path: Path) -> None:
    """file.delete.delay.ms counts from the removal."""
    clock = ManualClock()
    backend = EmbeddedBackend(tmp_path / "data", DIRECT, clock=clock)
    await backend.open()
    settings = SMALL_SEGMENTS._replace(delete_delay_ms=5_000)
    log = await backend.create_partition(KEY, TOPIC, settings)
    for number in range(20):
        await log.append([make_batch([b"%d" % number * 100])])
    await log.drop_before(15)
    directory = tmp_path / "data" / "partitions" / str(KEY)
    clock.advance(4.9)
    await backend.threads.run_in_io(lambda: None)
    assert list(directory.glob("*.deleted"))
    clock.advance(0.2)
    await backend.aclose()
    assert not list(directory.glob("*.deleted"))


def test_indexes_of_a_segment_that_has_grown_by_little_are_left_for_later() -> None:
    """A checkpoint writes them when it is worth it; a roll and a stop write what is missing."""
    driver = Driver(JOURNALED._replace(indexed_bytes=1000), SETTINGS)
    path = driver.log().path + "/00000000000000000000.index"
    found: list[bool] = []
    for _ in range(3):
        driver.append(bytes(400))
        driver.checkpoint()
        found.append(driver.fs.exists(path))
    assert [False, False, True] == found
    driver.append(b"more", key=OTHER_KEY)
    driver.store.checkpoint(clean=True)
    assert driver.fs.exists(driver.log(OTHER_KEY).path + "/00000000000000000000.index")


def test_a_checkpoint_rests_between_turns_of_its_indexes() -> None:
    """What takes the interpreter leaves it to the loop now and then, once all is synced."""
    driver = Driver(JOURNALED._replace(indexed_bytes=0))
    is_side_dirty: list[bool] = []

    def rest() -> None:
        is_side_dirty.append(driver.log().segments[-1].side_is_dirty)

    driver.store.rest = rest
    for number in range(300):
        driver.submit(b"%d" % number)
    flush_group(driver.store.writes)
    driver.checkpoint()
    assert [False, False] == is_side_dirty
    # A stop has nobody to rest for.
    driver.append(b"x")
    driver.store.checkpoint(clean=True)
    assert 2 == len(is_side_dirty)
