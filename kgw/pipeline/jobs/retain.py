"""retain: removes whole files from the front of an archive's partitions, by offset, age or size.

The offsets of removed files stay covered by a hole with the reason `retention`. A sweep deletes the
files after the grace period for readers. The job can also remove the topic's own records up to the
same offset. It does not need Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kgw.client import AdminClient, GroupClient, ServerRefusedError
from kgw.errors import ErrorCode
from kgw.pipeline.archive.columns import NS_PER_MS
from kgw.pipeline.archive.entry import DataFile, Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.replacing import replace_pieces
from kgw.pipeline.jobs.holding import HOLD_SETTING
from kgw.pipeline.jobs.loading import settings_at_once

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kgw.offsets.ranges import OffsetBounds
    from kgw.pipeline.archive.archived_topics import ArchivedTopic
    from kgw.pipeline.archive.coverage import Coverage, PartitionCoverage
    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.wire import WireClient

RETENTION: Final = "retention"


class RetentionLimits(NamedTuple):
    """A file is removed if it meets one of these limits and all files before it are removed."""

    before_offset: int | None = None
    """Remove files whose offsets are all lower than this."""
    before_ms: int | None = None
    """Remove files whose records are all older than this; a file with times that do not fit
    nanoseconds stays."""
    max_bytes: int | None = None
    """Remove a file if the files after it have at least this many bytes."""


class ArchiveRemoval(NamedTuple):
    """The files and holes that are removed from the front of a partition."""

    partition: int
    pieces: tuple[Piece, ...]

    @property
    def files(self) -> list[DataFile]:
        """The removed files, without the holes."""
        return [one for one in self.pieces if isinstance(one, DataFile)]

    @property
    def end(self) -> int:
        """The first offset that is not removed."""
        return self.pieces[-1].last + 1

    @property
    def hole(self) -> Hole:
        """The hole that replaces the files and holes."""
        return Hole(self.partition, self.pieces[0].first, self.end - 1, RETENTION)


class LogRemoval(NamedTuple):
    """A planned removal of records from the log of a topic's partition."""

    partition: int
    log_start_offset: int
    before_offset: int
    """Records below this offset may be removed; if it is not above the log start offset, none
    may."""
    kept_by: str | None
    """The group that keeps archived records from being removed, and why; None if no group does."""

    @property
    def is_to_do(self) -> bool:
        """Whether there are records to remove."""
        return self.before_offset > self.log_start_offset


class LogCutDone(NamedTuple):
    """The result of a removal from the log."""

    cut: LogRemoval
    log_start_offset: int
    """The first offset of the log now."""
    refused: str | None
    """Why the server refused the removal; None if it did not."""


# --- planning ------------------------------------------------------------------------------------


def plan(
    coverage: Coverage, limits: RetentionLimits, partitions: Collection[int] | None = None
) -> list[ArchiveRemoval]:
    """Return the removals for some partitions, by default for all. Pure.

    Raises ArchiveError for a partition that the archive does not have.
    """
    known = coverage.partitions
    if unknown := sorted(set(partitions or ()) - known.keys()):
        raise ArchiveError(f"the archive has no partition {', '.join(map(str, unknown))}")
    found = [
        ArchiveRemoval(partition, _gone(known[partition], limits))
        for partition in sorted(known if partitions is None else set(partitions))
    ]
    return [one for one in found if one.pieces]


def _gone(coverage: PartitionCoverage, limits: RetentionLimits) -> tuple[Piece, ...]:
    left_bytes = sum(one.bytes for one in coverage.pieces if isinstance(one, DataFile))
    count = 0
    for at, piece in enumerate(coverage.pieces, 1):
        # Remove a hole only together with a file after it.
        if isinstance(piece, DataFile):
            left_bytes -= piece.bytes
            if not _goes(piece, limits, left_bytes):
                break
            count = at
    return coverage.pieces[:count]


def _goes(piece: DataFile, limits: RetentionLimits, left_bytes: int) -> bool:
    return (
        (limits.before_offset is not None and piece.last < limits.before_offset)
        or (
            limits.before_ms is not None
            and piece.max_ts_ns is not None
            and piece.max_ts_ns < limits.before_ms * NS_PER_MS
        )
        or (limits.max_bytes is not None and left_bytes >= limits.max_bytes)
    )


def retained_from(coverage: Coverage, removals: Sequence[ArchiveRemoval] = ()) -> dict[int, int]:
    """Return the offset below which retention has removed, or will remove, each partition's files.

    Partitions from which it removes nothing are left out.
    """
    ends = {
        partition: one.pieces[0].last + 1
        for partition, one in coverage.partitions.items()
        if one.pieces and isinstance(one.pieces[0], Hole) and one.pieces[0].reason == RETENTION
    }
    return ends | {one.partition: one.end for one in removals}


def cut_log(
    ends: Mapping[int, int],
    bounds: Mapping[int, OffsetBounds],
    committed: Mapping[str, Mapping[int, int]],
) -> list[LogRemoval]:
    """Return the records of a topic's log that may be removed, by partition. Pure.

    `ends` is from `retained_from`, so only archived records are removed. `committed` has each
    group's committed offsets: records that a group has not read yet stay, and if a group has no
    committed offset in a partition, all its records stay.
    """
    found = []
    for partition, end in sorted(ends.items()):
        start = bounds[partition].earliest
        before, kept_by = end, None
        for group, offsets in sorted(committed.items()):
            offset = offsets.get(partition)
            if offset is None:
                before, kept_by = start, f"group {group} has committed nothing"
                break
            if offset < before:
                before, kept_by = offset, f"group {group} has committed offset {offset}"
        found.append(LogRemoval(partition, start, before, kept_by))
    return found


# --- the job -------------------------------------------------------------------------------------


def run(
    life: ArchivedTopic, planned: Sequence[ArchiveRemoval], limits: RetentionLimits, *, now_ms: int
) -> list[ArchiveRemoval]:
    """Commit the removals, and return the committed ones. Raises ArchiveError.

    If another committer has replaced some of the files, that partition is planned again.
    """
    done = []
    log = life.log
    left = list(planned)
    while left:
        removal = left.pop()
        if replace_pieces(life, log, removal.pieces, [removal.hole], now_ms=now_ms):
            done.append(removal)
        else:
            left += plan(log.read().coverage, limits, [removal.partition])
    return sorted(done)


def plan_log(
    wire: WireClient, life: ArchivedTopic, ends: Mapping[int, int], groups: Sequence[str]
) -> list[LogRemoval]:
    """Return the removals from the topic's log; see `cut_log`. Raises ArchiveError, ClientError."""
    described = wire.find_topic(life.topic)
    if described is None or UUID(bytes=bytes(described.topic_id)) != life.topic_id:
        raise ArchiveError(
            f"topic {life.topic} with topic id {life.topic_id} is not on the server: nothing of "
            "its log can be removed"
        )
    client = GroupClient(wire.client)
    committed = {
        group: {
            partition: one.offset
            for (topic, partition), one in wire.call(client.offsets(group)).items()
            if topic == life.topic and not one.is_damaged
        }
        for group in groups
    }
    return cut_log(ends, wire.bounds(life.topic, list(ends)) if ends else {}, committed)


def run_log(wire: WireClient, life: ArchivedTopic, cuts: Sequence[LogRemoval]) -> list[LogCutDone]:
    """Remove records from the topic's log, and return the result of each. Raises ClientError."""
    wanted = {one.partition: one.before_offset for one in cuts if one.is_to_do}
    admin = AdminClient(wire.client)
    answers = wire.call(admin.delete_records(life.topic, wanted)) if wanted else {}
    done = []
    for one in cuts:
        answer = answers.get(one.partition, one.log_start_offset)
        if isinstance(answer, ServerRefusedError):
            done.append(LogCutDone(one, one.log_start_offset, _why(wire, life.topic, answer)))
        else:
            done.append(LogCutDone(one, answer, None))
    return done


def _why(wire: WireClient, topic: str, error: ServerRefusedError) -> str:
    if error.code is not ErrorCode.POLICY_VIOLATION:
        return str(error)
    held = settings_at_once(wire, topic).get(HOLD_SETTING, "")
    return f"{error}; a group of {HOLD_SETTING}={held} has not committed so far"
