"""archive: copies those offsets of a topic that its archive lacks into files, and commits them.

The commit log of the archive is the only record of progress. A unit reads a range of offsets; its
files are committed once all earlier offsets are. If two jobs archive the same topic, the second
commit of a range fails, and that job removes its own files.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from kgw.client import UnsupportedApiError
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile, Hole
from kgw.pipeline.archive.errors import ArchiveError, CoverageError, CoverageFault, PublishError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.reading import last_record
from kgw.pipeline.archive.sweeping import GRACE_S, sweep
from kgw.pipeline.archive.tables import TableSettings, publish, register
from kgw.pipeline.archive.units import Sizes, new_run, remove_files, remove_uncommitted
from kgw.pipeline.errors import DamagedRecordsError, DataLossError
from kgw.pipeline.jobs.archive_plan import ArchivePlan, Cutter, RangeSelector, find_truncation, plan
from kgw.pipeline.jobs.archive_unit import Refused, UnitSettings, attempt_range
from kgw.pipeline.jobs.holding import DEFAULT_GROUP, ArchiveGroup
from kgw.pipeline.jobs.loading import is_compacted, settings_of
from kgw.pipeline.wire import MAX_FETCH_BYTES, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from kgw.client import TopicDescription
    from kgw.pipeline.archive.commit_log import CoverageSnapshot
    from kgw.pipeline.archive.coverage import Coverage
    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.jobs.running import Runner
    from kgw.pipeline.ranges import OffsetRange
    from kgw.pipeline.wire import WireClient

_SAMPLE_BYTES: Final = 256 << 10
# A unit ends early once it has read this many times the size of a file: later records may be much
# larger than the sampled ones, and a unit is committed only at its end.
_LARGE_UNIT: Final = 2
_PUBLISH_AGAIN_MS: Final = 60_000
# The faults that a concurrent archiver of the same topic can cause. MISSING_FILE is not among them:
# if tasks write to another directory than the driver reads, every retry would fail, too.
_OVERTAKEN: Final = frozenset({CoverageFault.OVERLAP, CoverageFault.WRONG_START})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """The options of an archive job."""

    accept_loss: bool = False
    """Whether to declare offsets that the log no longer has as lost; otherwise they raise
    ArchiveError."""
    allow_gaps: bool = False
    """Whether a topic without compaction may have offsets without records."""
    group: str | None = DEFAULT_GROUP
    """The consumer group to which the job commits its position after each commit; lag tools and
    `kgw.archive.hold` read it."""
    is_held: bool = False
    """Whether the topic's `kgw.archive.hold` names the group, so that no other archive may use
    it."""
    sizes: Sizes = field(default_factory=Sizes)
    max_bytes_per_s: int | None = None
    """The limit of all units together, in bytes of stored batches."""
    tables: tuple[TableSettings, ...] = ()
    """Tables to publish besides the archive's present tables."""


class CommittedRange(NamedTuple):
    """The offsets that one commit has added to a partition, with their files and holes."""

    topic: str
    partition: int
    first: int
    end: int
    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class Summary:
    """The results of one run for one topic."""

    topic: str
    topic_id: UUID
    offsets: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    lost_offsets: int = 0
    overtaken_units: int = 0
    """The number of units whose range another archiver committed first; their files were
    removed."""
    altered_keys: int = 0
    """The number of record header keys that are not UTF-8; their invalid bytes were replaced."""
    swept_files: int = 0
    """The number of removed files whose writers died before they committed them."""
    ends: dict[int, int] = field(default_factory=dict)
    """The next offset to archive, by partition."""
    tables: dict[str, int] = field(default_factory=dict)
    """The version of the commit log that each published table shows, by kind of table."""
    unpublished: str = ""
    """Why a table is behind the commit log; empty if no table is."""

    def add(self, committed: CommittedRange) -> None:
        """Count a commit."""
        files = [one for one in committed.pieces if isinstance(one, DataFile)]
        lost_offsets = count_lost(committed.pieces)
        self.offsets += committed.end - committed.first - lost_offsets
        self.records += sum(one.rows for one in files)
        self.files += len(files)
        self.bytes += sum(one.bytes for one in files)
        self.lost_offsets += lost_offsets
        self.ends[committed.partition] = committed.end


def count_lost(pieces: Sequence[Piece]) -> int:
    """Return how many offsets are declared lost."""
    return sum(
        one.last - one.first + 1 for one in pieces if isinstance(one, Hole) and one.reason == "lost"
    )


class _Published(NamedTuple):
    """The result of the latest attempt to publish a topic's tables."""

    version: int
    """The version of the commit log that was published."""
    tables: dict[str, int]
    failure: str
    at_ms: int


class ArchiveJob:
    """Archives topics of one cluster below one root directory.

    Every method raises ArchiveError, ClientError.

    It reads committed records only. Aborted records are declared as holes, and each partition is
    archived up to its first open transaction.
    """

    def __init__(
        self,
        wire: WireClient,
        cluster: Cluster,
        root: Path,
        runner: Runner,
        options: ArchiveOptions,
        *,
        now_ms: Callable[[], int],
        on_committed: Callable[[CommittedRange], None] = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`wire` is for the driver; tasks connect to `cluster` on their own.

        `tell` is called with one-line messages for the user.
        """
        self._wire = wire
        self._cluster = cluster
        # Make the path absolute: tasks may have other working directories.
        self._root = root.absolute()
        self._runner = runner
        self._options = options
        self._now_ms = now_ms
        self._on_committed = on_committed
        self._tell = tell
        group, is_held = options.group, options.is_held
        self._group = group and ArchiveGroup(wire, group, is_held=is_held, tell=tell)
        self._logs: dict[tuple[str, UUID], CommitLog] = {}
        """By topic and topic id; each log object remembers the versions that it has read."""
        self._sizes: dict[tuple[UUID, int], float] = {}
        """Estimated stored bytes per unread offset, by topic id and partition."""
        self._published: dict[UUID, _Published] = {}
        """The result of the latest publication, by topic id."""
        self._run_name = new_run()

    def plan(self, topic: str) -> tuple[UUID, ArchivePlan]:
        """Return the topic id, and the offsets to archive now."""
        described, topic_id = self._find(topic)
        coverage = self._log(topic, topic_id).read().coverage
        # Read the topic's offsets after the archive's coverage: otherwise another archiver might
        # extend the coverage in between, and the topic would seem to end before it.
        return topic_id, self._plan(described, topic_id, coverage)

    def hold(self, topic: str) -> None:
        """Make the server keep records that are not archived yet, by the job's group."""
        _, topic_id = self._find(topic)
        if self._group:
            self._group.hold(topic, topic_id, self._log(topic, topic_id))

    def run_once(self, topic: str) -> Summary:
        """Archive the offsets that the topic has now."""
        summary = self._archive(topic, lambda _, ranges: ranges)
        summary.swept_files = self._sweep(topic, summary.topic_id)
        return summary

    def run_due(self, topic: str, due: RangeSelector, now_s: float) -> Summary:
        """Archive only the ranges that `due` chooses. `now_s` must never go back."""
        return self._archive(
            topic,
            lambda topic_id, ranges: due.choose(ranges, self._sizes_of(topic_id, ranges), now_s),
        )

    def _archive(
        self,
        topic: str,
        choose: Callable[[UUID, Sequence[OffsetRange]], Sequence[OffsetRange]],
    ) -> Summary:
        """Archive the ranges that `choose` returns.

        If a partition cannot be read, archive it up to that offset, archive all other partitions,
        and then raise ArchiveError.
        """
        described, topic_id = self._find(topic)
        summary = Summary(topic, topic_id)
        try:
            refused = self._archive_life(described, summary, choose)
        except BaseException:
            self._remove_uncommitted(topic, topic_id)
            raise
        if summary.altered_keys:
            self._tell(
                f"Topic {topic}: {summary.altered_keys} keys of headers are not UTF-8; the archive "
                "has them with U+FFFD for what is not."
            )
        if refused:
            self._remove_uncommitted(topic, topic_id)
            others = "".join(f"; neither can partition {one}" for one in [*refused][1:])
            raise ArchiveError(f"{next(iter(refused.values())).why}{others}")
        return summary

    def _archive_life(
        self,
        described: TopicDescription,
        summary: Summary,
        choose: Callable[[UUID, Sequence[OffsetRange]], Sequence[OffsetRange]],
    ) -> dict[int, Refused]:
        """Archive the chosen ranges. Return the partitions that cannot be read to their end."""
        topic, topic_id = summary.topic, summary.topic_id
        until: dict[int, int] | None = None
        refused: dict[int, Refused] = {}
        while True:
            snapshot = self._log(topic, topic_id).read()
            self._publish(summary, snapshot)
            planned = self._plan(described, topic_id, snapshot.coverage)
            if until is None:
                chosen = choose(topic_id, planned.ranges)
                until = {one.partition: one.end for one in chosen}
                self._check_epochs(topic, topic_id, snapshot.coverage, until)
                summary.ends = {
                    partition: one.next for partition, one in snapshot.coverage.partitions.items()
                }
            ranges = [
                one._replace(end=min(one.end, until.get(one.partition, one.first)))
                for one in planned.ranges
            ]
            ranges = [one for one in ranges if one.length]
            self._tell_group(summary, snapshot.coverage)
            if not ranges and not planned.starts and not planned.lost:
                break
            for partition, one in self._run(planned, ranges, summary).items():
                refused[partition] = one
                until[partition] = one.offset
        return refused

    def _check_epochs(
        self, topic: str, topic_id: UUID, coverage: Coverage, partitions: Collection[int]
    ) -> None:
        """Raise ArchiveError if a log has lost archived records and has other records since then.

        If loss is accepted, only report it. Servers without OffsetForLeaderEpoch are not checked.
        """
        generation = generation_directory(str(self._root), topic, topic_id)
        lasts: dict[int, tuple[int, int]] = {}
        for partition in partitions:
            known = coverage.partitions.get(partition)
            last = None if known is None else last_record(generation, known)
            if last is not None and last[1] >= 0:
                lasts[partition] = last
        if not lasts:
            return
        epochs = {partition: leader_epoch for partition, (_, leader_epoch) in lasts.items()}
        try:
            found = self._wire.call(self._wire.client.epoch_ends(topic, epochs))
        except UnsupportedApiError:
            return
        for partition, last in lasts.items():
            why = find_truncation(topic, partition, last, found[partition])
            if why is not None and not self._options.accept_loss:
                raise ArchiveError(f"{why}; accept the loss to go on behind offset {last[0]}")
            if why is not None:
                self._tell(f"Lost: {why}.")

    def _sizes_of(self, topic_id: UUID, ranges: Sequence[OffsetRange]) -> dict[int, float]:
        """Return estimated bytes per offset by partition, from a sample of each range."""
        sampling = Reading(read_committed=True, max_fetch_bytes=_SAMPLE_BYTES)
        for one in ranges:
            if (topic_id, one.partition) in self._sizes:
                continue
            try:
                piece = self._wire.first_piece(one, sampling)
            except (DamagedRecordsError, DataLossError):
                piece = None  # The unit that reads this range will report the error.
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

    def _plan(self, described: TopicDescription, topic_id: UUID, coverage: Coverage) -> ArchivePlan:
        topic = str(described.name)
        bounds = self._wire.bounds(
            topic, [one.partition for one in described.partitions], read_committed=True
        )
        return plan(topic, topic_id, coverage, bounds, accept_loss=self._options.accept_loss)

    def _run(
        self, planned: ArchivePlan, ranges: Sequence[OffsetRange], summary: Summary
    ) -> dict[int, Refused]:
        """Read ranges, and commit each unit's files once all earlier offsets are committed.

        Return early, with the error, at the first partition that cannot be read.
        """
        generation = generation_directory(str(self._root), summary.topic, summary.topic_id)
        log = self._log(summary.topic, summary.topic_id)
        if planned.starts or planned.lost:
            entry = self._entry(summary, planned.lost, planned.starts)
            if not self._commit(log, entry, _OVERTAKEN):
                return {}  # another archiver has started on the topic; the caller plans again
            summary.lost_offsets += count_lost(planned.lost)
        if not ranges:
            return {}
        cutter = Cutter(
            ranges,
            self._sizes_of(summary.topic_id, ranges),
            parallelism=self._runner.parallelism,
            unit_bytes=self._options.sizes.file_bytes,
        )
        most_bytes = _LARGE_UNIT * self._options.sizes.file_bytes
        settings = UnitSettings(
            self._cluster,
            generation,
            summary.topic_id,
            Reading(
                read_committed=True,
                most_bytes=most_bytes,
                max_fetch_bytes=max(_SAMPLE_BYTES, min(MAX_FETCH_BYTES, most_bytes)),
            ),
            self._options.sizes,
            accept_loss=self._options.accept_loss,
            allow_gaps=self._options.allow_gaps
            or is_compacted(settings_of(self._wire, summary.topic)),
            run=self._run_name,
        )
        next_offsets = {one.partition: one.first for one in ranges}
        done: dict[int, dict[int, tuple[int, tuple[Piece, ...]]]] = defaultdict(dict)
        overtaken: set[int] = set()
        for unit, pieces in self._read(cutter, settings, summary):
            if isinstance(pieces, Refused):
                return {unit.partition: pieces}
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
            # If an earlier unit of the partition was not committed, this one may begin after a gap.
            faults = (
                _OVERTAKEN | {CoverageFault.HOLE} if unit.partition in overtaken else _OVERTAKEN
            )
            if not self._commit(log, entry, faults):
                overtaken.add(unit.partition)
                remove_files(generation, added)
                summary.overtaken_units += 1
                continue
            committed = CommittedRange(summary.topic, unit.partition, first, end, tuple(added))
            summary.add(committed)
            self._sizes.pop((summary.topic_id, unit.partition), None)
            snapshot = log.read()
            self._tell_group(summary, snapshot.coverage)
            self._on_committed(committed)
            self._publish(summary, snapshot)
        return {}

    def _read(
        self, cutter: Cutter, settings: UnitSettings, summary: Summary
    ) -> Iterator[tuple[OffsetRange, tuple[Piece, ...] | Refused]]:
        """Yield each unit with its result.

        The unread end of a unit that ended early becomes a new unit.
        """
        rate = self._options.max_bytes_per_s
        while count := cutter.count:
            if rate is not None:
                # In each round, divide the allowed rate by the number of units that run at once: a
                # unit that ended early is cut into several.
                share = max(1, rate // min(self._runner.parallelism, count))
                reading = settings.reading._replace(max_bytes_per_s=share)
                settings = settings._replace(reading=reading)
            for unit, archived in self._runner.run(cutter, partial(attempt_range, settings)):
                if isinstance(archived, Refused):
                    yield unit, archived
                    continue
                end = archived.pieces[-1].last + 1
                cutter.note(unit, end, archived.read_bytes)
                summary.altered_keys += archived.altered_keys
                yield unit._replace(end=end), archived.pieces

    def _entry(
        self,
        summary: Summary,
        added: tuple[Piece, ...],
        starts: Mapping[int, int] | None = None,
    ) -> CommitLogEntry:
        return CommitLogEntry(
            uuid4(),
            summary.topic_id,
            added=added,
            starts=dict(starts or {}),
            committed_at_ms=self._now_ms(),
        )

    def _commit(
        self, log: CommitLog, entry: CommitLogEntry, overtaken: frozenset[CoverageFault]
    ) -> bool:
        """Return whether the entry was committed; False if another archiver was faster."""
        try:
            log.commit(entry, planned_at=log.read().version)
        except CoverageError as error:
            if error.fault not in overtaken:
                raise
            return False
        return True

    def _publish(self, summary: Summary, snapshot: CoverageSnapshot) -> None:
        """Publish the archive's tables if the commit log has a new version.

        A failure is reported to the user. The next commit tries again; without one, the next call
        after `_PUBLISH_AGAIN_MS` does.
        """
        known = self._published.get(summary.topic_id)
        if (
            known is None
            or known.version != snapshot.version
            or (known.failure and self._now_ms() - known.at_ms >= _PUBLISH_AGAIN_MS)
        ):
            known = self._publish_now(summary, snapshot.version, known)
            self._published[summary.topic_id] = known
        summary.tables, summary.unpublished = known.tables, known.failure

    def _publish_now(self, summary: Summary, version: int, before: _Published | None) -> _Published:
        generation = generation_directory(str(self._root), summary.topic, summary.topic_id)
        for settings in self._options.tables:
            register(generation, settings)
        tables, failure = {} if before is None else before.tables, ""
        try:
            tables = publish(generation, summary.topic_id)
        except ArchiveError as error:
            failure = str(error)
            if isinstance(error, PublishError):
                tables = {**tables, **error.versions}
            if before is None or before.failure != failure:
                self._tell(f"Topic {summary.topic} is not published: {failure}. Archiving goes on.")
        else:
            if before is not None and before.failure:
                self._tell(f"Topic {summary.topic} is published again.")
        return _Published(version, tables, failure, self._now_ms())

    def _remove_uncommitted(self, topic: str, topic_id: UUID) -> None:
        """Remove files that this run has written but not committed, e.g. as the disk is full."""
        generation = generation_directory(str(self._root), topic, topic_id)
        with suppress(ArchiveError, OSError):
            remove_uncommitted(generation, self._log(topic, topic_id), self._run_name)

    def _tell_group(self, summary: Summary, coverage: Coverage) -> None:
        if self._group:
            log = self._log(summary.topic, summary.topic_id)
            self._group.commit(summary.topic, summary.topic_id, log, coverage)
