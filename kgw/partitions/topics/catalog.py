"""The topics: names, ids, partitions, settings; how they come and go whole, whatever crashes.

Rows of the state store, each keyed by the topic id's text and holding a `TopicRow`:
- `topic-creation` is written before a topic's logs are made and goes, in one commit, when the
  `topic` row comes. Found at a start, it names logs that nobody was told of: they are removed.
- `topic` means that the topic exists.
- `topic-deletion` takes the `topic` row's place in one commit, before the first log is removed, and
  goes after the last. Found at a start, the removal is done again.
So a crash leaves a topic or nothing. Logs that no row names are left alone: a lost database must
never cost records (they can be adopted).
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
from kgw.partitions.topics.encoded_topics import EncodedTopics
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
from kgw.turns import Share, take_turns
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

# Enough to keep the processor busy while calls are on their way. With more of them, whoever asks
# for a partition waits for longer until one of those under way is done.
_OPENED_BEHIND = 16

# Each Produce is told it, should its partition go: to look up an enum's attribute is slow.
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

# Partitions whose objects are made before others get a turn.
_PARTITIONS_PER_TURN = 200

TOPIC_COST: Final = 50
"""What it takes to work out the settings of a topic, in logs that are given other settings."""

_ADOPT_TOPICS: Final = "makes them anew from the logs, with default settings"
_ADOPT_CHANGES: Final = "removes them, and what they were about stays on disk"

ConfigChange: TypeAlias = "Callable[[dict[str, str]], Mapping[str, str | None]]"
"""Makes new settings of a topic's own ones, both as texts."""

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
        # Of names that are being changed; a lock goes when nobody holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._changes: set[asyncio.Task[object]] = set()
        self._foreign_lock = asyncio.Lock()
        self._partition_count = 0
        # Checkpoints by time and by size may meet; a snapshot's file is written by one of them.
        self._snapshot_lock = asyncio.Lock()
        self._log_slots = asyncio.Semaphore(_LOGS_AT_A_TIME)
        self._opening: Opening | None = None
        self.cluster_id = ""
        """Of which the ids of internal topics are made. Set before `open`."""
        self._internal: dict[str, Topic] = {}
        # By id, what each would be called: made at the first unknown id that is asked for.
        self._internal_names: dict[bytes, str] = {}
        self.committed: Committed = nothing_committed
        """What groups have committed: for topics that they hold. Set by who has the groups."""
        self.check_thread = CheckThread()
        """Where long checks and conversions of records are done."""
        self.recompressed = self.check_thread.recompressed
        """What came in another codec than its topic has."""
        self._appended = AppendCounts()
        self.counts: CountsByPartition | None = None
        """What each partition has counted, where kgw.metrics.labels asks for it."""
        if not {"topic", "partition"}.isdisjoint(config.metrics_labels):
            from kgw.partitions.counts import CountsByPartition

            self.counts = CountsByPartition()
        self.encoded = EncodedTopics()
        """What answers say of the topics here: how many partitions, of which leader epochs."""
        self.when_deleted: list[Callable[[TopicId], None]] = []
        """Called with the id of each topic that is deleted, once that is durable."""
        self.when_retention_changed: Callable[[Topic], None] | None = None
        """Called when settings have changed what retention removes of a topic."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Those that clients have made, by name. Internal ones are not among them."""
        return MappingProxyType(self._by_name)

    @property
    def appended(self) -> AppendCounts:
        """What producers have appended, in all partitions together."""
        return self._appended if self.counts is None else self.counts.total()

    @property
    def listed(self) -> list[Topic]:
        """What a list of all topics shows: also the internal ones, once they were asked for."""
        shown = (one for one in self._internal.values() if one.name not in self._by_name)
        return [*self._by_name.values(), *shown]

    @property
    def partition_count(self) -> int:
        """Partitions of all topics, those being created among them."""
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
            # Imported here, as few ask for them.
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
        """Return a partition by its topic's id or name, and the code to answer where it is None."""
        found = self._by_name.get(topic) if isinstance(topic, str) else self._by_id.get(topic)
        partition = None if found is None else found.partitions.get(index)
        if partition is not None:
            return partition, _UNKNOWN
        if found is not None:
            self.want(found, index)
        else:
            found = self.get(topic) if isinstance(topic, str) else self.by_id(topic)
            partition = None if found is None else found.partitions.get(index)
            if partition is not None:
                return partition, _UNKNOWN
        return None, why_missing(found, index, by_id=not isinstance(topic, str))

    def partitions(self) -> Iterable[Partition]:
        """Every partition that lives on this node."""
        for topic in list(self._by_name.values()):
            yield from topic.partitions.values()

    def holding_groups(self) -> frozenset[str]:
        """Return the groups that some topic's kgw.archive.hold names."""
        return frozenset(
            group for topic in self._by_name.values() for group in topic.config.holding_groups
        )

    def want(self, topic: Topic, index: int) -> bool:
        """Whether a partition of this node is not open yet; it is opened before others."""
        opening = self._opening
        return opening is not None and opening.want(PartitionKey(topic.topic_id, index))

    @property
    def problems(self) -> tuple[str, ...]:
        """What an operator should know."""
        return () if self._opening is None else self._opening.problems

    def producer_ids(self) -> Iterable[list[int]]:
        """The producer ids that each partition knows; the same one may be known to many."""
        for partition in self.partitions():
            yield partition.producers.ids()

    # --- start and stop --------------------------------------------------------------------------

    async def open(self, *, wait_s: float | None = None) -> None:
        """Finish what a crash interrupted, then open every topic.

        With `wait_s`, return after that time at the latest, and open what is left while the rest is
        served: until then `find` answers NOT_LEADER_OR_FOLLOWER for it, so that clients ask again.
        A partition that cannot be opened is tried again then, and is among `problems`. Raises
        StorageError.
        """
        state = self._backend.state
        await self._undo_creations()
        rows: list[TopicRow] = []
        for key, row in (await self._load(TOPIC, _ADOPT_TOPICS)).items():
            try:
                rows.append(TopicRow.decode(row.value))
            except ValueError as error:
                raise StorageError(f"the row of topic {key} cannot be read: {error}") from error
        for key, row in (await self._load(TOPIC_DELETION, _ADOPT_CHANGES)).items():
            await self._remove_logs(TopicRow.decode(row.value))
            await state.apply([Change(TOPIC_DELETION, key, None)])
        keys_here: dict[Topic, list[PartitionKey]] = {}
        for topic_row in rows:
            config = self._stored_config(topic_row)
            topic = Topic(topic_row.name, topic_row.topic_id, topic_row.partitions, config)
            keys_here[topic] = self._keys_here(topic_row)
            self._add(topic)
            # Not as the topic has it: settings that this version leaves out are kept.
            self._backend.describe_topic(topic.topic_id, topic_row.encode())
            self._partition_count += topic.partition_count
        if wait_s is not None:
            # Imported here to keep start-up fast.
            from kgw.partitions.topics.opening import Opening

            self._opening = Opening(
                chain(*keys_here.values()),
                self._open_here,
                self._open_again,
                self._clock,
                at_a_time=_OPENED_BEHIND,
            )
            await self._opening.wait(wait_s)
        else:
            await self._open_all(keys_here)
        for name in INTERNAL_TOPICS & self._by_name.keys():
            if self._opening is None:
                await self._take_over(name)
            else:
                self._keep(self._take_over(name))
        self._backend.on_foreign_topics = self._foreign_topics_changed
        await self._follow_foreign()

    async def _take_over(self, name: str) -> None:
        """Let an internal topic be in the place of an ordinary one of its name that is empty.

        A client that asked for it has made it, or an older version of kgw. One that holds records
        stays: nobody but its owner knows what they are for.
        """
        await self.opened()
        topic = self._by_name.get(name)
        if topic is None or topic.foreign is not None:
            return
        partitions = topic.partitions.values()
        if len(partitions) < topic.partition_count or not all(one.is_unused for one in partitions):
            return
        # In the turn in which it was found empty: nothing may be appended before it is deleted.
        self._remove(topic)
        try:
            await self._delete_removed(topic)
        except KgwError as error:
            _log.warning("topic %s, which is empty, is not deleted yet: %s", name, error)
        else:
            _log.info("topic %s was empty, and is internal now", name)

    async def _open_all(self, keys_here: dict[Topic, list[PartitionKey]]) -> None:
        opened: dict[PartitionKey, Partition] = {}

        async def open_partition(key: PartitionKey) -> None:
            opened[key] = await self._open_partition(self._by_id[key.topic_id], key)

        await _for_each(chain(*keys_here.values()), open_partition)
        for topic, keys in keys_here.items():
            topic.partitions = {key.partition: opened[key] for key in keys}

    async def opened(self) -> None:
        """Return when every partition has been opened, or could not be."""
        if self._opening is not None:
            await self._opening.wait()

    async def _load(self, kind: str, adoption: str) -> dict[str, Row]:
        """Return the rows of a kind. To go on without damaged ones might lose records.

        Without a topic's row, clients could create the topic anew, at offset 0.
        """
        try:
            return await self._backend.state.load(kind)
        except DamagedRowsError as error:
            raise StorageError(f"{error}; `kgw log adopt` {adoption}") from error

    async def aclose(self) -> None:
        """Wait for the changes under way."""
        if self._opening is not None:
            await self._opening.aclose()
        while self._changes:
            await asyncio.wait(self._changes)
        self.check_thread.close()

    async def save_snapshots(self, *, leave_bytes: int = 0) -> None:
        """Keep the partitions' derived state, so that the next start replays less of their logs.

        Of many partitions those that have grown the most, and so many of them that the others leave
        it that much to replay: each takes two syncs.
        """
        async with self._snapshot_lock:
            share, expiration_ms = (
                Share(self._expiries_per_turn),
                self._config.producer_id_expiration_ms,
            )
            # By a wrong clock every producer is old: its retries would be stored once more.
            has_jumped = self._jumps.has_jumped(self._clock.wall_ms(), self._clock.monotonic_s())
            for partition in self.partitions():
                work = partition.expire_producers(expiration_ms, has_jumped=has_jumped)
                if share.spend(1 + await take_turns(work)):
                    await asyncio.sleep(0)
            dirty = [partition for partition in self.partitions() if partition.is_dirty]
            save = partial(Partition.save_snapshot, queue=asyncio.Lock())
            await _for_each(most_grown(dirty, leave_bytes), save)

    def let_go(self) -> None:
        """Serve no partition any more: all of them have moved to other nodes."""
        if self._opening is not None:
            self._opening.stop()
        for topic in self._by_name.values():
            partitions, topic.partitions = topic.partitions, {}
            # Whoever opens a partition begins the next epoch.
            topic.next_epochs = {
                index: partition.log.leader_epoch + 1 for index, partition in partitions.items()
            }
            for partition in partitions.values():
                partition.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- topics that others lead -----------------------------------------------------------------

    def _foreign_topics_changed(self) -> None:
        self._keep(self._follow_foreign())

    async def _follow_foreign(self) -> None:
        """Serve the topics that others lead now, and no others.

        One of ours has its name before them. One that cannot be opened is logged, and tried again
        when they change.
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
        topic.partitions = dict(sorted(opened.items()))
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
        """Return the settings of a topic that may be created; what `create` would refuse, refuse.

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

        Raises KafkaError when it is gone, or others lead it, and StorageError.
        """
        topic.check_own(ErrorCode.TOPIC_DELETION_DISABLED)
        await self._complete(self._delete(topic))

    def check_growth(self, topic: Topic, partition_count: int) -> None:
        """Raise KafkaError INVALID_PARTITIONS or POLICY_VIOLATION unless a topic may grow so."""
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
        """Let a topic grow to so many partitions, durably. Raises as `check_growth`."""
        await self._complete(self._grow(topic, partition_count))

    async def configure(self, topic: Topic, change: ConfigChange) -> None:
        """Replace a topic's own settings by what `change` makes of them, durably.

        Raises what `change` raises, KafkaError INVALID_CONFIG for what it made, KafkaError when the
        topic is gone or others lead it, StorageError.
        """
        topic.check_own(ErrorCode.POLICY_VIOLATION)
        await self._complete(self._configure(topic, change))

    async def reconfigure(self, config: Config) -> None:
        """Take other server settings, and return when each topic has what it takes from them."""
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
                # When this commit fails, nobody knows whether it happened: the rows, read at the
                # next start, decide whether the topic exists or is undone.
                await self._backend.state.apply(
                    [Change(TOPIC, row.key, row.encode(), 0), Change(TOPIC_CREATION, row.key, None)]
                )
            except BaseException:
                self._partition_count -= partition_count
                raise
            while config is not self._config:
                config = self._config
                await take_turns(topic.configure(TopicConfig(own, config), self._config_share()))
            self._add(topic)
            self._backend.describe_topic(topic.topic_id, row.encode())
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
                    # Nobody knows whether it happened before the next start, which deletes the
                    # topic or serves it again. Until then nothing more is promised to producers.
                    self._remove(topic)
                raise
            self._remove(topic)
            await self._remove_rest(topic, row)

    async def _delete_removed(self, topic: Topic) -> None:
        """Delete a topic that is out of the catalog already."""
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
                await take_turns(topic.configure_logs(added.values(), self._config_share()))
            topic.partition_count = partition_count
            topic.partitions = {**topic.partitions, **added}
            self._backend.describe_topic(topic.topic_id, row.encode())
            self.encoded.forget(topic)

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
                # Else nobody knows before the next start whether the topic is being loaded. Until
                # then nobody writes what would be taken for loaded.
                raise
            self._backend.describe_topic(topic.topic_id, row.encode())
            await self._take(topic, own)

    async def _take(self, topic: Topic, own: Mapping[str, Value]) -> None:
        """Let a topic's own settings be these, from the next append on."""
        config = TopicConfig(own, self._config)
        before = topic.config.retention
        await take_turns(topic.configure(config, self._config_share()))
        self._tell_retention(topic, before)

    def _tell_retention(self, topic: Topic, before: RetentionRules) -> None:
        if topic.config.retention != before and self.when_retention_changed is not None:
            self.when_retention_changed(topic)

    async def _begin_loading(self, topic: Topic, config: TopicConfig) -> None:
        """Let only the one write that a changed configuration names, before that is durable.

        What others wrote meanwhile would be taken for something that was loaded. Raises KafkaError
        when the topic is being loaded already, or cannot be loaded in this way.
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
        """Raise KafkaError unless nothing has ever been stored in a topic's partitions."""
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
        """Work out the settings of topics anew, from their own ones and what is the default now."""
        share = self._config_share()
        for topic in topics:
            if not topic.is_deleted:
                config = TopicConfig(topic.config.own, self._config, topic.foreign)
                before = topic.config.retention
                yield from topic.configure(config, share)
                self._tell_retention(topic, before)
            if share.spend(TOPIC_COST):
                yield

    def _config_share(self) -> Share:
        return Share(self._configured_per_turn)

    def _lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a name, and of the names that collide with it."""
        return self._locks.setdefault(unified_name(name), asyncio.Lock())

    def _keep(self, change: Coroutine[object, object, object]) -> None:
        """Do something beside, and wait for its end when the catalog is closed."""
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def _complete(self, change: Coroutine[object, object, ResultT]) -> ResultT:
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    def _keys_here(self, row: TopicRow, first: int = 0) -> list[PartitionKey]:
        """Return the partitions of a topic, from an index on, that live on this node."""
        keys = (PartitionKey(row.topic_id, index) for index in range(first, row.partitions))
        return [key for key in keys if self._lives_here(key)]

    async def _create_logs(
        self, topic: Topic, keys: Sequence[PartitionKey]
    ) -> dict[int, Partition]:
        settings = topic.config.log_settings
        logs = await self._backend.create_partitions(keys, topic.name, settings)
        share = Share(_PARTITIONS_PER_TURN)
        created: dict[int, Partition] = {}
        for key, log in zip(keys, logs, strict=True):
            if topic.config.log_settings is not settings:
                log.configure(topic.config.log_settings)
            created[key.partition] = await self._partition(topic, key, log)
            if share.spend():
                await asyncio.sleep(0)
        return created

    async def _open_partition(self, topic: Topic, key: PartitionKey) -> Partition:
        settings = topic.config.log_settings
        return await self._partition(
            topic, key, await self._backend.open_partition(key, topic.name, settings)
        )

    async def _open_here(self, key: PartitionKey) -> None:
        """Open a partition of a topic that is served already."""
        topic = self._by_id[key.topic_id]
        settings = topic.config.log_settings
        partition = await self._open_partition(topic, key)
        if topic.config.log_settings is not settings:
            partition.log.configure(topic.config.log_settings)
        # Others may be going through those that were there.
        partitions = {**topic.partitions, key.partition: partition}
        if len(partitions) == topic.partition_count:
            partitions = dict(sorted(partitions.items()))
        topic.partitions = partitions
        self.encoded.forget(topic)

    async def _open_again(self, key: PartitionKey) -> None:
        """Open a partition that could not be opened, unless its topic has been deleted."""
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
        """Remove the logs of creations that were interrupted. They are empty; if not, they stay."""
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
        """Remove what a failed creation made; what cannot be is removed at the next start."""
        try:
            await self._remove_logs(row)
            await self._backend.state.apply([Change(TOPIC_CREATION, row.key, None)])
        except KgwError as error:
            _log.warning("remains of topic %s stay until the next start: %s", row.name, error)

    def _stored_config(self, row: TopicRow) -> TopicConfig:
        """Return a stored topic's configuration.

        A setting that this version refuses is reported and left out: refusing to start would take
        every other topic down with it.
        """
        own: dict[str, Value] = {}
        for name, text in row.configs.items():
            try:
                own.update(parse_own_settings({name: text}))
            except KafkaError as error:
                _log.error("topic %s: a stored setting is left out: %s", row.name, error)
        return TopicConfig(own, self._config)

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_unified_name[unified_name(topic.name)] = topic.name

    def _remove(self, topic: Topic) -> None:
        topic.is_deleted = True
        self.encoded.forget(topic)
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


async def _for_each(items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[None]]) -> None:
    """Do the work for every item, some at a time; the first error ends it and is raised."""
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
