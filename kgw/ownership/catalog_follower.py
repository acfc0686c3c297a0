"""Updates the catalogue of a node with the topics that other nodes have stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.partitions.topics.rows import read_row, stored_rows
from kgw.state.base import ChangesLostError
from kgw.state.kinds import TOPIC
from kgw.types import TopicId, parse_uuid

if TYPE_CHECKING:
    from kgw.partitions.topics.manager import TopicManager
    from kgw.state.base import StateStore, WatchedChange


class CatalogFollower:
    """Reads the rows of topics that were written since the last read.

    A node must know the topics of a bundle before it opens the bundle: otherwise it would drop the
    committed offsets of unknown topics, like those of deleted topics.
    """

    def __init__(self, topics: TopicManager) -> None:
        self._topics = topics
        self._version: int | None = None
        """The version of the last change in the catalogue."""

    async def catch_up(self, state: StateStore) -> None:
        """Apply all changes that were stored before this call. Raises StorageError."""
        if self._version is not None:
            try:
                while changes := await state.changes_since(self._version):
                    for change in changes:
                        if change.kind == TOPIC:
                            await self._follow(change)
                        self._version = change.version
            except ChangesLostError:
                self._version = None
        if self._version is None:
            version = await state.newest_change()
            await self._read_all(state)
            self._version = version

    async def _read_all(self, state: StateStore) -> None:
        rows = {row.topic_id: row for row in await stored_rows(state)}
        for topic in list(self._topics.catalog.topics.values()):
            if topic.foreign is None and topic.topic_id not in rows:
                await self._topics.follow(topic.topic_id, None)
        for topic_id, row in rows.items():
            await self._topics.follow(topic_id, row)

    async def _follow(self, change: WatchedChange) -> None:
        row = None if change.value is None else read_row(change.key, change.value)
        await self._topics.follow(TopicId(parse_uuid(change.key)), row)
