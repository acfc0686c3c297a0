"""Recompression on a simulated disk: what stays, what damage and stops leave, what is compared."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import LogSettings, Recompressed, RecompressionJob, RecompressionReport
from kgw.backend.embedded.compact.recompression import SegmentRecompression, plan_recompression
from kgw.backend.embedded.log.segment import Segment, SideFileDamagedError
from kgw.backend.embedded.offline.check import check_directory
from kgw.backend.embedded.read import lookups, reading
from kgw.backend.embedded.recover.rebuilding import rebuild_side
from kgw.errors import CorruptionError
from kgw.records.batch import Compression, read_batch, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from tests.backend.embedded.driver import ROOT, Driver, drop_before, flush_group
from tests.backend.embedded.stops import stopped_anywhere
from tests.simulated_disk import CrashMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.records.batch import RecordBatch
    from kgw.records.record import Record
    from kgw.types import Buffer

SETTINGS = LogSettings(segment_bytes=2_000, index_interval_bytes=200, delete_delay_ms=0)
FAR = 1 << 40
JOB = RecompressionJob(upper_bound=FAR, level=3)
CODECS = list(Compression)


def append(driver: Driver, number: int, codec: Compression) -> None:
    """Append a batch of records that compress well."""
    builder = BatchBuilder(
        compression=codec, producer_id=5, producer_epoch=1, base_sequence=10 * number
    )
    for index in range(10):
        builder.add(
            key=b"key-%d" % index,
            value=b"%d: the same again and again " % number * 3,
            timestamp_ms=1_000 * number + index,
            headers=[("h", b"%d" % number)],
        )
    driver.store.writes.submit(driver.log(), [read_batch(builder.build())])
    flush_group(driver.store.writes)


def fill(driver: Driver, count: int = 30) -> None:
    """Append batches of all codecs."""
    for number in range(count):
        append(driver, number, CODECS[number % len(CODECS)])


def recompress(driver: Driver, job: RecompressionJob = JOB) -> RecompressionReport:
    """Recompress what is closed, as the shell does."""
    log, store = driver.log(), driver.store
    order = plan_recompression(log, job, 0)
    sources = {one.base_offset: one for one in order.sources}
    recompression = SegmentRecompression(driver.fs, order)
    driver.checkpoint()
    for segment in recompression.run():
        source = sources[segment.base_offset]
        store.trimmer.remove_files(
            store.swap_recompressed(log, segment, source.end_offset, source.size_bytes)
        )
    store.finish_recompression(log, recompression.report.recompressed_end)
    return recompression.report


def batches(log: SegmentedLog) -> list[RecordBatch]:
    """Return all batches that a consumer reads."""
    found: list[RecordBatch] = []
    offset, end = log.offsets.log_start_offset, log.offsets.high_watermark
    while offset < end:
        result = reading.read(log, offset, 5_000, end)
        found += split_batches(b"".join(bytes(buffer) for buffer in result.buffers))
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def records(log: SegmentedLog) -> list[Record]:
    """Return everything that a consumer is told."""
    return [record for batch in batches(log) for record in read_records(batch)]


def test_records_stay_and_take_less_room() -> None:
    """Segment by segment, whatever stop follows; the active one stays as it is."""
    driver = Driver(settings=SETTINGS)
    fill(driver)
    log = driver.log()
    before, told = batches(log), records(log)
    bases = [segment.base_offset for segment in log.segments]
    size_bytes = log.size_bytes
    report = recompress(driver)
    assert told == records(log)
    assert bases == [segment.base_offset for segment in log.segments]
    assert size_bytes - log.size_bytes == report.bytes_before - report.bytes_after > 0
    assert bases[-1] == report.recompressed_end
    assert (len(bases) - 1, ()) == (report.segments, report.failures)
    for old, new in zip(before, batches(log), strict=True):
        is_closed = old.base_offset < bases[-1]
        assert (Compression.ZSTD if is_closed else old.compression) == new.compression
        if old.compression is Compression.ZSTD:
            assert old.buffer == new.buffer
    assert [] == check_directory(ROOT, driver.fs)
    expected = Recompressed(bases[-1], report.bytes_before, report.bytes_after, bases[-1])
    for stop in (Driver.stop, Driver.kill, Driver.lose_power):
        stop(driver)
        assert told == records(driver.log())
        assert expected == driver.log().recompressed
        assert [] == driver.store.directory.problems


def test_a_segment_is_tried_once() -> None:
    """Another run reads nothing of it, after a restart too, but what has been closed since."""
    driver = Driver(settings=SETTINGS)
    fill(driver)
    first = recompress(driver)
    driver.stop()
    assert () == plan_recompression(driver.log(), JOB, 0).sources
    fill(driver)
    again = plan_recompression(driver.log(), JOB, 0)
    assert first.recompressed_end == again.sources[0].base_offset
    assert again.sources[0].end_offset > first.recompressed_end


def test_a_run_stays_below_its_bound() -> None:
    """A segment that ends above it is not touched."""
    driver = Driver(settings=SETTINGS)
    fill(driver)
    log = driver.log()
    second = log.segments[2].base_offset
    report = recompress(driver, JOB._replace(upper_bound=second + 1))
    assert (second, 2) == (report.recompressed_end, report.segments)


def test_a_log_whose_notes_are_lost_is_read_again() -> None:
    """The side files are made anew from the batches; what was tried is tried again, for nothing."""
    driver = Driver(settings=SETTINGS)
    fill(driver)
    recompress(driver)
    told = records(driver.log())
    driver.lose_notes()
    log = driver.log()
    assert told == records(log)
    assert () == log.damaged
    assert 0 == log.recompressed.end_offset
    report = recompress(driver)
    assert (0, 0) == (report.segments_exchanged, report.bytes_after)
    assert told == records(driver.log())


def test_look_ups_find_the_same() -> None:
    """By time, in segments whose positions have all changed."""
    driver = Driver(settings=SETTINGS)
    fill(driver)
    log = driver.log()

    def found() -> list[int | None]:
        end = log.offsets.high_watermark
        return [
            lookups.find_by_time(log, time_ms, 0, end, lambda batch: batch.base_offset)
            for time_ms in range(0, 31_000, 500)
        ]

    before = found()
    recompress(driver)
    assert before == found()
    assert len(set(before)) > 25


def test_damage_keeps_a_segment_as_it_is() -> None:
    """It is reported, and the others have their turn; the flipped bit is copied nowhere."""
    driver = Driver(settings=SETTINGS)
    fill(driver)
    log = driver.log()
    told = records(log)
    damaged = log.segments[1]
    for position in (3, 30, 100, damaged.size_bytes - 1):
        driver.flip(damaged.log_path, position)
        report = recompress(driver)
        if report.segments:
            (failure,) = report.failures
            assert damaged.log_path in failure
            assert report.segments - 1 == report.segments_exchanged
        assert damaged is log.segments[1]
        driver.flip(damaged.log_path, position)
    assert told == records(log)
    assert not driver.fs.exists(driver.path("compaction/") + damaged.stem + ".log")


def forgets_a_batch(written: list[RecordBatch]) -> list[RecordBatch]:
    """Leave out one."""
    return [batch for batch in written if batch.base_offset != 10]


def alters_a_record(written: list[RecordBatch]) -> list[RecordBatch]:
    """Write one with other values, whose checksum is right."""
    return [_with_other_values(batch) if batch.base_offset == 10 else batch for batch in written]


def _with_other_values(batch: RecordBatch) -> RecordBatch:
    builder = BatchBuilder(
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        compression=Compression.ZSTD,
    )
    for one in read_records(batch):
        builder.add(
            key=one.key, value=b"another", timestamp_ms=one.timestamp_ms, headers=one.headers
        )
    return read_batch(builder.build())


def moves_a_batch(written: list[RecordBatch]) -> list[RecordBatch]:
    """Give one another offset."""
    moved = [read_batch(bytearray(batch.buffer)) for batch in written]
    moved[1].assign(moved[1].base_offset + 1, moved[1].leader_epoch)
    return moved


@pytest.mark.parametrize("bug", [forgets_a_batch, alters_a_record, moves_a_batch])
def test_what_comes_out_different_is_not_exchanged(
    bug: Callable[[list[RecordBatch]], list[RecordBatch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the comparison: of each planted bug the segment stays, and says why."""
    driver = Driver(settings=SETTINGS)
    fill(driver)
    log = driver.log()
    told, first = records(log), log.segments[0]
    write = Segment.write

    def write_wrongly(
        segment: Segment, written: list[RecordBatch], settings: LogSettings
    ) -> list[Buffer]:
        is_first = segment.base_offset == 0 and "/compaction/" in segment.log_path
        return write(segment, bug(written) if is_first else written, settings)

    monkeypatch.setattr(Segment, "write", write_wrongly)
    report = recompress(driver)
    (failure,) = report.failures
    assert "would not be the same at offset 1" in failure
    assert first is log.segments[0]
    assert told == records(log)
    assert report.segments - 1 == report.segments_exchanged


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    """The run ends: it is nothing that the segment is to blame for."""
    driver = Driver(settings=SETTINGS)
    fill(driver)
    log = driver.log()
    told = records(log)
    with pytest.raises(OSError, match="free"):
        list(
            SegmentRecompression(
                driver.fs, plan_recompression(log, JOB, min_free_bytes=1 << 60)
            ).run()
        )
    assert told == records(log)
    assert 0 == log.recompressed.end_offset


def test_a_segment_that_was_dropped_meanwhile_stays_dropped() -> None:
    """The run goes on with the next."""
    driver = Driver(settings=SETTINGS)
    fill(driver)
    log, store = driver.log(), driver.store
    order = plan_recompression(log, JOB, 0)
    driver.checkpoint()
    steps = SegmentRecompression(driver.fs, order).run()
    first, second = next(steps), next(steps)
    drop_before(store, log, second.base_offset)
    bases = [one.base_offset for one in log.segments]
    source = order.sources[0]
    assert [] == store.swap_recompressed(log, first, source.end_offset, source.size_bytes)
    assert bases == [one.base_offset for one in log.segments]
    assert store.swap_recompressed(log, second, order.sources[1].end_offset, 2_000)
    steps.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(CrashMode))
def test_no_stop_loses_or_changes_anything(mode: CrashMode) -> None:
    """Before any operation of a run, by a kill or a power loss; then a run does the rest."""
    source = Driver(settings=SETTINGS._replace(segment_bytes=800))
    fill(source, 5)
    source.checkpoint()
    told = records(source.log())
    sent = {one.base_offset: one.compression for one in batches(source.log())}
    source.stop()
    modes = list(CrashMode)
    for number, driver in stopped_anywhere(source, recompress, at_least=50):
        if modes[number % len(modes)] is not mode:
            # The others have it: each stop is tried with one of them.
            continue
        if number // len(modes) % 3 == 0:
            driver.kill()
        else:
            driver.lose_power(mode, number)
        assert told == records(driver.log()), number
        # Readers who know no zstd ask the notes what has to be unpacked for them.
        changed = [
            one.base_offset
            for one in batches(driver.log())
            if one.compression is not sent[one.base_offset]
        ]
        assert driver.log().recompressed.begun_end > max(changed, default=-1), number
        assert () == driver.log().damaged
        assert [] == driver.store.directory.problems
        recompress(driver)
        assert told == records(driver.log()), number
        closed = driver.log().segments[-1].base_offset
        codecs = {one.compression for one in batches(driver.log()) if one.base_offset < closed}
        assert {Compression.ZSTD} == codecs
        assert [] == check_directory(ROOT, driver.fs)


@pytest.mark.slow
@pytest.mark.damages_storage("bits are flipped")
@pytest.mark.parametrize("seed", range(3))
def test_rot_is_never_taken_for_records(seed: int) -> None:
    """Bits flip in a segment, its side file or what it becomes, before and while it is written.

    Whatever of it is exchanged: a reader gets what was written, or is told of damage.
    """
    random = Random(seed)
    source = Driver(settings=SETTINGS._replace(segment_bytes=800))
    fill(source, 5)
    told = records(source.log())
    source.stop_only()
    flips = kept = damaged = exchanged = 0
    for _ in range(30):
        driver = Driver(source.options, source.settings, source.fs.clone())
        driver.checkpoints = dict(source.checkpoints)
        driver.log()
        countdown = random.randrange(80)

        def rot(_call: str, _path: str, driver: Driver = driver) -> None:
            nonlocal countdown, flips
            countdown -= 1
            if countdown == 0:
                content = driver.fs.content(random.choice(rotting_files(driver)))
                if content:
                    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
                    flips += 1

        driver.fs.on_operation = rot
        report = None
        while report is None:
            try:
                report = recompress(driver)
            except SideFileDamagedError as error:
                rebuild(driver, error)
        driver.fs.on_operation = None
        kept += len(report.failures)
        exchanged += report.segments_exchanged
        found, lost = readable(driver)
        damaged += lost > 0
        assert not [one for one in found if one not in told]
        assert len(told) == len(found) + lost
    assert flips >= 15
    assert min(kept, damaged, exchanged) > 0


def rotting_files(driver: Driver) -> list[str]:
    """Return the files of segments, those that are being written included."""
    return [path for path in driver.fs.files(ROOT) if path.endswith((".log", ".checksums"))]


def rebuild(driver: Driver, error: SideFileDamagedError) -> None:
    """Make a side file anew, as the shell does: a run has segments of its own."""
    log = driver.log()
    (segment,) = (one for one in log.segments if one.base_offset == error.segment.base_offset)
    rebuild_side(log.directory, log, segment)


def readable(driver: Driver) -> tuple[list[Record], int]:
    """Return the records that are served, and how many are said to be damaged."""
    log = driver.log()
    found: list[Record] = []
    offset, end = log.offsets.log_start_offset, log.offsets.high_watermark
    lost = 0
    while offset < end:
        try:
            result = reading.read(log, offset, 5_000, end)
        except SideFileDamagedError as error:
            rebuild(driver, error)
            continue
        except CorruptionError:
            # Every batch has ten records.
            offset, lost = offset + 10, lost + 10
            continue
        for batch in split_batches(b"".join(bytes(buffer) for buffer in result.buffers)):
            found += read_records(batch)
        offset = result.next_offset
    return found, lost
