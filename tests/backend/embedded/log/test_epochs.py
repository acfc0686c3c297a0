from __future__ import annotations

import pytest

from kgw.backend.base import EpochEnd
from tests.backend.embedded.driver import DIRECT, SMALL_SEGMENTS, Driver, drop_before


@pytest.mark.damages_storage("the log's state is removed")
def test_an_epoch_before_all_known_ones_ended_where_they_begin() -> None:
    """No answer at all would make a consumer that is right believe that records were lost."""
    driver = Driver(DIRECT, SMALL_SEGMENTS)
    for number in range(6):
        driver.append(b"%d" % number + b"v" * 200)
        driver.kill()
    log = driver.log()
    start = log.segments[-1].base_offset
    drop_before(driver.store, log, start)
    driver.fs.unlink(driver.path("log-state.json"))
    driver.fs.unlink(driver.path("log-state.copy.json"))
    driver.kill()
    log = driver.log()
    first = log.epochs[0]
    assert first.leader_epoch > 1
    assert EpochEnd(1, first.start_offset) == log.epoch_end(1)
    assert log.epoch_end(-1) is None
    assert log.epoch_end(log.leader_epoch + 1) is None
