"""What the scan of a segment finds behind damage, and where it finds nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.layout import DamagedRange
from kgw.backend.embedded.read import reading
from kgw.backend.embedded.recover.scan import find_batches
from kgw.errors import CorruptionError
from tests.backend.embedded.driver import ROOT, Driver
from tests.backend.embedded.stops import stopped_anywhere
from tests.simulated_disk import CrashMode
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.slow
def test_the_batch_behind_megabytes_of_damage_is_found() -> None:
    """The search goes on where the damage is longer than what is read at a time."""
    driver = Driver()
    driver.append(b"x" * (9 << 20))
    driver.append(b"behind")
    driver.checkpoint()
    driver.store.abandon()
    driver.fs.unlink(driver.segment_path(suffix="checksums"))
    driver.flip(driver.segment_path(), 1000)
    driver.kill()
    log = driver.log()
    assert (DamagedRange(0, 1),) == log.damaged
    assert 2 == reading.read(log, 1, 1 << 20, 2).next_offset
    assert [] == [one for one in driver.fs.files(ROOT) if one.endswith(".torn")]


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_batch_that_begins_between_two_reads_of_a_search_is_found(cut: int) -> None:
    """Its epoch and its format number come with the first read in part."""
    position = (4 << 20) - cut - 12
    file = SimulatedFs().open("/segment", create=True)
    file.pwrite((bytes(position + 15) + b"\x01\x02", bytes(100)), 0)
    assert [position] == list(find_batches(file, 0))


@pytest.mark.damages_storage("a batch is damaged")
def test_the_check_finds_what_is_behind_damage_without_the_side_file() -> None:
    """It makes no side file, and searches the bytes instead."""
    driver = Driver()
    for number in range(3):
        driver.append(b"%d" % number)
    driver.stop()
    driver.fs.unlink(driver.segment_path(suffix="checksums"))
    position = driver.fs.file_size(driver.segment_path()) // 2
    driver.flip(driver.segment_path(), position)
    (damage,) = [problem for problem in driver.problems() if "offsets" in problem]
    assert "offsets 1 to 1 are damaged" in damage


def test_damage_behind_which_nothing_follows_is_kept() -> None:
    """The last durable batch of a log costs only itself, and the log goes on behind it."""
    driver = Driver()
    for number in range(3):
        driver.append(b"%d" % number)
    driver.checkpoint()
    size_bytes = driver.fs.file_size(driver.segment_path())
    driver.flip(driver.segment_path(), size_bytes - 2)
    with pytest.raises(CorruptionError) as read:
        reading.read(driver.log(), 2, 1 << 20, 3)
    assert 3 == read.value.end_offset
    driver.store.abandon()
    driver.fs.unlink(driver.segment_path(suffix="checksums"))
    driver.kill()
    log = driver.log()
    assert (DamagedRange(2, 3),) == log.damaged
    assert size_bytes == driver.fs.file_size(driver.segment_path())
    assert 3 == driver.append(b"next").result.base_offset
    assert 2 == reading.read(log, 0, 1 << 20, 4).next_offset
    assert 4 == reading.read(log, 3, 1 << 20, 4).next_offset


@pytest.mark.damages_storage("a batch is damaged")
@pytest.mark.parametrize(
    "crash",
    [
        Driver.kill,
        *(partial(Driver.lose_power, mode=mode) for mode in CrashMode),
    ],
)
def test_a_start_that_has_found_damage_at_the_end_may_be_interrupted_anywhere(
    crash: Callable[[Driver], None],
) -> None:
    """The next one reports it as well, and gives no acknowledged offset a second time."""
    source = Driver()
    for number in range(3):
        source.append(b"%d" % number)
    # The side file alone knows where the log ends: no checkpoint does.
    segment = source.log().segments[-1]
    segment.write_side(at_least_bytes=1)
    segment.sync_side()
    source.store.abandon()
    file = source.fs.open(source.segment_path())
    file.pwrite((b"rot",), file.size() - 3)
    file.fdatasync()
    file.close()
    for stops, driver in stopped_anywhere(source, Driver.log, at_least=10):
        crash(driver)
        log = driver.log()
        assert (DamagedRange(2, 3),) == log.damaged, stops
        assert 3 == log.offsets.next_offset, stops
