from __future__ import annotations

from contextlib import suppress

import pytest

from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.read import reading
from kgw.backend.embedded.recover.rebuilding import rebuild_side
from kgw.testing.batches import make_batch
from tests.backend.embedded.driver import DIRECT, JOURNALED, Driver
from tests.simulated_fs import Fault, FaultKind


@pytest.mark.damages_storage("a batch is damaged")
def test_what_is_known_of_the_newest_batches_is_not_given_up() -> None:
    """A record may hold a whole batch: behind damage, side entries tell it from the real ones.

    Those of the newest batches wait in memory while the file is made anew.
    """
    driver = Driver(JOURNALED)
    driver.append(b"first")
    driver.checkpoint()
    image = make_batch([b"image"])
    image.assign(2, 0)
    start = driver.fs.file_size(driver.segment_path())
    driver.append(bytes(image.buffer))
    driver.append(b"behind")
    driver.flip(driver.segment_path(), start + 30)
    driver.flip(driver.segment_path(suffix="checksums"), 3)
    log = driver.log()
    (segment,) = log.segments
    rebuild_side(log.directory, log, segment, SideFileDamagedError(segment, 0, 1))
    result = reading.read(log, 2, 1 << 20, 3)
    assert bytes(driver.fs.content(driver.segment_path())[-result.size_bytes :]) == b"".join(
        result.buffers
    )


@pytest.mark.damages_storage("batches are damaged")
def test_a_rebuilding_that_fails_leaves_no_file() -> None:
    """Nobody would remove it before the next unclean start."""
    source = Driver(DIRECT._replace(scanned_entries=2))
    for number in range(8):
        source.append(b"%d" % number)
    source.store.roll(source.log())
    source.append(b"in another segment")
    source.stop()
    # One batch fewer, so that the entries behind it lie elsewhere.
    size_bytes = source.fs.file_size(source.segment_path()) // 8
    source.flip(source.segment_path(), 3 * size_bytes + 70)
    source.flip(source.segment_path(), 4 * size_bytes + 70)
    failed = 0
    for nth in range(1, 8):
        driver = Driver(source.options, fs=source.fs.clone())
        driver.checkpoints = source.checkpoints
        log = driver.log()
        driver.fs.inject(Fault(FaultKind.ENOSPC, nth))
        with suppress(OSError, SyncFailedError):
            rebuild_side(log.directory, log, log.segments[0])
        failed += bool(driver.fs.struck)
        driver.fs.inject(None)
        assert not driver.fs.exists(driver.segment_path(suffix="checksums.new")), nth
    assert failed > 2
