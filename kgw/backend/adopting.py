"""Creates new rows for topics on disk whose rows are lost, in any backend."""

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
"""Kinds of rows that `adopt_found` removes if they are damaged, because they would prevent a start.
The next start then makes a new cluster id and uses the settings of the configuration. The files of
an unfinished creation or deletion stay on disk."""


class Adoptable(NamedTuple):
    """A topic on disk that the catalogue does not know."""

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[int, ...]
    """The partitions that have a directory. The adopted topic gets all partitions up to the highest
    one, or `partition_count` partitions if that is more. Missing partitions are created empty."""
    obstacle: str | None
    """Why the topic cannot be adopted, for example because another topic has the same name."""
    configs: Mapping[str, str] | None = None
    """The topic's own settings. None if they are unknown; the topic then gets the defaults."""
    partition_count: int = 0
    """The number of partitions in the lost row, or 0 if it is unknown."""


class Adoption(NamedTuple):
    """The result of adopting the lost topics of a directory."""

    topics: list[Adoptable]
    dropped: tuple[tuple[str, str], ...]
    """Kind and key of each damaged row that was removed; only of `DISPENSABLE_KINDS`."""


async def find_adoptable(
    state: StateStore,
    stored: Iterable[tuple[TopicName, PartitionKey]],
    rows: Mapping[TopicId, bytes] = MappingProxyType({}),
) -> list[Adoptable]:
    """Return the topics that have stored partitions and no row in the state, sorted by name.

    `rows` are the copies of topic rows that are stored beside the logs, if there are any.
    """
    known, _ = await _load(state, TOPIC)
    # Topics that are being created or deleted are not lost: the next start completes the deletion,
    # and undoes the creation, which was never acknowledged to a client.
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
    """Return the partition count and settings in a row; 0 and None if it is another topic's row."""
    try:
        fields = json.loads(row)
        if fields["topic_id"] != format_uuid(topic_id):
            return 0, None
        configs = {str(name): str(text) for name, text in fields["configs"].items()}
        return int(fields["partitions"]), configs
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0, None


async def adopt_found(state: StateStore, found: Sequence[Adoptable]) -> Adoption:
    """Create a row for every topic without an obstacle, and remove the damaged rows.

    Raises StorageError.
    """
    _, damaged = await _load(state, TOPIC)
    # Topics with damaged rows are found by their directories. So a damaged row can be removed, even
    # if its key is damaged.
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
