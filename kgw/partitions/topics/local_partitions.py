"""LocalPartitions: creates, opens, closes and removes the partitions on this node."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from kgw.errors import ErrorCode, StorageError
from kgw.partitions.partition import Partition, most_grown
from kgw.partitions.rules.steady_time import JumpWatch
from kgw.turns import StepBudget, take_turns
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from kgw.backend.base import Backend, PartitionLog
    from kgw.clock import Clock
    from kgw.partitions.topics.catalog import TopicCatalog
    from kgw.partitions.topics.topic import Topic, TopicRow

_log = logging.getLogger(__name__)

# Opening and removing logs waits for directory syncs: a few at a time overlap, hundreds do not.
_LOGS_AT_A_TIME = 32

# Enough to use the processor during calls to the storage. With more, a partition that a client
# requests would wait longer for a slot.
_OPENED_BEHIND = 16

# How many partition objects are made in one turn of the event loop.
_PARTITIONS_PER_TURN = 200

ItemT = TypeVar("ItemT")


class LocalPartitions:
    """The partitions of the topics that live on this node."""

    def __init__(
        self,
        catalog: TopicCatalog,
        backend: Backend,
        clock: Clock,
        lives_here: Callable[[PartitionKey], bool],
        *,
        expiries_per_turn: int,
    ) -> None:
        """`lives_here` decides whether this node opens a partition: `Placement.owns`.

        `expiries_per_turn` limits the partitions, and the producers, that one turn of the loop
        checks for expired producers.
        """
        self._catalog = catalog
        self._backend = backend
        self._clock = clock
        self._lives_here = lives_here
        self._expiries_per_turn = expiries_per_turn
        self._jumps = JumpWatch(clock.wall_ms(), clock.monotonic_s())
        # Checkpoints by time and by size may overlap, and only one may write a snapshot file.
        self._snapshot_lock = asyncio.Lock()
        self._log_slots = asyncio.Semaphore(_LOGS_AT_A_TIME)
        self.is_open_here = lives_here
        """Returns whether a partition's bundle is open on this node: then its partitions are open,
        too."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems with opening partitions, for the operator."""
        return tuple(chain(*(opening.problems for opening in self._catalog.openings)))

    def producer_ids(self) -> Iterable[list[int]]:
        """Yield the producer ids in each partition; several partitions may have the same id."""
        for partition in self._catalog.partitions():
            yield partition.producers.ids()

    def keys_here(self, row: TopicRow, first: int = 0) -> list[PartitionKey]:
        """Return a topic's partitions on this node, from an index on."""
        keys = (PartitionKey(row.topic_id, index) for index in range(first, row.partitions))
        return [key for key in keys if self._lives_here(key)]

    # --- create and open -------------------------------------------------------------------------

    async def create(self, topic: Topic, keys: Sequence[PartitionKey]) -> dict[int, Partition]:
        """Create partitions of a topic that will serve them. Raises StorageError."""
        logs = await self._backend.create_partitions(keys, topic.name, topic.config.log_settings)
        budget = StepBudget(_PARTITIONS_PER_TURN)
        created: dict[int, Partition] = {}
        for key, log in zip(keys, logs, strict=True):
            # The settings may have changed meanwhile, or since a failed attempt that left its logs.
            log.configure(topic.config.log_settings)
            created[key.partition] = await self._load(topic, key, log)
            if budget.spend():
                await asyncio.sleep(0)
        return created

    async def open_topics(self, topics: Iterable[Topic]) -> None:
        """Open every partition of these topics on this node, then serve them. Raises StorageError.

        If one cannot be opened, none of them is served.
        """
        opened: dict[Topic, dict[int, Partition]] = {topic: {} for topic in topics}

        async def open_partition(one: tuple[Topic, PartitionKey]) -> None:
            topic, key = one
            opened[topic][key.partition] = await self._open(topic, key)

        every = [(topic, key) for topic in opened for key in self.keys_here(topic.row())]
        await _for_each(every, open_partition)
        for topic, partitions in opened.items():
            topic.add_partitions(partitions)

    async def open(
        self, covers: Callable[[PartitionKey], bool], *, wait_s: float | None = None
    ) -> None:
        """Open the partitions on this node that `covers` accepts and that are not open yet.

        Return when all have been tried once, or after `wait_s`: the remaining ones are opened in
        the background, and until then `TopicCatalog.find` answers NOT_LEADER_OR_FOLLOWER for them,
        so that clients ask again. A partition that cannot be opened is tried again; until then it
        is listed in `problems`.
        """
        keys = [
            key
            for topic in self._catalog.topics.values()
            if topic.foreign is None
            for key in self.keys_here(topic.row())
            if covers(key) and topic.partition(key.partition) is None and not self._is_opening(key)
        ]
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
        self._catalog.add_opening(opening)
        await opening.wait(wait_s)

    def _is_opening(self, key: PartitionKey) -> bool:
        return any(opening.has(key) for opening in self._catalog.openings)

    async def _open(self, topic: Topic, key: PartitionKey) -> Partition:
        settings = topic.config.log_settings
        return await self._load(
            topic, key, await self._backend.open_partition(key, topic.name, settings)
        )

    async def _open_here(self, key: PartitionKey) -> None:
        """Open a partition of a served topic, if this node still owns it."""
        topic = self._catalog.by_id(key.topic_id)
        if topic is None or not self._lives_here(key):
            return
        settings = topic.config.log_settings
        partition = await self._open(topic, key)
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
        """Try again to open a partition, unless its topic has been deleted."""
        topic = self._catalog.by_id(key.topic_id)
        if topic is not None:
            async with self._catalog.lock(topic.name):
                if not topic.is_deleted:
                    await self._open_here(key)

    async def _load(self, topic: Topic, key: PartitionKey, log: PartitionLog) -> Partition:
        catalog = self._catalog
        partition = Partition(
            topic,
            key.partition,
            log,
            self._clock,
            catalog.check_thread,
            catalog.appended if catalog.counts is None else catalog.counts.of(key),
        )
        await partition.open()
        return partition

    async def opened(self) -> None:
        """Return when every partition has been opened, or has failed to open."""
        for opening in self._catalog.openings:
            await opening.wait()

    def stop_opening(self) -> None:
        """Open no further partitions, as this node must not take them from their new leader."""
        for opening in self._catalog.openings:
            opening.stop()

    # --- close and remove ------------------------------------------------------------------------

    def retire(self, covers: Callable[[PartitionKey], bool]) -> list[Partition]:
        """Stop serving the partitions that `covers` accepts, as other nodes lead them now.

        Returns the open ones. Their submitted appends may still be stored.
        """
        retired: list[Partition] = []
        for topic in self._catalog.topics.values():
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

    async def close(self, covers: Callable[[PartitionKey], bool]) -> None:
        """Close partitions in order: submitted batches are stored, then another node may lead.

        A failure of the storage is logged: the next leader recovers the partition.
        """
        foreign = {
            topic.topic_id for topic in self._catalog.topics.values() if topic.foreign is not None
        }

        def gives_up(key: PartitionKey) -> bool:
            return covers(key) and key.topic_id not in foreign

        for opening in self._catalog.openings:
            opening.drop(gives_up)
        retired = self.retire(gives_up)
        for opening in self._catalog.openings:
            await opening.wait_for(covers)
        # If the bundle could not be opened, its partitions that were being opened still live here.
        retired += self.retire(gives_up)

        async def close(partition: Partition) -> None:
            key = PartitionKey(partition.topic.topic_id, partition.index)
            try:
                await partition.admission.enter_queued()
                try:
                    await partition.save_snapshot(is_last=True)
                finally:
                    await self._backend.release_partition(key)
            except StorageError as error:
                _log.warning("partition %s was not left in order: %s", key, error)

        await _for_each(retired, close)

    async def follow_moves(self, topic: Topic) -> None:
        """Close and create partitions of a topic whose bundles moved while it was changed."""
        moved = [PartitionKey(topic.topic_id, index) for index in topic.partitions]
        moved = [key for key in moved if not self._lives_here(key)]
        if moved:
            await self.close(frozenset(moved).__contains__)
        arrived = [
            key
            for key in self.keys_here(topic.row())
            if key.partition not in topic.partitions
            and self.is_open_here(key)
            and not self._is_opening(key)
        ]
        if arrived:
            topic.add_partitions(await self.create(topic, arrived))

    async def remove(self, row: TopicRow) -> None:
        """Remove a topic's logs on this node. Raises StorageError."""

        async def remove(key: PartitionKey) -> None:
            async with self._log_slots:
                await self._backend.delete_partition(key)

        await _for_each(self.keys_here(row), remove)

    async def aclose(self) -> None:
        """End all openings."""
        for opening in self._catalog.openings:
            await opening.aclose()

    # --- snapshots -------------------------------------------------------------------------------

    async def save_snapshots(self, *, leave_bytes: int = 0) -> None:
        """Store snapshots of the partitions' producers, so that the next start replays less.

        Each snapshot takes two syncs. With many partitions, only the most grown get a snapshot, so
        that the others leave `leave_bytes` to replay.
        """
        async with self._snapshot_lock:
            budget = StepBudget(self._expiries_per_turn)
            expiration_ms = self._catalog.config.producer_id_expiration_ms
            # Otherwise all producers would expire after a wrong jump of the clock, and retries
            # would be stored twice.
            has_jumped = self._jumps.has_jumped(self._clock.wall_ms(), self._clock.monotonic_s())
            for partition in self._catalog.partitions():
                work = partition.expire_producers(expiration_ms, has_jumped=has_jumped)
                if budget.spend(1 + await take_turns(work)):
                    await asyncio.sleep(0)
            dirty = [partition for partition in self._catalog.partitions() if partition.is_dirty]
            save = partial(Partition.save_snapshot, queue=asyncio.Lock())
            await _for_each(most_grown(dirty, leave_bytes), save)


async def _for_each(items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[None]]) -> None:
    """Call `work` for every item, a few at a time. Stops at the first error, and raises it."""
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
