"""Ownership: a bundle of partitions, groups and transactional ids, opened and closed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.ownership.keys import CoordinatorKey, CoordinatorType
from kgw.state.kinds import GROUP_KINDS, TRANSACTION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.backend.append import Append
    from kgw.backend.base import Backend
    from kgw.clock import Clock
    from kgw.completion import Completion
    from kgw.config import Config
    from kgw.coordinator.machine import CreateTopic, DescribeTopics, TopicMetadata
    from kgw.groups.coordinator import GroupCoordinator
    from kgw.metrics import Metrics
    from kgw.offsets.committed import CommittedOffset, Place
    from kgw.ownership.keys import Owned
    from kgw.partitions.topics.manager import TopicManager
    from kgw.partitions.topics.topic import Topic
    from kgw.transactions.coordinator import TransactionCoordinator
    from kgw.transactions.machine import Ending
    from kgw.types import PartitionKey, TopicId


class Services(NamedTuple):
    """Objects and functions that all ownerships of a node share."""

    backend: Backend
    topics: TopicManager
    clock: Clock
    """The clock for data whose age is stored and counts across restarts."""
    metrics: Metrics
    config: Callable[[], Config]
    owns: Callable[[Owned], bool]
    """The method `Placement.owns`."""
    groups_of: Callable[[str], GroupCoordinator | None]
    """Returns the coordinator of a group; None if another node coordinates the group."""
    next_producer_id: Callable[[], Awaitable[int]]
    committed_back: Callable[[str, Place, int, int], None]
    """As `GroupCoordinator.when_committed_back`."""
    report_bug: Callable[[str, BaseException], None]


class Ownership:
    """One bundle of partitions, groups and transactional ids on the node that leads it.

    `open` loads them from the storage. `lose` stops serving because another node leads already: the
    storage refuses this node's writes. `aclose` gives the bundle up in order, for a planned move.
    """

    def __init__(self, services: Services, covers: Callable[[Owned], bool]) -> None:
        """`covers` says which keys are in the bundle; the placement knows their owners."""
        self.covers = covers
        self._services = services
        self._groups: GroupCoordinator | None = None
        self._are_groups_loaded = False
        self._transactions: TransactionCoordinator | None = None
        self._ends_waits = False

    async def open(self) -> None:
        """Open the closed partitions, and load groups and transactional ids.

        Raises StorageError.
        """
        topics, backend = self._services.topics, self._services.backend
        await topics.partitions.open(self.covers, wait_s=backend.start_waits_s)
        kinds = await self._stored_kinds()
        if not GROUP_KINDS.isdisjoint(kinds):
            await self.groups.open(
                lambda topic_id: topics.catalog.by_id(topic_id) is not None,
                lambda group_id: self._has(CoordinatorKey(CoordinatorType.GROUP, group_id)),
            )
        elif self._groups is not None:
            self._groups.open_empty()
        self._are_groups_loaded = True
        if TRANSACTION in kinds:
            self._transactions = self._make_transactions()
            await self._transactions.open(
                lambda id_: self._has(CoordinatorKey(CoordinatorType.TRANSACTION, id_))
            )

    def _has(self, key: CoordinatorKey) -> bool:
        return self._services.owns(key) and self.covers(key)

    async def _stored_kinds(self) -> frozenset[str]:
        try:
            return frozenset(await self._services.backend.state.kinds())
        except StorageError:
            # The list of kinds of rows cannot be read completely, so both are loaded even if none
            # are stored.
            return frozenset((*GROUP_KINDS, TRANSACTION))

    def answer_waiters(self) -> None:
        """Answer the requests that wait for other clients. Later requests do not wait either."""
        self._ends_waits = True
        if self._transactions is not None:
            self._transactions.answer_waiters()
        if self._groups is not None:
            self._groups.answer_waiters()

    def lose(self) -> None:
        """Stop serving, as another node leads and this node can store nothing."""
        self.answer_waiters()
        self._services.topics.partitions.retire(self.covers)

    async def close_coordinators(self) -> None:
        """Answer waiting requests, and wait until submitted changes are stored."""
        if self._transactions is not None:
            await self._transactions.aclose()
        if self._groups is not None:
            await self._groups.aclose()

    async def aclose(self) -> None:
        """Close the bundle in order, so that another node can open it. Raises StorageError.

        The placement must already have another owner, to which new requests are sent.
        """
        self.answer_waiters()
        await self.close_coordinators()
        if self._groups is not None:
            self._services.topics.catalog.when_deleted.remove(self._groups.forget_topic)
            self._groups.forget_all()
        if self._transactions is not None:
            self._transactions.forget_all()
        await self._services.topics.partitions.close(self.covers)

    # --- groups ----------------------------------------------------------------------------------

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator, created by `open` if groups are stored, else at first use.

        It refuses requests until `open` has loaded the groups: the end of a transaction in another
        bundle would not find its pending offsets in them.
        """
        if self._groups is None:
            self._groups = self._make_groups()
            if self._are_groups_loaded:
                self._groups.open_empty()
            if self._ends_waits:
                self._groups.answer_waiters()
        return self._groups

    def _make_groups(self) -> GroupCoordinator:
        # Imported here, as the import takes 9 ms and a start without groups does not need it.
        from kgw.coordinator.machine import CreateTopic, DescribeTopics
        from kgw.groups.coordinator import GroupCoordinator
        from kgw.groups.group import GroupSettings
        from kgw.groups.machine import GroupLimits

        services, config = self._services, self._services.config()
        groups = GroupCoordinator(
            services.backend.state,
            services.clock,
            GroupSettings(
                config.groups_max,
                config.offsets_retention_minutes * 60.0,
                config.offsets_retention_check_interval_ms / 1000,
                GroupLimits(config.group_max_size, config.group_initial_rebalance_delay_ms / 1000),
            ),
            services.metrics,
            lambda error: services.report_bug("groups", error),
            services={DescribeTopics: self._describe_topics, CreateTopic: self._create_topic},
        )
        groups.when_committed_back.append(services.committed_back)
        groups.keep_offsets_of(services.topics.catalog.holding_groups)
        services.topics.catalog.when_deleted.append(groups.forget_topic)
        return groups

    def committed(self, group_id: str, topic_id: TopicId, partition: int) -> CommittedOffset | None:
        """Return a group's durable committed offset in a partition, or None."""
        offsets = None if self._groups is None else self._groups.offsets(group_id)
        return None if offsets is None else offsets.topic(topic_id).get(partition)

    async def _describe_topics(self, request: DescribeTopics) -> dict[str, TopicMetadata]:
        """Return the metadata of existing topics for a machine."""
        catalog = self._services.topics.catalog
        found = [topic for name in request.names if (topic := catalog.get(name)) is not None]
        return {topic.name: _metadata(topic) for topic in found}

    async def _create_topic(self, request: CreateTopic) -> TopicMetadata:
        """Create a topic for a machine. Raises KafkaError, StorageError."""
        return _metadata(await self._services.topics.create(*request))

    # --- transactions ----------------------------------------------------------------------------

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator, created by `open` if ids are stored, else at first use."""
        if self._transactions is None:
            self._transactions = self._make_transactions()
            self._transactions.open_empty()
            if self._ends_waits:
                self._transactions.answer_waiters()
        return self._transactions

    def _make_transactions(self) -> TransactionCoordinator:
        # Imported here, as most starts have no transactions.
        from kgw.transactions.coordinator import TransactionCoordinator, TransactionSettings
        from kgw.transactions.machine import TransactionLimits

        services, config = self._services, self._services.config()
        return TransactionCoordinator(
            services.backend.state,
            services.clock,
            TransactionSettings(
                config.transactional_ids_max,
                config.transactional_id_expiration_ms / 1000,
                config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000,
                TransactionLimits(
                    config.transaction_max_timeout_ms,
                    config.add_partitions_to_txn_retry_backoff_max_ms / 1000,
                ),
            ),
            services.metrics,
            lambda error: services.report_bug("transactions", error),
            next_producer_id=services.next_producer_id,
            end_in_partition=self.end_in_partition,
            end_in_group=self.end_in_group,
        )

    def end_in_partition(self, place: PartitionKey, ending: Ending) -> Append | None:
        """Append a transaction marker to a partition; None if the partition was deleted.

        Raises KafkaError if another node leads the partition.
        """
        # Imported here, as most starts have no transactions.
        from kgw.partitions.append.transactions import TransactionMarker

        partition, code = self._services.topics.catalog.find(place.topic_id, place.partition)
        if partition is None:
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise KafkaError(code)
            return None
        return partition.admission.append_marker(
            TransactionMarker(
                *ending.producer,
                ending.coordinator_epoch,
                ending.is_commit,
                ending.transaction_version,
            )
        )

    def end_in_group(
        self, group_id: str, producer_id: int, producer_epoch: int, is_commit: bool
    ) -> Completion[ErrorCode]:
        """Commit or drop the pending offsets of a transaction in a group.

        Raises KafkaError if another node coordinates the group.
        """
        groups = self._services.groups_of(group_id)
        if groups is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return groups.end_transaction(group_id, producer_id, producer_epoch, is_commit)


def _metadata(topic: Topic) -> TopicMetadata:
    from kgw.coordinator.machine import TopicMetadata

    return TopicMetadata(topic.topic_id, topic.partition_count)
