"""Bringing topics back whose rows are lost: what `kgw log adopt` runs on a namespace.

The directory of a topic has its id among its attributes, so that a lost state loses no records.
Settings of the topic are lost with it; it comes back with the defaults.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from kgw.backend.adopting import adopt_found, find_adoptable
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.topics import TopicDirectories
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from kgw.backend.adopting import Adoptable, Adoption
    from kgw.backend.seaweedmq.offline.opening import Namespace
    from kgw.types import TopicName


async def find_in(namespace: Namespace) -> list[Adoptable]:
    """Return the topics that could be adopted, by name. Raises DamagedStateError, FilerError."""
    stored = await _stored(namespace)
    state = namespace.state()
    await state.open()
    async with aclosing(state):
        return await find_adoptable(state, stored)


async def adopt(namespace: Namespace) -> Adoption:
    """Give every topic without an obstacle its row back. Raises as `find_in`."""
    stored = await _stored(namespace)
    state = namespace.state()
    await state.open()
    async with aclosing(state):
        return await adopt_found(state, await find_adoptable(state, stored))


async def _stored(namespace: Namespace) -> list[tuple[TopicName, PartitionKey]]:
    """Return the partitions that have a leader entry; others never got so far."""
    directories = TopicDirectories(namespace.filer, namespace.name)
    return [
        (place.topic, PartitionKey(topic_id, partition))
        for topic_id, places in (await directories.list_all()).items()
        for place in places
        for partition in await directories.partitions(place)
        if await namespace.filer.look_up(place.partition(partition), LEADER) is not None
    ]
