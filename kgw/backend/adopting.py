"""Bringing topics back whose rows are lost: the rules that every backend goes by."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import BROKER_CONFIG, CLUSTER, TOPIC, TOPIC_CREATION, TOPIC_DELETION
from kgw.types import TopicId, TopicName, format_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kgw.state.base import Row, StateStore
    from kgw.types import PartitionKey

DISPENSABLE_KINDS: Final = (CLUSTER, BROKER_CONFIG, TOPIC_CREATION, TOPIC_DELETION)
"""A damaged row of theirs keeps the gateway from starting, and can be done without: the next start
makes a new cluster id, settings that were changed live have what was given at the start, and what a
creation or a deletion was about stays on disk."""


class Adoptable(NamedTuple):
    """A topic on disk that the catalogue does not know."""

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[int, ...]
    """Those that have a directory. The topic gets one more than the highest of them, or
    `partition_count` if that is more; missing ones come back empty."""
    obstacle: str | None
    """Why it cannot be adopted as it is, such as another topic of this name."""
    configs: Mapping[str, str] | None = None
    """Its own settings; None where nothing tells them, and it comes back with the defaults."""
    partition_count: int = 0
    """Those that it had, as far as something tells."""


class Adoption(NamedTuple):
    """What became of a directory's lost topics."""

    topics: list[Adoptable]
    dropped: tuple[tuple[str, str], ...]
    """Kind and key of damaged rows that were removed, of `DISPENSABLE_KINDS`."""


async def find_adoptable(
    state: StateStore,
    stored: Iterable[tuple[TopicName, PartitionKey]],
    rows: Mapping[TopicId, bytes] = MappingProxyType({}),
) -> list[Adoptable]:
    """Return the topics with stored partitions that the state does not know, by name.

    `rows` are those of topics, as far as they are kept beside the logs.
    """
    known, _ = await _load(state, TOPIC)
    # The next start completes deletions, and takes back creations that nobody was told of.
    deletions, damaged_deletions = await _load(state, TOPIC_DELETION)
    creations, damaged_creations = await _load(state, TOPIC_CREATION)
    unfinished = deletions | creations
    taken = {json.loads(row.value)["name"] for row in known.values()}
    topics: dict[tuple[TopicName, TopicId], list[int]] = {}
    for topic, key in stored:
        text = format_uuid(key.topic_id)
        if text in known or text in unfinished:
            continue
        topics.setdefault((topic, key.topic_id), []).append(key.partition)
    names = [topic for topic, _ in topics]
    ids = [topic_id for _, topic_id in topics]
    found: list[Adoptable] = []
    for (topic, topic_id), partitions in sorted(topics.items()):
        obstacle = None
        if format_uuid(topic_id) in damaged_deletions:
            obstacle = "it was being deleted; adopt once more to have it back"
        elif format_uuid(topic_id) in damaged_creations:
            obstacle = "its creation was not finished; adopt once more to have it all the same"
        elif topic in taken:
            obstacle = "there is a topic of this name"
        elif ids.count(topic_id) > 1 or len(set(partitions)) < len(partitions):
            obstacle = "several directories have its id: one is a copy"
        elif names.count(topic) > 1:
            obstacle = "several lost topics had this name"
        count, configs = _kept(rows.get(topic_id, b""), topic_id)
        found.append(
            Adoptable(topic, topic_id, tuple(sorted(partitions)), obstacle, configs, count)
        )
    return found


def _kept(row: bytes, topic_id: TopicId) -> tuple[int, Mapping[str, str] | None]:
    """Return partition count and settings of a row; 0 and None of what is none of this topic."""
    try:
        fields = json.loads(row)
        if fields["topic_id"] != format_uuid(topic_id):
            return 0, None
        configs = {str(name): str(text) for name, text in fields["configs"].items()}
        return int(fields["partitions"]), configs
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0, None


async def adopt_found(state: StateStore, found: Sequence[Adoptable]) -> Adoption:
    """Give every topic without an obstacle its row back, and remove damaged rows in the way.

    Raises StorageError.
    """
    _, damaged = await _load(state, TOPIC)
    # What a damaged row was about is found by its directories, whatever has become of its key.
    changes = [Change(TOPIC, key, None) for key in damaged]
    changes += [
        Change(TOPIC, format_uuid(one.topic_id), _row(one), expected_version=0)
        for one in found
        if one.obstacle is None
    ]
    dropped = [(kind, key) for kind in DISPENSABLE_KINDS for key in (await _load(state, kind))[1]]
    changes += [Change(kind, key, None) for kind, key in dropped]
    if changes:
        await state.apply(changes)
    return Adoption(list(found), tuple(dropped))


async def _load(state: StateStore, kind: str) -> tuple[dict[str, Row], Sequence[str]]:
    """Return the intact rows of a kind and the keys of the damaged ones."""
    try:
        return await state.load(kind), ()
    except DamagedRowsError as error:
        return error.intact, error.damaged


def _row(one: Adoptable) -> bytes:
    return json.dumps(
        {
            "name": one.topic,
            "topic_id": format_uuid(one.topic_id),
            "partitions": max(*one.partitions, one.partition_count - 1) + 1,
            "configs": dict(one.configs or {}),
        }
    ).encode()
