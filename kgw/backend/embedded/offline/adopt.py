"""Bringing topics back whose rows are lost: what `kgw log adopt` runs.

Each partition's directory names its topic, so that a lost database loses no records. Settings of
the topic are lost with it; it comes back with the defaults.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.offline.opening import opened_state
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import BROKER_CONFIG, CLUSTER, TOPIC, TOPIC_CREATION, TOPIC_DELETION
from kgw.types import TopicId, TopicName, format_uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.state.base import Row, StateStore

DISPENSABLE_KINDS: Final = (CLUSTER, BROKER_CONFIG, TOPIC_CREATION, TOPIC_DELETION)
"""A damaged row of theirs keeps the gateway from starting, and can be done without: the next start
makes a new cluster id, settings that were changed live have what was given at the start, and what a
creation or a deletion was about stays on disk."""


class Adoptable(NamedTuple):
    """A topic on disk that the catalogue does not know."""

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[int, ...]
    """Those that have a directory. The topic gets one more than the highest of them; missing ones
    come back empty."""
    obstacle: str | None
    """Why it cannot be adopted as it is, such as another topic of this name."""


class Adoption(NamedTuple):
    """What became of a directory's lost topics."""

    topics: list[Adoptable]
    dropped: tuple[tuple[str, str], ...]
    """Kind and key of damaged rows that were removed, of `DISPENSABLE_KINDS`."""


async def find_adoptable(data_dir: str) -> list[Adoptable]:
    """Return the topics that could be adopted, by name. Raises DataDirectoryError."""
    async with opened_state(data_dir) as state:
        return await find_in(data_dir, state)


async def adopt(data_dir: str) -> Adoption:
    """Give every topic without an obstacle its row back, and remove damaged rows in the way.

    Raises DataDirectoryError, StorageError.
    """
    async with opened_state(data_dir, may_create=True) as state:
        found = await find_in(data_dir, state)
        _, damaged = await _load(state, TOPIC)
        # What a damaged row was about is found by its directories, whatever has become of its key.
        changes = [Change(TOPIC, key, None) for key in damaged]
        changes += [
            Change(TOPIC, format_uuid(one.topic_id), _row(one), expected_version=0)
            for one in found
            if one.obstacle is None
        ]
        dropped = [
            (kind, key) for kind in DISPENSABLE_KINDS for key in (await _load(state, kind))[1]
        ]
        changes += [Change(kind, key, None) for kind, key in dropped]
        if changes:
            await state.apply(changes)
        return Adoption(found, tuple(dropped))


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
            "partitions": max(one.partitions) + 1,
            "configs": {},
        }
    ).encode()


async def find_in(data_dir: str, state: StateStore) -> list[Adoptable]:
    """Return the topics whose records are there and which the directory's state does not know."""
    known, _ = await _load(state, TOPIC)
    # The next start completes deletions, and takes back creations that nobody was told of.
    deletions, damaged_deletions = await _load(state, TOPIC_DELETION)
    creations, damaged_creations = await _load(state, TOPIC_CREATION)
    unfinished = deletions | creations
    taken = {json.loads(row.value)["name"] for row in known.values()}
    topics: dict[tuple[TopicName, TopicId], list[int]] = {}
    partitions_path = f"{data_dir}/{layout.PARTITIONS_DIRECTORY}"
    for identity in await asyncio.to_thread(_identities, RealFs(), partitions_path):
        text = format_uuid(identity.key.topic_id)
        if text in known or text in unfinished:
            continue
        partitions = topics.setdefault((identity.topic, identity.key.topic_id), [])
        partitions.append(identity.key.partition)
    names = [topic for topic, _ in topics]
    found: list[Adoptable] = []
    for (topic, topic_id), partitions in sorted(topics.items()):
        obstacle = None
        if format_uuid(topic_id) in damaged_deletions:
            obstacle = "it was being deleted; adopt once more to have it back"
        elif format_uuid(topic_id) in damaged_creations:
            obstacle = "its creation was not finished; adopt once more to have it all the same"
        elif topic in taken:
            obstacle = "there is a topic of this name"
        elif names.count(topic) > 1:
            obstacle = "several lost topics had this name"
        found.append(Adoptable(topic, topic_id, tuple(sorted(partitions)), obstacle))
    return found


def _identities(fs: FileSystem, path: str) -> list[layout.PartitionIdentity]:
    found: list[layout.PartitionIdentity] = []
    for name in fs.listdir(path):
        key = layout.parse_directory_name(name)
        if key is None:
            continue
        try:
            identity = layout.decode_partition(
                fs.read_bytes(f"{path}/{name}/{layout.PARTITION_NAME}")
            )
        except (FileNotFoundError, layout.SmallFileError):
            continue
        if identity.key == key:
            found.append(identity)
    return found
