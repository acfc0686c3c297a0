"""Restores lost rows of topics: the work of `kgw log adopt` on a namespace.

The directory of a topic has its id and its row among its attributes, so that a lost state loses
neither records nor settings.
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
    """Return the topics that an open state does not know, by name. Raises FilerError."""
    directories = TopicDirectories(namespace.filer, namespace.name)
    places = await directories.list_all()
    # The creation of a partition without a leader entry was never acknowledged.
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
