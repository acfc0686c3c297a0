"""The offsets of partitions, as the gateway itself has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.admin.answers import NotFoundError, page
from kgw.admin.parameters import AFTER, PARTITION, TOPIC, ParameterError
from kgw.backend.base import Recompressed, Segmented

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.admin.answers import Answer
    from kgw.admin.parameters import QueryParameters
    from kgw.admin.rights import Viewer
    from kgw.gateway import Gateway
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic


async def offsets(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    topics = gateway.catalog.topics
    name = query.text(TOPIC)
    after = parse_cursor(query.text(AFTER))
    if name is not None and name not in topics:
        raise NotFoundError(f"there is no topic {name!r}")
    names = filter(viewer.sees_topic, sorted(topics)) if name is None else (name,)
    wanted = [topics[one] for one in names]
    only = query.number(PARTITION)
    if name is not None and only is not None and not topics[name].has_partition(only):
        raise NotFoundError(f"topic {name!r} has no partition {only}")
    rows = []
    for partition in _partitions(wanted, after, only):
        rows.append(_row(partition))
        if len(rows) > query.limit:
            break
    checkpointed_s = gateway.checkpointed_s
    age_ms = None
    if checkpointed_s is not None:
        age_ms = round((gateway.clock.monotonic_s() - checkpointed_s) * 1000)
    return {
        **page("partitions", rows, query.limit, cursor),
        "checkpoint_age_ms": age_ms,
    }


def cursor(row: dict[str, Any]) -> str:
    """Return the cursor for the rows after this row."""
    return f"{row['topic']}:{row['partition']}"


def parse_cursor(text: str | None) -> tuple[str, int]:
    """Parse a cursor into topic and partition. Raises ParameterError."""
    if text is None:
        return "", -1
    topic, _, number = text.rpartition(":")
    if not topic or not (number.isascii() and number.isdigit() and len(number) < 11):
        raise ParameterError("after is TOPIC:PARTITION")
    return topic, int(number)


def _partitions(
    topics: list[Topic], after: tuple[str, int], index: int | None
) -> Iterator[Partition]:
    for topic in topics:
        if topic.name < after[0]:
            continue
        first = after[1] + 1 if topic.name == after[0] else 0
        for partition in topic.partitions.values():
            if partition.index >= first and index in {None, partition.index}:
                yield partition


def _row(partition: Partition) -> dict[str, Any]:
    log = partition.log
    bounds = partition.view().bounds()
    recompressed = log.recompressed if isinstance(log, Segmented) else Recompressed()
    return {
        "topic": partition.topic.name,
        "partition": partition.index,
        "log_start_offset": bounds.log_start_offset,
        "high_watermark": bounds.high_watermark,
        "last_stable_offset": bounds.last_stable_offset,
        "end_offset": log.end_offset,
        "leader_epoch": log.leader_epoch,
        "size_bytes": log.size_bytes,
        "recompressed_end": recompressed.end_offset,
        "recompressed_bytes_before": recompressed.bytes_before,
        "recompressed_bytes_after": recompressed.bytes_after,
    }
