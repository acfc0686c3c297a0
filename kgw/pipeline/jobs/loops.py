"""Finds backfills, or chains of them, that would write a topic's records back to it.

A backfill ends when it has written every record of its archive. If an archive job copies the
written topic into the same archive, the backfill never ends.
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
"""The prefix of the group ids that backfills use."""
_WITHOUT_ID: Final = UUID(int=0)
"""The topic id on servers without topic ids."""


class PreviousBackfill(NamedTuple):
    """A backfill that has written to a topic, found by its committed offsets."""

    group: str
    source: UUID
    """The id of the archived topic."""
    target: str


def id_of(topic: TopicDescription) -> UUID:
    """Return a topic's id; zero if the server has no topic ids. Pure."""
    return UUID(bytes=bytes(topic.topic_id))


def is_same_topic(source: str, source_id: UUID, target: TopicDescription) -> bool:
    """Return whether an archived topic is the target; without ids, names are compared. Pure."""
    if source_id != id_of(target):
        return False
    return source_id != _WITHOUT_ID or source == target.name


def find_way(
    written: Iterable[PreviousBackfill], ids: Mapping[str, UUID], start: UUID, end: UUID
) -> list[PreviousBackfill] | None:
    """Return the chain of backfills from one topic to another; None if there is none. Pure.

    `ids` maps the names of target topics to their ids.
    """
    leaving: dict[UUID, list[PreviousBackfill]] = defaultdict(list)
    for one in sorted(written):
        leaving[one.source].append(one)
    ways: dict[UUID, list[PreviousBackfill]] = {start: []}
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
    """Raise ArchiveError if records of the target would reach the archived topic.

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


def _written(wire: WireClient) -> list[PreviousBackfill]:
    """Return the backfills that have written to topics, from the offsets of their groups."""
    groups = GroupClient(wire.client)
    written: set[PreviousBackfill] = set()
    for group in wire.call(wire.client.retrying(groups.groups)):
        if not group.group_id.startswith(GROUP_PREFIX):
            continue
        offsets = wire.call(wire.client.retrying(partial(groups.offsets, group.group_id)))
        for (topic, _), one in offsets.items():
            try:
                source = UUID(one.metadata)
            except ValueError:
                continue  # another program's group with the same prefix
            if source != _WITHOUT_ID:
                written.add(PreviousBackfill(group.group_id, source, topic))
    return sorted(written)
