"""TopicManager: creates, changes and deletes whole topics, and opens them at a start."""

from __future__ import annotations

import asyncio
import logging
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from kgw.errors import ErrorCode, KafkaError, KgwError, StorageError
from kgw.partitions.append.loading import LOADING_SETTINGS
from kgw.partitions.topic_config import TopicConfig, parse_own_settings
from kgw.partitions.topics.catalog import TopicCatalog
from kgw.partitions.topics.foreign_topics import ForeignTopics
from kgw.partitions.topics.local_partitions import LocalPartitions
from kgw.partitions.topics.rows import stored_rows
from kgw.partitions.topics.topic import (
    INTERNAL_TOPICS,
    UNCREATED_TOPICS,
    Topic,
    name_problem,
    new_topic_id,
    unified_name,
)
from kgw.state.base import Change, StateTakenOverError
from kgw.state.kinds import TOPIC, TOPIC_CREATION, TOPIC_DELETION
from kgw.turns import StepBudget, take_turns
from kgw.types import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from kgw.backend.base import Backend
    from kgw.clock import Clock
    from kgw.config import Config, Value
    from kgw.partitions.rules.retention import RetentionRules
    from kgw.partitions.topics.topic import TopicRow
    from kgw.turns import Turns
    from kgw.types import PartitionKey, TopicId

_log = logging.getLogger(__name__)

TOPIC_COST: Final = 50
"""The cost of computing a topic's settings; configuring one log costs 1."""

ConfigChange: TypeAlias = "Callable[[dict[str, str]], Mapping[str, str | None]]"
"""Computes a topic's new settings from its own settings; both are texts by name."""

ResultT = TypeVar("ResultT")
ArgumentsT = ParamSpec("ArgumentsT")


def completed(
    change: Callable[Concatenate[TopicManager, ArgumentsT], Coroutine[object, object, ResultT]],
) -> Callable[Concatenate[TopicManager, ArgumentsT], Coroutine[object, object, ResultT]]:
    """Complete a change that has begun even if its caller is cancelled.

    The caller is cancelled when its client disconnects.
    """

    @wraps(change)
    async def run(
        self: TopicManager, /, *args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs
    ) -> ResultT:
        return await asyncio.shield(self._keep(change(self, *args, **kwargs)))

    return run


class TopicManager:
    """Opens, creates, changes and deletes the topics of a catalogue.

    Changes to one name happen one after the other.
    """

    def __init__(
        self,
        backend: Backend,
        config: Config,
        clock: Clock,
        lives_here: Callable[[PartitionKey], bool] = lambda _: True,
        *,
        configured_per_turn: int = 2_000,
        expiries_per_turn: int = 1_000,
    ) -> None:
        """`lives_here` and `expiries_per_turn`: see `LocalPartitions`.

        `configured_per_turn` is the number of logs whose settings are changed in one turn of the
        loop.
        """
        self._configured_per_turn = configured_per_turn
        self._backend = backend
        self.catalog = TopicCatalog(config, clock)
        self.partitions = LocalPartitions(
            self.catalog, backend, clock, lives_here, expiries_per_turn=expiries_per_turn
        )
        self._foreign_topics = ForeignTopics(self.catalog, self.partitions, backend, clock)
        self._changes: set[asyncio.Task[object]] = set()

    # --- start and stop --------------------------------------------------------------------------

    async def open(self, *, wait_s: float | None = None) -> None:
        """Finish the changes that a crash interrupted, then open all topics.

        With `wait_s`, partitions are opened as by `LocalPartitions.open`; otherwise all are open
        when this returns. Raises StorageError.
        """
        state, partitions = self._backend.state, self.partitions
        await self._undo_creations()
        rows = await stored_rows(state)
        for row in await stored_rows(state, TOPIC_DELETION):
            await partitions.remove(row)
            await state.apply([Change(TOPIC_DELETION, row.key, None)])
        for row in rows:
            self._add_stored(row)
        if wait_s is None:
            await partitions.open_topics(list(self.catalog.topics.values()))
        else:
            await partitions.open(lambda _: True, wait_s=wait_s)
        for name in INTERNAL_TOPICS & self.catalog.topics.keys():
            if wait_s is None:
                await self._take_over(name)
            else:
                self._keep(self._take_over(name))
        self._backend.on_foreign_topics = self._foreign_topics_changed
        await self._foreign_topics.follow()

    def _foreign_topics_changed(self) -> None:
        self._keep(self._foreign_topics.follow())

    async def _take_over(self, name: str) -> None:
        """Replace an empty ordinary topic that has the name of an internal topic.

        A client's request or an older version of kgw has created it. A topic with records is kept,
        as only its owner knows their purpose.
        """
        await self.partitions.opened()
        topic = self.catalog.topics.get(name)
        if topic is None or topic.foreign is not None:
            return
        partitions = topic.partitions.values()
        if len(partitions) < topic.partition_count or not all(one.is_unused for one in partitions):
            return
        # There is no await after the check that it is empty, so nothing is appended before it is
        # deleted.
        self.catalog.remove(topic)
        try:
            async with self.catalog.lock(name):
                row = topic.row()
                await self._store_deletion(row)
                await self._remove_rest(row)
        except KgwError as error:
            _log.warning("topic %s, which is empty, is not deleted yet: %s", name, error)
        else:
            _log.info("topic %s was empty, and is internal now", name)

    async def aclose(self) -> None:
        """Wait for the running changes."""
        self._foreign_topics.stop()
        await self.partitions.aclose()
        while self._changes:
            await asyncio.wait(self._changes)
        self.catalog.check_thread.close()

    async def follow(self, topic_id: TopicId, row: TopicRow | None) -> None:
        """Apply a topic's row that another node has stored; None if it has deleted the row.

        Raises StorageError.
        """
        catalog, partitions = self.catalog, self.partitions
        topic = catalog.by_id(topic_id)
        if topic is None:
            if row is not None:
                await partitions.follow_moves(self._add_stored(row))
            return
        async with catalog.lock(topic.name):
            if topic.is_deleted:
                return
            if row is None:
                catalog.remove(topic)
                catalog.tell_deleted(topic_id)
                await partitions.remove(topic.row())
                return
            catalog.partition_count += row.partitions - topic.partition_count
            topic.partition_count = row.partitions
            topic.encoded = {}
            await self._take(topic, self._stored_config(row).own)
            await partitions.follow_moves(topic)

    # --- changes ---------------------------------------------------------------------------------

    def check_new(
        self, name: str, partition_count: int, configs: Mapping[str, str | None]
    ) -> dict[str, Value]:
        """Return the settings of a topic that may be created.

        Raises KafkaError INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
        POLICY_VIOLATION or INVALID_CONFIG.
        """
        problem = name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name in UNCREATED_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name} is an internal topic: no client makes it"
            )
        if name in self.catalog.topics or name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
        unified = unified_name(name)
        other = self.catalog.colliding(name)
        if other is None and unified in INTERNAL_TOPICS | UNCREATED_TOPICS:
            other = TopicName(unified)
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name!r} collides with {other!r}: '.' and '_' count as the same",
            )
        own = self._own_settings(configs)
        self._check_partition_count(partition_count, partition_count)
        return own

    def check_growth(self, topic: Topic, partition_count: int) -> None:
        """Raise KafkaError INVALID_PARTITIONS or POLICY_VIOLATION if a topic cannot grow so far."""
        topic.check_own(ErrorCode.POLICY_VIOLATION)
        current = topic.partition_count
        if partition_count == current:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {current} partitions"
            )
        if partition_count < current:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name!r} has {current} partitions; there cannot be fewer",
            )
        self._check_partition_count(partition_count, partition_count - current)

    @completed
    async def create(
        self, name: str, partition_count: int, configs: Mapping[str, str | None]
    ) -> Topic:
        """Create a topic durably. Raises as `check_new`, and StorageError."""
        catalog, state = self.catalog, self._backend.state
        async with catalog.lock(name):
            own = self.check_new(name, partition_count, configs)
            config = catalog.config
            topic = Topic(
                TopicName(name), new_topic_id(), partition_count, TopicConfig(own, config)
            )
            row = topic.row()
            catalog.partition_count += partition_count
            try:
                await state.apply([Change(TOPIC_CREATION, row.key, row.encode(), 0)])
                try:
                    topic.partitions = await self.partitions.create(
                        topic, self.partitions.keys_here(row)
                    )
                except BaseException:
                    await self._try_undo(row)
                    raise
                # If this commit fails, it is not known whether it was stored: the next start reads
                # the rows, and keeps the topic or undoes its creation.
                await state.apply(
                    [Change(TOPIC, row.key, row.encode(), 0), Change(TOPIC_CREATION, row.key, None)]
                )
            except BaseException:
                catalog.partition_count -= partition_count
                raise
            while config is not catalog.config:
                config = catalog.config
                await take_turns(topic.configure(TopicConfig(own, config), self._config_budget()))
            catalog.add(topic)
            self._backend.describe_topic(topic.topic_id, row.encode())
            await self.partitions.follow_moves(topic)
            return topic

    @completed
    async def delete(self, topic: Topic) -> None:
        """Delete a topic and its records.

        Raises KafkaError if it no longer exists or is a foreign or internal topic, and
        StorageError.
        """
        topic.check_own(ErrorCode.TOPIC_DELETION_DISABLED)
        async with self.catalog.lock(topic.name):
            await self.partitions.opened()
            _check_exists(topic)
            row = topic.row()
            state = self._backend.state
            had_failed = state.failure is not None
            try:
                await self._store_deletion(row)
            except StateTakenOverError:
                raise
            except StorageError:
                if state.failure is not None and not had_failed:
                    # If this fails, the next start deletes the topic or serves it again. Until then
                    # producers must not get an acknowledgement.
                    self.catalog.remove(topic)
                raise
            self.catalog.remove(topic)
            await self._remove_rest(row)

    async def _store_deletion(self, row: TopicRow) -> None:
        await self._backend.state.apply(
            [Change(TOPIC_DELETION, row.key, row.encode()), Change(TOPIC, row.key, None)]
        )

    async def _remove_rest(self, row: TopicRow) -> None:
        """Remove the logs of a topic whose deletion is durable."""
        self.catalog.tell_deleted(row.topic_id)
        await self.partitions.remove(row)
        await self._backend.state.apply([Change(TOPIC_DELETION, row.key, None)])

    @completed
    async def add_partitions(self, topic: Topic, partition_count: int) -> None:
        """Raise a topic's number of partitions durably. Raises as `check_growth`."""
        catalog, partitions = self.catalog, self.partitions
        async with catalog.lock(topic.name):
            await partitions.opened()
            _check_exists(topic)
            self.check_growth(topic, partition_count)
            added_count = partition_count - topic.partition_count
            catalog.partition_count += added_count
            config = topic.config
            try:
                row = topic.row()._replace(partitions=partition_count)
                keys = partitions.keys_here(row, first=topic.partition_count)
                added = await partitions.create(topic, keys)
                await self._backend.state.apply([Change(TOPIC, row.key, row.encode())])
            except BaseException:
                catalog.partition_count -= added_count
                raise
            while config is not topic.config:
                config = topic.config
                await take_turns(topic.configure_logs(added.values(), self._config_budget()))
            topic.partition_count = partition_count
            topic.add_partitions(added)
            self._backend.describe_topic(topic.topic_id, row.encode())
            await partitions.follow_moves(topic)

    # --- settings --------------------------------------------------------------------------------

    @completed
    async def configure(self, topic: Topic, change: ConfigChange) -> None:
        """Replace a topic's own settings durably by the result of `change`.

        Raises the errors of `change`, KafkaError INVALID_CONFIG for an invalid result, KafkaError
        if the topic no longer exists or is foreign or internal, and StorageError.
        """
        topic.check_own(ErrorCode.POLICY_VIOLATION)
        async with self.catalog.lock(topic.name):
            _check_exists(topic)
            before = topic.config.own
            own = self._own_settings(change(topic.config.own_texts()))
            config = TopicConfig(own, self.catalog.config)
            row = topic.row()._replace(configs=config.own_texts())
            if config.loading is not None and config.loading != topic.config.loading:
                await self._begin_loading(topic, config)
            state = self._backend.state
            had_failed = state.failure is not None
            try:
                await state.apply([Change(TOPIC, row.key, row.encode())])
            except BaseException:
                if state.failure is None or had_failed:
                    await self._take(topic, before)
                # If this fails, it is not known until the next start whether the topic is being
                # loaded. Until then other producers must not write, as their records would be taken
                # for loaded ones.
                raise
            self._backend.describe_topic(topic.topic_id, row.encode())
            await self._take(topic, own)

    async def reconfigure(self, config: Config) -> None:
        """Replace the server settings. Returns when all topics use the new settings."""
        self.catalog.reconfigure(config)
        topics = list(self.catalog.topics.values())
        await asyncio.shield(self._keep(take_turns(self._reconfigure(topics))))

    async def _take(self, topic: Topic, own: Mapping[str, Value]) -> None:
        """Replace a topic's own settings for the next append."""
        config = TopicConfig(own, self.catalog.config)
        before = topic.config.retention
        await take_turns(topic.configure(config, self._config_budget()))
        self._tell_retention(topic, before)

    def _tell_retention(self, topic: Topic, before: RetentionRules) -> None:
        tell = self.catalog.when_retention_changed
        if topic.config.retention != before and tell is not None:
            tell(topic)

    async def _begin_loading(self, topic: Topic, config: TopicConfig) -> None:
        """Admit only the producer in a changed configuration, before the change is durable.

        Otherwise records that others write meanwhile would be taken for loaded ones. Raises
        KafkaError if the topic is already being loaded, or cannot be loaded in this way.
        """
        loading = topic.config.loading
        if loading is not None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"topic {topic.name} is being loaded: take kgw.loading={loading.transactional_id} "
                "away first",
            )
        if config.loading is not None and config.loading.keeps_offsets:
            await self.partitions.opened()
            self._check_empty(topic)
        others = {n: value for n, value in topic.config.own.items() if n not in LOADING_SETTINGS}
        changed = {n: value for n, value in config.own.items() if n in LOADING_SETTINGS}
        await self._take(topic, {**others, **changed})

    def _check_empty(self, topic: Topic) -> None:
        """Raise KafkaError if a record was ever stored in one of a topic's partitions."""
        for key in self.partitions.keys_here(topic.row()):
            partition = topic.partitions.get(key.partition)
            end_offset = None if partition is None else partition.log.end_offset
            if end_offset != 0:
                found = "is not open" if end_offset is None else f"ends at offset {end_offset}"
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"kgw.loading.offsets=original is for empty topics: partition {key.partition} "
                    f"of {topic.name} {found}",
                )

    def _own_settings(self, texts: Mapping[str, str | None]) -> dict[str, Value]:
        """Return a topic's own settings as values. Raises KafkaError INVALID_CONFIG."""
        own = parse_own_settings(texts)
        if "kgw.seaweedmq.layout" in own and not self.catalog.config.backend.startswith(
            "seaweedmq:"
        ):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "kgw.seaweedmq.layout is for kgw.backend=seaweedmq://FILER:PORT/NAMESPACE",
            )
        return own

    def _reconfigure(self, topics: Iterable[Topic]) -> Turns[None]:
        """Compute the topics' settings again from their own settings and the current defaults."""
        budget = self._config_budget()
        for topic in topics:
            if not topic.is_deleted:
                config = TopicConfig(topic.config.own, self.catalog.config, topic.foreign)
                before = topic.config.retention
                yield from topic.configure(config, budget)
                self._tell_retention(topic, before)
            if budget.spend(TOPIC_COST):
                yield

    def _config_budget(self) -> StepBudget:
        return StepBudget(self._configured_per_turn)

    def _keep(self, change: Coroutine[object, object, ResultT]) -> asyncio.Task[ResultT]:
        """Run `change` in the background; `aclose` waits for its end."""
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    # --- rows ------------------------------------------------------------------------------------

    async def _undo_creations(self) -> None:
        """Remove the logs of interrupted creations if they are empty; else leave them alone."""
        state = self._backend.state
        for row in await stored_rows(state, TOPIC_CREATION):
            settings = TopicConfig({}, self.catalog.config).log_settings
            is_empty = True
            for log_key in self.partitions.keys_here(row):
                log = await self._backend.open_partition(log_key, row.name, settings)
                is_empty = is_empty and log.end_offset == 0
            if is_empty:
                await self.partitions.remove(row)
            else:
                _log.error("topic %s was never created, yet holds records: left alone", row.name)
            await state.apply([Change(TOPIC_CREATION, row.key, None)])

    async def _try_undo(self, row: TopicRow) -> None:
        """Remove the logs of a failed creation. If this fails, the next start removes them."""
        try:
            await self.partitions.remove(row)
            await self._backend.state.apply([Change(TOPIC_CREATION, row.key, None)])
        except KgwError as error:
            _log.warning("remains of topic %s stay until the next start: %s", row.name, error)

    def _stored_config(self, row: TopicRow) -> TopicConfig:
        """Return a stored topic's configuration.

        A setting that this version refuses is logged and ignored: otherwise kgw could not start,
        and all other topics would be unavailable.
        """
        own: dict[str, Value] = {}
        for name, text in row.configs.items():
            try:
                own.update(parse_own_settings({name: text}))
            except KafkaError as error:
                _log.error("topic %s: a stored setting is left out: %s", row.name, error)
        return TopicConfig(own, self.catalog.config)

    def _add_stored(self, row: TopicRow) -> Topic:
        config = self._stored_config(row)
        topic = Topic(row.name, row.topic_id, row.partitions, config)
        self.catalog.add(topic)
        # Start from the stored row, as the topic's settings lack those that this version refuses.
        self._backend.describe_topic(topic.topic_id, row.encode())
        self.catalog.partition_count += topic.partition_count
        return topic

    def _check_partition_count(self, partition_count: int, added_count: int) -> None:
        if partition_count < 1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"a topic has at least one partition, not {partition_count}",
            )
        config, count = self.catalog.config, self.catalog.partition_count
        limit = config.topic_partitions_max
        if partition_count > limit:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"{partition_count} partitions: a topic has at most {limit} "
                "(kgw.topic.partitions.max)",
            )
        limit = config.partitions_max
        if count + added_count > limit:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{added_count} partitions beside {count}: at most {limit} "
                "are served (kgw.partitions.max)",
            )


def _check_exists(topic: Topic) -> None:
    if topic.is_deleted:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has been deleted"
        )
