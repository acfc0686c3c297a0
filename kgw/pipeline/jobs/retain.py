"""retain: whole files go from the front of partitions, by offset, age or size.

What goes is declared as a hole of reason `retention`, and stays covered; the files are removed by a
sweep when readers have had their time of grace. The topic's own records can be removed up to the
same offset. Spark is not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kgw.client import AdminClient, GroupClient, ServerRefusedError
from kgw.client.admin import TOPIC
from kgw.errors import ErrorCode
from kgw.pipeline.archive.columns import NS_PER_MS
from kgw.pipeline.archive.entry import DataFile, Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.replacing import replace_pieces
from kgw.pipeline.jobs.archive import HOLD_SETTING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kgw.offsets.ranges import OffsetBounds
    from kgw.pipeline.archive.coverage import Coverage, PartitionCoverage
    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.archive.lives import Life
    from kgw.pipeline.wire import WireClient

RETENTION: Final = "retention"


class Limits(NamedTuple):
    """What goes: a file that one of them lets go, when all before it go."""

    before_offset: int | None = None
    """Files whose offsets are all lower."""
    before_ms: int | None = None
    """Files whose records are all of an earlier time, of those that nanoseconds can hold."""
    max_bytes: int | None = None
    """Files without which a partition still has as many bytes."""


class Removal(NamedTuple):
    """The pieces at the front of a partition that go."""

    partition: int
    pieces: tuple[Piece, ...]

    @property
    def files(self) -> list[DataFile]:
        """Those that are files."""
        return [one for one in self.pieces if isinstance(one, DataFile)]

    @property
    def end(self) -> int:
        """The first offset that stays."""
        return self.pieces[-1].last + 1

    @property
    def hole(self) -> Hole:
        """What stands for the pieces."""
        return Hole(self.partition, self.pieces[0].first, self.end - 1, RETENTION)


class LogCut(NamedTuple):
    """What is to become of the records of a partition that the topic itself has."""

    partition: int
    log_start_offset: int
    before_offset: int
    """Up to where they may go; the log start offset, or a lower one, when none may."""
    kept_by: str | None
    """Which group keeps more of them than the archive does, and why."""

    @property
    def is_to_do(self) -> bool:
        """Whether there are such records."""
        return self.before_offset > self.log_start_offset


class LogCutDone(NamedTuple):
    """What became of it."""

    cut: LogCut
    log_start_offset: int
    """Where the log begins now."""
    refused: str | None
    """Why the server kept what was to go."""


# --- planning ------------------------------------------------------------------------------------


def plan(
    coverage: Coverage, limits: Limits, partitions: Collection[int] | None = None
) -> list[Removal]:
    """Return what goes from partitions, by default from all. Pure.

    Raises ArchiveError for a partition that the archive does not know.
    """
    known = coverage.partitions
    if unknown := sorted(set(partitions or ()) - known.keys()):
        raise ArchiveError(f"the archive has no partition {', '.join(map(str, unknown))}")
    found = [
        Removal(partition, _gone(known[partition], limits))
        for partition in sorted(known if partitions is None else set(partitions))
    ]
    return [one for one in found if one.pieces]


def _gone(coverage: PartitionCoverage, limits: Limits) -> tuple[Piece, ...]:
    left_bytes = sum(one.bytes for one in coverage.pieces if isinstance(one, DataFile))
    count = 0
    for at, piece in enumerate(coverage.pieces, 1):
        # A hole goes along with a file behind it.
        if isinstance(piece, DataFile):
            left_bytes -= piece.bytes
            if not _goes(piece, limits, left_bytes):
                break
            count = at
    return coverage.pieces[:count]


def _goes(piece: DataFile, limits: Limits, left_bytes: int) -> bool:
    return (
        (limits.before_offset is not None and piece.last < limits.before_offset)
        or (
            limits.before_ms is not None
            and piece.max_ts_ns is not None
            and piece.max_ts_ns < limits.before_ms * NS_PER_MS
        )
        or (limits.max_bytes is not None and left_bytes >= limits.max_bytes)
    )


def retained_from(coverage: Coverage, removals: Sequence[Removal] = ()) -> dict[int, int]:
    """Return up to where retention has removed partitions, or will have; others are left out."""
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
) -> list[LogCut]:
    """Return what goes from a topic's partitions: what its archive has removed. Pure.

    `ends` is `retained_from`, so that nothing goes that was not archived. `committed` says by
    group where it has committed in which partition: records that it has still to read stay, and
    all do where it has committed nothing.
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
        found.append(LogCut(partition, start, before, kept_by))
    return found


# --- the job -------------------------------------------------------------------------------------


def run(life: Life, planned: Sequence[Removal], limits: Limits, *, now_ms: int) -> list[Removal]:
    """Commit that files go, and return what went. Raises ArchiveError.

    Where another committer has put other files in their place, the limits are asked again.
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
    wire: WireClient, life: Life, ends: Mapping[int, int], groups: Sequence[str]
) -> list[LogCut]:
    """Return what goes from the topic; see `cut_log`. Raises ArchiveError, ClientError."""
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


def run_log(wire: WireClient, life: Life, cuts: Sequence[LogCut]) -> list[LogCutDone]:
    """Remove records of the topic, and return what became of each cut. Raises ClientError."""
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
    rows = wire.call(AdminClient(wire.client).describe_settings(TOPIC, topic))
    held = next((row.value for row in rows if row.name == HOLD_SETTING), None)
    return f"{error}; a group of {HOLD_SETTING}={held or ''} has not committed so far"
