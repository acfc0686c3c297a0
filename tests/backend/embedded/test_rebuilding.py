from __future__ import annotations

from kgw.backend.embedded import reading
from kgw.backend.embedded.failures import SideFileDamagedError
from kgw.backend.embedded.rebuilding import rebuild_side
from kgw.testing.batches import make_batch
from tests.backend.embedded.driver import JOURNALED, Driver


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
