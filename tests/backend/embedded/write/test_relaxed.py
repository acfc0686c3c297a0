from __future__ import annotations

import pytest

from kgw.backend.base import EpochStart, ReadResult, Snapshot
from kgw.backend.embedded.layout import Gap
from kgw.backend.embedded.log.snapshots import load_snapshot, save_snapshot
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.read import lookups, reading
from kgw.offsets.recovery import AnomalyKind
from kgw.records.batch import split_batches
from tests.backend.embedded.driver import (
    JOURNALED,
    KEY,
    OTHER_KEY,
    RELAXED,
    SETTINGS,
    Driver,
    drop_before,
    flush_group,
)
from tests.simulated_disk import CrashMode
from tests.simulated_fs import Fault, FaultKind

SMALL_BLOCKS = EmbeddedOptions(
    journal_append_bytes=0, min_free_bytes=0, reserved_offsets=100, reserved_offsets_max=1_000
)
RESERVED = 101
"""Where the first block ends after an append of one record."""


def _lost_tail(options: EmbeddedOptions = SMALL_BLOCKS) -> Driver:
    """Return a log that had five records, two of them unsynced, when the power went."""
    driver = Driver(options, RELAXED)
    for number in range(3):
        driver.append(b"kept %d" % number)
    driver.flush()
    driver.append(b"lost 3")
    driver.append(b"lost 4")
    driver.lose_power()
    return driver


# --- answering ------------------------------------------------------------------------------------


def test_a_relaxed_append_is_answered_and_shown_without_a_sync() -> None:
    """The system has it: that is all that is waited for (rule 6)."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.append(b"first")
    with driver.noting("fdatasync") as synced:
        append = driver.append(b"second")
    assert (None, False, []) == (append.error, append.is_durable, synced)
    assert [b"first", b"second"] == driver.values()
    offsets = driver.log().offsets
    assert (0, 2) == (offsets.durable_end, offsets.high_watermark)


def test_a_flush_makes_durable_what_was_answered() -> None:
    """The durable end follows, and side entries are written only now."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    for _ in range(120):
        driver.append(b"x")
    offsets = driver.log().offsets
    assert (120, 120) == (offsets.high_watermark, driver.log().written_end)
    assert 0 == offsets.durable_end
    assert 0 == len(driver.fs.content(driver.segment_path(suffix="checksums")))
    driver.flush()
    assert 120 == offsets.durable_end
    assert driver.log().durable is None
    assert 40 * 120 == len(driver.fs.content(driver.segment_path(suffix="checksums")))
    driver.lose_power()
    assert [b"x"] * 120 == driver.values()


def test_a_checkpoint_writes_side_entries_of_durable_batches_alone() -> None:
    """Others call batches durable that a power loss takes, which would be damage then."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    for number in range(3):
        driver.append(b"%d" % number)
    driver.flush()
    driver.checkpoint()
    driver.append(b"covered")
    (flush,) = driver.store.writes.relaxed.begin_flush([driver.log()])
    flush.mark.segment.sync()
    driver.append(b"late")
    driver.append(b"later")
    driver.store.writes.relaxed.finish_flush([flush], [None])
    driver.store.begin_checkpoint()
    assert 40 * 4 == driver.fs.file_size(driver.segment_path(suffix="checksums"))
    flush.mark.segment.sync_side()
    driver.lose_power()
    assert () == driver.log().damaged
    assert 4 == len(driver.values())


def test_without_a_reservation_an_append_is_made_durable() -> None:
    """Nobody waits for one: until it is there the log is as a strict one."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    wanted: list[int] = []
    driver.store.writes.relaxed.reserve_soon = lambda _, end: wanted.append(end)
    for number in range(3):
        assert driver.append(b"%d" % number).is_durable
    assert [RESERVED] == wanted
    driver.store.writes.relaxed.reserve(driver.log(), RESERVED)
    assert not driver.append(b"3").is_durable
    driver.lose_power()
    assert [b"0", b"1", b"2"] == driver.values()


def test_the_next_block_is_reserved_before_the_last_is_used_up() -> None:
    """Half a block ahead; blocks grow with the log and are bounded."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    reserved: list[tuple[int, int]] = []
    relaxed = driver.store.writes.relaxed
    reserve = relaxed.reserve

    def note(log: object, reserved_end: int) -> None:
        reserved.append((driver.log().written_end, reserved_end))
        reserve(driver.log(), reserved_end)

    relaxed.reserve_soon = note
    assert all(driver.append(*[b"x"] * 10).error is None for _ in range(400))
    for written_end, reserved_end in reserved:
        assert written_end + 1 < reserved_end <= written_end + 10 + 1_000
    assert len(reserved) < 20


def test_a_full_disk_leaves_a_relaxed_log_strict() -> None:
    """What cannot be reserved is made durable before it is answered; the finding is reported."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.append(b"a")
    driver.fs.inject(Fault(FaultKind.ENOSPC, 1, persistent=True, spared=frozenset({"fdatasync"})))
    driver.store.writes.relaxed.reserve(driver.log(), 10_000)
    driver.fs.inject(None)
    assert RESERVED == driver.log().reserved_end
    assert any("reserved.json" in problem for problem in driver.store.directory.problems)
    assert driver.store.writes.is_writable


def test_beyond_the_limit_of_unsynced_logs_appends_are_made_durable() -> None:
    """Each holds a descriptor: there are never more of them than the options say."""
    driver = Driver(SMALL_BLOCKS._replace(unsynced_segments=1), RELAXED)
    for key in (KEY, OTHER_KEY):
        driver.append(b"reserves", key=key)
    driver.flush(KEY)
    driver.flush(OTHER_KEY)
    assert not driver.append(b"first", key=KEY).is_durable
    assert driver.append(b"second", key=OTHER_KEY).is_durable
    assert not driver.append(b"third", key=KEY).is_durable


def test_flush_messages_bounds_what_is_left_unsynced() -> None:
    """Kafka's flush.messages: so many records are flushed before they are acknowledged."""
    driver = Driver(SMALL_BLOCKS, RELAXED._replace(flush_interval_messages=3))
    durable = [driver.append(b"x").is_durable for _ in range(7)]
    assert [False, False, True, False, False, True, False] == durable


# --- changing the mode ----------------------------------------------------------------------------


def test_the_first_strict_append_makes_durable_what_came_before_it() -> None:
    """Relaxed to strict: its segment is synced, the journal could not vouch for it."""
    driver = Driver(JOURNALED._replace(reserved_offsets=100), RELAXED)
    driver.append(b"a")
    driver.append(b"relaxed")
    log = driver.log()
    assert log.durable is not None
    log.settings = SETTINGS
    assert driver.append(b"strict").is_durable
    assert 3 == log.offsets.durable_end
    driver.lose_power()
    assert [b"a", b"relaxed", b"strict"] == driver.values()


def test_a_strict_log_gives_its_reservation_back() -> None:
    """Or it would leave out offsets at the next kill."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.append(b"a")
    driver.append(b"b")
    driver.log().settings = driver.settings = SETTINGS
    driver.append(b"c")
    driver.append(b"d")
    assert 0 == driver.log().reserved_end
    driver.kill()
    assert 4 == driver.append(b"e").result.base_offset


def test_a_strict_log_that_becomes_relaxed_reserves_first() -> None:
    """Strict to relaxed: no answer without a sync before the reservation is durable."""
    driver = Driver(JOURNALED, SETTINGS)
    driver.append(b"a")
    log = driver.log()
    log.settings = driver.settings = RELAXED
    held: list[int] = []
    driver.store.writes.relaxed.reserve_soon = lambda _, end: held.append(end)
    assert driver.append(b"b").is_durable
    driver.store.writes.relaxed.reserve(log, held[0])
    assert not driver.append(b"c").is_durable
    driver.lose_power()
    assert [b"a", b"b"] == driver.values()
    assert held[0] == driver.append(b"d").result.base_offset


def test_strict_and_relaxed_partitions_share_a_group() -> None:
    """Each keeps its own promise."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.append(b"reserves")
    driver.settings = SETTINGS
    driver.log(OTHER_KEY)
    relaxed = driver.submit(b"relaxed")
    strict = driver.submit(b"strict", key=OTHER_KEY)
    flush_group(driver.store.writes)
    assert (False, True) == (relaxed.is_durable, strict.is_durable)
    driver.lose_power()
    assert [b"strict"] == driver.values(OTHER_KEY)


# --- stopping and starting ------------------------------------------------------------------------


def test_after_a_power_loss_no_offset_comes_back() -> None:
    """The log goes on above what was reserved; the gap is noted and counted (rule 2)."""
    driver = _lost_tail()
    noted: list[str] = []
    driver.store.directory.remark = noted.append
    log = driver.log()
    assert [b"kept 0", b"kept 1", b"kept 2"] == driver.values()
    assert (RESERVED, RESERVED) == (log.offsets.high_watermark, log.offsets.next_offset)
    assert (Gap(3, RESERVED),) == log.gaps
    assert 1 == driver.store.anomaly_counts[AnomalyKind.GAP_ANNOUNCED]
    assert [] == driver.store.directory.problems
    assert ["offsets 3 to 100 are left out" in sentence for sentence in noted] == [True]
    assert RESERVED == driver.append(b"new").result.base_offset
    assert 4 == len(driver.values())
    assert [] == driver.problems()


def test_a_kill_loses_nothing_and_leaves_a_gap() -> None:
    """Nobody can know whether the machine went down with a failed sync behind it: always above."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    for number in range(5):
        driver.append(b"%d" % number)
    driver.kill()
    assert 5 == len(driver.values())
    assert (Gap(5, RESERVED),) == driver.log().gaps
    assert RESERVED == driver.append(b"new").result.base_offset
    driver.flush()
    driver.lose_power()
    assert 6 == len(driver.values())


def test_an_orderly_stop_leaves_no_gap() -> None:
    """Everything is synced, and the reservation serves the next start."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.append(b"a")
    driver.append(b"b")
    driver.stop()
    log = driver.log()
    assert () == log.gaps
    assert 0 == log.leader_epoch
    append = driver.append(b"c")
    assert (2, False) == (append.result.base_offset, append.is_durable)
    driver.lose_power()
    assert [b"a", b"b"] == driver.values()
    assert (Gap(2, RESERVED),) == driver.log().gaps


def test_kills_without_appends_leave_no_further_gaps() -> None:
    """Above the reservation there is nothing that could be given twice."""
    driver = _lost_tail()
    ends = []
    for _ in range(3):
        ends.append(driver.log().offsets.next_offset)
        driver.kill()
    assert [RESERVED] * 3 == ends
    assert (Gap(3, RESERVED),) == driver.log().gaps


def test_the_old_epoch_ends_where_its_records_end() -> None:
    """So that a client that has read further is told to go back (KIP-320)."""
    driver = _lost_tail()
    log = driver.log()
    assert (EpochStart(0, 0), EpochStart(1, 3)) == log.epochs
    end = log.epoch_end(0)
    assert end is not None
    assert 3 == end.end_offset
    driver.append(b"new")
    driver.kill()
    assert [b"kept 0", b"kept 1", b"kept 2", b"new"] == driver.values()


def test_a_reader_is_out_of_range_inside_a_gap_alone() -> None:
    """Its two ends are places to stand; the log start is one even inside."""
    driver = _lost_tail()
    log = driver.log()
    inside = [log.is_in_gap(offset) for offset in (2, 3, 4, RESERVED - 1, RESERVED)]
    assert [False, False, True, True, False] == inside
    drop_before(driver.store, log, 50)
    assert [False, True] == [log.is_in_gap(offset) for offset in (50, 51)]


def test_the_high_watermark_is_reached_where_a_log_ends_in_a_gap() -> None:
    """Empty batches lead there: who reads up to the end of a topic must not wait for a record."""
    driver = Driver(settings=RELAXED)
    for value in (b"a", b"b", b"c"):
        driver.append(value)
    driver.kill()
    log = driver.log()
    (gap,) = log.gaps
    assert [b"a", b"b", b"c"] == driver.values()
    end = log.offsets.high_watermark
    found = reading.read(log, 3, 1, end)
    (batch,) = split_batches(bytes(found.buffers[0]))
    assert (*gap, 0) == (batch.base_offset, batch.next_offset, batch.record_count)
    assert batch.crc_matches()
    assert log.leader_epoch == batch.leader_epoch
    assert gap.end_offset == end == found.next_offset
    assert ReadResult([], 0, 3) == reading.read(log, 3, 1, end - 1)
    driver.append(b"d")
    assert [b"a", b"b", b"c", b"d"] == driver.values(max_bytes=1)


def test_reads_and_look_ups_cross_a_gap() -> None:
    """From its beginning, by time, and for replay."""
    driver = _lost_tail()
    driver.append(b"new", timestamp_ms=5_000)
    log = driver.log()
    end = log.offsets.high_watermark
    assert RESERVED + 1 == reading.read(log, 3, 1_000, end).next_offset
    found = lookups.find_by_time(log, 4_000, 0, end, lambda batch: batch)
    assert found is not None
    assert RESERVED == found.base_offset
    newest = lookups.find_max_timestamp(log, 0, end)
    assert newest is not None
    assert RESERVED == newest.base_offset
    batches, next_offset = lookups.replay(log, 2, end)
    if next_offset < end:
        more, next_offset = lookups.replay(log, next_offset, end)
        batches += more
    assert [2, RESERVED] == [batch.base_offset for batch in batches]


def test_a_gap_is_no_damage_when_the_side_file_is_lost_too() -> None:
    """The log's own notes tell what was left out from what is missing."""
    driver = _lost_tail()
    driver.append(b"new")
    driver.flush()
    driver.fs.unlink(driver.segment_path(suffix="checksums"))
    driver.kill()
    assert () == driver.log().damaged
    assert [b"kept 0", b"kept 1", b"kept 2", b"new"] == driver.values()


def test_a_snapshot_of_lost_records_does_not_survive_them() -> None:
    """It would answer a retry of a lost batch as a duplicate."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    for number in range(3):
        driver.append(b"%d" % number)
    driver.flush()
    save_snapshot(driver.log(), Snapshot(3, b"true"))
    driver.append(b"lost")
    save_snapshot(driver.log(), Snapshot(4, b"of what is lost"))
    driver.lose_power()
    log = driver.log()
    assert Snapshot(3, b"true") == load_snapshot(log, log.offsets.next_offset)
    driver.lose_power()
    assert Snapshot(3, b"true") == load_snapshot(driver.log(), log.offsets.next_offset)


def test_a_snapshot_at_the_end_of_a_used_up_reservation_does_not_survive_it() -> None:
    """It lies where the log goes on, and knows what is lost; a later one there is kept."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.append(b"kept")
    driver.flush()
    driver.store.writes.relaxed.reserve_soon = lambda _, __: None
    end_offset = driver.log().reserved_end
    while driver.log().offsets.high_watermark < end_offset:
        assert not driver.append(b"lost").is_durable
    save_snapshot(driver.log(), Snapshot(end_offset, b"of what is lost"))
    driver.lose_power()
    assert end_offset == driver.log().offsets.next_offset
    assert load_snapshot(driver.log(), end_offset) is None
    save_snapshot(driver.log(), Snapshot(end_offset, b"true"))
    driver.stop()
    assert Snapshot(end_offset, b"true") == load_snapshot(driver.log(), end_offset)


def test_a_checkpoint_is_never_ahead_of_what_is_durable() -> None:
    """It says how far the last sync has come, whatever was written since."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    for number in range(3):
        driver.append(b"%d" % number)
    driver.flush()
    driver.append(b"unsynced")
    plan = driver.store.begin_checkpoint()
    (checkpoint,) = plan.checkpoints
    assert 3 == checkpoint.next_offset
    assert driver.log().is_changed
    driver.lose_power()
    driver.checkpoints[KEY] = checkpoint
    assert 3 == len(driver.values())
    assert [] == driver.store.directory.problems


def test_a_damaged_reservation_leaves_a_wide_gap() -> None:
    """Which offsets were answered is not known: the log goes on far above them, and says so."""
    driver = _lost_tail()
    driver.flip(driver.path("reserved.json"), 20)
    log = driver.log()
    assert log.offsets.next_offset > 1 << 32
    assert any("reserved.json" in problem for problem in driver.store.directory.problems)
    driver.append(b"new")
    assert 4 == len(driver.values())


@pytest.mark.damages_storage("its reservation is damaged")
def test_a_damaged_reservation_of_a_log_without_segments_keeps_no_partition_from_opening() -> None:
    """It is told of, and the log begins at zero: nothing can have been answered."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.store.writes.relaxed.reserve(driver.log(), 500)
    driver.kill()
    driver.flip(driver.path("reserved.json"), 20)
    assert 0 == driver.append(b"first").result.base_offset
    assert any("reserved.json" in problem for problem in driver.store.directory.problems)
    assert [b"first"] == driver.values()


def test_a_log_that_reserved_and_never_got_its_segment_begins_at_zero() -> None:
    """A segment is there before anything is answered: nothing can have been."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.store.writes.relaxed.reserve(driver.log(), 500)
    driver.lose_power()
    append = driver.append(b"first")
    assert (0, False) == (append.result.base_offset, append.is_durable)
    assert 500 == driver.log().reserved_end


def test_a_log_start_above_what_is_durable_is_no_damage_later() -> None:
    """What is below it is made durable first: a log start proves as much."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    for number in range(4):
        driver.append(b"%d" % number)
    drop_before(driver.store, driver.log(), 3)
    driver.lose_power()
    assert [b"3"] == driver.values()
    assert () == driver.log().damaged


def test_whatever_a_power_loss_leaves_is_a_prefix() -> None:
    """Unsynced sectors survive or not, as chance has it: never a hole, never other records."""
    for seed in range(40):
        driver = Driver(SMALL_BLOCKS, RELAXED)
        values = [b"%d" % number + b"v" * 300 for number in range(12)]
        for number, value in enumerate(values):
            driver.append(value)
            if number == 5:
                driver.flush()
        driver.lose_power(CrashMode.RANDOM, seed)
        found = driver.values()
        assert 6 <= len(found)
        assert values[: len(found)] == found
        assert RESERVED == driver.log().offsets.next_offset


# --- failing --------------------------------------------------------------------------------------


def test_a_failed_sync_stops_the_directory_and_says_what_is_at_risk() -> None:
    """Answered records are not durable, and no second sync is believed."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.append(b"durable")
    driver.flush()
    driver.append(b"at risk")
    driver.append(b"at risk too")
    driver.fs.inject(Fault(FaultKind.EIO, 1, spared=frozenset({"write", "open"})))
    driver.flush()
    driver.fs.inject(None)
    assert not driver.store.writes.is_writable
    assert any(
        "2 records of 1 relaxed partitions" in one for one in driver.store.directory.problems
    )
    assert 1 == driver.log().offsets.durable_end
    driver.lose_power()
    assert [b"durable"] == driver.values()
    assert RESERVED == driver.log().offsets.next_offset


def test_a_failed_write_takes_back_nothing_that_was_shown() -> None:
    """Its own offsets are given again; what was answered before it stays."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.append(b"a")
    driver.append(b"shown")
    with driver.failing(Fault(FaultKind.EIO, 1, spared=frozenset({"fdatasync", "open"}))):
        assert driver.append(b"refused").error is not None
    assert 2 == driver.append(b"next").result.base_offset
    assert [b"a", b"shown", b"next"] == driver.values()
    driver.flush()
    driver.lose_power()
    assert [b"a", b"shown", b"next"] == driver.values()


def test_a_roll_makes_the_segment_before_it_durable() -> None:
    """A segment's existence proves everything below it, also in a relaxed log."""
    driver = Driver(SMALL_BLOCKS, RELAXED._replace(segment_bytes=400))
    values = [b"%03d" % number for number in range(30)]
    for value in values:
        driver.append(value)
    log = driver.log()
    assert len(log.segments) > 3
    assert log.durable_end >= log.segments[-1].base_offset
    driver.flush()
    driver.append(b"lost")
    driver.lose_power()
    assert values == driver.values()


def test_a_deleted_log_is_forgotten() -> None:
    """Neither its flush nor its reservation disturbs anybody."""
    driver = Driver(SMALL_BLOCKS, RELAXED)
    driver.append(b"a")
    driver.append(b"b")
    log = driver.log()
    flushes = driver.store.writes.relaxed.begin_flush([log])
    driver.store.remove_log(KEY, driver.store.retire_log(KEY))
    driver.store.writes.relaxed.reserve(log, 900)
    assert [] == driver.store.writes.relaxed.finish_flush(flushes, [None])
    assert [] == driver.store.writes.relaxed.begin_flush([log])
    assert (0, []) == (driver.store.writes.relaxed.unsynced_bytes, driver.store.directory.problems)
