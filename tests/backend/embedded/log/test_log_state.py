from __future__ import annotations

import pytest

from kgw.backend.base import EpochStart
from kgw.backend.embedded.layout import (
    DamagedRange,
    LogState,
    decode_log_state,
    encode_log_state,
    encode_small,
)
from tests.backend.embedded.driver import KEY, SMALL_SEGMENTS, Driver, drop_before

MAIN = "log-state.json"
COPY = "log-state.copy.json"


def moved_log() -> Driver:
    """Return a killed store whose log start moved after the last checkpoint."""
    driver = Driver(settings=SMALL_SEGMENTS)
    for number in range(4):
        driver.append(b"%d" % number * 50)
    driver.checkpoint()
    drop_before(driver.store, driver.log(), 2)
    driver.store.abandon()
    return driver


@pytest.mark.parametrize("name", [MAIN, COPY])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_one_damaged_file_changes_nothing(name: str, damage: str) -> None:
    """The log start of a deletion stays where no checkpoint knows it; the file is made anew."""
    driver = moved_log()
    content = driver.fs.content(driver.path(name))
    good = bytes(content)
    if damage == "flip":
        driver.flip(driver.path(name), 20)
    else:
        del content[len(content) // 3 if damage == "cut" else 0 :]

    driver.kill()

    assert 2 == driver.log().offsets.log_start_offset
    assert any(f"{name}:" in problem for problem in driver.store.directory.problems)
    assert good == driver.fs.content(driver.path(name))


def test_a_lost_file_comes_back() -> None:
    """From the copy, and with a word about it."""
    driver = moved_log()
    driver.fs.unlink(driver.path(MAIN))

    driver.kill()

    assert 2 == driver.log().offsets.log_start_offset
    assert any("is missing; made anew" in problem for problem in driver.store.directory.problems)


def test_a_copy_that_a_crash_left_older_is_brought_up_to_date() -> None:
    """Or it would bring deleted records back once the first file is damaged."""
    driver = moved_log()
    driver.fs.content(driver.path(COPY))[:] = encode_log_state(LogState())

    driver.kill()
    driver.log()
    driver.flip(driver.path(MAIN), 20)
    driver.kill()

    assert 2 == driver.log().offsets.log_start_offset


@pytest.mark.damages_storage("both copies are damaged")
def test_both_damaged_are_rebuilt_from_what_is_left() -> None:
    """The checkpoint's log start, the batches' epochs: it is reported, and the epoch rises."""
    driver = moved_log()
    for name in (MAIN, COPY):
        driver.flip(driver.path(name), 20)

    driver.kill()
    log = driver.log()

    assert driver.checkpoints[KEY].log_start_offset == log.offsets.log_start_offset
    assert 2 == sum("; rebuilt" in problem for problem in driver.store.directory.problems)
    assert log.leader_epoch == 1


def test_a_state_that_knows_neither_gaps_nor_compaction_is_read() -> None:
    """As one was written before there was either: nothing is left out, nothing compacted."""
    older = encode_small({"log_start_offset": 2, "epochs": [[0, 0], [3, 2]], "damaged": [[4, 5]]})
    expected = LogState(2, (EpochStart(0, 0), EpochStart(3, 2)), (DamagedRange(4, 5),), (), 0)
    assert expected == decode_log_state(older)
