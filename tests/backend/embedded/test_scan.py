"""What the scan of a segment finds behind damage, and where it finds nothing."""

from __future__ import annotations

import pytest

from kgw.backend.embedded import reading
from kgw.backend.embedded.layout import DamagedRange
from kgw.errors import CorruptionError
from tests.backend.embedded.driver import ROOT, Driver


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
