"""The topics: names, ids, partitions and settings; topics are created and deleted as a whole.

The state store has rows, keyed by the text of the topic id, each with a `TopicRow`:
- `topic-creation` is written before a topic's logs are created, and is deleted in the same commit
  that writes the `topic` row. If a start finds it, no client knows the topic: its logs are removed.
- `topic` means that the topic exists.
- `topic-deletion` replaces the `topic` row in one commit, before the first log is removed, and is
  deleted after the last. If a start finds it, it removes the logs again.
So a crash leaves a whole topic or nothing. Logs without a row are left alone: a lost database must
never cost records (`kgw log adopt` can restore the topics).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from kgw.errors import ErrorCode, KafkaError, KgwError, StorageError
from kgw.partitions.append.appending import AppendCounts, CheckThread
from kgw.partitions.append.loading import LOADING_SETTINGS
from kgw.partitions.partition import Partition, most_grown
from kgw.partitions.rules.steady_time import JumpWatch
from kgw.partitions.topic_config import TopicConfig, parse_own_settings
from kgw.partitions.topics.hold import nothing_committed
from kgw.partitions.topics.topic import (
    INTERNAL_TOPICS,
    UNCREATED_TOPICS,
    Topic,
    TopicRow,
    name_problem,
    new_topic_id,
    unified_name,
    why_missing,
)
from kgw.state.base import Change, DamagedRowsError, StateTakenOverError
from kgw.state.kinds import TOPIC, TOPIC_CREATION, TOPIC_DELETION
from kgw.turns import StepBudget, take_turns
from kgw.types import PartitionKey, TopicName

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Mapping,
        Sequence,
    )

    from kgw.backend.base import Backend, ForeignTopic, PartitionLog
    from kgw.clock import Clock
    from kgw.config import Config, Value
    from kgw.partitions.counts import CountsByPartition
    from kgw.partitions.rules.retention import RetentionRules
    from kgw.partitions.topics.hold import Committed
    from kgw.partitions.topics.opening import Opening
    from kgw.state.base import Row
    from kgw.turns import Turns
    from kgw.types import TopicId

_log = logging.getLogger(__name__)


# Opening and removing logs waits for directory syncs: some at a time overlap, hundreds do not.
_LOGS_AT_A_TIME = 32

# Enough to keep the processor busy while calls to the storage are in progress. With more, a
# partition that a client asks for would wait longer for a slot.
_OPENED_BEHIND = 16

# A constant, as every Produce request reads it and looking up an enum member is slow.
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

# Partitions whose objects are made in one iteration of the event loop.
_PARTITIONS_PER_TURN = 200

TOPIC_COST: Final = 50
"""Cost of computing a topic's settings; configuring one log costs 1."""

_ADOPT_TOPICS: Final = "makes them anew from the logs, with default settings"
_ADOPT_CHANGES: Final = "removes them, and what they were about stays on disk"

ConfigChange: TypeAlias = "Callable[[dict[str, str]], Mapping[str, str | None]]"
"""Computes a topic's new settings from its own ones; both are texts by name."""

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")


class TopicCatalog:
    """Every topic of the cluster, with the partitions that live on this node.

    Changes to one name happen one after the other.

    A change that has begun is completed even when the caller is cancelled, as a client's is that
    disconnects.
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
        """`lives_here` says whether this node is to open a partition: `Placement.owns`.

        `configured_per_turn` is how many logs are given other settings in a turn of the loop,
        `expiries_per_turn` of how many partitions producers expire, and how many producers do.
        """
        self._configured_per_turn = configured_per_turn
        self._expiries_per_turn = expiries_per_turn
        self._backend = backend
        self._lives_here = lives_here
        self._config = config
        self._clock = clock
        self._jumps = JumpWatch(clock.wall_ms(), clock.monotonic_s())
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_unified_name: dict[str, TopicName] = {}
        # Locks of names that are being changed; a lock goes when no task holds or awaits it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._changes: set[asyncio.Task[object]] = set()
        self._foreign_lock = asyncio.Lock()
        self._partition_count = 0
        # Checkpoints by time and by size may overlap; only one may write a snapshot's file.
        self._snapshot_lock = asyncio.Lock()
        self._log_slots = asyncio.Semaphore(_LOGS_AT_A_TIME)
        self._openings: list[Opening] = []
        self.cluster_id = ""
        """The ids of internal topics are derived from it. Set before `open`."""
        self._internal: dict[str, Topic] = {}
        # Names of internal topics by id; filled when the first unknown id is looked up.
        self._internal_names: dict[bytes, str] = {}
        self.committed: Committed = nothing_committed
        """Looks up offsets that groups have committed, for kgw.archive.hold. Set by the owner of
        the groups."""
        self.check_thread = CheckThread()
        """Runs long checks and conversions of records."""
        self.recompressed = self.check_thread.recompressed
        """Counts of batches that were compressed again in their topic's codec."""
        self._appended = AppendCounts()
        self.counts: CountsByPartition | None = None
        """Counters of each partition; None unless kgw.metrics.labels asks for them."""
        if not {"topic", "partition"}.isdisjoint(config.metrics_labels):
            from kgw.partitions.counts import CountsByPartition

            self.counts = CountsByPartition()
        self.when_deleted: list[Callable[[TopicId], None]] = []
        """Called with the id of each deleted topic, once the deletion is durable."""
        self.is_open_here = lives_here
        """Whether the bundle of a partition is open on this node: then its partitions are, too."""
        self.when_retention_changed: Callable[[Topic], None] | None = None
        """Called with a topic when its retention settings have changed."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Topics that clients have created, by name. Internal topics are not included."""
        return MappingProxyType(self._by_name)

    @property
    def appended(self) -> AppendCounts:
        """Counts of the producers' appends, over all partitions."""
        return self._appended if self.counts is None else self.counts.total()

    @property
    def listed(self) -> list[Topic]:
        """Topics in a list of all topics: also internal ones that were looked up before."""
        shown = (one for one in self._internal.values() if one.name not in self._by_name)
        return [*self._by_name.values(), *shown]

    @property
    def partition_count(self) -> int:
        """Number of partitions of all topics, including topics that are being created."""
        return self._partition_count

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name) or self._internal_topic(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id) or self._internal_topic(self._internal_name(topic_id))

    def _internal_topic(self, name: str) -> Topic | None:
        """Return an internal topic, unless clients have made an ordinary one of its name."""
        if name not in INTERNAL_TOPICS or name in self._by_name:
            return None
        topic = self._internal.get(name)
        if topic is None:
            # Imported here, as few clients ask for internal topics.
            from kgw.partitions.topics.internal_topics import make_internal_topic

            topic = self._internal[name] = make_internal_topic(
                name, self.cluster_id, self._config, self._clock, self.check_thread, self.appended
            )
        return topic

    def _internal_name(self, topic_id: bytes) -> str:
        """Return the name of the internal topic of an id; "" for any other id."""
        if not self._internal_names:
            from kgw.partitions.topics.internal_topics import internal_topic_id

            self._internal_names = {
                internal_topic_id(self.cluster_id, name): name for name in INTERNAL_TOPICS
            }
        return self._internal_names.get(topic_id, "")

    def find(self, topic: bytes | str, index: int) -> tuple[Partition | None, ErrorCode]:
        """Return a partition by its topic's id or name; if it is None, with the error to answer."""
        found = self._by_name.get(topic) if isinstance(topic, str) else self._by_id.get(topic)
        partition = None if found is None else found.partitions.get(index)
        if partition is not None:
            return partition, _UNKNOWN
        if found is not None:
            self.request_open(found, index)
        else:
            found = self.get(topic) if isinstance(topic, str) else self.by_id(topic)
            partition = None if found is None else found.partitions.get(index)
            if partition is not None:
                return partition, _UNKNOWN
        return None, why_missing(found, index, by_id=not isinstance(topic, str))

    def partitions(self) -> Iterable[Partition]:
        """Yield every partition that lives on this node."""
        for topic in list(self._by_name.values()):
            yield from topic.partitions.values()

    def holding_groups(self) -> frozenset[str]:
        """Return the groups that some topic's kgw.archive.hold names."""
        return frozenset(
            group for topic in self._by_name.values() for group in topic.config.holding_groups
        )

    def request_open(self, topic: Topic, index: int) -> bool:
        """Open this partition next. Return whether it was still closed."""
        key = PartitionKey(topic.topic_id, index)
        return any(opening.request_open(key) for opening in self._openings)

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems with opening partitions, for the operator."""
        return tuple(chain(*(opening.problems for opening in self._openings)))

    def producer_ids(self) -> Iterable[list[int]]:
        """Yield each partition's producer ids; several partitions may know the same id."""
        for partition in self.partitions():
            yield partition.producers.ids()

    # --- start and stop --------------------------------------------------------------------------

    async def open(self, *, wait_s: float | None = None) -> None:
        """Finish the changes that a crash interrupted, then open every topic.

        With `wait_s`, return after that time at the latest, and open the remaining partitions in
        the background: until then `find` answers NOT_LEADER_OR_FOLLOWER for them, so that clients
        ask again. A partition that cannot be opened is tried again, and is among `problems`
        meanwhile. Raises StorageError.
        """
        state = self._backend.state
        await self._undo_creations()
        rows = await self.stored_rows()
        for key, row in (await self._load(TOPIC_DELETION, _ADOPT_CHANGES)).items():
            await self._remove_logs(TopicRow.decode(row.value))
            await state.apply([Change(TOPIC_DELETION, key, None)])
        for topic_row in rows:
            self._add_stored(topic_row)
        if wait_s is None:
            await self._open_all(self._closed_keys(self._lives_here))
        else:
            await self.open_partitions(self._lives_here, wait_s=wait_s)
        for name in INTERNAL_TOPICS & self._by_name.keys():
            if not self._openings:
                await self._take_over(name)
            else:
                self._keep(self._take_over(name))
        self._backend.on_foreign_topics = self._foreign_topics_changed
        await self._follow_foreign()

    async def _take_over(self, name: str) -> None:
        """Let an internal topic replace an empty ordinary topic of its name.

        A client that asked for it has created it, or an older version of kgw. A topic with records
        stays, as only its owner knows their purpose.
        """
        await self.opened()
        topic = self._by_name.get(name)
        if topic is None or topic.foreign is not None:
            return
        partitions = topic.partitions.values()
        if len(partitions) < topic.partition_count or not all(one.is_unused for one in partitions):
            return
        # No await since it was found empty, so that nothing is appended before it is deleted.
        self._remove(topic)
        try:
            await self._delete_removed(topic)
        except KgwError as error:
            _log.warning("topic %s, which is empty, is not deleted yet: %s", name, error)
        else:
            _log.info("topic %s was empty, and is internal now", name)

    async def open_partitions(
        self, covers: Callable[[PartitionKey], bool], *, wait_s: float | None = None
    ) -> None:
        """Open the partitions on this node that `covers` accepts and that are not open yet.

        With `wait_s`, as `open`; without it, return when all have been tried once.
        """
        keys = self._closed_keys(covers)
        if not keys:
            return
        # Imported here to keep start-up fast.
        from kgw.partitions.topics.opening import Opening

        opening = Opening(
            keys,
            self._open_here,
            self._open_again,
            self._clock,
            at_a_time=_OPENED_BEHIND,
        )
        self._openings = [*(one for one in self._openings if not one.is_done), opening]
        await opening.wait(wait_s)

    def _closed_keys(self, covers: Callable[[PartitionKey], bool]) -> list[PartitionKey]:
        return [
            key
            for topic in self._by_name.values()
            if topic.foreign is None
            for key in self._keys_here(topic.row())
            if covers(key)
            and topic.partition(key.partition) is None
            and not any(opening.has(key) for opening in self._openings)
        ]

    async def _open_all(self, keys: Iterable[PartitionKey]) -> None:
        opened: dict[Topic, dict[int, Partition]] = {}

        async def open_partition(key: PartitionKey) -> None:
            topic = self._by_id[key.topic_id]
            opened.setdefault(topic, {})[key.partition] = await self._open_partition(topic, key)

        await _for_each(keys, open_partition)
        for topic, partitions in opened.items():
            topic.add_partitions(partitions)

    async def opened(self) -> None:
        """Return when every partition has been opened, or has failed to open."""
        for opening in self._openings:
            await opening.wait()

    def stop_opening(self) -> None:
        """Open no more partitions: their new leader must not lose them to this node."""
        for opening in self._openings:
            opening.stop()

    def retire_partitions(self, covers: Callable[[PartitionKey], bool]) -> list[Partition]:
        """Stop serving the partitions that `covers` accepts, as other nodes lead them now.

        Returns those that were open. Their submitted appends may still be stored.
        """
        retired: list[Partition] = []
        for topic in self._by_name.values():
            leaving = {
                index: partition
                for index, partition in topic.partitions.items()
                if covers(PartitionKey(topic.topic_id, index))
            }
            if leaving:
                topic.remove_partitions(leaving)
            retired += leaving.values()
        for partition in retired:
            partition.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return retired

    async def close_partitions(self, covers: Callable[[PartitionKey], bool]) -> None:
        """Give up partitions in order: submitted batches are stored, and another node may lead.

        If the storage fails, this is logged: the next leader recovers the partition.
        """
        foreign = {topic.topic_id for topic in self._by_name.values() if topic.foreign is not None}
        retired = self.retire_partitions(lambda key: covers(key) and key.topic_id not in foreign)
        for opening in self._openings:
            await opening.wait_for(covers)

        async def close(partition: Partition) -> None:
            key = PartitionKey(partition.topic.topic_id, partition.index)
            try:
                await partition.enter_queued()
                try:
                    await partition.save_snapshot()
                finally:
                    await self._backend.release_partition(key)
            except StorageError as error:
                _log.warning("partition %s was not left in order: %s", key, error)

        await _for_each(retired, close)

    async def stored_rows(self) -> list[TopicRow]:
        """Return the rows of all topics that exist. Raises StorageError."""
        rows = await self._load(TOPIC, _ADOPT_TOPICS)
        return [read_row(key, row.value) for key, row in rows.items()]

    async def _load(self, kind: str, adoption: str) -> dict[str, Row]:
        """Return the rows of a kind; raise StorageError for damaged rows instead of skipping them.

        Without a topic's row, clients could create the topic again at offset 0 and records be lost.
        """
        try:
            return await self._backend.state.load(kind)
        except DamagedRowsError as error:
            raise StorageError(f"{error}; `kgw log adopt` {adoption}") from error

    async def aclose(self) -> None:
        """Wait for the changes under way."""
        for opening in self._openings:
            await opening.aclose()
        while self._changes:
            await asyncio.wait(self._changes)
        self.check_thread.close()

    async def save_snapshots(self, *, leave_bytes: int = 0) -> None:
        """Store snapshots of the partitions' producers, so that the next start replays less.

        If there are many partitions, store only those that have grown the most, until the others
        leave `leave_bytes` to replay: each snapshot takes two syncs.
        """
        async with self._snapshot_lock:
            budget = StepBudget(self._expiries_per_turn)
            expiration_ms = self._config.producer_id_expiration_ms
            # After a wrong jump of the clock every producer would expire, and retries be stored
            # twice.
            has_jumped = self._jumps.has_jumped(self._clock.wall_ms(), self._clock.monotonic_s())
            for partition in self.partitions():
                work = partition.expire_producers(expiration_ms, has_jumped=has_jumped)
                if budget.spend(1 + await take_turns(work)):
                    await asyncio.sleep(0)
            dirty = [partition for partition in self.partitions() if partition.is_dirty]
            save = partial(Partition.save_snapshot, queue=asyncio.Lock())
            await _for_each(most_grown(dirty, leave_bytes), save)

    async def _follow_moves(self, topic: Topic) -> None:
        """Give up and create partitions of a topic whose bundles moved while it was changed."""
        moved = [PartitionKey(topic.topic_id, index) for index in topic.partitions]
        moved = [key for key in moved if not self._lives_here(key)]
        if moved:
            await self.close_partitions(frozenset(moved).__contains__)
        arrived = [
            key
            for key in self._keys_here(topic.row())
            if key.partition not in topic.partitions
            and self.is_open_here(key)
            and not any(opening.has(key) for opening in self._openings)
        ]
        if arrived:
            topic.add_partitions(await self._create_logs(topic, arrived))

    async def follow(self, topic_id: TopicId, row: TopicRow | None) -> None:
        """Take over a topic's row that another node has stored; None if that node has deleted it.

        Raises StorageError.
        """
        topic = self._by_id.get(topic_id)
        if topic is None:
            if row is not None:
                await self._follow_moves(self._add_stored(row))
            return
        async with self._lock(topic.name):
            if topic.is_deleted:
                return
            if row is None:
                self._remove(topic)
                for tell in self.when_deleted:
                    tell(topic_id)
                await self._remove_logs(topic.row())
                return
            self._partition_count += row.partitions - topic.partition_count
            topic.partition_count = row.partitions
            topic.encoded = {}
            await self._take(topic, self._stored_config(row).own)
            await self._follow_moves(topic)

    # --- topics that others lead -----------------------------------------------------------------

    def _foreign_topics_changed(self) -> None:
        self._keep(self._follow_foreign())

    async def _follow_foreign(self) -> None:
        """Serve the current foreign topics, and no others.

        Our own topics take precedence over foreign topics of the same names. A foreign topic that
        cannot be opened is logged, and tried again when foreign topics change.
        """
        async with self._foreign_lock:
            wanted = {topic.topic_id: topic for topic in self._backend.foreign_topics}
            for known in [one for one in self._by_name.values() if one.foreign is not None]:
                if wanted.get(known.topic_id) != known.foreign:
                    await self._let_go_of_foreign(known)
            for foreign in wanted.values():
                if foreign.topic_id in self._by_id:
                    continue
                async with self._lock(foreign.name):
                    other = self._by_unified_name.get(unified_name(foreign.name))
                    problem = name_problem(foreign.name) or (other and f"there is a topic {other}")
                    try:
                        if problem:
                            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
                        await self._serve_foreign(foreign)
                    except KgwError as error:
                        _log.error(
                            "topic %r, which %s leads, is not served: %s",
                            foreign.name,
                            foreign.leader,
                            error,
                        )

    async def _serve_foreign(self, foreign: ForeignTopic) -> None:
        config = TopicConfig({}, self._config, foreign)
        topic = Topic(foreign.name, foreign.topic_id, foreign.partitions, config)
        self._partition_count += topic.partition_count
        opened: dict[int, Partition] = {}

        async def open_partition(key: PartitionKey) -> None:
            opened[key.partition] = await self._open_partition(topic, key)

        try:
            await _for_each(self._keys_here(topic.row()), open_partition)
        except BaseException:
            self._partition_count -= topic.partition_count
            raise
        topic.add_partitions(opened)
        self._add(topic)
        _log.info("topic %s, which %s leads, is served", topic.name, foreign.leader)

    async def _let_go_of_foreign(self, topic: Topic) -> None:
        self._remove(topic)
        for tell in self.when_deleted:
            tell(topic.topic_id)
        for key in self._keys_here(topic.row()):
            await self._backend.release_partition(key)
        _log.info("topic %s is served no more", topic.name)

    # --- changes ---------------------------------------------------------------------------------

    def check_new(
        self, name: str, partition_count: int, configs: Mapping[str, str | None]
    ) -> dict[str, Value]:
        """Return the settings of a topic that may be created; raise the errors of `create`.

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
        if name in self._by_name or name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
        unified = unified_name(name)
        other = self._by_unified_name.get(unified)
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

    async def create(
        self, name: str, partition_count: int, configs: Mapping[str, str | None]
    ) -> Topic:
        """Create a topic, durably. Raises as `check_new`, and StorageError."""
        return await self._complete(self._create(name, partition_count, configs))

    async def delete(self, topic: Topic) -> None:
        """Delete a topic and its records.

        Raises KafkaError if it no longer exists or is a foreign or internal topic, and
        StorageError.
        """
        topic.check_own(ErrorCode.TOPIC_DELETION_DISABLED)
        await self._complete(self._delete(topic))

    def check_growth(self, topic: Topic, partition_count: int) -> None:
        """Raise KafkaError INVALID_PARTITIONS or POLICY_VIOLATION if the topic must not grow so."""
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

    async def add_partitions(self, topic: Topic, partition_count: int) -> None:
        """Raise a topic's number of partitions, durably. Raises as `check_growth`."""
        await self._complete(self._grow(topic, partition_count))

    async def configure(self, topic: Topic, change: ConfigChange) -> None:
        """Replace a topic's own settings by the result of `change`, durably.

        Raises the errors of `change`, KafkaError INVALID_CONFIG for an invalid result, KafkaError
        if the topic no longer exists or is foreign or internal, and StorageError.
        """
        topic.check_own(ErrorCode.POLICY_VIOLATION)
        await self._complete(self._configure(topic, change))

    async def reconfigure(self, config: Config) -> None:
        """Replace the server settings, and return when every topic uses the new ones."""
        self._config = config
        topics = list(self._by_name.values())
        for topic in self._internal.values():
            topic.config = TopicConfig(topic.config.own, config)
        await self._complete(take_turns(self._reconfigure(topics)))

    # --- how -------------------------------------------------------------------------------------

    async def _create(
        self, name: str, partition_count: int, configs: Mapping[str, str | None]
    ) -> Topic:
        async with self._lock(name):
            own = self.check_new(name, partition_count, configs)
            config = self._config
            topic = Topic(
                TopicName(name), new_topic_id(), partition_count, TopicConfig(own, config)
            )
            row = topic.row()
            self._partition_count += partition_count
            try:
                await self._backend.state.apply([Change(TOPIC_CREATION, row.key, row.encode(), 0)])
                try:
                    topic.partitions = await self._create_logs(topic, self._keys_here(row))
                except BaseException:
                    await self._try_undo(row)
                    raise
                # If this commit fails, it is unknown whether it happened: the next start reads the
                # rows, which decide whether the topic exists or is undone.
                await self._backend.state.apply(
                    [Change(TOPIC, row.key, row.encode(), 0), Change(TOPIC_CREATION, row.key, None)]
                )
            except BaseException:
                self._partition_count -= partition_count
                raise
            while config is not self._config:
                config = self._config
                await take_turns(topic.configure(TopicConfig(own, config), self._config_budget()))
            self._add(topic)
            self._backend.describe_topic(topic.topic_id, row.encode())
            await self._follow_moves(topic)
            return topic

    async def _delete(self, topic: Topic) -> None:
        async with self._lock(topic.name):
            await self.opened()
            self._check_exists(topic)
            row = topic.row()
            state = self._backend.state
            had_failed = state.failure is not None
            try:
                await state.apply(
                    [Change(TOPIC_DELETION, row.key, row.encode()), Change(TOPIC, row.key, None)]
                )
            except StateTakenOverError:
                raise
            except StorageError:
                if state.failure is not None and not had_failed:
                    # Unknown until the next start, which deletes the topic or serves it again.
                    # Until then producers must not get an acknowledgement.
                    self._remove(topic)
                raise
            self._remove(topic)
            await self._remove_rest(topic, row)

    async def _delete_removed(self, topic: Topic) -> None:
        """Delete a topic that has already left the catalog."""
        async with self._lock(topic.name):
            row = topic.row()
            await self._backend.state.apply(
                [Change(TOPIC_DELETION, row.key, row.encode()), Change(TOPIC, row.key, None)]
            )
            await self._remove_rest(topic, row)

    async def _remove_rest(self, topic: Topic, row: TopicRow) -> None:
        for tell in self.when_deleted:
            tell(topic.topic_id)
        await self._remove_logs(row)
        await self._backend.state.apply([Change(TOPIC_DELETION, row.key, None)])

    async def _grow(self, topic: Topic, partition_count: int) -> None:
        async with self._lock(topic.name):
            await self.opened()
            self._check_exists(topic)
            self.check_growth(topic, partition_count)
            added_count = partition_count - topic.partition_count
            self._partition_count += added_count
            config = topic.config
            try:
                row = topic.row()._replace(partitions=partition_count)
                keys = self._keys_here(row, first=topic.partition_count)
                added = await self._create_logs(topic, keys)
                await self._backend.state.apply([Change(TOPIC, row.key, row.encode())])
            except BaseException:
                self._partition_count -= added_count
                raise
            while config is not topic.config:
                config = topic.config
                await take_turns(topic.configure_logs(added.values(), self._config_budget()))
            topic.partition_count = partition_count
            topic.add_partitions(added)
            self._backend.describe_topic(topic.topic_id, row.encode())
            await self._follow_moves(topic)

    async def _configure(self, topic: Topic, change: ConfigChange) -> None:
        async with self._lock(topic.name):
            self._check_exists(topic)
            before = topic.config.own
            own = self._own_settings(change(topic.config.own_texts()))
            config = TopicConfig(own, self._config)
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
                # Else it is unknown until the next start whether the topic is being loaded. Until
                # then other producers must not write, as their records would be taken for loaded
                # ones.
                raise
            self._backend.describe_topic(topic.topic_id, row.encode())
            await self._take(topic, own)

    async def _take(self, topic: Topic, own: Mapping[str, Value]) -> None:
        """Replace a topic's own settings, from the next append on."""
        config = TopicConfig(own, self._config)
        before = topic.config.retention
        await take_turns(topic.configure(config, self._config_budget()))
        self._tell_retention(topic, before)

    def _tell_retention(self, topic: Topic, before: RetentionRules) -> None:
        if topic.config.retention != before and self.when_retention_changed is not None:
            self.when_retention_changed(topic)

    async def _begin_loading(self, topic: Topic, config: TopicConfig) -> None:
        """Admit only the producer that a changed configuration names, before that is durable.

        Records that others write meanwhile would be taken for loaded ones. Raises KafkaError if the
        topic is already being loaded, or cannot be loaded in this way.
        """
        loading = topic.config.loading
        if loading is not None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"topic {topic.name} is being loaded: take kgw.loading={loading.transactional_id} "
                "away first",
            )
        if config.loading is not None and config.loading.keeps_offsets:
            await self.opened()
            self._check_empty(topic)
        others = {n: value for n, value in topic.config.own.items() if n not in LOADING_SETTINGS}
        changed = {n: value for n, value in config.own.items() if n in LOADING_SETTINGS}
        await self._take(topic, {**others, **changed})

    def _check_empty(self, topic: Topic) -> None:
        """Raise KafkaError if a record was ever stored in one of a topic's partitions."""
        for key in self._keys_here(topic.row()):
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
        if "kgw.seaweedmq.layout" in own and not self._config.backend.startswith("seaweedmq:"):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "kgw.seaweedmq.layout is for kgw.backend=seaweedmq://FILER:PORT/NAMESPACE",
            )
        return own

    def _reconfigure(self, topics: Iterable[Topic]) -> Turns[None]:
        """Compute the topics' settings again, from their own ones and the current defaults."""
        budget = self._config_budget()
        for topic in topics:
            if not topic.is_deleted:
                config = TopicConfig(topic.config.own, self._config, topic.foreign)
                before = topic.config.retention
                yield from topic.configure(config, budget)
                self._tell_retention(topic, before)
            if budget.spend(TOPIC_COST):
                yield

    def _config_budget(self) -> StepBudget:
        return StepBudget(self._configured_per_turn)

    def _lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a name, and of the names that collide with it."""
        return self._locks.setdefault(unified_name(name), asyncio.Lock())

    def _keep(self, change: Coroutine[object, object, object]) -> None:
        """Run `change` in the background; `aclose` waits for its end."""
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def _complete(self, change: Coroutine[object, object, ResultT]) -> ResultT:
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    def _keys_here(self, row: TopicRow, first: int = 0) -> list[PartitionKey]:
        """Return a topic's partitions on this node, from an index on."""
        keys = (PartitionKey(row.topic_id, index) for index in range(first, row.partitions))
        return [key for key in keys if self._lives_here(key)]

    async def _create_logs(
        self, topic: Topic, keys: Sequence[PartitionKey]
    ) -> dict[int, Partition]:
        settings = topic.config.log_settings
        logs = await self._backend.create_partitions(keys, topic.name, settings)
        budget = StepBudget(_PARTITIONS_PER_TURN)
        created: dict[int, Partition] = {}
        for key, log in zip(keys, logs, strict=True):
            if topic.config.log_settings is not settings:
                log.configure(topic.config.log_settings)
            created[key.partition] = await self._partition(topic, key, log)
            if budget.spend():
                await asyncio.sleep(0)
        return created

    async def _open_partition(self, topic: Topic, key: PartitionKey) -> Partition:
        settings = topic.config.log_settings
        return await self._partition(
            topic, key, await self._backend.open_partition(key, topic.name, settings)
        )

    async def _open_here(self, key: PartitionKey) -> None:
        """Open a partition of a topic that is served already, if it still lives here."""
        topic = self._by_id.get(key.topic_id)
        if topic is None or not self._lives_here(key):
            return
        settings = topic.config.log_settings
        partition = await self._open_partition(topic, key)
        if topic.is_deleted:
            await self._backend.delete_partition(key)
            return
        if not self._lives_here(key):
            await self._backend.release_partition(key)
            return
        if topic.config.log_settings is not settings:
            partition.log.configure(topic.config.log_settings)
        topic.add_partitions({key.partition: partition})

    async def _open_again(self, key: PartitionKey) -> None:
        """Open a partition that failed to open before, unless its topic has been deleted."""
        topic = self._by_id.get(key.topic_id)
        if topic is not None:
            async with self._lock(topic.name):
                if not topic.is_deleted:
                    await self._open_here(key)

    async def _partition(self, topic: Topic, key: PartitionKey, log: PartitionLog) -> Partition:
        partition = Partition(
            topic,
            key.partition,
            log,
            self._clock,
            self.check_thread,
            self._appended if self.counts is None else self.counts.of(key),
        )
        await partition.open()
        return partition

    async def _remove_logs(self, row: TopicRow) -> None:
        async def remove(key: PartitionKey) -> None:
            async with self._log_slots:
                await self._backend.delete_partition(key)

        await _for_each(self._keys_here(row), remove)

    async def _undo_creations(self) -> None:
        """Remove the logs of interrupted creations if they are empty; else leave them alone."""
        state = self._backend.state
        for key, stored in (await self._load(TOPIC_CREATION, _ADOPT_CHANGES)).items():
            row = TopicRow.decode(stored.value)
            settings = TopicConfig({}, self._config).log_settings
            is_empty = True
            for log_key in self._keys_here(row):
                log = await self._backend.open_partition(log_key, row.name, settings)
                is_empty = is_empty and log.end_offset == 0
            if is_empty:
                await self._remove_logs(row)
            else:
                _log.error("topic %s was never created, yet holds records: left alone", row.name)
            await state.apply([Change(TOPIC_CREATION, key, None)])

    async def _try_undo(self, row: TopicRow) -> None:
        """Remove the logs of a failed creation; if this fails, the next start removes them."""
        try:
            await self._remove_logs(row)
            await self._backend.state.apply([Change(TOPIC_CREATION, row.key, None)])
        except KgwError as error:
            _log.warning("remains of topic %s stay until the next start: %s", row.name, error)

    def _stored_config(self, row: TopicRow) -> TopicConfig:
        """Return a stored topic's configuration.

        A setting that this version refuses is logged and left out: refusing to start would make
        every other topic unavailable.
        """
        own: dict[str, Value] = {}
        for name, text in row.configs.items():
            try:
                own.update(parse_own_settings({name: text}))
            except KafkaError as error:
                _log.error("topic %s: a stored setting is left out: %s", row.name, error)
        return TopicConfig(own, self._config)

    def _add_stored(self, row: TopicRow) -> Topic:
        config = self._stored_config(row)
        topic = Topic(row.name, row.topic_id, row.partitions, config)
        self._add(topic)
        # The stored row, not the topic's settings, which lack those that this version refuses.
        self._backend.describe_topic(topic.topic_id, row.encode())
        self._partition_count += topic.partition_count
        return topic

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_unified_name[unified_name(topic.name)] = topic.name

    def _remove(self, topic: Topic) -> None:
        topic.is_deleted = True
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        del self._by_unified_name[unified_name(topic.name)]
        self._partition_count -= topic.partition_count
        for partition in topic.partitions.values():
            partition.retire(_UNKNOWN)

    def _check_exists(self, topic: Topic) -> None:
        if topic.is_deleted:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has been deleted"
            )

    def _check_partition_count(self, partition_count: int, added_count: int) -> None:
        if partition_count < 1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"a topic has at least one partition, not {partition_count}",
            )
        limit = self._config.topic_partitions_max
        if partition_count > limit:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"{partition_count} partitions: a topic has at most {limit} "
                "(kgw.topic.partitions.max)",
            )
        limit = self._config.partitions_max
        if self._partition_count + added_count > limit:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{added_count} partitions beside {self._partition_count}: at most {limit} "
                "are served (kgw.partitions.max)",
            )


def read_row(key: str, value: bytes) -> TopicRow:
    """Return a topic's row. Raises StorageError if it cannot be read."""
    try:
        return TopicRow.decode(value)
    except ValueError as error:
        raise StorageError(f"the row of topic {key} cannot be read: {error}") from error


async def _for_each(items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[None]]) -> None:
    """Call `work` for every item, some at a time; the first error ends it and is raised."""
    todo = list(items)
    waiting = iter(todo)

    async def run() -> None:
        for item in waiting:
            await work(item)

    runners = [asyncio.ensure_future(run()) for _ in todo[:_LOGS_AT_A_TIME]]
    try:
        await asyncio.gather(*runners)
    except BaseException:
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)
        raise
