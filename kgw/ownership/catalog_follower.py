"""Brings the catalogue of a node up to the topics that other nodes have stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import StorageError
from kgw.partitions.topics.topic import TopicRow
from kgw.state.base import ChangesLostError, DamagedRowsError
from kgw.state.kinds import TOPIC
from kgw.types import TopicId, parse_uuid

if TYPE_CHECKING:
    from kgw.partitions.topics.catalog import TopicCatalog
    from kgw.state.base import StateStore


class CatalogFollower:
    """Reads the rows of topics that were written since it read them last.

    A node must know the topics of a bundle before it opens the bundle: it would take the committed
    offsets of an unknown topic for those of a deleted one.
    """

    def __init__(self, catalog: TopicCatalog) -> None:
        self._catalog = catalog
        self._version: int | None = None
        """The version of the last change that the catalogue has."""

    async def catch_up(self, state: StateStore) -> None:
        """Take over every change that was stored before this call. Raises StorageError."""
        if self._version is not None:
            try:
                while changes := await state.changes_since(self._version):
                    for change in changes:
                        if change.kind == TOPIC:
                            await self._follow(change.key, change.value)
                        self._version = change.version
            except ChangesLostError:
                self._version = None
        if self._version is None:
            version = await state.newest_change()
            await self._read_all(state)
            self._version = version

    async def _read_all(self, state: StateStore) -> None:
        try:
            rows = await state.load(TOPIC)
        except DamagedRowsError as error:
            raise StorageError(str(error)) from error
        own = [topic for topic in self._catalog.topics.values() if topic.foreign is None]
        for key in [topic.row().key for topic in own]:
            if key not in rows:
                await self._follow(key, None)
        for key, row in rows.items():
            await self._follow(key, row.value)

    async def _follow(self, key: str, value: bytes | None) -> None:
        try:
            topic_id = TopicId(parse_uuid(key))
            row = None if value is None else TopicRow.decode(value)
        except ValueError as error:
            raise StorageError(f"the row of topic {key} cannot be read: {error}") from error
        await self._catalog.follow(topic_id, row)
