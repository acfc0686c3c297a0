"""LagMonitor: samples the lag of all groups on a schedule, and reports anomalies.

It reads durable offsets, log start offsets and high watermarks, and changes none of them. Sampling
yields to the event loop every `TURN_S`. The result of a sample is immutable; between two samples
the monitor keeps a few numbers for each partition, but nothing for each pair of a group and a
partition.
"""

from __future__ import annotations

import asyncio
from collections import deque
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kgw.errors import KgwError, StorageError
from kgw.lag.ages import RecordAges
from kgw.lag.by_group import by_group, sum_of
from kgw.lag.growth_rate import GrowthRate
from kgw.lag.samples import AtRisk, Event, GroupSample, LagSample, PartitionSample, history_points
from kgw.lag.watch import KINDS, GroupWatch
from kgw.logs import EventLogger
from kgw.metrics import count
from kgw.offsets.committed import is_of_job, is_position
from kgw.offsets.lag import FoundAnomaly, LagAnomaly, LagSum, Occurrences, PartitionLag
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.lag.ages import Unread
    from kgw.lag.labelled import GroupFigures
    from kgw.lag.positions import ClientPositions
    from kgw.lag.samples import Forecast
    from kgw.metrics import Metrics
    from kgw.offsets.committed import Place
    from kgw.ownership.owned_groups import OwnedGroups
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.catalog import TopicCatalog
    from kgw.partitions.topics.topic import Topic
    from kgw.state.history import LagHistory

_log = EventLogger(__name__)
_Result = TypeVar("_Result")

TURN_S = 0.002
"""The time after which sampling yields to the event loop, so that waiting clients do not notice
it."""
_PLACES_BETWEEN_CLOCKS = 200
OPEN_FINDINGS = 10_000
EVENTS_LISTED = 100
LARGEST_LISTED = 200
_REST = 20
_SUMS_IN_LOOP = 500
"""With more sums than this, they are ranked in a thread: ranking the sums of 100,000 topics takes
23 ms."""
_LINES_A_SAMPLE = 20
"""The most log lines in one sample: retention may remove records that 10,000 groups have not
read."""
_OF_OFFSETS = (
    LagAnomaly.COMMITTED_AHEAD,
    LagAnomaly.COMMITTED_BELOW_START,
    LagAnomaly.COMMITTED_DAMAGED,
)


class LagMonitor:
    """The lag of all groups in this process. Call its methods in the event loop's thread only."""

    def __init__(
        self,
        groups: OwnedGroups,
        topics: TopicCatalog,
        forecast: Forecast,
        clock: Clock,
        config: Config,
        metrics: Metrics,
        history: LagHistory,
        positions: ClientPositions,
        report_bug: Callable[[BaseException], None],
        figures: GroupFigures | None = None,
    ) -> None:
        """`figures` gets lag by topic and partition; None if it is not configured."""
        self.config = config
        self.positions = positions
        self.latest: LagSample | None = None
        self.at_risk_listed = 1_000
        self.events: deque[Event] = deque(maxlen=EVENTS_LISTED)
        """The latest anomalies that are events, not lasting states."""
        self._groups = groups
        self._topics = topics
        self._forecast = forecast
        self._clock = clock
        self._metrics = metrics
        self._history = history
        self._report_bug = report_bug
        self._figures = figures
        self._ages = RecordAges()
        self._open = Occurrences(OPEN_FINDINGS)
        self._watch = GroupWatch(groups, config)
        self._marks: dict[Place, _Mark] = {}
        self._lines_left = _LINES_A_SAMPLE
        self._turn_ends_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._sampling: asyncio.Task[LagSample] | None = None

    # --- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Sample now, and then on the schedule."""
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        """Stop the schedule. A running sample continues."""
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """Stop sampling."""
        tasks = [task for task in (self._task, self._sampling) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        due_s = self._clock.monotonic_s()
        while True:
            try:
                await self._remember(await self.sample())
            except StorageError as error:
                self._metrics.lag_failures += 1
                _log.warning("the history of lag could not be written", why=error)
            except Exception as error:  # noqa: BLE001 - nobody awaits the schedule
                self._metrics.lag_failures += 1
                self._report_bug(error)
            # Counted from the last scheduled time, not from the end of the last sample, so that
            # samples have equal distances.
            due_s = max(due_s + self.config.lag_interval_ms / 1000, self._clock.monotonic_s())
            await self._clock.sleep_until(due_s)

    # --- reports from other parts -----------------------------------------------------------------

    def committed_back(self, group_id: str, place: Place, offset: int, before: int) -> None:
        """Record that a member has committed a lower offset than before."""
        detail = f"committed {offset} after {before}"
        self._happened(LagAnomaly.COMMITTED_BACK, group_id, place, detail)

    # --- questions -------------------------------------------------------------------------------

    async def fresh(self, max_age_s: float) -> LagSample:
        """Return the latest sample if it is not older than `max_age_s`, otherwise a new one.

        If sampling is slow, the latest sample may be older: even with frequent callers the process
        must not sample for more than `1 / _REST` of the time.
        """
        latest = self.latest
        if latest is not None:
            age_ms = self._clock.wall_ms() - latest.taken_ms
            if 0 <= age_ms <= max(max_age_s, latest.took_s * _REST) * 1000:
                return latest
        return await self.sample()

    async def standings(self, group_id: str) -> list[PartitionSample]:
        """Return the lag of a group in each partition; nothing if there is no such group."""
        found: list[PartitionSample] = []
        self._begin_turn()
        if self._sampling is None:
            self._ages.begin()
        now_ms = self._clock.wall_ms()
        for topic, places in self._committed(group_id):
            for number, (index, offset) in enumerate(places):
                if number % _PLACES_BETWEEN_CLOCKS == 0:
                    await self._yield_if_due()
                partition = topic.partition(index)
                if partition is not None:
                    lag = self._measure(partition, offset)
                    age_ms = None
                    if lag is not None and offset >= 0:
                        age_ms = (await self._unread(group_id, partition, offset, now_ms)).age_ms
                    found.append(PartitionSample(topic.name, index, offset, lag, age_ms))
        found.sort(key=lambda one: one[:2])
        return found

    def findings(self) -> list[tuple[FoundAnomaly, str, int]]:
        """Return each lasting anomaly, its topic's name, and when it was first seen (wall ms)."""
        found = []
        for finding, since_ms in self._open.items():
            topic = self._topics.by_id(finding.topic_id)
            found.append((finding, "" if topic is None else topic.name, since_ms))
        return found

    @property
    def finding_count(self) -> int:
        """The number of lasting anomalies."""
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether there are too many anomalies to keep all, or too many groups to watch all."""
        return self._open.is_full or self._watch.watches.is_full

    # --- sampling --------------------------------------------------------------------------------

    async def sample(self) -> LagSample:
        """Sample the lag of every group, or wait for the running sample."""
        if self._sampling is None:
            self._sampling = asyncio.ensure_future(self._sample())
            self._sampling.add_done_callback(self._sampled)
        return await asyncio.shield(self._sampling)

    def _sampled(self, _: asyncio.Task[LagSample]) -> None:
        self._sampling = None

    async def _sample(self) -> LagSample:
        began_s = self._clock.monotonic_s()
        taken_ms = self._clock.wall_ms()
        self._begin_turn()
        self._ages.begin()
        self._lines_left = _LINES_A_SAMPLE
        await self._look_at_logs()
        look = _Look(taken_ms, began_s)
        self._watch.begin_look()
        figures = self._figures
        if figures is not None:
            figures.begin()
        for group_id in self._groups.ids():
            await self._look_at_group(group_id, look)
        self._open.finish_look()
        self._watch.watches.finish_look()
        self._log_what_was_left_out()
        self.positions.expire(self._clock.monotonic_s() - self.config.lag_client_idle_ms / 1000)
        took_s = self._clock.monotonic_s() - began_s
        sample = look.sample(took_s)
        self.latest = sample
        await self._set_metrics(sample)
        return sample

    async def _remember(self, sample: LagSample) -> None:
        """Append a sample to the history.

        Remove samples that are too old, or the oldest if too many.
        """
        history_ms = self.config.lag_history_ms
        points = await _apart(sample, lambda: history_points(sample)) if history_ms else []
        if not points:
            return  # without groups there is nothing to write
        await self._history.append(points)
        await self._history.prune(
            before_ms=sample.taken_ms - history_ms, keep=self.config.lag_history_samples_max
        )

    async def _look_at_logs(self) -> None:
        """Compare high watermarks and skipped offsets with those of the last sample."""
        marks: dict[Place, _Mark] = {}
        log_bytes = 0
        now_s = self._clock.monotonic_s()
        for number, partition in enumerate(self._topics.partitions()):
            if number % _PLACES_BETWEEN_CLOCKS == 0:
                await self._yield_if_due()
            place = (partition.topic.topic_id, partition.index)
            grown_bytes, skip_count = partition.grown_bytes, partition.skip_count
            mark = self._marks.get(place)
            if mark is None:
                mark = _Mark(0, 0, GrowthRate.begin(now_s, grown_bytes))
            before, skips_before = mark.high_watermark, mark.skip_count
            try:
                high_watermark = partition.log.high_watermark
                log_bytes += partition.log.size_bytes
            except KgwError:
                self._metrics.lag_failures += 1
                high_watermark = before
            if high_watermark < before:
                detail = f"{high_watermark} after {before}"
                self._happened(LagAnomaly.HIGH_WATERMARK_BACK, None, place, detail)
            if skip_count > skips_before:
                detail = f"{skip_count - skips_before} appends skipped offsets"
                self._happened(LagAnomaly.OFFSETS_SKIPPED, None, place, detail)
            marks[place] = _Mark(
                high_watermark,
                skip_count,
                mark.pace.moved(now_s, grown_bytes),
                mark.pace.bytes_a_ms(now_s, grown_bytes),
            )
        self._marks = marks
        self._metrics.log_bytes = log_bytes

    async def _look_at_group(self, group_id: str, look: _Look) -> None:
        topics: dict[str, LagSum] = {}
        figures = self._figures
        for topic, places in self._committed(group_id):
            total = topics[topic.name] = LagSum()
            for number, (index, offset) in enumerate(places):
                if number % _PLACES_BETWEEN_CLOCKS == 0:
                    await self._yield_if_due()
                partition = topic.partition(index)
                if partition is None:
                    continue  # on another node, damaged, or not existing
                lag = self._measure(partition, offset)
                if lag is None:
                    total.add_unknown()
                    for kind in _OF_OFFSETS:
                        self._open.keep(FoundAnomaly(kind, group_id, topic.topic_id, index))
                    continue
                if offset == lag.high_watermark:
                    # The usual case: all records are read, and there is no anomaly.
                    total.partitions += 1
                    total.committed += offset
                    if figures is not None:
                        figures.add_partition(group_id, topic.name, index, offset, 0, 0)
                    continue
                age_ms: int | None = 0
                if 0 <= offset < lag.high_watermark:
                    unread = await self._unread(group_id, partition, offset, look.taken_ms)
                    age_ms = unread.age_ms
                    if age_ms != 0:
                        await self._look_ahead(group_id, partition, lag, unread, look)
                    look.rank(group_id, PartitionSample(topic.name, index, offset, lag, age_ms))
                total.add(lag, age_ms)
                if figures is not None:
                    figures.add_partition(group_id, topic.name, index, offset, lag.lag, age_ms)
                if lag.anomaly is not None:
                    finding = FoundAnomaly(lag.anomaly, group_id, topic.topic_id, index)
                    self._found(
                        finding,
                        topic.name,
                        committed=lag.committed_offset,
                        log_start=lag.log_start_offset,
                        high_watermark=lag.high_watermark,
                    )
            self._look_at_progress(group_id, topic, total, look)
            if figures is not None:
                figures.add_topic(group_id, topic.name, total)
        if topics:
            look.groups[group_id] = GroupSample(group_id, sum_of(topics.values()), topics)

    def _look_at_progress(self, group_id: str, topic: Topic, total: LagSum, look: _Look) -> None:
        """Report a group that has stalled in a topic, or falls behind."""
        topic_id = topic.topic_id
        if total.unknown_lags:
            self._watch.watches.keep(group_id, topic_id)
            for kind in KINDS:
                self._open.keep(FoundAnomaly(kind, group_id, topic_id, None))
            return
        before = None if self.latest is None else self.latest.groups.get(group_id)
        topic_before = None if before is None else before.topics.get(topic.name)
        for kind, fields in self._watch.look(group_id, topic, total, topic_before, look.began_s):
            total.anomalies += 1
            self._found(FoundAnomaly(kind, group_id, topic_id, None), topic.name, **fields)

    async def _unread(
        self, group_id: str, partition: Partition, offset: int, now_ms: int
    ) -> Unread:
        def is_given_aborted() -> bool:
            described = self._groups.describe(group_id)
            members = () if described is None else described.members
            return self.positions.are_given_aborted(
                {one.client_id for one in members}, partition.topic.topic_id, partition.index
            )

        return await self._ages.unread(partition, offset, now_ms, is_given_aborted)

    async def _look_ahead(
        self,
        group_id: str,
        partition: Partition,
        lag: PartitionLag,
        unread: Unread,
        look: _Look,
    ) -> None:
        """Report if retention will soon remove records that the group has not read."""
        log = partition.log
        next_start = look.next_starts.get(log.key)
        if next_start is None:
            at_ms = look.taken_ms + self.config.lag_risk_ms
            mark = self._marks.get((partition.topic.topic_id, partition.index))
            pace = 0.0 if mark is None else mark.recent_bytes_a_ms
            try:
                next_start = await self._forecast(log.key, at_ms, pace)
            except KgwError:
                self._metrics.lag_failures += 1
                next_start = log.log_start_offset
            look.next_starts[log.key] = next_start
        if lag.lost_by(next_start) and (unread.offset is None or unread.offset < next_start):
            look.at_risk_count += 1
            if len(look.at_risk) < self.at_risk_listed:
                look.at_risk.append(
                    AtRisk(group_id, partition.topic.name, partition.index, lag, next_start)
                )

    def _committed(self, group_id: str) -> Iterator[tuple[Topic, list[tuple[int, int]]]]:
        """Yield topics with a copy of the group's committed offsets: it may commit meanwhile.

        Deleted topics are left out. NO_OFFSET stands for a damaged offset. Negative offsets of
        clients, and the numbers that pipeline jobs commit, are no positions and are left out.
        """
        table = self._groups.offsets(group_id)
        if table is None:
            return
        for topic_id in table.topic_ids():
            topic = self._topics.by_id(topic_id)
            committed = table.topic(topic_id).entries()
            places = [
                (index, max(one.offset, NO_OFFSET))
                for index, one in committed.items()
                if is_position(one.offset) and not is_of_job(group_id, one.metadata)
            ]
            if topic is not None and places:
                yield topic, places

    def _measure(self, partition: Partition, offset: int) -> PartitionLag | None:
        """Return a committed offset with the bounds of its log; None if the log cannot be read."""
        try:
            log = partition.log
            return PartitionLag(offset, log.log_start_offset, log.high_watermark)
        except KgwError:
            self._metrics.lag_failures += 1
            return None

    # --- yielding to the event loop ---------------------------------------------------------------

    def _begin_turn(self) -> None:
        self._turn_ends_s = self._clock.monotonic_s() + TURN_S

    async def _yield_if_due(self) -> None:
        if self._clock.monotonic_s() >= self._turn_ends_s:
            await asyncio.sleep(0)
            self._begin_turn()

    # --- reports ----------------------------------------------------------------------------------

    def _found(self, finding: FoundAnomaly, topic: str, **fields: object) -> None:
        """Count and log a lasting anomaly when it is first seen."""
        if self._open.see(finding, self._clock.wall_ms()):
            if finding.partition is not None:
                fields = {"partition": finding.partition, **fields}
            self._tell(finding.kind, group=finding.group_id, topic=topic, **fields)

    def _happened(self, kind: LagAnomaly, group_id: str | None, place: Place, detail: str) -> None:
        topic = self._topics.by_id(place[0])
        name = "" if topic is None else topic.name
        event = Event(self._clock.wall_ms(), kind.value, group_id, name, place[1], detail)
        self.events.append(event)
        self._tell(kind, group=group_id, topic=name, partition=place[1], detail=detail)

    def _tell(self, kind: LagAnomaly, **fields: object) -> None:
        count(self._metrics.offset_anomalies, kind.value)
        self._lines_left -= 1
        if self._lines_left >= 0:
            _log.warning("offset anomaly", kind=kind.value, **fields)

    def _log_what_was_left_out(self) -> None:
        if self._lines_left < 0:
            _log.warning("more offset anomalies", count=-self._lines_left)
        self._lines_left = _LINES_A_SAMPLE

    async def _set_metrics(self, sample: LagSample) -> None:
        metrics = self._metrics
        if self._figures is not None:
            self._figures.finish()
        counts = dict.fromkeys((kind.value for kind in (*_OF_OFFSETS, *KINDS)), 0)
        for finding in self._open:
            counts[finding.kind.value] += 1
        metrics.offset_anomalies_open = counts
        metrics.offsets_at_risk = sample.at_risk_count
        metrics.lag_sample_s = sample.took_s
        metrics.lag_failures += self._ages.failures
        self._ages.failures = 0
        named_before, limit = metrics.group_lag, self.config.lag_metrics_groups
        metrics.group_lag, metrics.group_time_lag_s = await _apart(
            sample, lambda: by_group(sample, named_before, limit)
        )


class _Mark(NamedTuple):
    """The state of a partition in one sample, for comparison with the next one."""

    high_watermark: int
    skip_count: int
    pace: GrowthRate
    recent_bytes_a_ms: float = 0.0


class _Look:
    """Collects the results of one sample."""

    __slots__ = (
        "_ranked",
        "_ranked_count",
        "at_risk",
        "at_risk_count",
        "began_s",
        "groups",
        "next_starts",
        "taken_ms",
    )

    def __init__(self, taken_ms: int, began_s: float) -> None:
        self.taken_ms = taken_ms
        self.began_s = began_s
        """Monotonic time."""
        self.groups: dict[str, GroupSample] = {}
        self.at_risk: list[AtRisk] = []
        self.at_risk_count = 0
        self.next_starts: dict[object, int] = {}
        self._ranked: list[tuple[int, int, str, PartitionSample]] = []
        self._ranked_count = 0

    def rank(self, group_id: str, standing: PartitionSample) -> None:
        """Keep a group's partition if its lag is one of the `LARGEST_LISTED` highest."""
        if standing.lag is None:
            return
        self._ranked_count += 1
        entry = (standing.lag.lag, -self._ranked_count, group_id, standing)
        if len(self._ranked) < LARGEST_LISTED:
            heappush(self._ranked, entry)
        elif entry > self._ranked[0]:
            heappushpop(self._ranked, entry)

    def sample(self, took_s: float) -> LagSample:
        largest = sorted(self._ranked, reverse=True)
        return LagSample(
            self.taken_ms,
            took_s,
            self.groups,
            tuple(self.at_risk),
            self.at_risk_count,
            tuple((group_id, standing) for _, _, group_id, standing in largest),
        )


async def _apart(sample: LagSample, work: Callable[[], _Result]) -> _Result:
    """Run `work`, which ranks a sample's sums; in a thread if there are many sums."""
    sums = sum(len(one.topics) for one in sample.groups.values())
    return await asyncio.to_thread(work) if sums > _SUMS_IN_LOOP else work()
