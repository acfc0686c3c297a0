"""Topics that are written into themselves: by one backfill, or by several one after the other.

A backfill goes on until it has written all that the archive has. Where an archive follows the
topic that is written, what was written comes to the archive, and is written again, without an end.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kgw.client import GroupClient
from kgw.pipeline.archive.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.client import TopicDescription
    from kgw.pipeline.wire import WireClient

GROUP_PREFIX: Final = "kgw-backfill-"
"""What the groups of backfills begin with."""
_WITHOUT_ID: Final = UUID(int=0)
"""Of topics on servers that have no topic ids."""


class Written(NamedTuple):
    """A backfill that has written to a topic."""

    group: str
    source: UUID
    """Whose archive it was."""
    target: str


def id_of(topic: TopicDescription) -> UUID:
    """Return a topic's id, zero where the server has no topic ids. Pure."""
    return UUID(bytes=bytes(topic.topic_id))


def is_same_topic(source: str, source_id: UUID, target: TopicDescription) -> bool:
    """Return whether an archived topic is the target; by name where topics have no ids. Pure."""
    if source_id != id_of(target):
        return False
    return source_id != _WITHOUT_ID or source == target.name


def find_way(
    written: Iterable[Written], ids: Mapping[str, UUID], start: UUID, end: UUID
) -> list[Written] | None:
    """Return the backfills by which records of one topic came to another; None without any. Pure.

    `ids` are those of the topics that were written to.
    """
    leaving: dict[UUID, list[Written]] = defaultdict(list)
    for one in sorted(written):
        leaving[one.source].append(one)
    ways: dict[UUID, list[Written]] = {start: []}
    waiting = [start]
    for source in waiting:
        for one in leaving[source]:
            reached = ids.get(one.target)
            if reached is None or reached in ways:
                continue
            ways[reached] = [*ways[source], one]
            waiting.append(reached)
    return ways.get(end)


def check_no_loop(wire: WireClient, source: str, source_id: UUID, target: TopicDescription) -> None:
    """Raise ArchiveError where the target's records come from the archived topic, or are in it.

    Raises ClientError.
    """
    name = str(target.name)
    if is_same_topic(source, source_id, target):
        raise ArchiveError(
            f"topic {name} is the topic that this archive is of: each record would be there twice, "
            "and an archive that follows it would get them again, without an end. Write to another "
            "topic, or let --restore write to an empty one"
        )
    written = _written(wire)
    described = {one.target: wire.find_topic(one.target) for one in written}
    ids = {topic: id_of(one) for topic, one in described.items() if one is not None}
    way = find_way(written, ids, id_of(target), source_id)
    if way:
        told = ", then ".join(f"to topic {one.target} (group {one.group})" for one in way)
        raise ArchiveError(
            f"records of topic {name} were written {told}, of which this archive is: written to "
            f"topic {name}, they would go round. Write to another topic; where nothing goes that "
            f"way any more, delete the group first: kgw groups delete {way[-1].group}"
        )


def _written(wire: WireClient) -> list[Written]:
    """Return what backfills have written to which topic, as the groups of their jobs say."""
    groups = GroupClient(wire.client)
    written: set[Written] = set()
    for group in wire.call(wire.client.retrying(groups.groups)):
        if not group.group_id.startswith(GROUP_PREFIX):
            continue
        offsets = wire.call(wire.client.retrying(partial(groups.offsets, group.group_id)))
        for (topic, _), one in offsets.items():
            try:
                source = UUID(one.metadata)
            except ValueError:
                continue  # Not of a backfill, whatever the group's name.
            if source != _WITHOUT_ID:
                written.add(Written(group.group_id, source, topic))
    return sorted(written)
