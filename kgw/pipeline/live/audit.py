"""Checks that a server still has the acknowledged records, and that no log has moved back."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kgw.pipeline.archive.comparing import shown
from kgw.pipeline.archive.findings import AuditFinding, AuditProblem
from kgw.pipeline.errors import DamagedRecordsError, PipelineError
from kgw.pipeline.jobs.loading import is_compacted, settings_at_once
from kgw.pipeline.live.comparing import compare_part, stretches
from kgw.pipeline.live.ends import LEVEL, Ends, SeenTopic, went_back
from kgw.pipeline.live.journal import JournaledRecords, JournalReader
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading
from kgw.types import ZERO_TOPIC_ID, TopicId, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from kgw.pipeline.live.ends import Seen
    from kgw.pipeline.live.journal import Acks, JournaledTopic
    from kgw.pipeline.wire import WireClient

_READING = Reading(fail_on_data_loss=False)
"""Missing records raise no error here; later it is decided whether retention removed them or they
are lost."""


@dataclass(slots=True)
class Checked:
    """How many acknowledged records of a partition had each result."""

    topic: str
    partition: int
    acknowledged: int = 0
    confirmed: int = 0
    """Records that are present with the acknowledged content."""
    removed: int = 0
    """Records below the log start offset, removed by retention or DeleteRecords."""
    compacted: int = 0
    """Records that are missing in a compacted topic."""
    unread: int = 0
    """Records after an unreadable batch."""
    absent: list[int] = field(default_factory=list)
    altered: list[int] = field(default_factory=list)
    moved: dict[int, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The number of acknowledged records, and the number of each result."""
        return {
            "acknowledged": self.acknowledged,
            "confirmed": self.confirmed,
            "removed": self.removed,
            "compacted": self.compacted,
            "unread": self.unread,
            "lost": len(self.absent),
            "altered": len(self.altered),
        }


class LiveAudit:
    """Audits topics once or repeatedly; each audit compares the bounds with the audit before.

    `counts` has the counts of acknowledged records, by topic and partition.
    """

    def __init__(
        self,
        wire: WireClient,
        topics: Collection[str],
        journals: Iterable[Path],
        before: Mapping[str, SeenTopic],
    ) -> None:
        """Audit `topics`; if empty, audit the topics of the journals and of `before`."""
        self.counts: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        self._wire = wire
        self._topics = topics
        self._journals = [JournalReader(path) for path in journals]
        self.seen: Seen = {
            topic: one for topic, one in before.items() if not topics or topic in topics
        }

    def look(self) -> list[tuple[str, AuditFinding]]:
        """Run one audit, and return its findings with their topics.

        Each line of a journal is checked in one audit only.

        Raises ClientError, and PipelineError for an unreadable journal and for a given topic that
        does not exist and was never seen.
        """
        journaled = JournaledRecords()
        # Read the journals before the end offsets, so that acknowledged records are below those
        # offsets.
        for journal in self._journals:
            journal.read_new(journaled)
        journaled_topics = [
            one
            for one in journaled.journaled_topics
            if not self._topics or one.topic in self._topics
        ]
        known = {*self.seen, *(one.topic for one in journaled_topics)}
        now = look(self._wire, {*self._topics, *known})
        if absent := sorted({*self._topics} - {*now} - known):
            raise PipelineError(f"there is no topic {', '.join(absent)}")
        findings = list(went_back(self.seen, now))
        for life in journaled_topics:
            for checked, found in check_acknowledged(self._wire, life, journaled, now):
                findings += [(life.topic, one) for one in found]
                self.counts[checked.topic, checked.partition].update(checked.counts)
        self.seen = now
        return findings


def look(wire: WireClient, topics: Iterable[str]) -> Seen:
    """Return the topic ids and bounds of the topics that exist now. Raises ClientError."""
    seen: Seen = {}
    for topic in sorted(set(topics)):
        described = wire.find_topic(topic)
        if described is not None:
            bounds = wire.bounds(topic, [one.partition for one in described.partitions])
            ends = {partition: Ends(*one) for partition, one in bounds.items()}
            seen[topic] = SeenTopic(format_uuid(described.topic_id), ends)
    return seen


def check_acknowledged(
    wire: WireClient,
    life: JournaledTopic,
    journaled: JournaledRecords,
    seen: Mapping[str, SeenTopic],
) -> Iterator[tuple[Checked, list[AuditFinding]]]:
    """Yield counts and findings for each partition with acknowledged records.

    `seen` must have been read after the records were acknowledged. Records of open and aborted
    transactions are compared like all others. Raises ClientError, PipelineError.
    """
    topic = seen.get(life.topic)
    may_lack_records = topic is not None and is_compacted(settings_at_once(wire, life.topic))
    for partition, acks in journaled.partitions(life).items():
        where = f"topic {life.topic} partition {partition}"
        checked = Checked(life.topic, partition, len(acks.offsets))
        findings = []
        if len(acks.twice):
            text = f"{where}: acknowledged for two records, {shown(acks.twice.tolist())}"
            findings.append(AuditFinding(LEVEL, AuditProblem.OFFSET_GIVEN_TWICE, text))
        problem = _problem_of(life, partition, topic)
        if problem is not None:
            name, why = problem
            text = f"{where}: {len(acks.offsets)} records were acknowledged, {why}"
            findings.append(AuditFinding(LEVEL, name, text))
            checked.absent = acks.offsets.tolist()
        elif topic is not None:
            topic_id = TopicId(parse_uuid(topic.topic_id))
            ends = topic.partitions[partition]
            damage = _compare(wire, acks, checked, ends, topic_id)
            findings += _findings(checked, damage, ends.end_offset, is_compacted=may_lack_records)
        yield checked, findings


def _problem_of(
    life: JournaledTopic, partition: int, topic: SeenTopic | None
) -> tuple[AuditProblem, str] | None:
    """Return why a partition can have none of its records, or None."""
    if topic is None:
        return AuditProblem.MISSING_TOPIC, "the topic is no more"
    if life.topic_id not in {None, topic.topic_id} and topic.topic_id != format_uuid(ZERO_TOPIC_ID):
        return (
            AuditProblem.RECREATED_TOPIC,
            f"the topic had the id {life.topic_id} and has {topic.topic_id}",
        )
    if partition not in topic.partitions:
        return AuditProblem.MISSING_PARTITION, "the partition is no more"
    return None


def _compare(
    wire: WireClient, acks: Acks, checked: Checked, ends: Ends, topic_id: TopicId
) -> DamagedRecordsError | None:
    """Compare a partition's acknowledged records; return the damage that stops it, or None."""
    topic, partition = checked.topic, checked.partition
    damage = None
    low, high = acks.offsets.searchsorted(ends)
    checked.removed = int(low)
    checked.absent = acks.offsets[high:].tolist()
    for first, stop in stretches(acks.offsets[low:high]):
        wanted = OffsetRange(topic, partition, first, stop, topic_id)
        position = first
        try:
            for decoded in wire.decoded(
                wanted, columns=("offset", "key", "value"), reading=_READING
            ):
                found = compare_part(acks, decoded.batch, position, decoded.next_offset)
                position = decoded.next_offset
                checked.confirmed += found.confirmed
                checked.absent += found.absent
                checked.altered += found.altered
                checked.moved |= found.moved
        except DamagedRecordsError as error:
            checked.unread = int(high - acks.offsets.searchsorted(position))
            damage = error
            break
        # Records at the end of a range that no decoded batch covers.
        skipped = slice(*acks.offsets.searchsorted([position, stop]))
        checked.absent += acks.offsets[skipped].tolist()
    if checked.absent:
        # Records below the new log start offset were removed during the audit, and are not lost. If
        # the start moved back, the next audit reports it.
        start = wire.bounds(topic, [partition])[partition].earliest
        left = [offset for offset in checked.absent if offset >= start]
        checked.removed += len(checked.absent) - len(left)
        checked.absent = sorted(left)
    return damage


def _findings(
    checked: Checked,
    damage: DamagedRecordsError | None,
    end_offset: int,
    *,
    is_compacted: bool,
) -> list[AuditFinding]:
    """Return a partition's findings; in a compacted topic, missing records are only counted."""
    where = f"topic {checked.topic} partition {checked.partition}"
    findings = []
    if damage is not None:
        text = f"{damage}; {checked.unread} acknowledged records from there on were not read"
        findings.append(AuditFinding(LEVEL, AuditProblem.DAMAGED_RECORDS, text))
    if is_compacted:
        kept = [offset for offset in checked.absent if offset >= end_offset]
        checked.compacted = len(checked.absent) - len(kept)
        checked.absent = kept
    for name, offsets in (
        (AuditProblem.LOST_RECORD, checked.absent),
        (AuditProblem.ALTERED_RECORD, checked.altered),
    ):
        if offsets:
            text = f"{where}: {shown(offsets)}"
            moved = [offset for offset in offsets if offset in checked.moved]
            if moved:
                text += f"; the content of offset {moved[0]} is at {checked.moved[moved[0]]}"
            findings.append(AuditFinding(LEVEL, name, text))
    return findings
