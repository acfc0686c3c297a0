"""Compaction on a simulated disk: rewriting, joining, swapping, and what a crash leaves of it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.backend.base import CompactionJob, CompactionReport, LogSettings
from kgw.backend.embedded.compact.compaction import SegmentCompaction, plan_compaction
from kgw.backend.embedded.compact.rewriting import RewriteThrottle
from kgw.backend.embedded.layout import encode_small
from kgw.backend.embedded.log.journal import Journal
from kgw.backend.embedded.log.swap import CompactedSegment
from kgw.backend.embedded.offline.check import check_directory
from kgw.backend.embedded.read import lookups, reading
from kgw.errors import CorruptionError, StorageError
from kgw.records.batch import Compression, read_batch, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from tests.backend.embedded.driver import JOURNALED, ROOT, Driver, drop_before, flush_group
from tests.backend.embedded.stops import stopped_anywhere
from tests.simulated_disk import CrashMode

if TYPE_CHECKING:
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from tests.simulated_fs import SimulatedFs

SETTINGS = LogSettings(segment_bytes=1_000, index_interval_bytes=200, delete_delay_ms=0)
FAR = 1 << 40


def append(driver: Driver, *records: tuple[bytes, bytes | None], **options: Any) -> None:
    """Append one batch of records with keys and flush it."""
    builder = BatchBuilder(**options)
    for key, value in records:
        builder.add(key=key, value=value, timestamp_ms=1_000)
    batch = read_batch(builder.build())
    driver.store.writes.submit(driver.log(), [batch])
    flush_group(driver.store.writes)


def fill(driver: Driver, count: int, key_count: int, size: int = 80) -> None:
    """Append so many records of a few keys, each in a batch of its own."""
    for number in range(count):
        append(driver, (b"key-%d" % (number % key_count), b"%d-" % number + b"v" * size))


def compact(driver: Driver, **changes: Any) -> CompactionReport:
    """Compact everything but the active segment, as the shell does."""
    log, store = driver.log(), driver.store
    job = CompactionJob(FAR, now_ms=1_000, delete_retention_ms=1_000)._replace(**changes)
    compaction = SegmentCompaction(driver.fs, plan_compaction(log, job, 0))
    driver.checkpoint()
    for compacted in compaction.run():
        store.trimmer.remove_files(store.swap_segment(log, compacted))
    if not job.is_dry_run:
        store.finish_compaction(log, compaction.report.compacted_end)
    return compaction.report


def records(log: SegmentedLog) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return everything that a consumer reads, by offset."""
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset, end = log.offsets.log_start_offset, log.offsets.high_watermark
    while offset < end:
        result = reading.read(log, offset, 500, end)
        assert result.buffers, f"nothing at {offset}"
        for batch in split_batches(b"".join(bytes(buffer) for buffer in result.buffers)):
            for record in read_records(batch):
                assert record.offset not in found
                found[record.offset] = (record.key, record.value)
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def files(driver: Driver) -> dict[str, bytes]:
    """Return the content of the segments' files."""
    directory = driver.path("")[:-1]
    return {
        name: driver.fs.read_bytes(f"{directory}/{name}")
        for name in driver.fs.listdir(directory)
        if not driver.fs.is_directory(f"{directory}/{name}") and name[:20].isdigit()
    }


def expected(driver: Driver, count: int, key_count: int) -> dict[int, bytes]:
    """Return which records of `fill` stay, by offset."""
    active = driver.log().segments[-1].base_offset
    newest = {number % key_count: number for number in range(active)}
    return {
        number: b"key-%d" % (number % key_count)
        for number in range(count)
        if number >= active or newest[number % key_count] == number
    }


def test_the_newest_record_of_each_key_stays() -> None:
    """At its offset, in its order; the active segment is left alone, and so is the log's end.

    A second run changes no byte, and no kind of stop brings anything back.
    """
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 7)
    kept = expected(driver, 60, 7)
    report = compact(driver)
    log = driver.log()
    assert kept == {offset: key for offset, (key, _) in records(log).items()}
    assert log.segments[-1].base_offset == log.compacted_end == report.compacted_end
    assert report.is_complete
    assert log.segments[-1].base_offset == report.records_before
    assert 7 == report.records_after
    assert report.bytes_before > 3 * report.bytes_after
    assert report.segments_before > report.segments_after == len(log.segments) - 1
    assert 60 == log.offsets.next_offset
    assert [] == check_directory(ROOT, driver.fs)
    before = files(driver)
    again = compact(driver)
    assert before == files(driver)
    assert again.bytes_before == again.bytes_after
    assert not driver.fs.exists(driver.path("compaction"))
    for stop in (Driver.stop, Driver.kill, Driver.lose_power):
        stop(driver)
        assert kept == {offset: key for offset, (key, _) in records(driver.log()).items()}
        assert report.compacted_end == driver.log().compacted_end
        assert [] == driver.store.directory.problems


def test_a_log_whose_notes_are_lost_is_read_again() -> None:
    """Epochs, ends and side files come from the batches, which follow each other without a gap."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 7)
    compact(driver)
    before = records(driver.log())
    driver.lose_notes()
    log = driver.log()
    assert before == records(log)
    assert () == log.damaged
    assert 0 == log.compacted_end
    assert all("rebuilt" in one or "rewritten" in one for one in driver.store.directory.problems)
    compact(driver)
    assert before == records(log)


def test_small_neighbours_are_joined() -> None:
    """Up to segment.bytes, so that the number of segments does not only grow."""
    driver = Driver(settings=SETTINGS)
    for _ in range(4):
        fill(driver, 40, 5)
        driver.store.roll(driver.log())
        compact(driver)
    sealed = driver.log().segments[:-1]
    assert 2 >= len(sealed)
    assert [] == check_directory(ROOT, driver.fs)


def test_a_segment_that_is_half_full_is_not_copied_for_a_neighbour() -> None:
    """Or each run would write the whole log again."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 6, 6)
    driver.store.roll(driver.log())
    compact(driver)
    first = driver.log().segments[0]
    append(driver, (b"other", b"1"))
    driver.store.roll(driver.log())
    compact(driver)
    assert first is driver.log().segments[0]
    assert 3 == len(driver.log().segments)


def test_a_dry_run_writes_nothing() -> None:
    """It says what a run would do."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 7)
    driver.checkpoint()
    before = files(driver)
    would = compact(driver, is_dry_run=True)
    assert before == files(driver)
    done = compact(driver)
    assert would._replace(bytes_read=0) == done._replace(bytes_read=0)


def test_a_full_map_of_keys_ends_a_run_early() -> None:
    """The next one goes on, and after the last everything is as after a single run."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 20)
    kept = expected(driver, 60, 20)
    ends = []
    while True:
        report = compact(driver, key_memory_bytes=160 * 7)
        ends.append(report.compacted_end)
        if report.is_complete:
            break
    assert sorted(set(ends)) == ends
    assert len(ends) > 3
    assert list(kept) == list(records(driver.log()))


def test_damage_ends_the_run_before_anything_is_changed() -> None:
    """A flipped bit is never copied into a file where nobody would look for it."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 7)
    driver.checkpoint()
    before = files(driver)
    for position in (3, 30, 100):
        driver.flip(driver.log().segments[2].log_path, position)
        with pytest.raises(CorruptionError, match="offset"):
            compact(driver)
        driver.flip(driver.log().segments[2].log_path, position)
        assert before == files(driver)


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    """Whatever was written for it goes."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 7)
    before = files(driver)
    log = driver.log()
    order = plan_compaction(log, CompactionJob(FAR, 0, 0), min_free_bytes=1 << 60)
    with pytest.raises(OSError, match="free"):
        list(SegmentCompaction(driver.fs, order).run())
    assert before == files(driver)


def test_segments_that_were_dropped_meanwhile_stay_dropped() -> None:
    """What was made of them is not put in their place; what was made of others is."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 14)
    append(driver, (b"other", b"v" * 900))
    fill(driver, 60, 14)
    log, store = driver.log(), driver.store
    compaction = SegmentCompaction(driver.fs, plan_compaction(log, CompactionJob(70, 0, 0), 0))
    driver.checkpoint()
    first, second = compaction.run()
    drop_before(store, log, second.base_offset)
    bases = [one.base_offset for one in log.segments]
    assert [] == store.swap_segment(log, first)
    assert bases == [one.base_offset for one in log.segments]
    assert store.swap_segment(log, second)


def test_a_run_ends_where_some_of_the_segments_were_dropped() -> None:
    """What is left of them holds older records, and the tombstones behind it must outlive these."""
    driver = Driver(settings=SETTINGS._replace(delete_delay_ms=1))
    fill(driver, 60, 7)
    log, store = driver.log(), driver.store
    compaction = SegmentCompaction(driver.fs, plan_compaction(log, CompactionJob(FAR, 0, 0), 0))
    compacted = next(compaction.run())
    drop_before(store, log, log.segments[3].base_offset)
    bases = [one.base_offset for one in log.segments]
    with pytest.raises(StorageError, match="dropped"):
        store.swap_segment(log, compacted)
    assert bases == [one.base_offset for one in log.segments]


def test_no_segment_is_exchanged_after_a_failed_sync() -> None:
    """Nothing is written to a directory that has failed, also not by a run that is under way."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 7)
    log, store = driver.log(), driver.store
    compaction = SegmentCompaction(driver.fs, plan_compaction(log, CompactionJob(FAR, 0, 0), 0))
    driver.checkpoint()
    compacted = next(compaction.run())
    before = files(driver)
    store.directory.fail(OSError("a sync has failed"))
    with pytest.raises(StorageError, match="has failed"):
        store.swap_segment(log, compacted)
    assert before == files(driver)


def test_the_segment_that_is_appended_to_is_never_exchanged() -> None:
    """Whatever a run has made of it by then, records may have come behind."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 20, 4)
    log = driver.log()
    before, active = records(log), log.segments[-1]
    compacted = CompactedSegment(active.base_offset, (active.base_offset,), 0, 0, 0)
    with pytest.raises(StorageError):
        driver.store.swap_segment(log, compacted)
    assert active is log.segments[-1]
    assert before == records(log)
    assert driver.store.writes.is_writable


def test_a_run_paces_what_it_moves_and_syncs_on_its_way() -> None:
    """One sync of a gigabyte would keep appends waiting; and a limit of its rate counts it all."""
    driver = Driver(settings=SETTINGS._replace(segment_bytes=16 << 20))
    append(driver, (b"again", b"old"))
    for number in range(24):
        append(driver, (b"key-%d" % number, b"v" * (300 << 10)))
    append(driver, (b"again", b"new"))
    driver.store.roll(driver.log())
    moved: list[int] = []
    synced_at: list[int] = []

    class Counted(RewriteThrottle):
        def moved(self, size_bytes: int) -> None:
            moved.append(size_bytes)

        def synced(self) -> None:
            synced_at.append(len(moved))

    job = CompactionJob(FAR, now_ms=1_000, delete_retention_ms=1_000)
    compaction = SegmentCompaction(driver.fs, plan_compaction(driver.log(), job, 0), Counted())
    synced = 0

    def observe(call: str, path: str) -> None:
        nonlocal synced
        synced += call == "fdatasync" and path.endswith(".log")

    driver.fs.on_operation = observe
    (compacted,) = compaction.run()
    driver.fs.on_operation = None
    assert len(synced_at) + 1 == synced
    assert compaction.report.bytes_read + compacted.size_bytes == sum(moved)
    assert compacted.size_bytes // (4 << 20) <= len(synced_at)


def test_what_was_deleted_stays_so_where_a_run_was_stopped() -> None:
    """A tombstone goes after the older records of its key, whichever segments are in place."""
    settings = SETTINGS._replace(segment_bytes=400)
    done = 0
    while True:
        driver = Driver(settings=settings)
        fill(driver, 20, 20)
        for number in range(20):
            append(driver, (b"key-%d" % number, None))
        fill(driver, 3, 1)
        log, store = driver.log(), driver.store
        job = CompactionJob(FAR, now_ms=1_000, delete_retention_ms=500)
        compaction = SegmentCompaction(driver.fs, plan_compaction(log, job, 0))
        driver.checkpoint()
        steps = compaction.run()
        for _ in range(done):
            store.trimmer.remove_files(store.swap_segment(log, next(steps)))
        is_last = next(steps, None) is None
        steps.close()
        driver.lose_power()
        compact(driver, now_ms=2_000, upper_bound=30)
        compact(driver, now_ms=3_000)
        values = records(driver.log()).values()
        deleted = {b"key-%d" % number for number in range(1, 20)}
        assert not [key for key, value in values if key in deleted and value is not None]
        if is_last:
            break
        done += 1
    assert done > 2


def test_a_frame_of_the_journal_never_reaches_a_compacted_segment() -> None:
    """Its bytes are those from before, and what they are about was synced when it was rolled."""
    driver = Driver(JOURNALED, settings=SETTINGS)
    fill(driver, 60, 7)
    compact(driver)
    before = records(driver.log())
    redos = Journal(driver.fs, f"{ROOT}/journal", 0).recover().redos
    compacted = {segment.base_offset for segment in driver.log().segments[:-1]}
    assert compacted & {redo.segment_base_offset for redo in redos}
    driver.kill()
    assert before == records(driver.log())
    assert [] == driver.store.directory.problems


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(CrashMode))
def test_an_exchange_is_finished_or_taken_back(mode: CrashMode) -> None:
    """Wherever it stops; and what an interrupted recovery leaves is finished by the next."""
    source = Driver(settings=SETTINGS)
    fill(source, 60, 7)
    source.checkpoint()
    before = records(source.log())
    whole = Driver(settings=SETTINGS, fs=source.fs.clone())
    compact(whole)
    after = records(whole.log())
    for stops, driver in stopped_anywhere(source, compact, at_least=30):
        driver.lose_power(mode, seed=stops)
        found = records(driver.log())
        assert after.items() <= found.items() <= before.items()
        assert () == driver.log().damaged
        assert not driver.fs.exists(driver.path("compaction"))
        driver.lose_power(mode, seed=stops)
        assert found == records(driver.log())


@pytest.mark.slow
def test_the_note_of_an_exchange_never_outlives_the_new_files() -> None:
    """With it the next start removes the old segments: 100 power losses around its rename."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 20, 4)
    before = records(driver.log())
    images: list[SimulatedFs] = []

    def take(call: str, path: str) -> None:
        if call == "rename" and ".swap" in path:
            images.extend(driver.fs.power_loss(Random(seed)) for seed in range(100))

    driver.fs.on_operation = take
    compact(driver)
    driver.fs.on_operation = None
    after = records(driver.log())
    assert len(images) >= 100
    finished = 0
    for image in images:
        found = records(Driver(settings=SETTINGS, fs=image).log())
        assert after.items() <= found.items() <= before.items()
        finished += found != before
    assert 0 < finished < len(images)


def test_segments_are_not_joined_across_a_gap() -> None:
    """Who has to read a segment anew takes offsets that are missing inside it for damage."""
    driver = Driver(settings=SETTINGS._replace(is_relaxed=True, segment_bytes=4_000))
    fill(driver, 6, 3)
    driver.kill()
    (gap,) = driver.log().gaps
    fill(driver, 6, 3)
    driver.store.roll(driver.log())
    driver.settings = driver.log().settings = SETTINGS._replace(segment_bytes=4_000)
    append(driver, (b"another", b"v"))
    compact(driver)
    before = records(driver.log())
    assert gap.start_offset == 6
    assert [*range(gap.end_offset + 3, gap.end_offset + 7)] == list(before)
    for name in driver.fs.listdir(driver.path("")[:-1]):
        if name.endswith(".checksums"):
            driver.fs.unlink(driver.path(name))
    driver.checkpoints.clear()
    driver.kill()
    assert () == driver.log().damaged
    assert before == records(driver.log())


def stopped_in_an_exchange(renames: int) -> tuple[Driver, str]:
    """Stop a run after so many renames of what is exchanged; returns the note of the exchange."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 7)
    driver.checkpoint()

    class Stop(BaseException):
        """The crash."""

    def stop(call: str, path: str) -> None:
        nonlocal renames
        renames -= call == "rename" and "/compaction/" not in path
        if renames < 0:
            raise Stop

    driver.fs.on_operation = stop
    with pytest.raises(Stop):
        compact(driver)
    driver.fs.on_operation = None
    (note,) = [one for one in driver.fs.listdir(driver.path("compaction")) if ".swap" in one]
    return driver, note


def test_no_content_decides_whether_an_exchange_is_finished() -> None:
    """A note that rotted would have the old segments gone, and the new ones taken back."""
    driver, note = stopped_in_an_exchange(4)
    content = driver.fs.content(driver.path(f"compaction/{note}"))
    content[:] = bytes(one ^ 0xFF for one in content)
    driver.kill()
    assert expected(driver, 60, 7).keys() == records(driver.log()).keys()
    assert () == driver.log().damaged


@pytest.mark.parametrize(
    "is_damaged",
    [False, pytest.param(True, marks=pytest.mark.damages_storage("a note is cut short"))],
)
def test_a_note_of_older_servers_is_read_or_the_log_is_refused(is_damaged: bool) -> None:
    """Its content says what is exchanged; without it nobody could tell what has gone."""
    driver, name = stopped_in_an_exchange(4)
    first, _, last = name.removesuffix(".swap").partition("-")
    content = encode_small({"replaced": [int(first), int(last)]})
    driver.fs.unlink(driver.path(f"compaction/{name}"))
    note_path = driver.path(f"compaction/{first}.swap")
    driver.fs.replace_durably(note_path, content[: -2 if is_damaged else None])
    driver.kill()
    if is_damaged:
        problems = check_directory(ROOT, driver.fs)
        assert [note_path] == [one.path for one in problems if "note" in one.detail]
        with pytest.raises(StorageError, match=r"move its directory out .* `kgw log check`"):
            driver.log()
    else:
        assert expected(driver, 60, 7).keys() == records(driver.log()).keys()


def test_check_looks_behind_an_exchange_that_was_interrupted() -> None:
    """What the next start mends by itself is no problem."""
    driver = Driver(settings=SETTINGS)
    fill(driver, 60, 7)
    driver.checkpoint()
    states: list[Driver] = []

    def observe(call: str, path: str) -> None:
        states.append(Driver.__new__(Driver))
        states[-1].fs = driver.fs.clone()

    driver.fs.on_operation = observe
    compact(driver)
    driver.fs.on_operation = None
    assert len(states) > 30
    for state in states:
        assert [] == check_directory(ROOT, state.fs)


def test_side_files_that_a_kill_has_left_are_made_durable() -> None:
    """By the next orderly stop, which vouches for them: a power loss after it costs nothing."""
    driver = Driver(settings=SETTINGS)
    append(driver, (b"key", b"value"))
    driver.store.roll(driver.log())
    driver.kill()
    driver.log()
    driver.stop()
    driver.lose_power()
    assert [0] == list(records(driver.log()))


def test_times_are_those_of_the_records_that_are_left() -> None:
    """An empty batch has none, whatever its header says."""
    driver = Driver(settings=SETTINGS)
    builder = BatchBuilder(producer_id=5, producer_epoch=0, base_sequence=0)
    builder.add(key=b"a", value=b"1", timestamp_ms=9_000)
    driver.store.writes.submit(driver.log(), [read_batch(builder.build())])
    flush_group(driver.store.writes)
    fill(driver, 3, 3)
    append(driver, (b"a", b"2"))
    driver.store.roll(driver.log())
    compact(driver, kept_batches=frozenset({0}))
    log = driver.log()
    assert 1_000 == log.segments[0].largest_timestamp_ms
    driver.fs.unlink(log.segments[0].side_path)
    driver.checkpoints.clear()
    driver.kill()
    found = lookups.describe_segments(driver.log())
    assert 1_000 == found[0].largest_timestamp_ms


ops = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(
            st.tuples(
                st.sampled_from([b"a", b"b", b"c", b"d", b"e"]),
                st.one_of(st.none(), st.just(b"v"), st.just(b"w" * 150)),
            ),
            min_size=1,
            max_size=4,
        ),
        st.sampled_from([Compression.NONE, Compression.GZIP, Compression.ZSTD]),
    ),
    st.tuples(st.just("compact"), st.integers(0, 80), st.integers(1, 500)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("drop"), st.integers(0, 40)),
    st.tuples(st.just("stop"), st.sampled_from(["stop", "kill", "lose_power"])),
)


@pytest.mark.slow
@given(st.lists(ops, max_size=40), st.sampled_from([150, 400, 5_000]))
@settings(deadline=None, max_examples=150)
def test_a_log_that_is_compacted_agrees_with_a_model(
    steps: list[tuple[Any, ...]], segment_bytes: int
) -> None:
    """Appends, rolls, retention, restarts and runs with any bound, in any order."""
    driver = Driver(JOURNALED, settings=SETTINGS._replace(segment_bytes=segment_bytes))
    model: dict[int, tuple[bytes, bytes | None]] = {}
    batch_of: dict[int, int] = {}
    batch_ends: dict[int, int] = {}
    horizons: dict[int, int] = {}
    next_offset = now_ms = 0
    for step in steps:
        log = driver.log()
        if step[0] == "append":
            base_offset = next_offset
            append(driver, *step[1], compression=step[2])
            for record in step[1]:
                model[next_offset] = record
                batch_of[next_offset] = base_offset
                next_offset += 1
            batch_ends[base_offset] = next_offset
        elif step[0] == "compact":
            now_ms += 200
            active = log.segments[-1].base_offset if log.segments else 0
            report = compact(
                driver, upper_bound=step[1], now_ms=now_ms, delete_retention_ms=step[2]
            )
            end = max(min(step[1], active), 0)
            assert report.is_complete
            start = log.offsets.log_start_offset
            newest = {key: o for o, (key, _) in model.items() if start <= o < end}
            for offset, (key, value) in list(model.items()):
                gone = value is None and now_ms >= horizons.get(batch_of[offset], FAR)
                if offset < end and (newest.get(key, offset) != offset or gone):
                    del model[offset]
            for offset, (_, value) in model.items():
                base_offset = batch_of[offset]
                if batch_ends[base_offset] <= end and value is None:
                    horizons.setdefault(base_offset, now_ms + step[2])
        elif step[0] == "roll":
            driver.store.roll(log)
        elif step[0] == "drop":
            offset = min(step[1], log.offsets.high_watermark)
            if offset > log.offsets.log_start_offset:
                drop_before(driver.store, log, offset)
                model = {o: one for o, one in model.items() if o >= offset}
        else:
            getattr(driver, step[1])()
        log = driver.log()
        start = log.offsets.log_start_offset
        found = {o: one for o, one in records(log).items() if o >= start}
        assert model == found
        assert next_offset == log.offsets.next_offset
    assert [] == check_directory(ROOT, driver.fs)
