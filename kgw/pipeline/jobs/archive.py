"""archive: what a topic holds and its archive has not, written to files and committed.

The commit log of the archive is the only truth about progress. A range is read by one unit and
committed when everything before it is; whoever commits second, of two that archive the same
topic, finds the range covered and removes its own files.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from kgw.client import AdminClient, GroupClient
from kgw.client.admin import TOPIC
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import DataFile, Entry, Hole
from kgw.pipeline.archive.errors import ArchiveError, CoverageError, Fault
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.shared import check_seen
from kgw.pipeline.archive.sweeping import GRACE_S, sweep
from kgw.pipeline.archive.tables import TableSettings, publish, register
from kgw.pipeline.archive.units import Sizes, Unit, remove_files, write_unit
from kgw.pipeline.errors import DataLossError, PipelineError, TopicChangedError
from kgw.pipeline.ranges import LEAST_PIECE, OffsetRange, cut_ranges
from kgw.pipeline.wire import Reading, WireClient
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kgw.client import TopicDescription
    from kgw.offsets.ranges import OffsetBounds
    from kgw.pipeline.archive.commit_log import Snapshot
    from kgw.pipeline.archive.coverage import Coverage
    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.jobs.running import Runner

DEFAULT_GROUP: Final = "kgw-archive"
HOLD_SETTING: Final = "kgw.archive.hold"
_SAMPLE_BYTES: Final = 256 << 10
# What another archiver of the same topic may cause. A file that is missing is no such thing: where
# tasks write to another directory than the driver reads, each new attempt would lose its files.
_OVERTAKEN: Final = frozenset({Fault.OVERLAP, Fault.WRONG_START})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """How a topic is archived."""

    accept_loss: bool = False
    """Whether offsets that the log has no more are declared as lost, or are an error."""
    group: str | None = DEFAULT_GROUP
    """Commits its position to this group after each commit; lag tools and the hold read it."""
    sizes: Sizes = field(default_factory=Sizes)
    max_bytes_per_s: int | None = None
    """Of stored batches, by all units together."""
    tables: tuple[TableSettings, ...] = ()
    """Published from now on, beside those that the archive publishes already."""


class Plan(NamedTuple):
    """What is to be archived of a topic. Offsets are inclusive in holes, ends are exclusive."""

    starts: Mapping[int, int]
    """Where the archive of partitions begins that it does not know yet."""
    lost: tuple[Hole, ...]
    ranges: tuple[OffsetRange, ...]

    @property
    def length(self) -> int:
        """How many offsets are to be read."""
        return sum(one.length for one in self.ranges)


class Committed(NamedTuple):
    """What one commit has added to a partition."""

    topic: str
    partition: int
    first: int
    end: int
    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class Summary:
    """What a run has archived of a topic."""

    topic: str
    topic_id: UUID
    offsets: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    lost_offsets: int = 0
    overtaken_units: int = 0
    """Units that another archiver was faster with; their files were removed."""
    swept_files: int = 0
    """Files of runs that died, which no commit names; they were removed."""
    ends: dict[int, int] = field(default_factory=dict)
    """Up to where each partition is archived, exclusive."""
    tables: dict[str, int] = field(default_factory=dict)
    """The version of the commit log that each published table has come to, by its kind."""

    def add(self, committed: Committed) -> None:
        """Count a commit."""
        files = [one for one in committed.pieces if isinstance(one, DataFile)]
        self.offsets += committed.end - committed.first
        self.records += sum(one.rows for one in files)
        self.files += len(files)
        self.bytes += sum(one.bytes for one in files)
        self.ends[committed.partition] = committed.end


# --- planning ------------------------------------------------------------------------------------


def plan(
    topic: str,
    topic_id: UUID,
    coverage: Coverage,
    bounds: Mapping[int, OffsetBounds],
    *,
    accept_loss: bool,
) -> Plan:
    """Return what a topic holds and its archive has not. Pure.

    Raises ArchiveError where the log begins after the archive ends, unless that is accepted, and
    where the log ends before the archive does.
    """
    starts: dict[int, int] = {}
    lost: list[Hole] = []
    ranges: list[OffsetRange] = []
    for partition, (earliest, latest) in sorted(bounds.items()):
        known = coverage.partitions.get(partition)
        if known is None:
            starts[partition] = earliest
        first = earliest if known is None else known.next
        where = f"topic {topic} partition {partition}"
        if first > latest:
            raise ArchiveError(
                f"{where}: the archive goes to offset {first - 1}, and the log ends at {latest}: "
                "the log has lost records"
            )
        if first < earliest:
            if not accept_loss:
                raise ArchiveError(
                    f"{where}: offsets {first} to {earliest - 1} were removed from the log before "
                    f"they were archived, it begins at {earliest} now; accept the loss to go on "
                    "behind them"
                )
            lost.append(Hole(partition, first, earliest - 1, "lost"))
            first = earliest
        if first < latest:
            ranges.append(OffsetRange(topic, partition, first, latest, TopicId(topic_id.bytes)))
    return Plan(starts, tuple(lost), tuple(ranges))


def cut(
    ranges: Sequence[OffsetRange],
    bytes_per_offset: Mapping[int, float],
    *,
    parallelism: int,
    unit_bytes: int,
) -> list[OffsetRange]:
    """Return units of about so many stored bytes, or less where more can be read at once. Pure."""
    units: list[OffsetRange] = []
    for one in cut_ranges(ranges, pieces=parallelism, least=LEAST_PIECE):
        size = max(bytes_per_offset[one.partition], 1e-9)
        units += cut_ranges([one], pieces=1, most=max(1, int(unit_bytes / size)))
    return units


class Due:
    """Which partitions are worth a file: those with enough to fill one, or that waited. Pure."""

    def __init__(self, *, least_bytes: int, max_lag_s: float) -> None:
        self._least_bytes = least_bytes
        self._max_lag_s = max_lag_s
        self._since_s: dict[tuple[bytes, int], float] = {}

    def choose(
        self,
        ranges: Sequence[OffsetRange],
        bytes_per_offset: Mapping[int, float],
        now_s: float,
    ) -> list[OffsetRange]:
        """Return the ranges of one topic that are due now, by a clock that never goes back."""
        due = []
        for one in ranges:
            key = (one.topic_id, one.partition)
            since_s = self._since_s.setdefault(key, now_s)
            is_enough = one.length * bytes_per_offset[one.partition] >= self._least_bytes
            if is_enough or now_s - since_s >= self._max_lag_s:
                del self._since_s[key]
                due.append(one)
        return due


# --- a unit --------------------------------------------------------------------------------------


class UnitSettings(NamedTuple):
    """What a task is told, beside its range."""

    bootstrap: str
    generation: Path
    topic_id: UUID
    reading: Reading
    sizes: Sizes


class Refused(NamedTuple):
    """Why a range cannot be archived; another attempt would find the same."""

    why: str


def attempt_range(settings: UnitSettings, wanted: OffsetRange) -> tuple[Piece, ...] | Refused:
    """Do `archive_range`, and return what is wrong with the range.

    Raises ClientError, and TopicChangedError: no partition can be read then.
    """
    try:
        return archive_range(settings, wanted)
    except TopicChangedError:
        raise
    except PipelineError as error:
        return Refused(str(error))


def archive_range(settings: UnitSettings, wanted: OffsetRange) -> tuple[Piece, ...]:
    """Read a range and write its files; they count when they are committed.

    Raises ArchiveError, ClientError, PipelineError.
    """
    check_seen(settings.generation)
    unit = Unit(settings.topic_id, wanted.partition, wanted.first, wanted.end)
    with WireClient(settings.bootstrap) as wire:
        parts = wire.decoded(wanted, reading=settings.reading)
        try:
            return write_unit(settings.generation, unit, parts, sizes=settings.sizes)
        except DataLossError as loss:
            raise ArchiveError(
                f"topic {loss.topic} partition {loss.partition}: offsets {loss.first} to "
                f"{loss.end - 1} were removed from the log while they were archived: {loss.why}; "
                "accept the loss to go on behind them"
            ) from None


# --- the job -------------------------------------------------------------------------------------


class ArchiveJob:
    """Archives topics of one cluster into one root. Every method raises ArchiveError, ClientError.

    Only what was committed on the server is read: records of aborted transactions are declared as
    offsets without a record, and an open transaction ends what can be archived.
    """

    def __init__(
        self,
        wire: WireClient,
        bootstrap: str,
        root: Path,
        runner: Runner,
        options: ArchiveOptions,
        *,
        now_ms: Callable[[], int],
        on_committed: Callable[[Committed], None] = lambda _: None,
    ) -> None:
        """Take a client for the driver, and the address of the cluster for the tasks."""
        self._wire = wire
        self._bootstrap = bootstrap
        # Tasks have working directories of their own.
        self._root = root.absolute()
        self._runner = runner
        self._options = options
        self._now_ms = now_ms
        self._on_committed = on_committed
        self._told: dict[tuple[UUID, int], int] = {}
        """What the group has committed, by this job."""
        self._logs: dict[tuple[str, UUID], CommitLog] = {}
        """Of each life that this job has met, so that nothing is read twice from it."""
        self._sizes: dict[tuple[UUID, int], float] = {}
        """Stored bytes of an offset in what is left to read of partitions."""
        self._published: dict[UUID, tuple[int, dict[str, int]]] = {}
        """The version that was published last, and the versions of tables."""

    def plan(self, topic: str) -> tuple[UUID, Plan]:
        """Return what is to be archived of a topic now."""
        described, topic_id = self._find(topic)
        coverage = self._log(topic, topic_id).read().coverage
        # After the coverage, which others may extend: an end that was asked for later is not
        # behind it.
        return topic_id, self._plan(described, topic_id, coverage)

    def run_once(self, topic: str) -> Summary:
        """Archive what the topic holds when this is called."""
        summary = self._archive(topic, lambda _, ranges: ranges)
        summary.swept_files = self._sweep(topic, summary.topic_id)
        return summary

    def run_due(self, topic: str, due: Due, now_s: float) -> Summary:
        """Archive the partitions of a topic that are due; `now_s` never goes back."""
        return self._archive(
            topic,
            lambda topic_id, ranges: due.choose(ranges, self._sizes_of(topic_id, ranges), now_s),
        )

    def _archive(
        self,
        topic: str,
        choose: Callable[[UUID, Sequence[OffsetRange]], Sequence[OffsetRange]],
    ) -> Summary:
        """Archive those of a topic's ranges that are chosen.

        A partition that cannot be read is an error when the others are archived: what is damaged in
        one would keep them out for good.
        """
        described, topic_id = self._find(topic)
        summary = Summary(topic, topic_id)
        until: dict[int, int] | None = None
        refused: dict[int, str] = {}
        while True:
            snapshot = self._log(topic, topic_id).read()
            self._publish(summary, snapshot)
            planned = self._plan(described, topic_id, snapshot.coverage)
            if until is None:
                until = {one.partition: one.end for one in choose(topic_id, planned.ranges)}
                summary.ends = {
                    partition: one.next for partition, one in snapshot.coverage.partitions.items()
                }
            ranges = [
                one._replace(end=min(one.end, until.get(one.partition, one.first)))
                for one in planned.ranges
                if one.partition not in refused
            ]
            ranges = [one for one in ranges if one.length]
            self._tell_group(summary, snapshot.coverage)
            if not ranges and not planned.starts and not planned.lost:
                break
            refused |= self._run(planned, ranges, summary)
        if refused:
            others = "".join(f"; neither can partition {one}" for one in [*refused][1:])
            raise ArchiveError(f"{next(iter(refused.values()))}{others}")
        return summary

    def _sizes_of(self, topic_id: UUID, ranges: Sequence[OffsetRange]) -> dict[int, float]:
        """Return how many stored bytes an offset takes, by partition: of the first few of each."""
        sampling = Reading(read_committed=True, max_fetch_bytes=_SAMPLE_BYTES)
        for one in ranges:
            if (topic_id, one.partition) in self._sizes:
                continue
            piece = self._wire.first_piece(one, sampling)
            self._sizes[topic_id, one.partition] = (
                0.0
                if piece is None
                else len(piece.data) / max(1, piece.next_offset - piece.first_offset)
            )
        return {one.partition: self._sizes[topic_id, one.partition] for one in ranges}

    def _sweep(self, topic: str, topic_id: UUID) -> int:
        generation = generation_directory(str(self._root), topic, topic_id)
        log = self._log(topic, topic_id)
        return len(sweep(generation, log, now_s=self._now_ms() / 1000, grace_s=GRACE_S))

    def _find(self, topic: str) -> tuple[TopicDescription, UUID]:
        described = self._wire.find_topic(topic)
        if described is None:
            raise ArchiveError(f"there is no topic {topic}")
        return described, UUID(bytes=bytes(described.topic_id))

    def _log(self, topic: str, topic_id: UUID) -> CommitLog:
        log = self._logs.get((topic, topic_id))
        if log is None:
            generation = generation_directory(str(self._root), topic, topic_id)
            log = self._logs[topic, topic_id] = CommitLog(generation, topic_id)
        return log

    def _plan(self, described: TopicDescription, topic_id: UUID, coverage: Coverage) -> Plan:
        topic = str(described.name)
        bounds = self._wire.bounds(
            topic, [one.partition for one in described.partitions], read_committed=True
        )
        return plan(topic, topic_id, coverage, bounds, accept_loss=self._options.accept_loss)

    def _run(
        self, planned: Plan, ranges: Sequence[OffsetRange], summary: Summary
    ) -> dict[int, str]:
        """Read ranges and commit them, each as soon as what comes before it is committed.

        Ends early with the first partition that cannot be read, and why.
        """
        generation = generation_directory(str(self._root), summary.topic, summary.topic_id)
        log = self._log(summary.topic, summary.topic_id)
        if planned.starts or planned.lost:
            entry = self._entry(summary, planned.lost, planned.starts)
            if not self._commit(log, entry, _OVERTAKEN):
                return {}  # Another archiver has begun: what is left to do is another plan.
            summary.lost_offsets += sum(one.last - one.first + 1 for one in planned.lost)
        if not ranges:
            return {}
        units = cut(
            ranges,
            self._sizes_of(summary.topic_id, ranges),
            parallelism=self._runner.parallelism,
            unit_bytes=self._options.sizes.file_bytes,
        )
        rate = self._options.max_bytes_per_s
        at_once = min(self._runner.parallelism, len(units))
        settings = UnitSettings(
            self._bootstrap,
            generation,
            summary.topic_id,
            Reading(
                read_committed=True,
                max_bytes_per_s=None if rate is None else max(1, rate // at_once),
            ),
            self._options.sizes,
        )
        next_offsets = {one.partition: one.first for one in ranges}
        done: dict[int, dict[int, tuple[int, tuple[Piece, ...]]]] = defaultdict(dict)
        overtaken: set[int] = set()
        for unit, pieces in self._runner.run(units, partial(attempt_range, settings)):
            if isinstance(pieces, Refused):
                return {unit.partition: pieces.why}
            waiting = done[unit.partition]
            waiting[unit.first] = (unit.end, pieces)
            first = end = next_offsets[unit.partition]
            added: list[Piece] = []
            while end in waiting:
                end, more = waiting.pop(end)
                added += more
            if end == first:
                continue
            next_offsets[unit.partition] = end
            entry = self._entry(summary, tuple(added))
            # Behind a unit that came too late, the next one may begin after a gap.
            faults = _OVERTAKEN | {Fault.HOLE} if unit.partition in overtaken else _OVERTAKEN
            if not self._commit(log, entry, faults):
                overtaken.add(unit.partition)
                remove_files(generation, added)
                summary.overtaken_units += 1
                continue
            committed = Committed(summary.topic, unit.partition, first, end, tuple(added))
            summary.add(committed)
            self._sizes.pop((summary.topic_id, unit.partition), None)
            snapshot = log.read()
            self._tell_group(summary, snapshot.coverage)
            self._on_committed(committed)
            self._publish(summary, snapshot)
        return {}

    def _entry(
        self,
        summary: Summary,
        added: tuple[Piece, ...],
        starts: Mapping[int, int] | None = None,
    ) -> Entry:
        return Entry(
            uuid4(),
            summary.topic_id,
            added=added,
            starts=dict(starts or {}),
            committed_at_ms=self._now_ms(),
        )

    def _commit(self, log: CommitLog, entry: Entry, overtaken: frozenset[Fault]) -> bool:
        """Return whether an entry was committed; False when another archiver was faster."""
        try:
            log.commit(entry, planned_at=log.read().version)
        except CoverageError as error:
            if error.fault not in overtaken:
                raise
            return False
        return True

    def _publish(self, summary: Summary, snapshot: Snapshot) -> None:
        """Bring the archive's tables to where its commit log is, as far as that is news."""
        topic_id = summary.topic_id
        if topic_id not in self._published or self._published[topic_id][0] != snapshot.version:
            generation = generation_directory(str(self._root), summary.topic, topic_id)
            for settings in self._options.tables:
                register(generation, settings)
            self._published[topic_id] = (snapshot.version, publish(generation, topic_id))
        summary.tables = self._published[topic_id][1]

    def _tell_group(self, summary: Summary, coverage: Coverage) -> None:
        """Commit up to where partitions are archived, as far as the group was not told."""
        group = self._options.group
        news = {
            partition: one.next
            for partition, one in coverage.partitions.items()
            if self._told.get((summary.topic_id, partition)) != one.next
        }
        if group is None or not news:
            return
        positions = {(summary.topic, partition): end for partition, end in news.items()}
        client, groups = self._wire.client, GroupClient(self._wire.client)
        # As often as it takes: a gateway that is started again does not end the run.
        self._wire.call(client.retrying(lambda: groups.commit(group, positions)))
        self._told |= {(summary.topic_id, partition): end for partition, end in news.items()}


def hold(wire: WireClient, topic: str, group: str) -> None:
    """Let a topic keep what an archive has not: adds its group to `kgw.archive.hold`.

    Raises ArchiveError for a server without this setting, ClientError.
    """
    admin = AdminClient(wire.client)
    rows = wire.call(admin.describe_settings(TOPIC, topic))
    held = next((row.value for row in rows if row.name == HOLD_SETTING), None)
    if held is None:
        raise ArchiveError(
            f"the server has no setting {HOLD_SETTING}, so that retention may remove what is not "
            "archived yet; archive without a hold to accept that"
        )
    if group not in held.split(","):
        wire.call(admin.append_setting(TOPIC, topic, HOLD_SETTING, group))
