"""Runs the regular maintenance of partitions.

That is retention, closing of old segments, compaction, and recompression of cold segments. This
module only schedules: the rules are in `retention`, the clock that they use in `steady_time`.
Partitions are handled one after the other, with pauses in between, to hardly slow down producers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kgw.backend.base import Recompressed, Segmented
from kgw.errors import KgwError, StorageError
from kgw.metrics import count
from kgw.partitions.maintain.throttle import Throttle
from kgw.partitions.rules.retention import forecast_log_start, plan_retention
from kgw.partitions.rules.steady_time import SteadyTime
from kgw.partitions.topics.hold import hold_of, removable_end
from kgw.problems import CLOCK_HELD, HELD, REWRITING, Problem, texts
from kgw.state.base import Change

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kgw.backend.base import Backend
    from kgw.clock import RunningClock
    from kgw.config import Config
    from kgw.metrics import Metrics
    from kgw.partitions.maintain.compactor import Compactor
    from kgw.partitions.maintain.recompressor import Recompressor
    from kgw.partitions.partition import Partition
    from kgw.partitions.rules.retention import Removal, RetentionPlan
    from kgw.partitions.topics.catalog import TopicCatalog
    from kgw.partitions.topics.hold import Hold
    from kgw.partitions.topics.topic import Topic
    from kgw.types import PartitionKey

_log = logging.getLogger(__name__)

CLOCK = "clock"
"""Kind of the row that stores the last trusted wall time and running time, in milliseconds."""


class LogManager:
    """Runs maintenance on a schedule from `start` to `aclose`.

    Tests and tools can run single steps.
    """

    def __init__(
        self,
        catalog: TopicCatalog,
        backend: Backend,
        clock: RunningClock,
        metrics: Metrics,
        config: Callable[[], Config],
        report_bug: Callable[[BaseException], None],
    ) -> None:
        self._catalog = catalog
        self._backend = backend
        self._clock = clock
        self._metrics = metrics
        self._config = config
        self._report_bug = report_bug
        self._time: SteadyTime | None = None
        self._was_held = False
        # Partitions whose records were kept only by a hold: found by the current run, and by the
        # last complete run.
        self._held: list[tuple[Partition, Hold]] = []
        self._seen_held: tuple[tuple[Partition, Hold], ...] = ()
        self._compactor: Compactor | None = None
        self._recompressor: Recompressor | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changed: set[Topic] = set()
        self._has_changed = asyncio.Event()
        self._retaining = asyncio.Lock()
        """Held while retention runs, as a partition must not be in two runs."""
        catalog.when_retention_changed = self._note_changed

    def start(self) -> None:
        """Begin the schedule."""
        for schedule in (
            self._retain_regularly(),
            self._retain_when_changed(),
            self._compact_regularly(),
        ):
            self._tasks.append(asyncio.ensure_future(schedule))

    async def aclose(self) -> None:
        """Cancel the work in progress; each step leaves the logs consistent wherever it stops."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def problems(self) -> tuple[str, ...]:
        """The texts of `found`."""
        return tuple(texts(self.found))

    @property
    def found(self) -> tuple[Problem, ...]:
        """Problems of maintenance for operators."""
        clock = "the wall clock has jumped and is not gone by yet"
        held = (Problem(CLOCK_HELD, clock),) if self._was_held else ()
        compactor, recompressor = self._compactor, self._recompressor
        return (
            held
            + tuple(
                Problem(
                    HELD,
                    f"{partition.topic.name}-{partition.index} keeps more than its retention says: "
                    f"kgw.archive.hold waits for group {hold.group_id} at offset {hold.offset}",
                )
                for partition, hold in self._seen_held
                if not partition.is_retired
            )
            + tuple(
                Problem(REWRITING, text)
                for one in (compactor, recompressor)
                if one is not None
                for text in one.problems
            )
        )

    @property
    def compactor(self) -> Compactor:
        """Compacts partitions; made at the first use, to keep start-up fast."""
        if self._compactor is None:
            from kgw.partitions.maintain.compactor import Compactor

            self._compactor = Compactor(
                self._catalog, self._clock, self._metrics, self._config, self._report_bug
            )
        return self._compactor

    @property
    def recompressor(self) -> Recompressor:
        """Recompresses cold segments; made at the first use."""
        if self._recompressor is None:
            from kgw.partitions.maintain.recompressor import Recompressor

            self._recompressor = Recompressor(
                self._catalog, self._clock, self._metrics, self._config, self._report_bug
            )
        return self._recompressor

    # --- time ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Restore the running time, for code that needs it before the schedule begins.

        If the stored time cannot be read, running time continues from the wall clock.
        """
        try:
            await self._load_time()
        except StorageError as error:
            _log.error("ages go by the wall clock, whatever it says: %s", error)

    async def _load_time(self) -> SteadyTime:
        """Restore the time that was stored before a restart. Raises StorageError."""
        if self._time is not None:
            return self._time
        row = (await self._backend.state.load(CLOCK)).get(CLOCK)
        noted = [] if row is None else [int(text) for text in row.value.split()]
        wall_ms = self._clock.wall_ms()
        self._time = time = SteadyTime(
            wall_ms,
            self._clock.monotonic_s(),
            hold_ms=self._config().clock_hold_ms,
            last_known_ms=noted[0] if noted else None,
        )
        if noted:
            # The time while no process ran counts if the wall clock is trusted. Rows of older
            # versions have one number, without running time.
            stopped_ms = 0 if time.is_held else max(0, wall_ms - noted[0])
            self._clock.go_on(noted[-1] + stopped_ms)
        return time

    async def now_ms(self) -> int:
        """Return the time that decides which records are removed. Raises StorageError."""
        time = await self._load_time()
        wall_ms = self._clock.wall_ms()
        now_ms = time.read(wall_ms, self._clock.monotonic_s())
        is_held = time.is_held
        if is_held and not self._was_held:
            _log.warning(
                "the wall clock has jumped to %d ms, %d ms %s of where it should be: retention and "
                "compaction go by the time that passes, until it has run steadily for %d ms",
                wall_ms,
                abs(time.ahead_ms),
                "ahead" if time.ahead_ms > 0 else "behind",
                self._config().clock_hold_ms,
            )
        elif self._was_held and not is_held:
            _log.info("the wall clock is gone by again")
        self._was_held = is_held
        self._metrics.clock_held = int(is_held)
        return now_ms

    async def _note_time(self) -> int:
        """Return `now_ms`, and store it for the next start. Raises StorageError."""
        now_ms = await self.now_ms()
        noted = f"{now_ms} {self._clock.running_ms()}".encode()
        await self._backend.state.apply([Change(CLOCK, CLOCK, noted)])
        return now_ms

    # --- retention -------------------------------------------------------------------------------

    async def retain(self) -> None:
        """Delete records by the topics' retention settings, and close segments that are old enough.

        If a partition fails, the failure is logged and counted, and the next partition follows.
        Raises StorageError if the time cannot be read or stored.
        """
        async with self._retaining:
            now_ms = await self._note_time()
            self._held = []
            await self._retain(self._catalog.partitions(), now_ms)
            self._seen_held = tuple(dict.fromkeys(self._held))
            self._metrics.held_partitions = len(self._seen_held)

    async def retain_changed(self) -> None:
        """Run retention at once for topics whose retention settings have changed.

        The operator may be waiting for disk space. Raises StorageError if the time cannot be read.
        """
        async with self._retaining:
            self._has_changed.clear()
            changed, self._changed = self._changed, set()
            partitions = [one for topic in changed for one in topic.partitions.values()]
            await self._retain(partitions, await self.now_ms())

    def _note_changed(self, topic: Topic) -> None:
        self._changed.add(topic)
        self._has_changed.set()

    async def _retain(self, partitions: Iterable[Partition], now_ms: int) -> None:
        throttle = Throttle(self._clock)
        for partition in partitions:
            if partition.is_retired:
                continue
            try:
                await self._retain_partition(partition, now_ms)
            except KgwError as error:
                if not partition.is_retired:
                    self._metrics.retention_failures += 1
                    _log.error(
                        "%r: retention failed, the next run tries again: %s", partition, error
                    )
            except Exception as error:  # noqa: BLE001 - the other partitions follow
                self._metrics.retention_failures += 1
                self._report_bug(error)
            await throttle.step()

    async def forecast(self, key: PartitionKey, at_ms: int, recent_bytes_a_ms: float = 0.0) -> int:
        """Return a partition's log start after a retention run at a later time.

        The forecast assumes that producers continue at the recent rate, or at the log's average
        rate if that is higher. If nothing will be deleted, the result is the present log start.
        Raises StorageError.
        """
        topic = self._catalog.by_id(key.topic_id)
        partition = None if topic is None else topic.partition(key.partition)
        if topic is None or partition is None:
            return 0
        log = partition.log
        if not topic.config.retention.removes:
            return log.log_start_offset
        return forecast_log_start(
            await log.segments() if isinstance(log, Segmented) else (),
            topic.config.retention,
            log_start_offset=log.log_start_offset,
            last_stable_offset=removable_end(partition, self._catalog.committed),
            now_ms=self._clock.wall_ms(),
            at_ms=at_ms,
            recompressed=log.recompressed if isinstance(log, Segmented) else Recompressed(),
            recent_bytes_a_ms=recent_bytes_a_ms,
        )

    async def _retain_partition(self, partition: Partition, now_ms: int) -> None:
        """Close and delete segments according to the retention rules. Raises StorageError."""
        log = partition.log
        if log.end_offset == log.log_start_offset:
            if isinstance(log, Segmented) and log.size_bytes:
                # All of the log was deleted, and the active segment could not be closed then.
                await partition.close_active_segment()
                await log.drop_before(log.log_start_offset)
            return
        plan = await self._plan(partition, now_ms)
        if plan.must_roll and isinstance(log, Segmented):
            await log.roll()
            self._metrics.segments_closed += 1
            plan = await self._plan(partition, now_ms)
        for removal in plan.removals:
            await self._remove(partition, removal)

    async def _plan(self, partition: Partition, now_ms: int) -> RetentionPlan:
        log = partition.log
        segments = await log.segments() if isinstance(log, Segmented) else ()

        def plan_below(end: int) -> RetentionPlan:
            return plan_retention(
                segments,
                partition.topic.config.retention,
                log_start_offset=log.log_start_offset,
                last_stable_offset=end,
                now_ms=now_ms,
                partition_index=partition.index,
            )

        stable_end = partition.view().bounds().last_stable_offset
        hold = hold_of(partition, self._catalog.committed)
        if hold is None or hold.offset >= stable_end:
            return plan_below(stable_end)
        plan = plan_below(hold.offset)
        if plan_below(stable_end) != plan:
            self._held.append((partition, hold))
        return plan

    async def _remove(self, partition: Partition, removal: Removal) -> None:
        removed = await partition.delete_before(removal.new_log_start)
        metrics = self._metrics
        count(metrics.removed_records, removal.rule, removed)
        count(metrics.removed_segments, removal.rule, removal.segments)
        count(metrics.removed_bytes, removal.rule, removal.size_bytes)
        _log.info(
            "%s-%d begins at %d: %d segments of %d bytes removed by %s",
            partition.topic.name,
            partition.index,
            removal.new_log_start,
            removal.segments,
            removal.size_bytes,
            removal.rule,
        )

    async def _retain_regularly(self) -> None:
        config = self._config()
        interval_s = config.log_retention_check_interval_ms / 1000
        # The first run begins at once, so that a jump of the clock is noticed early, also by the
        # next start.
        await self._attempt(self._note_time)
        await self._rest(min(config.log_initial_task_delay_ms / 1000, interval_s))
        while True:
            await self._attempt(self.retain)
            await self._rest(interval_s)

    async def _retain_when_changed(self) -> None:
        while True:
            await self._has_changed.wait()
            await self._attempt(self.retain_changed)

    async def compact(self) -> None:
        """Compact partitions until none is dirty enough. Raises StorageError."""
        while self._config().log_cleaner_enable:
            due = await self.compactor.find_due(await self.now_ms())
            if not due:
                return
            for partition in due:
                await self.compactor.run(partition, await self.now_ms())

    async def recompress(self) -> None:
        """Recompress cold segments until there are none left. Raises StorageError.

        Compaction runs after each partition, since both jobs share one process.
        """
        while self._config().log_cleaner_enable:
            due = await self.recompressor.find_due(await self.now_ms())
            if not due:
                return
            for partition in due:
                await self.recompressor.run(partition, await self.now_ms())
                await self.compact()

    async def _compact_regularly(self) -> None:
        await self._rest(self._config().log_initial_task_delay_ms / 1000)
        while True:
            await self._attempt(self.compact)
            if any(topic.config.cold for topic in self._catalog.topics.values()):
                await self._attempt(self.recompress)
            await self._rest(self._config().log_cleaner_backoff_ms / 1000)

    async def _attempt(self, step: Callable[[], Awaitable[object]]) -> None:
        try:
            await step()
        except StorageError as error:
            _log.error("the log manager could not run: %s", error)
        except Exception as error:  # noqa: BLE001 - the next run may do better
            self._report_bug(error)

    async def _rest(self, seconds: float) -> None:
        await self._clock.sleep_until(self._clock.monotonic_s() + seconds)
