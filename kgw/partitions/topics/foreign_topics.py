"""ForeignTopics: serves topics that other programs lead in the same storage."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, KgwError, StorageError
from kgw.partitions.topic_config import TopicConfig
from kgw.partitions.topics.topic import Topic, name_problem
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import FOREIGN_TOPIC
from kgw.types import format_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.backend.base import Backend, ForeignTopic
    from kgw.clock import Clock, Timer
    from kgw.partitions.topics.catalog import TopicCatalog
    from kgw.partitions.topics.local_partitions import LocalPartitions
    from kgw.state.base import Row, StateStore

_log = logging.getLogger(__name__)

_RETRIED_AFTER_S = 10.0


class ForeignTopics:
    """Keeps the foreign topics of a catalogue up to date with the backend."""

    def __init__(
        self, catalog: TopicCatalog, partitions: LocalPartitions, backend: Backend, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._backend = backend
        self._clock = clock
        self._retry: Timer | None = None
        self._lock = asyncio.Lock()
        # Keys of the rows of FOREIGN_TOPIC that this process has written or found.
        self._stored: set[str] = set()

    async def follow(self) -> None:
        """Serve exactly the current foreign topics.

        Ordinary topics take precedence over foreign topics with the same names. If a foreign topic
        cannot be opened, this is logged, and tried again when foreign topics change.
        """
        catalog = self._catalog
        async with self._lock:
            wanted = {topic.topic_id: topic for topic in self._backend.foreign_topics}
            await self._store(wanted.values())
            for known in [one for one in catalog.topics.values() if one.foreign is not None]:
                if wanted.get(known.topic_id) != known.foreign:
                    await self._let_go(known)
            for foreign in wanted.values():
                if catalog.by_id(foreign.topic_id) is not None:
                    continue
                async with catalog.lock(foreign.name):
                    other = catalog.colliding(foreign.name)
                    problem = name_problem(foreign.name) or (other and f"there is a topic {other}")
                    try:
                        if problem:
                            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
                        await self._serve(foreign)
                    except KgwError as error:
                        _log.error(
                            "topic %r, which %s leads, is not served: %s",
                            foreign.name,
                            foreign.leader,
                            error,
                        )

    async def _store(self, topics: Iterable[ForeignTopic]) -> None:
        """Store which topics are foreign, before a group can commit an offset in one of them.

        A failure is logged, and `follow` runs again ten seconds later.
        """
        named = {format_uuid(topic.topic_id): topic.name for topic in topics}
        if named.keys() <= self._stored:
            return
        state = self._backend.state
        try:
            self._stored |= (await _intact_rows(state)).keys()
            new = named.keys() - self._stored
            await state.apply([Change(FOREIGN_TOPIC, key, named[key].encode()) for key in new])
            self._stored |= new
        except StorageError as error:
            _log.error("the ids of %d foreign topics are not stored: %s", len(named), error)
            if self._retry is None:
                at_s = self._clock.monotonic_s() + _RETRIED_AFTER_S
                self._retry = self._clock.call_at(at_s, self._follow_again)

    def _follow_again(self) -> None:
        self._retry = None
        if self._backend.on_foreign_topics is not None:
            self._backend.on_foreign_topics()

    def stop(self) -> None:
        """Do not try again to store ids."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _serve(self, foreign: ForeignTopic) -> None:
        catalog = self._catalog
        config = TopicConfig({}, catalog.config, foreign)
        topic = Topic(foreign.name, foreign.topic_id, foreign.partitions, config)
        catalog.partition_count += topic.partition_count
        try:
            await self._partitions.open_topics([topic])
        except BaseException:
            catalog.partition_count -= topic.partition_count
            raise
        catalog.add(topic)
        _log.info("topic %s, which %s leads, is served", topic.name, foreign.leader)

    async def _let_go(self, topic: Topic) -> None:
        """Serve a topic no more, but keep the offsets that groups have committed in it.

        The topic may be back in the next listing, under the same id. If it was deleted, nobody
        finds these offsets, and they expire as others do, once their group has no members.
        """
        self._catalog.remove(topic)
        self._catalog.tell_gone(topic.topic_id)
        for key in self._partitions.keys_here(topic.row()):
            await self._backend.release_partition(key)
        _log.info("topic %s is served no more", topic.name)


async def _intact_rows(state: StateStore) -> Mapping[str, Row]:
    """Return the rows of foreign topics; a damaged one is written again once its topic is listed.

    Raises StorageError.
    """
    try:
        return await state.load(FOREIGN_TOPIC)
    except DamagedRowsError as error:
        return error.intact
