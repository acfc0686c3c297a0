"""The journal's two files have a size, which no group makes them exceed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.embedded.log.journal import FILE_NAMES
from kgw.types import PartitionKey
from tests.backend.embedded.driver import JOURNALED, KEY, OTHER_KEY, ROOT, Driver, flush_group

if TYPE_CHECKING:
    from kgw.backend.embedded.write.write_path import Retirement


def _sizes(driver: Driver) -> set[int]:
    return {driver.fs.file_size(f"{ROOT}/journal/{name}") for name in FILE_NAMES}


def test_groups_sync_their_segments_while_both_files_are_full() -> None:
    """Until one can be used again; nothing is lost by it, and the files do not grow."""
    driver = Driver(JOURNALED)
    held: list[Retirement] = []
    driver.store.writes.journaled.retire_soon = held.append
    keys = (KEY, OTHER_KEY)
    values = [b"%03d" % number * 1_000 for number in range(120)]
    for value in values:
        for key in keys:
            driver.submit(value, key=key)
        flush_group(driver.store.writes)
    assert 1 == len(held)
    assert {JOURNALED.journal_bytes} == _sizes(driver)
    driver.lose_power()
    assert [values, values] == [driver.values(key) for key in keys]


def test_a_group_that_no_file_holds_syncs_its_segments() -> None:
    """However small each of its appends is."""
    driver = Driver(JOURNALED)
    keys = [PartitionKey(KEY.topic_id, number) for number in range(80)]
    for key in keys:
        driver.submit(b"v" * 4_000, key=key)
    assert len(keys) == len(flush_group(driver.store.writes))
    assert {JOURNALED.journal_bytes} == _sizes(driver)
    driver.lose_power()
    assert [[b"v" * 4_000]] * len(keys) == [driver.values(key) for key in keys]
