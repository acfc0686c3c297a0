"""archive: what a topic holds and its archive has not, written to files and committed.

The commit log of the archive is the only truth about progress. A range is read by one unit and
committed when everything before it is; whoever commits second, of two that archive the same
topic, finds the range covered and removes its own files.
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
from kgw.pipeline.archive.entry import DataFile, Entry, Hole
from kgw.pipeline.archive.errors import ArchiveError, CoverageError, Fault, PublishError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.reading import last_record
from kgw.pipeline.archive.sweeping import GRACE_S, sweep
from kgw.pipeline.archive.tables import TableSettings, publish, register
from kgw.pipeline.archive.units import Sizes, new_run, remove_files, remove_uncommitted
from kgw.pipeline.errors import DamagedRecordsError, DataLossError
from kgw.pipeline.jobs.archive_plan import Cutter, Due, Plan, find_truncation, plan
from kgw.pipeline.jobs.archive_unit import Refused, UnitSettings, attempt_range
from kgw.pipeline.jobs.holding import DEFAULT_GROUP, ArchiveGroup
from kgw.pipeline.jobs.loading import settings_of
from kgw.pipeline.wire import MAX_FETCH_BYTES, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from kgw.client import TopicDescription
    from kgw.pipeline.archive.commit_log import Snapshot
    from kgw.pipeline.archive.coverage import Coverage
    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.jobs.running import Runner
    from kgw.pipeline.ranges import OffsetRange
    from kgw.pipeline.wire import WireClient

_SAMPLE_BYTES: Final = 256 << 10
# A unit ends when so many times the stored bytes are read that it seemed to have: what is behind
# the sample may be larger by any factor, and is committed only with the unit.
_LARGE_UNIT: Final = 2
_PUBLISH_AGAIN_MS: Final = 60_000
# What another archiver of the same topic may cause. A file that is missing is no such thing: where
# tasks write to another directory than the driver reads, each new attempt would lose its files.
_OVERTAKEN: Final = frozenset({Fault.OVERLAP, Fault.WRONG_START})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """How a topic is archived."""

    accept_loss: bool = False
    """Whether offsets that the log has no more are declared as lost, or are an error."""
    allow_gaps: bool = False
    """Whether a topic that is not compacted may have offsets without a record all the same."""
    group: str | None = DEFAULT_GROUP
    """Commits its position to this group after each commit; lag tools and the hold read it."""
    is_held: bool = False
    """Whether the topic waits for the group, so that it has to be this archive's."""
    sizes: Sizes = field(default_factory=Sizes)
    max_bytes_per_s: int | None = None
    """Of stored batches, by all units together."""
    tables: tuple[TableSettings, ...] = ()
    """Published from now on, beside those that the archive publishes already."""


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
    altered_keys: int = 0
    """Keys of headers that are not UTF-8, so that some of their bytes were replaced."""
    swept_files: int = 0
    """Files of runs that died, which no commit names; they were removed."""
    ends: dict[int, int] = field(default_factory=dict)
    """Up to where each partition is archived, exclusive."""
    tables: dict[str, int] = field(default_factory=dict)
    """The version of the commit log that each published table has come to, by its kind."""
    unpublished: str = ""
    """Why a table is behind, where one is."""

    def add(self, committed: Committed) -> None:
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
    """How far the tables of a topic are, or why they are not."""

    version: int
    """Of the commit log."""
    tables: dict[str, int]
    failure: str
    at_ms: int


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
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take a client for the driver, and the address of the cluster for the tasks.

        `tell` is told what somebody should know who runs this, in one line.
        """
        self._wire = wire
        self._bootstrap = bootstrap
        # Tasks have working directories of their own.
        self._root = root.absolute()
        self._runner = runner
        self._options = options
        self._now_ms = now_ms
        self._on_committed = on_committed
        self._tell = tell
        group, is_held = options.group, options.is_held
        self._group = group and ArchiveGroup(wire, group, is_held=is_held, tell=tell)
        self._logs: dict[tuple[str, UUID], CommitLog] = {}
        """Of each life that this job has met, so that nothing is read twice from it."""
        self._sizes: dict[tuple[UUID, int], float] = {}
        """Stored bytes of an offset in what is left to read of partitions."""
        self._published: dict[UUID, _Published] = {}
        """What was published last."""
        self._run_name = new_run()

    def plan(self, topic: str) -> tuple[UUID, Plan]:
        """Return what is to be archived of a topic now."""
        described, topic_id = self._find(topic)
        coverage = self._log(topic, topic_id).read().coverage
        # After the coverage, which others may extend: an end that was asked for later is not
        # behind it.
        return topic_id, self._plan(described, topic_id, coverage)

    def hold(self, topic: str) -> None:
        """Let a topic keep what its archive has not, by the group of this job."""
        _, topic_id = self._find(topic)
        if self._group:
            self._group.hold(topic, topic_id, self._log(topic, topic_id))

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

        A partition that cannot be read is an error when it is archived up to there, and the others
        are: what is damaged in one would keep them out for good.
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
        """Do it, and return the partitions that cannot be read on."""
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
        """Raise ArchiveError where a log has grown again over records that it had lost.

        Where loss is accepted it is told. A server that cannot be asked is believed.
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
        """Return how many stored bytes an offset takes, by partition: of the first few of each."""
        sampling = Reading(read_committed=True, max_fetch_bytes=_SAMPLE_BYTES)
        for one in ranges:
            if (topic_id, one.partition) in self._sizes:
                continue
            try:
                piece = self._wire.first_piece(one, sampling)
            except (DamagedRecordsError, DataLossError):
                piece = None  # Its unit finds the same, and says so.
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
    ) -> dict[int, Refused]:
        """Read ranges and commit them, each as soon as what comes before it is committed.

        Ends early with the first partition that cannot be read, and why.
        """
        generation = generation_directory(str(self._root), summary.topic, summary.topic_id)
        log = self._log(summary.topic, summary.topic_id)
        if planned.starts or planned.lost:
            entry = self._entry(summary, planned.lost, planned.starts)
            if not self._commit(log, entry, _OVERTAKEN):
                return {}  # Another archiver has begun: what is left to do is another plan.
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
            self._bootstrap,
            generation,
            summary.topic_id,
            Reading(
                read_committed=True,
                most_bytes=most_bytes,
                max_fetch_bytes=max(_SAMPLE_BYTES, min(MAX_FETCH_BYTES, most_bytes)),
            ),
            self._options.sizes,
            accept_loss=self._options.accept_loss,
            allow_gaps=self._options.allow_gaps or self._is_compacted(summary.topic),
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

    def _read(
        self, cutter: Cutter, settings: UnitSettings, summary: Summary
    ) -> Iterator[tuple[OffsetRange, tuple[Piece, ...] | Refused]]:
        """Yield what became of units, each up to where it was read; the rest of it comes later."""
        rate = self._options.max_bytes_per_s
        while count := cutter.count:
            if rate is not None:
                # Of one unit that turned out too large, the next turn makes several.
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

    def _is_compacted(self, topic: str) -> bool:
        return "compact" in settings_of(self._wire, topic).get("cleanup.policy", "")

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
        """Bring the archive's tables to where its commit log is, as far as that is news.

        What fails is told, and tried again with the next commit, or after a while.
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
        """Remove what this run has written and not committed, as on a disk that is full."""
        generation = generation_directory(str(self._root), topic, topic_id)
        with suppress(ArchiveError, OSError):
            remove_uncommitted(generation, self._log(topic, topic_id), self._run_name)

    def _tell_group(self, summary: Summary, coverage: Coverage) -> None:
        if self._group:
            log = self._log(summary.topic, summary.topic_id)
            self._group.commit(summary.topic, summary.topic_id, log, coverage)
