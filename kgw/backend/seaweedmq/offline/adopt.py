"""Restores lost rows of topics in a namespace, for `kgw log adopt`.

A topic's directory has the topic's id and row in its attributes, so that records and settings
survive the loss of the state.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from kgw.backend.adopting import adopt_found, find_adoptable
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.topics.directories import TopicDirectories
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from kgw.backend.adopting import Adoptable, Adoption
    from kgw.backend.seaweedmq.offline.opening import Namespace
    from kgw.state.base import StateStore


async def find_in(namespace: Namespace) -> list[Adoptable]:
    """Return the topics that could be adopted, by name. Raises DamagedStateError, FilerError."""
    state = namespace.state()
    await state.open()
    async with aclosing(state):
        return await find_lost(namespace, state)


async def adopt(namespace: Namespace) -> Adoption:
    """Restore the row of every topic that has no obstacle. Raises as `find_in`."""
    state = namespace.state()
    await state.open()
    async with aclosing(state):
        return await adopt_found(state, await find_lost(namespace, state))


async def find_lost(namespace: Namespace, state: StateStore) -> list[Adoptable]:
    """Return the topics that have no row in an open state, sorted by name. Raises FilerError."""
    directories = TopicDirectories(namespace.filer, namespace.name)
    places = await directories.list_all()
    # Ignore partitions without a leader entry, because their creation was never acknowledged.
    stored = [
        (place.topic, PartitionKey(topic_id, partition))
        for topic_id, found in places.items()
        for place in found
        for partition in await directories.partitions(place)
        if await namespace.filer.look_up(place.partition(partition), LEADER) is not None
    ]
    # If a topic has several directories, `list_all` has them all, and none is adopted.
    rows = {topic_id: found[0].row for topic_id, found in places.items()}
    return await find_adoptable(state, stored, rows)
