"""Compares the bounds of partitions with their bounds in an earlier audit. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.pipeline.archive.findings import AuditFinding, AuditProblem
from kgw.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LEVEL: Final = 4
FORMAT: Final = "kgw-live-audit"


class Ends(NamedTuple):
    """The first offset and the end offset of a partition."""

    log_start_offset: int
    end_offset: int


class SeenTopic(NamedTuple):
    """A topic at the time of an audit."""

    topic_id: str
    partitions: dict[int, Ends]


Seen = dict[str, SeenTopic]
"""By topic name."""


def went_back(
    before: Mapping[str, SeenTopic], now: Mapping[str, SeenTopic]
) -> Iterator[tuple[str, AuditFinding]]:
    """Yield changes that no server makes by itself, with their topics; ignore new topics."""
    for topic, then in sorted(before.items()):
        for name, text in _changes(topic, then, now.get(topic)):
            yield topic, AuditFinding(LEVEL, name, text)


def _changes(
    topic: str, then: SeenTopic, seen: SeenTopic | None
) -> Iterator[tuple[AuditProblem, str]]:
    if seen is None:
        yield AuditProblem.MISSING_TOPIC, f"topic {topic} (id {then.topic_id}) is no more"
        return
    if seen.topic_id != then.topic_id:
        text = f"topic {topic} had the id {then.topic_id} and has {seen.topic_id}"
        yield AuditProblem.RECREATED_TOPIC, text
        return
    for partition, (start, end) in sorted(then.partitions.items()):
        where = f"topic {topic} partition {partition}"
        ends = seen.partitions.get(partition)
        if ends is None:
            yield AuditProblem.MISSING_PARTITION, f"{where} is no more"
            continue
        if ends.end_offset < end:
            text = f"{where}: the log ended at offset {end} and ends at {ends.end_offset}"
            yield AuditProblem.END_WENT_BACK, text
        if ends.log_start_offset < start:
            text = f"{where}: the log began at offset {start} and begins at {ends.log_start_offset}"
            yield AuditProblem.START_WENT_BACK, text


def to_json(seen: Mapping[str, SeenTopic]) -> dict[str, object]:
    """Return the content of a state file."""
    return {
        "format": FORMAT,
        "topics": {
            topic: {
                "topic_id": one.topic_id,
                "partitions": {
                    str(partition): list(ends) for partition, ends in sorted(one.partitions.items())
                },
            }
            for topic, one in sorted(seen.items())
        },
    }


def from_json(kept: object) -> Seen:
    """Read the JSON of `to_json`. Raises PipelineError for anything else."""
    try:
        if kept["format"] != FORMAT:  # type: ignore[index] # whatever it may be is refused below
            raise KeyError
        return {
            topic: SeenTopic(
                str(one["topic_id"]),
                {
                    int(partition): Ends(int(start), int(end))
                    for partition, (start, end) in one["partitions"].items()
                },
            )
            for topic, one in kept["topics"].items()  # type: ignore[index]
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise PipelineError("it is no state of an audit of level 4") from None
