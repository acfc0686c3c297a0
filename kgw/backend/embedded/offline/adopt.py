"""Recreates lost rows of topics in a data directory, for `kgw log adopt`.

Each partition's directory contains the name of its topic, so no records are lost with the database.
The topic's settings are lost, and an adopted topic has the default settings.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.backend import adopting
from kgw.backend.embedded import layout
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.offline.opening import opened_state

if TYPE_CHECKING:
    from kgw.backend.adopting import Adoptable, Adoption
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.state.base import StateStore
    from kgw.types import PartitionKey, TopicName


async def find_adoptable(data_dir: str) -> list[Adoptable]:
    """Return the topics that can be adopted, sorted by name. Raises DataDirectoryError."""
    async with opened_state(data_dir) as state:
        return await find_in(data_dir, state)


async def adopt(data_dir: str) -> Adoption:
    """Create a row for every topic without an obstacle, and remove the damaged rows.

    Raises DataDirectoryError, StorageError.
    """
    async with opened_state(data_dir, may_create=True) as state:
        return await adopting.adopt_found(state, await find_in(data_dir, state))


async def find_in(data_dir: str, state: StateStore) -> list[Adoptable]:
    """Return the topics that have partition directories and no row in the state."""
    path = f"{data_dir}/{layout.PARTITIONS_DIRECTORY}"
    stored = await asyncio.to_thread(_stored, RealFs(), path)
    return await adopting.find_adoptable(state, stored)


def _stored(fs: FileSystem, path: str) -> list[tuple[TopicName, PartitionKey]]:
    found: list[tuple[TopicName, PartitionKey]] = []
    for key in layout.partition_keys(fs.listdir(path)):
        try:
            identity = layout.decode_partition(
                fs.read_bytes(f"{path}/{key}/{layout.PARTITION_NAME}")
            )
        except (FileNotFoundError, layout.SmallFileError):
            continue
        if identity.key == key:
            found.append((identity.topic, identity.key))
    return found
