"""ForeignTopics: serves topics that other programs lead in the same storage."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, KgwError
from kgw.partitions.topic_config import TopicConfig
from kgw.partitions.topics.topic import Topic, name_problem

if TYPE_CHECKING:
    from kgw.backend.base import Backend, ForeignTopic
    from kgw.partitions.topics.catalog import TopicCatalog
    from kgw.partitions.topics.local_partitions import LocalPartitions

_log = logging.getLogger(__name__)


class ForeignTopics:
    """Keeps the foreign topics of a catalogue up to date with the backend."""

    def __init__(
        self, catalog: TopicCatalog, partitions: LocalPartitions, backend: Backend
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._backend = backend
        self._lock = asyncio.Lock()

    async def follow(self) -> None:
        """Serve exactly the current foreign topics.

        Ordinary topics take precedence over foreign topics with the same names. If a foreign topic
        cannot be opened, this is logged, and tried again when foreign topics change.
        """
        catalog = self._catalog
        async with self._lock:
            wanted = {topic.topic_id: topic for topic in self._backend.foreign_topics}
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
        self._catalog.remove(topic)
        self._catalog.tell_deleted(topic.topic_id)
        for key in self._partitions.keys_here(topic.row()):
            await self._backend.release_partition(key)
        _log.info("topic %s is served no more", topic.name)
