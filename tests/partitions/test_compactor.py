from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import CompactionJob, CompactionReport
from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.config import Config
from kgw.errors import CorruptionError
from kgw.records.batch import split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import START_MS, create_topic, fetch, fetch_request, produce
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.partitions.topics.topic import Topic


class Compactions:
    """Stands in for a log's own compaction: notes the jobs, and does what it is told."""

    def __init__(self) -> None:
        self.jobs: list[tuple[MemoryPartitionLog, CompactionJob]] = []
        self.ends: dict[MemoryPartitionLog, int] = {}
        self.failures: dict[int, Exception] = {}
        self.step: int | None = None
        """How far a run gets at most."""

    def end(self, log: MemoryPartitionLog) -> int:
        return self.ends.get(log, log.log_start_offset)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the place of the memory log's."""
        compactions = self

        async def compact(log: MemoryPartitionLog, job: CompactionJob) -> CompactionReport:
            failure = compactions.failures.get(log.key.partition)
            if failure is not None:
                raise failure
            compactions.jobs.append((log, job))
            begin = compactions.end(log)
            end = job.upper_bound
            if compactions.step is not None:
                end = min(end, begin + compactions.step)
            if not job.is_dry_run:
                compactions.ends[log] = end
            return CompactionReport(end, end == job.upper_bound, 500, 500, 200, 50, 20, 3, 5, 2)

        monkeypatch.setattr(MemoryPartitionLog, "compact", compact)
        monkeypatch.setattr(MemoryPartitionLog, "compacted_end", property(compactions.end))

    @property
    def partitions(self) -> list[int]:
        return [log.key.partition for log, _ in self.jobs]


@pytest.fixture
def compactions(monkeypatch: pytest.MonkeyPatch) -> Compactions:
    """The stand-in, installed."""
    found = Compactions()
    found.install(monkeypatch)
    return found


async def compacted(gateway: InProcessGateway, partitions: int = 1, **configs: str) -> Topic:
    """Create a compacted topic whose segments take a dozen batches of one record."""
    return await create_topic(
        gateway,
        partitions=partitions,
        segment_bytes="1024",
        cleanup_policy="compact",
        **configs,
    )


def batch_of(key: bytes, *, producer_id: int = -1, base_sequence: int = -1) -> bytearray:
    """Return a batch of one record."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=base_sequence,
    )
    builder.add(key=key, value=b"v" * 10, timestamp_ms=START_MS)
    return builder.build()


async def fill(
    gateway: InProcessGateway, batches: int, index: int = 0, *, producer_id: int = -1
) -> None:
    """Produce so many batches of one record, with three keys in turn."""
    for number in range(batches):
        base_sequence = -1 if producer_id < 0 else number
        batch = batch_of(
            b"k%d" % (number % 3), producer_id=producer_id, base_sequence=base_sequence
        )
        answer = await produce(gateway, batch, index=index)
        assert 0 == answer.error_code, answer.error_message


def compacted_ends(topic: Topic) -> list[int]:
    """Return how far each partition has been compacted."""
    return [partition.log.compacted_end for partition in topic.partitions.values()]  # type: ignore[attr-defined]


async def test_the_dirtiest_partition_comes_first(compactions: Compactions) -> None:
    """One after the other, until none is dirtier than allowed; the active segment stays."""
    async with InProcessGateway() as gateway:
        topic = await compacted(gateway, partitions=3)
        for index, batches in enumerate((50, 90, 1)):
            await fill(gateway, batches, index)
        first = topic.partitions[0].log
        assert isinstance(first, MemoryPartitionLog)
        compactions.ends[first] = (await first.segments())[1].base_offset
        await gateway.log_manager.compact()
        assert [1, 0] == compactions.partitions
        segments = [await partition.log.segments() for partition in topic.partitions.values()]  # type: ignore[attr-defined]
        assert [one[-1].base_offset for one in segments] == compacted_ends(topic)
        assert [one[-1].base_offset for one in segments[:2]] == [
            job.upper_bound for job in (compactions.jobs[1][1], compactions.jobs[0][1])
        ]
        metrics = gateway.metrics
        assert {"complete": 2} == metrics.compactions
        assert (600, 60, 6) == (
            metrics.compaction_removed_bytes,
            metrics.compaction_removed_records,
            metrics.compaction_removed_tombstones,
        )
        assert 0 == metrics.dirty_ratio_max


async def test_topics_that_are_not_compacted_are_left_alone(compactions: Compactions) -> None:
    """And so are all, while log.cleaner.enable is off."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, segment_bytes="1024")
        await fill(gateway, 60)
        await gateway.log_manager.compact()
    async with InProcessGateway(Config.of(log_cleaner_enable=False)) as gateway:
        await compacted(gateway)
        await fill(gateway, 60)
        await gateway.log_manager.compact()
    assert [] == compactions.jobs


async def test_the_job_says_what_the_settings_say(compactions: Compactions) -> None:
    """Tombstones' time, memory, speed, limits, and what the producers' state is read from."""
    config = Config.of(
        log_cleaner_dedupe_buffer_size=1 << 21,
        log_cleaner_io_max_bytes_per_second=5000.0,
        decompressed_bytes_max=123_456,
        decompression_ratio_max=78,
    )
    async with InProcessGateway(config) as gateway:
        await compacted(gateway, delete_retention_ms="77")
        await fill(gateway, 30, producer_id=7)
        await gateway.log_manager.compact()
        ((_, job),) = compactions.jobs
        assert (START_MS, 77) == (job.now_ms, job.delete_retention_ms)
        assert (1 << 21, 5000) == (job.key_memory_bytes, job.bytes_per_s)
        assert frozenset(range(25, 30)) == job.kept_batches
        assert (123_456, 78) == job.limits[:2]
        assert not job.is_dry_run


async def test_a_partition_that_fails_is_put_aside(
    compactions: Compactions, caplog: pytest.LogCaptureFixture
) -> None:
    """The others go on; it is a problem that can be read, and is tried again later."""
    async with InProcessGateway() as gateway:
        await compacted(gateway, partitions=2)
        await fill(gateway, 60, 0)
        await fill(gateway, 30, 1)
        compactions.failures[0] = CorruptionError("a batch is damaged")
        log_manager = gateway.log_manager
        await log_manager.compact()
        assert [1] == compactions.partitions
        assert ["orders-0 is not compacted: a batch is damaged"] == list(log_manager.problems)
        metrics = gateway.metrics
        assert {"complete": 1, "failed": 1} == metrics.compactions
        assert (1, START_MS / 1000) == (
            metrics.compactions_put_aside,
            metrics.compaction_last_failure_s,
        )
        compactions.failures.clear()
        gateway.manual_clock.advance(599)
        await log_manager.compact()
        assert [1] == compactions.partitions
        gateway.manual_clock.advance(2)
        await log_manager.compact()
        assert [1, 0] == compactions.partitions
        assert [] == list(log_manager.problems)
        assert 0 == metrics.compactions_put_aside
        assert 1 == caplog.text.count("cannot be compacted")


async def test_each_partition_that_fails_is_a_problem_of_its_own(compactions: Compactions) -> None:
    """As long as its topic is there; what fails later does not hide what failed before."""
    async with InProcessGateway() as gateway:
        topic = await compacted(gateway, partitions=2)
        await fill(gateway, 60, 0)
        await fill(gateway, 30, 1)
        compactions.failures = {0: CorruptionError("first"), 1: CorruptionError("second")}
        log_manager = gateway.log_manager
        await log_manager.compact()
        assert [
            "orders-0 is not compacted: first",
            "orders-1 is not compacted: second",
        ] == sorted(log_manager.problems)
        assert 2 == gateway.metrics.compactions_put_aside
        await gateway.topic_manager.delete(topic)
        await log_manager.compact()
        assert [] == list(log_manager.problems)


async def test_a_bug_is_put_aside_and_reported(compactions: Compactions) -> None:
    """It must not keep the other partitions from being compacted."""
    async with InProcessGateway() as gateway:
        await compacted(gateway, partitions=2)
        await fill(gateway, 60, 0)
        await fill(gateway, 30, 1)
        compactions.failures[0] = ZeroDivisionError()
        await gateway.log_manager.compact()
        assert [1] == compactions.partitions
        assert {"log manager": 1} == gateway.internal_errors


async def test_what_does_not_fit_goes_in_steps(compactions: Compactions) -> None:
    """A run whose keys filled the memory is followed by another; one that gets nowhere is not."""
    async with InProcessGateway() as gateway:
        topic = await compacted(gateway, min_cleanable_dirty_ratio="0")
        await fill(gateway, 60)
        compactions.step = 30
        await gateway.log_manager.compact()
        assert 2 == len(compactions.jobs)
        assert {"partial": 1, "complete": 1} == gateway.metrics.compactions
        compactions.ends.clear()
        compactions.step = 0
        await gateway.log_manager.compact()
        assert 3 == len(compactions.jobs)
        (problem,) = gateway.log_manager.problems
        assert "log.cleaner.dedupe.buffer.size" in problem
        assert [0] == compacted_ends(topic)


async def test_a_quiet_topic_is_compacted_in_time(compactions: Compactions) -> None:
    """Its active segment is closed after max.compaction.lag.ms, and compacted then."""
    clock = ManualClock()
    async with InProcessGateway(backend=MemoryBackend(clock), clock=clock) as gateway:
        await compacted(gateway, max_compaction_lag_ms="60000")
        await fill(gateway, 3)
        await gateway.log_manager.compact()
        assert [] == compactions.jobs
        clock.advance(61)
        await gateway.log_manager.compact()
        assert [3] == [job.upper_bound for _, job in compactions.jobs]
        assert 1 == gateway.metrics.segments_closed


async def test_runs_on_a_schedule(compactions: Compactions) -> None:
    """After the first delay, then at every log.cleaner.backoff.ms."""
    async with InProcessGateway() as gateway:
        await compacted(gateway)
        await fill(gateway, 30)
        for seconds, runs in ((29, 0), (1, 1), (14, 1), (1, 2)):
            gateway.manual_clock.advance(seconds)
            await turns(50)
            assert runs == len(compactions.jobs)
            if runs:
                compactions.ends.clear()


async def test_the_newest_of_each_key_is_left() -> None:
    """The whole way through a backend's own compaction, and once more with nothing left to do."""
    async with InProcessGateway() as gateway:
        topic = await compacted(gateway)
        await fill(gateway, 60)
        await topic.partitions[0].log.roll()  # type: ignore[attr-defined]
        await gateway.log_manager.compact()
        data = await fetch(gateway, fetch_request(0))
        assert isinstance(data.records, bytes | bytearray | memoryview)
        records = [one for found in split_batches(data.records) for one in read_records(found)]
        assert [(57, b"k0"), (58, b"k1"), (59, b"k2")] == [(one.offset, one.key) for one in records]
        metrics = gateway.metrics
        assert (57, {"complete": 1}) == (metrics.compaction_removed_records, metrics.compactions)
        await gateway.log_manager.compact()
        assert {"complete": 1} == metrics.compactions
        assert 60 == (await produce(gateway, batch_of(b"k1"))).base_offset


async def test_retries_are_known_after_compaction() -> None:
    """What a producer's window is read from survives, although its records are gone."""
    backend = MemoryBackend()
    gateway = InProcessGateway(backend=backend)
    await gateway.open()
    topic = await compacted(gateway)
    await fill(gateway, 30, producer_id=7)
    await fill(gateway, 30)
    await topic.partitions[0].log.roll()  # type: ignore[attr-defined]
    await gateway.log_manager.compact()
    await backend.crash()
    await gateway.log_manager.aclose()
    async with InProcessGateway(backend=backend) as recovered:
        for sequence in range(25, 30):
            again = batch_of(b"k0", producer_id=7, base_sequence=sequence)
            assert sequence == (await produce(recovered, again)).base_offset
        fresh = batch_of(b"k0", producer_id=7, base_sequence=30)
        assert 60 == (await produce(recovered, fresh)).base_offset
