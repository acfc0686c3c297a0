"""Recovery: finds a partition's next offset after a stop, from its checkpoint and its log.

The log is authoritative; the checkpoint only saves time (docs/native-offsets.md, rule 5). Recovery
has two steps, and the log is scanned between them: `plan_recovery` decides where the scan begins,
if one is needed, and `conclude_recovery` decides the next offset and the leader epoch. No offset is
assigned twice, even if the checkpoint is ahead of the log, behind it, damaged, missing, or from
another topic.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kgw.types import NO_LEADER_EPOCH, TopicId

if TYPE_CHECKING:
    from collections.abc import Sequence


class Checkpoint(NamedTuple):
    """The durable state of one partition when the checkpoint was written."""

    # The field names are stored: renaming a field changes the stored form.
    topic_id: TopicId
    partition: int
    log_start_offset: int
    next_offset: int
    """The durable end: every offset below it was assigned and stored."""
    leader_epoch: int
    segment_base_offset: int
    """The segment that contained the durable end."""
    segment_position: int
    """Number of bytes in that segment up to the end of its whole batches below `next_offset`."""
    clean: bool = False
    """Whether it was written by an orderly stop, with no append after it."""


class SegmentFacts(NamedTuple):
    """The name and size of a segment file, known without reading the file."""

    base_offset: int
    size_bytes: int


class RecoveryFacts(NamedTuple):
    """The facts about a log that are known without reading batches."""

    topic_id: TopicId
    partition: int
    segments: Sequence[SegmentFacts]
    """In offset order; empty if the log has no files, because it is new or they are lost."""
    clean_stop: bool
    """Whether the stop of the whole store was orderly: its marker was found."""
    log_start_offset: int = 0
    """The log start offset if it is known without the checkpoint, else 0."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The newest epoch in the log's epoch history."""
    reserved_end: int = 0
    """Offsets below it may have been acknowledged before they were durable (relaxed logs)."""


class AnomalyKind(Enum):
    """Findings of recovery that do not occur after an orderly stop."""

    CHECKPOINT_MISSING = "checkpoint-missing"
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    CHECKPOINT_FOREIGN = "checkpoint-foreign"
    CHECKPOINT_AHEAD = "checkpoint-ahead"
    CHECKPOINT_BEHIND = "checkpoint-behind"
    LOG_MISSING = "log-missing"
    RECORDS_MISSING = "records-missing"
    GAP_ANNOUNCED = "gap-announced"
    """No damage: a relaxed log was not stopped in order, and continues above its reservation."""


ORDINARY = frozenset({AnomalyKind.CHECKPOINT_MISSING, AnomalyKind.GAP_ANNOUNCED})
"""Findings without damage: the process was killed before the first checkpoint, or a relaxed log has
a gap in its offsets."""


class Anomaly(NamedTuple):
    """One finding, with a description for people."""

    kind: AnomalyKind
    detail: str


class ScanStart(NamedTuple):
    """The position from which a log must be read batch by batch to its end."""

    segment_base_offset: int
    position: int
    next_offset: int
    """The expected base offset of the first batch there; the actual one may be higher."""


class RecoveryPlan(NamedTuple):
    """The state in which to open the partition, and the scan to run before."""

    log_start_offset: int
    next_offset: int
    """The final next offset if there is no scan, otherwise a lower bound."""
    leader_epoch: int
    """The newest epoch known so far; NO_LEADER_EPOCH if there is none."""
    scan: ScanStart | None
    raise_epoch: bool
    """Whether the next leader epoch must be higher than before the stop, to distinguish both."""
    anomalies: tuple[Anomaly, ...] = ()
    reserved_end: int = 0
    """A lower bound of the next offset; 0 after an orderly stop, which loses no records."""


class ScanResult(NamedTuple):
    """The result of a scan. A torn tail has been cut off already."""

    end_offset: int
    """The offset after the last whole batch; `scan.next_offset` of the plan if there is no
    batch."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The highest epoch in a scanned batch."""


class Recovered(NamedTuple):
    """The state in which a partition is opened."""

    log_start_offset: int
    next_offset: int
    log_end_offset: int
    """The end offset of the stored records.

    It is below `next_offset` if assigned offsets were lost: then the log continues in a new segment
    at `next_offset`, and the gap remains.
    """
    leader_epoch: int
    anomalies: tuple[Anomaly, ...]


def plan_recovery(
    checkpoint: Checkpoint | None, facts: RecoveryFacts, *, checkpoint_damaged: bool = False
) -> RecoveryPlan:
    """Decide whether the checkpoint can be trusted and where the scan of the log must begin.

    `checkpoint_damaged`: the checkpoint had a wrong checksum (`checkpoint` is None then).
    """
    anomalies: list[Anomaly] = []
    checkpoint = _usable(checkpoint, facts, checkpoint_damaged, anomalies)
    if checkpoint is None:
        return _plan_without_checkpoint(facts, anomalies)

    log_start_offset = max(checkpoint.log_start_offset, facts.log_start_offset)
    if facts.segments:
        log_start_offset = max(log_start_offset, facts.segments[0].base_offset)
    else:
        # The log has no segment, so no record below the next offset is left.
        log_start_offset = max(log_start_offset, checkpoint.next_offset)
    leader_epoch = max(checkpoint.leader_epoch, facts.leader_epoch)
    scan = _scan_start(checkpoint, facts, anomalies)
    was_whole = facts.clean_stop and checkpoint.clean and not anomalies
    raise_epoch = scan is not None or not was_whole
    has_begun = facts.segments or checkpoint.next_offset > 0
    return RecoveryPlan(
        log_start_offset=log_start_offset,
        next_offset=max(checkpoint.next_offset, log_start_offset),
        leader_epoch=leader_epoch,
        scan=scan,
        raise_epoch=raise_epoch,
        anomalies=tuple(anomalies),
        reserved_end=facts.reserved_end if raise_epoch and has_begun else 0,
    )


def conclude_recovery(plan: RecoveryPlan, scanned: ScanResult | None = None) -> Recovered:
    """Decide the next offset and the leader epoch. `scanned` is the result of a planned scan.

    The next offset is above every offset that was assigned according to the checkpoint, or that may
    have been acknowledged because of a reservation: lost records leave a gap, and their offsets are
    not assigned again.
    """
    if (plan.scan is None) != (scanned is None):
        raise ValueError("a scan's result belongs to a plan that asks for a scan")
    anomalies = plan.anomalies
    log_start_offset = plan.log_start_offset
    leader_epoch = plan.leader_epoch
    log_end_offset = plan.next_offset
    if scanned is not None:
        leader_epoch = max(leader_epoch, scanned.leader_epoch)
        log_end_offset = scanned.end_offset
        known_ahead = any(anomaly.kind in _END_IS_GONE for anomaly in anomalies)
        if log_end_offset < plan.next_offset and not known_ahead:
            anomalies = (*anomalies, _records_missing(plan.next_offset, log_end_offset))
    next_offset = max(plan.next_offset, log_end_offset)
    if next_offset < plan.reserved_end:
        next_offset = plan.reserved_end
        anomalies = (*anomalies, _gap_announced(log_end_offset, next_offset))
        if scanned is None:
            # No segment file is left.
            log_start_offset = next_offset
    if leader_epoch == NO_LEADER_EPOCH:
        leader_epoch = 0
    elif plan.raise_epoch:
        leader_epoch += 1
    return Recovered(
        log_start_offset=log_start_offset,
        next_offset=next_offset,
        log_end_offset=min(log_end_offset, next_offset),
        leader_epoch=leader_epoch,
        anomalies=anomalies,
    )


_END_IS_GONE = frozenset({AnomalyKind.CHECKPOINT_AHEAD, AnomalyKind.LOG_MISSING})


def _usable(
    checkpoint: Checkpoint | None,
    facts: RecoveryFacts,
    damaged: bool,
    anomalies: list[Anomaly],
) -> Checkpoint | None:
    """Return the checkpoint if it can belong to this log, else add the reason to `anomalies`."""
    if checkpoint is None:
        if damaged:
            anomalies.append(
                Anomaly(AnomalyKind.CHECKPOINT_DAMAGED, "the checkpoint fails its checksum")
            )
        elif any(segment.size_bytes for segment in facts.segments):
            anomalies.append(
                Anomaly(AnomalyKind.CHECKPOINT_MISSING, "the log holds data and has no checkpoint")
            )
        return None
    if (checkpoint.topic_id, checkpoint.partition) != (facts.topic_id, facts.partition):
        anomalies.append(
            Anomaly(
                AnomalyKind.CHECKPOINT_FOREIGN,
                f"the checkpoint is that of another log, partition {checkpoint.partition}",
            )
        )
        return None
    consistent = (
        0 <= checkpoint.log_start_offset <= checkpoint.next_offset
        and 0 <= checkpoint.segment_base_offset <= checkpoint.next_offset
        and checkpoint.segment_position >= 0
        and checkpoint.leader_epoch >= NO_LEADER_EPOCH
    )
    if not consistent:
        anomalies.append(
            Anomaly(
                AnomalyKind.CHECKPOINT_DAMAGED, f"the checkpoint contradicts itself: {checkpoint!r}"
            )
        )
        return None
    return checkpoint


def _plan_without_checkpoint(facts: RecoveryFacts, anomalies: list[Anomaly]) -> RecoveryPlan:
    """Plan to scan the whole log, as its end is not known otherwise."""
    segments = facts.segments
    first_offset = segments[0].base_offset if segments else facts.log_start_offset
    log_start_offset = max(facts.log_start_offset, first_offset)
    scan = None
    if segments:
        scan = ScanStart(first_offset, 0, first_offset)
    return RecoveryPlan(
        log_start_offset=log_start_offset,
        # The base offset of an empty last segment was the next offset when it was created.
        next_offset=max(log_start_offset, segments[-1].base_offset)
        if segments
        else log_start_offset,
        leader_epoch=facts.leader_epoch,
        scan=scan,
        raise_epoch=bool(segments) or facts.leader_epoch != NO_LEADER_EPOCH,
        anomalies=tuple(anomalies),
        # A log has a segment before its first append is acknowledged.
        reserved_end=facts.reserved_end if segments else 0,
    )


def _scan_start(
    checkpoint: Checkpoint, facts: RecoveryFacts, anomalies: list[Anomaly]
) -> ScanStart | None:
    """Return where the scan begins, or None if the checkpoint is complete."""
    segments = facts.segments
    if not segments:
        if checkpoint.next_offset > 0:
            anomalies.append(
                Anomaly(
                    AnomalyKind.LOG_MISSING,
                    f"no segment is left of a log that reached offset {checkpoint.next_offset}",
                )
            )
        return None
    at = None
    for index, segment in enumerate(segments):
        if segment.base_offset == checkpoint.segment_base_offset:
            at = index
            break
    if at is None or segments[at].size_bytes < checkpoint.segment_position:
        return _scan_when_records_missing(checkpoint, facts, anomalies)
    is_at_end = at == len(segments) - 1 and segments[at].size_bytes == checkpoint.segment_position
    if facts.clean_stop and checkpoint.clean:
        if is_at_end:
            return None
        anomalies.append(
            Anomaly(
                AnomalyKind.CHECKPOINT_BEHIND,
                "the log goes on after the checkpoint of an orderly stop, "
                f"which ended at {checkpoint.next_offset}",
            )
        )
    return ScanStart(
        checkpoint.segment_base_offset, checkpoint.segment_position, checkpoint.next_offset
    )


def _scan_when_records_missing(
    checkpoint: Checkpoint, facts: RecoveryFacts, anomalies: list[Anomaly]
) -> ScanStart:
    """Plan a scan if the checkpoint's segment is missing, or shorter than in the checkpoint.

    The scan begins at the last segment that is not above the checkpoint's segment, or else at the
    first segment.
    """
    segments = facts.segments
    below = [
        segment for segment in segments if segment.base_offset <= checkpoint.segment_base_offset
    ]
    start = below[-1] if below else segments[0]
    if below:
        anomalies.append(
            Anomaly(
                AnomalyKind.CHECKPOINT_AHEAD,
                f"the checkpoint knows {checkpoint.segment_position} bytes of segment "
                f"{checkpoint.segment_base_offset}, which the log does not have",
            )
        )
    elif start.base_offset > facts.log_start_offset:
        # Otherwise retention has removed the segment, which is no anomaly.
        anomalies.append(
            Anomaly(
                AnomalyKind.CHECKPOINT_BEHIND,
                f"the log begins at {start.base_offset}, after the checkpoint's segment "
                f"{checkpoint.segment_base_offset}",
            )
        )
    return ScanStart(start.base_offset, 0, start.base_offset)


def _records_missing(next_offset: int, log_end_offset: int) -> Anomaly:
    return Anomaly(
        AnomalyKind.RECORDS_MISSING,
        f"offsets from {log_end_offset} to {next_offset - 1} were assigned and are gone",
    )


def _gap_announced(log_end_offset: int, next_offset: int) -> Anomaly:
    return Anomaly(
        AnomalyKind.GAP_ANNOUNCED,
        f"offsets {log_end_offset} to {next_offset - 1} are left out: they were reserved when the "
        "relaxed log stopped out of order, and may have been answered",
    )
