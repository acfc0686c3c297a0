from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import LogSettings
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.store import Store
from kgw.errors import DiskFullError, StorageError
from kgw.problems import DAMAGE, STORAGE, Problem
from kgw.records.compaction import make_filler
from tests.backend.embedded.driver import (
    DIRECT,
    JOURNALED,
    KEY,
    OTHER_KEY,
    ROOT,
    SMALL_SEGMENTS,
    Driver,
    drop_before,
    flush_group,
)
from tests.simulated_disk import CrashMode
from tests.simulated_fs import Fault, FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.log.segmented_log import SegmentedLog

NEXT_SYNC_FAILS = Fault(FaultKind.EIO, 1, spared=frozenset({"open", "write"}))


@pytest.mark.parametrize("options", [DIRECT, JOURNALED])
def test_an_acknowledged_append_survives_a_power_loss(options: EmbeddedOptions) -> None:
    """What was answered is there when nothing unsynced is."""
    driver = Driver(options)
    for number in range(10):
        driver.append(b"first %d" % number)
        driver.append(b"second %d" % number, key=OTHER_KEY)
    driver.lose_power()
    assert [b"first %d" % number for number in range(10)] == driver.values()
    assert [b"second %d" % number for number in range(10)] == driver.values(OTHER_KEY)


@pytest.mark.parametrize("options", [DIRECT, JOURNALED])
def test_an_append_that_was_not_flushed_gets_no_result(options: EmbeddedOptions) -> None:
    """Before the flush the high watermark stands still; after a power loss nothing is left."""
    driver = Driver(options)
    driver.append(b"kept")
    driver.submit(b"lost")
    assert (1, 2) == (driver.log().offsets.high_watermark, driver.log().offsets.next_offset)
    driver.lose_power()
    assert [b"kept"] == driver.values()


@pytest.mark.parametrize("options", [DIRECT, JOURNALED])
def test_a_log_that_has_not_changed_gets_no_checkpoint(options: EmbeddedOptions) -> None:
    """Otherwise each checkpoint would cost as much as there are logs."""
    driver = Driver(options)
    driver.append(b"value")
    driver.append(b"value", key=OTHER_KEY)
    assert 2 == len(driver.store.checkpoint())
    assert [] == driver.store.checkpoint()
    driver.append(b"value", key=OTHER_KEY)
    (one,) = driver.store.checkpoint()
    assert (OTHER_KEY.partition, 2) == (one.partition, one.next_offset)


def test_full_journal_files_alternate() -> None:
    """A journal file is reused once its segments are synced, and everything survives."""
    driver = Driver(EmbeddedOptions(journal_bytes=16 << 10, min_free_bytes=0))
    values = [b"value %d" % number for number in range(40)]
    for value in values:
        driver.append(value)
    driver.lose_power()
    assert values == driver.values()
    assert [] == driver.store.directory.problems


@pytest.mark.parametrize("persistent", [False, True])
def test_no_room_for_the_journal_is_no_failure_of_the_disk(*, persistent: bool) -> None:
    """Whichever write finds the disk full, appends and creations are taken again afterwards."""
    for nth in range(1, 60):
        driver = Driver(EmbeddedOptions(journal_bytes=16 << 10, min_free_bytes=0))
        driver.log()
        driver.log(OTHER_KEY)
        driver.fs.inject(Fault(FaultKind.ENOSPC, nth, persistent))
        with suppress(StorageError):
            for number in range(20):
                driver.append(b"value %d" % number)
        with suppress(StorageError):
            driver.store.remove_log(OTHER_KEY, driver.store.retire_log(OTHER_KEY))
        with suppress(StorageError):
            driver.log(OTHER_KEY)
        struck = list(driver.fs.struck)
        driver.fs.inject(None)
        if any(call == "fdatasync" for call, _ in struck):
            continue  # an error of a sync is final, whatever it says
        driver.log(OTHER_KEY)
        assert driver.append(b"after").error is None, struck
        assert driver.append(b"after", key=OTHER_KEY).error is None, struck
        assert not driver.store.directory.failure


@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.ENOSPC])
def test_reads_go_on_whatever_fails_for_good_in_writing(kind: FaultKind) -> None:
    """What was answered is served, also when taking back a failed roll fails in turn."""
    reading = frozenset({"open", "read", "read_into", "peek", "direct"})
    for nth in range(1, 60):
        driver = Driver(DIRECT, SMALL_SEGMENTS)
        driver.log()
        driver.fs.inject(Fault(kind, nth, persistent=True, spared=reading))
        answered: list[bytes] = []
        with suppress(StorageError):
            for number in range(12):
                value = b"value %d" % number * 8
                if driver.append(value).error is None:
                    answered.append(value)
        assert answered == driver.values(), driver.fs.struck[:3]


def test_a_large_group_to_few_partitions_goes_past_the_journal() -> None:
    """Bytes that would only be written twice are synced where they belong."""
    driver = Driver(
        EmbeddedOptions(journal_bytes=64 << 10, journal_append_bytes=64, min_free_bytes=0)
    )
    driver.append(b"x" * 1000)
    with driver.noting("write", suffix=".journal") as written:
        driver.append(b"y" * 1000)
    assert [] == written


@pytest.mark.parametrize("is_one_group", [False, True])
def test_segments_roll_by_size_and_all_are_read(*, is_one_group: bool) -> None:
    """A log in many segments reads as one, also when one group began several of them."""
    driver = Driver(settings=SMALL_SEGMENTS)
    values = [b"record %03d" % number for number in range(50)]
    for value in values:
        append = driver.submit(value)
        if not is_one_group:
            flush_group(driver.store.writes)
    flush_group(driver.store.writes)
    assert append.error is None
    assert len(driver.log().segments) > 5
    assert values == driver.values()
    assert values == driver.values(max_bytes=1)
    driver.lose_power()
    assert values == driver.values()


def test_a_segment_rolls_when_its_index_is_full() -> None:
    """As many index entries as fit in segment.index.bytes, and no more."""
    driver = Driver(settings=LogSettings(segment_index_bytes=16, index_interval_bytes=1))
    for number in range(10):
        driver.append(b"%d" % number)
    assert len(driver.log().segments) > 2


def test_a_segment_rolls_before_its_offsets_outgrow_kafkas_index() -> None:
    """An entry has 32 bits for the distance from the segment's first offset."""
    driver = Driver()
    for number in range(2):
        driver.store.writes.submit(driver.log(), [make_filler(0, 1 << 31, 0)])
        flush_group(driver.store.writes)
        assert number + 1 == len(driver.log().segments)


def test_a_full_disk_refuses_appends_and_takes_them_again() -> None:
    """Below the reserve nothing is written; with space back it goes on by itself."""
    driver = Driver(EmbeddedOptions(journal_append_bytes=0, min_free_bytes=10_000))
    driver.append(b"before")
    driver.fs.capacity_bytes = 10_000
    refused = driver.append(b"x" * 5_000)
    assert isinstance(refused.error, DiskFullError)
    assert [False] == [driver.store.writes.is_writable]
    driver.fs.capacity_bytes = 1 << 30
    assert [True] == [driver.store.writes.is_writable]
    assert driver.append(b"after").result.base_offset == 1
    assert [b"before", b"after"] == driver.values()


def test_a_write_that_fails_is_taken_back() -> None:
    """ENOSPC fails that partition's appends alone; their offsets go to what comes next."""
    driver = Driver()
    driver.append(b"before")
    driver.append(b"other", key=OTHER_KEY)
    failed = driver.submit(b"failed")
    good = driver.submit(b"good", key=OTHER_KEY)
    behind = driver.submit(b"behind")
    with driver.failing(Fault(FaultKind.ENOSPC, 1)):
        flush_group(driver.store.writes)
    assert isinstance(failed.error, DiskFullError)
    assert isinstance(behind.error, StorageError)
    assert good.error is None
    assert driver.append(b"after").result.base_offset == 1
    driver.lose_power(CrashMode.EVERYTHING)
    assert [b"before", b"after"] == driver.values()
    assert [b"other", b"good"] == driver.values(OTHER_KEY)


def test_what_was_submitted_before_a_failure_was_known_fails_too() -> None:
    """Or a producer's later batch could be stored without the earlier one."""
    driver = Driver()
    driver.append(b"before")
    store = driver.store
    failed = driver.submit(b"failed")
    group = store.writes.take_group()
    with driver.failing(Fault(FaultKind.EIO, 1)):
        store.writes.write_group(group)
    late = driver.submit(b"late")
    late_group = store.writes.take_group()
    store.writes.write_group(late_group)
    store.writes.complete_group(group)
    fresh = driver.submit(b"fresh")
    store.writes.complete_group(late_group)
    flush_group(store.writes)
    assert [True, True, False] == [one.error is not None for one in (failed, late, fresh)]
    assert [b"before", b"fresh"] == driver.values()


def test_a_roll_that_fails_leaves_no_segment_behind() -> None:
    """When the new segment cannot be written, its files go and the old one is as it was."""
    driver = Driver(settings=SMALL_SEGMENTS)
    while len(driver.log().segments) < 2:
        driver.append(b"record")
    driver.append(b"x" * 200)
    segments = driver.log().segments
    before = driver.values()
    with driver.failing(Fault(FaultKind.ENOSPC, 2)):
        assert driver.append(b"x" * 350).error is not None
    assert segments == driver.log().segments
    driver.append(b"after")
    assert [*before, b"after"] == driver.values()
    assert [] == [one for one in driver.problems() if "damaged" in one]


@pytest.mark.parametrize("options", [DIRECT, JOURNALED])
def test_a_failed_sync_is_final(options: EmbeddedOptions) -> None:
    """After it nothing is written, what was answered stays readable, and no retry lies."""
    driver = Driver(options)
    driver.append(b"before")
    with driver.failing(Fault(FaultKind.EIO, 1, persistent=True)):
        assert driver.append(b"failing").error is not None
    with pytest.raises(StorageError):
        driver.submit(b"later")
    assert driver.store.directory.failure is not None
    assert not driver.store.writes.is_writable
    assert [b"before"] == driver.values()


def test_bytes_above_the_durable_end_are_written_again_after_a_failed_sync() -> None:
    """They read back fine out of the page cache and are on no disk: no restart may trust them."""
    driver = Driver()
    driver.append(b"before")
    failing = driver.submit(b"failing")

    def fail_the_sync(call: str, path: str) -> None:
        if call == "write" and path.endswith(".log"):
            driver.fs.inject(Fault(FaultKind.EIO, 1, persistent=True))

    driver.fs.on_operation = fail_the_sync
    flush_group(driver.store.writes)
    driver.fs.on_operation = None
    driver.fs.inject(None)
    assert failing.error is not None
    driver.kill()
    shown = driver.values()
    driver.lose_power()
    assert shown == driver.values()


def test_a_deleted_partition_is_gone_for_good() -> None:
    """Its appends in flight fail; a log under the same key begins at 0 with none of its bytes."""
    driver = Driver(JOURNALED)
    driver.append(b"old")
    pending = driver.submit(b"pending")
    log = driver.store.retire_log(KEY)
    removed = driver.store.remove_log(KEY, log)
    flush_group(driver.store.writes)
    assert pending.error is not None
    driver.log()
    driver.append(b"new")
    driver.lose_power()
    assert [b"new"] == driver.values()
    assert removed is not None
    assert not driver.fs.exists(removed)


def test_a_partition_without_a_topic_is_named() -> None:
    """A directory that nobody opens stays and is reported."""
    driver = Driver()
    driver.append(b"x")
    driver.stop()
    assert [KEY] == driver.store.unclaimed
    driver.log()
    assert [] == driver.store.unclaimed


def test_drop_before_moves_the_start_and_removes_whole_segments() -> None:
    """The start survives a power loss; segments wholly below it are gone, others stay."""
    driver = Driver(settings=SMALL_SEGMENTS)
    values = [b"record %03d" % number for number in range(30)]
    for value in values:
        driver.append(value)
    before = len(driver.log().segments)
    drop_before(driver.store, driver.log(), 17)
    assert len(driver.log().segments) < before
    assert values[17:] == driver.values()
    driver.lose_power()
    assert 17 == driver.log().offsets.log_start_offset
    assert values[17:] == driver.values()


def test_a_group_is_bounded_by_its_bytes() -> None:
    """What does not fit waits for the next flush."""
    driver = Driver(EmbeddedOptions(journal_append_bytes=0, min_free_bytes=0, group_bytes=100))
    for _ in range(3):
        driver.submit(b"x" * 80)
    assert 1 == len(flush_group(driver.store.writes))
    assert driver.store.writes.pending


def test_every_problem_is_announced_and_the_first_are_kept() -> None:
    """A thousand damaged partitions are a thousand lines in the log, once each."""
    driver = Driver()
    announced: list[str] = []
    driver.store.directory.announce = announced.append
    for number in range(250):
        driver.store.directory.report(f"problem {number}")
        driver.store.directory.report(f"problem {number}")
    assert [f"problem {number}" for number in range(250)] == announced
    assert [f"problem {number}" for number in range(100)] == driver.store.directory.problems[:100]
    assert ["150 more are in the log"] == driver.store.directory.problems[100:]


def test_many_problems_of_one_kind_do_not_hide_another() -> None:
    """A start after a kill finds something about each of thousands of partitions."""
    driver = Driver()
    announced: list[str] = []
    driver.store.directory.announce = announced.append
    ended: list[bool] = []
    for number in range(10_000):
        driver.store.directory.report(f"problem {number}")
    driver.store.directory.report("damage", DAMAGE, lambda: bool(ended))
    assert "damage" == announced[-1]
    assert Problem(DAMAGE, "damage") in driver.store.directory.found
    assert Problem(STORAGE, "9900 more are in the log") == driver.store.directory.found[-1]
    ended.append(True)
    assert all(one.reason is STORAGE for one in driver.store.directory.found)


@pytest.mark.parametrize("change", [drop_before, Store.finish_compaction])
def test_a_failed_sync_of_a_logs_state_is_told_and_final(
    change: Callable[[Store, SegmentedLog, int], object],
) -> None:
    """Nobody knows what is on the disk: nothing is written any more until the next start."""
    driver = Driver(DIRECT)
    driver.append(b"a")
    with driver.failing(NEXT_SYNC_FAILS), pytest.raises(StorageError):
        change(driver.store, driver.log(), 1)
    assert not driver.store.writes.is_writable
    with pytest.raises(StorageError, match="has failed"):
        driver.submit(b"b")


def test_a_failed_sync_of_a_deleted_logs_state_is_no_failure_of_the_disk() -> None:
    """Its files may go at any moment, and the other partitions go on."""
    driver = Driver(DIRECT)
    driver.append(b"a")
    log = driver.store.retire_log(KEY)
    assert log is not None
    with driver.failing(NEXT_SYNC_FAILS), pytest.raises(StorageError):
        driver.store.trimmer.save_log_start(log, 1)
    assert driver.store.writes.is_writable


def test_a_checkpoint_notes_what_one_before_it_had_begun_when_it_failed() -> None:
    """Also the log whose part was done."""
    driver = Driver(JOURNALED)
    for key in (KEY, OTHER_KEY):
        driver.append(b"a", key=key)
    with driver.failing(Fault(FaultKind.EIO, 2, suffix=".checksums")), pytest.raises(StorageError):
        driver.store.begin_checkpoint()
    assert 2 == len(driver.store.checkpoint())


def test_the_end_of_a_run_over_a_deleted_log_changes_nothing() -> None:
    """Its directory may be gone: there is nothing to be noted, and nothing has failed."""
    driver = Driver(DIRECT)
    driver.append(b"a")
    log = driver.store.retire_log(KEY)
    assert log is not None
    path = driver.store.remove_log(KEY, log)
    assert path is not None
    driver.store.trimmer.remove_directory(path)
    before = driver.fs.files(ROOT)
    driver.store.finish_compaction(log, 1)
    assert before == driver.fs.files(ROOT)
    assert driver.store.writes.is_writable
    assert [] == driver.store.directory.problems
