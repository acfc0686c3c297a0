"""Gateway: creates the services of a server and connects them with each other."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from functools import partial
from importlib import import_module
from os import urandom
from sys import modules, version_info
from typing import TYPE_CHECKING

from kgw import __version__
from kgw.backend.lease import LeaseStatus
from kgw.clock import RunningClock
from kgw.config import SERVER_SETTINGS, ConfigError
from kgw.errors import KgwError, StorageError
from kgw.lag.positions import ClientPositions
from kgw.metrics import Metrics
from kgw.ownership.keys import CoordinatorKey, CoordinatorType
from kgw.ownership.node_status import NodeStatus
from kgw.ownership.owned_groups import OwnedGroups
from kgw.ownership.ownership import Ownership, Services
from kgw.ownership.placement import OneProcess, load_cluster_row
from kgw.partitions.append.producer_ids import ProducerIds
from kgw.partitions.maintain.log_manager import LogManager
from kgw.partitions.read.answer_room import AnswerRoom
from kgw.partitions.read.cold_reads import ColdReads
from kgw.partitions.read.fetch_sessions import FetchSessionCache
from kgw.partitions.topics.manager import TopicManager
from kgw.partitions.waits import RequestDeadlines
from kgw.problem_watch import ProblemWatch
from kgw.problems import (
    BUG,
    NOT_LEADING,
    STANDBYS,
    STARTING,
    STOPPING,
    TRANSACTIONS,
    UNOPENED,
    Problem,
    Refusals,
)
from kgw.state.base import Change
from kgw.state.kinds import BROKER_CONFIG, CLUSTER
from kgw.turns import StepBudget, finish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.backend.base import Backend
    from kgw.clock import Clock
    from kgw.config import Config, Listener, Value
    from kgw.lag.labelled import GroupFigures
    from kgw.lag.monitor import LagMonitor
    from kgw.offsets.committed import Place
    from kgw.ownership.catalog_follower import CatalogFollower
    from kgw.ownership.keys import Owned
    from kgw.ownership.placement import Placement
    from kgw.partitions.labelled import TopicFigures
    from kgw.partitions.series_room import SeriesRoom
    from kgw.security.access import Access
    from kgw.security.credentials import Credentials
    from kgw.state.base import StateStore
    from kgw.types import TopicId

_log = logging.getLogger(__name__)

# A checkpoint that is made because of growth saves the producer state of the most grown partitions,
# so that the others have at most this many times `checkpoint_bytes` to replay: 512 MB. With 1,000
# partitions it saves one snapshot in eight.
_CHECKPOINTS_REPLAYED = 4
# Waits of readers that end in one turn of the event loop, when an access rule has changed.
_PARTITIONS_PER_TURN = 200
_METRICS_FRESH_S = 5.0
# Prometheus waits 10 s for an answer.
_METRICS_WAIT_S = 3.0


class Gateway:
    """All services that request handlers use, over one backend."""

    access: Access | None
    """The access rules; None if they are off, and everybody may do everything."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        clock: Clock,
        placement: Placement | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Without a `placement` this process is the whole cluster.

        `metrics` must be the object in which the backend counts, if it has one.
        """
        self.config = config
        self.backend = backend
        self.clock = clock
        self.running_clock = RunningClock(clock)
        """The clock for data whose age is stored and counts across restarts."""
        self.began_s = clock.monotonic_s()
        """The monotonic time at which this gateway was created."""
        self.metrics = metrics or Metrics()
        self.placement = OneProcess() if placement is None else placement
        self.node = NodeStatus(
            backend.lease,
            self.placement,
            clock,
            self.metrics,
            config.node_id,
            self._lose_ownerships,
        )
        self.when_configured: list[Callable[[Config], object]] = []
        """Called with the configuration at the start and at each change."""
        self.topic_manager = TopicManager(backend, config, clock, self.placement.owns)
        self.catalog = self.topic_manager.catalog
        self.partitions = self.topic_manager.partitions
        self.catalog.committed = self._committed
        self.log_manager = LogManager(
            self.catalog,
            backend,
            self.running_clock,
            self.metrics,
            lambda: self.config,
            lambda error: self.report_internal_error("log manager", error),
        )
        self.fetch_deadlines = RequestDeadlines(clock)
        self.request_deadlines = RequestDeadlines(clock)
        """The deadlines of requests that wait for the storage."""
        self.late_append_bytes = 0
        """The size of Produce requests that have timed out while their appends are unfinished."""
        self.cold_reads = ColdReads(
            clock, lambda error: self.report_internal_error("a read from the storage", error)
        )
        self.answer_turns = asyncio.Lock()
        """Held while a large answer is made in steps (`kgw.turns`): only one answer at a time."""
        self.answer_room = AnswerRoom(self.metrics)
        self.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots,
            config.fetch_session_partitions_max,
            # Random, as any client that knows the id of a session can use the session.
            lambda: int.from_bytes(urandom(4), "big") >> 1,
        )
        self.producer_ids: ProducerIds
        self.groups = OwnedGroups(self.placement)
        self._follower: CatalogFollower | None = None
        self.partitions.is_open_here = lambda key: self.placement.ownership(key) is not None
        self._services = Services(
            backend,
            self.topic_manager,
            self.running_clock,
            self.metrics,
            lambda: self.config,
            self.placement.owns,
            self.groups.coordinator,
            lambda: self.producer_ids.next_id(),  # noqa: PLW0108 - `start` sets it
            self._committed_back,
            self.report_internal_error,
        )
        self.placement.ownerships += [
            Ownership(self._services, bundle) for bundle in self.placement.bundles
        ]
        self.is_started = False
        """Whether everything is open; False while the backend is on standby."""
        self.is_stopping = False
        """Whether the process is about to end."""
        self.positions = ClientPositions(config.lag_clients_max)
        self.internal_errors: dict[str, int] = {}
        """The number of requests that failed by a bug of kgw, by API. Tests require it empty."""
        self.refusals = Refusals(clock.monotonic_s)
        """The last refusals for reasons other than the storage."""
        self.problem_watch = ProblemWatch(backend.look, lambda: self.problems, clock, self.metrics)
        self.metrics.when_read.append(self.problem_watch.tell)
        self._problem_looks: asyncio.Task[None] | None = None
        self._config_turn = asyncio.Lock()
        self.credentials: Credentials | None = None
        """The credentials of users, once `load_credentials` has been called."""
        self._credentials_turn = asyncio.Lock()
        self.access = self._make_access()
        self.checkpointed_s: float | None = None
        """The monotonic time of the last checkpoint that `checkpoint` made."""
        self._checkpoints: asyncio.Task[None] | None = None
        self._lag: LagMonitor | None = None
        self._series_room: SeriesRoom | None = None
        self._figures: TopicFigures | None = None
        if config.metrics_labels:
            self._open_labels()
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Gateway {self.placement!r} {self.backend!r}>"

    async def start(self) -> None:
        """Open the backend, and load the stored topics, groups and transactional ids.

        Raises DataDirectoryError, StorageError.
        """
        await self.backend.open()
        try:
            state = self.backend.state
            config = await self.placement.open(state, self.config)
            await self._take_config(await stored_config(state, config))
            self.catalog.cluster_id = self.placement.cluster_id
            self.producer_ids = ProducerIds(
                self.backend.state, self.partitions.producer_ids, self.partitions.opened
            )
            if self.config.has_users:
                await self.load_credentials()
            if self.access is not None:
                await self.access.open(state)
            await self.topic_manager.open(wait_s=self.backend.start_waits_s)
            self.backend.before_checkpoint = partial(
                self.partitions.save_snapshots,
                leave_bytes=_CHECKPOINTS_REPLAYED * self.config.checkpoint_bytes,
            )
            await self.log_manager.open()
            for ownership in self.placement.ownerships:
                await ownership.open()
            self._open_lag()
        except BaseException:
            if self.credentials is not None:
                await self.credentials.aclose()
            await self.topic_manager.aclose()
            await self.backend.aclose()
            raise
        self.metrics.when_read.append(self._count)
        self.backend.prepare()
        self._checkpoints = asyncio.ensure_future(self._checkpoint_regularly())
        self.log_manager.start()
        self._problem_looks = asyncio.ensure_future(self.problem_watch.run())
        self.is_started = True
        self.node.open()

    async def load_credentials(self) -> Credentials:
        """Return the credentials of users; the first call loads them. Raises StorageError."""
        async with self._credentials_turn:
            if self.credentials is None:
                # Imported here: most servers have no users.
                from kgw.security.credentials import Credentials
                from kgw.security.delegation_tokens import DelegationTokens

                tokens = DelegationTokens.configured(self.backend.state, self.config, urandom)
                credentials = Credentials(self.backend.state, tokens)
                await credentials.load()
                self.credentials = credentials
                tokens.start(self.clock, self.config.delegation_token_expiry_check_interval_ms)
            return self.credentials

    def _make_access(self) -> Access | None:
        """Return the access rules, which deny everything until they are loaded; None if off."""
        config = self.config
        if not config.has_access_rules:
            return None
        # Imported here: most servers have no access rules.
        from kgw.security.access import Access
        from kgw.security.audit import Audit
        from kgw.security.principal import ADMIN_TOKEN

        super_users = [*filter(None, map(str.strip, config.super_users.split(";")))]
        if config.admin_token_file:
            super_users.append(str(ADMIN_TOKEN))
        audit = Audit(self.metrics, self.clock.monotonic_s)
        access = Access(super_users, audit, config.access_rules_max)
        access.when_changed.append(self._end_waits)
        return access

    async def _end_waits(self) -> None:
        """End the waits of all readers: they must be asked for their rights again."""
        budget = StepBudget(_PARTITIONS_PER_TURN)
        for topic in self.catalog.listed:
            for partition in list(topic.partitions.values()):
                waiting = len(partition.listeners) + len(partition.committed_listeners)
                partition.end_waits()
                if budget.spend(1 + waiting):
                    await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Complete running work, save snapshots for a faster next start, and close the backend."""
        await self.log_manager.aclose()
        checkpoints, self._checkpoints = self._checkpoints, None
        if checkpoints is not None:
            checkpoints.cancel()
            await asyncio.gather(checkpoints, return_exceptions=True)
        for task in (self._watching, self._problem_looks):
            if task is not None:
                task.cancel()
        if self.credentials is not None:
            await self.credentials.aclose()
        if self._lag is not None:
            await self._lag.aclose()
        for ownership in self.placement.ownerships:
            await ownership.close_coordinators()
        await self.cold_reads.aclose()
        try:
            await self.topic_manager.aclose()
            await self.partitions.save_snapshots()
        except StorageError as error:
            _log.warning("not everything was saved that would speed up the next start: %s", error)
        finally:
            await self.backend.aclose()

    def advertise(self, listeners: Mapping[str, Listener]) -> None:
        """Set the addresses that clients get. Called before the first request."""
        self.placement.advertise(listeners)
        self.backend.lease.advertise(self.placement.here)

    def _lose_ownerships(self) -> None:
        """End all work for partitions, groups and lag, as another node leads."""
        if self._checkpoints is not None:
            self._checkpoints.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self.credentials is not None:
            self.credentials.tokens.stop()
        if self._lag is not None:
            self._lag.stop()
        self.partitions.stop_opening()
        for ownership in self.placement.ownerships:
            ownership.lose()

    def begin_to_stop(self) -> None:
        """Answer the requests that wait for other clients, as they would delay the shutdown."""
        self.is_stopping = True
        for ownership in self.placement.ownerships:
            ownership.answer_waiters()

    async def checkpoint(self) -> None:
        """Save snapshots and a checkpoint, so that the next start reads less. StorageError."""
        await self.partitions.save_snapshots()
        await self.backend.checkpoint()
        self.checkpointed_s = self.clock.monotonic_s()

    def dynamic_texts(self) -> dict[str, str]:
        """Return the server settings that were changed while the server runs, as strings."""
        return _texts(self.config.dynamic)

    def check_broker_config(self, texts: Mapping[str, str | None]) -> Config:
        """Return the configuration with exactly these dynamic settings.

        Dynamic settings that `texts` does not have get their static values again. Raises
        ConfigError for a setting that cannot be changed.
        """
        gone = dict.fromkeys(name for name in self.config.dynamic if name not in texts)
        return self.config.with_dynamic({**gone, **texts})

    async def configure_broker(
        self, change: Callable[[dict[str, str]], Mapping[str, str | None]]
    ) -> None:
        """Replace the dynamic settings durably by the result of `change`, which gets the old ones.

        Raises the exceptions of `change`, ConfigError for a setting that cannot be changed, and
        StorageError.
        """
        async with self._config_turn:
            config = self.check_broker_config(change(self.dynamic_texts()))
            row = json.dumps(_texts(config.dynamic)).encode()
            await self.backend.state.apply([Change(BROKER_CONFIG, CLUSTER, row)])
            await self._take_config(config)

    def report_internal_error(self, api: str, error: BaseException | None) -> None:
        """Count and log a request that failed by a bug of kgw."""
        self.internal_errors[api] = self.internal_errors.get(api, 0) + 1
        self.refusals.note(BUG, f"{api} failed: {error!r}")
        self.metrics.internal_errors += 1
        _log.error("%s failed: a bug of kgw", api, exc_info=error)

    async def _take_config(self, config: Config) -> None:
        self.config = config
        for take in self.when_configured:
            take(config)
        await self.topic_manager.reconfigure(config)

    async def open_ownership(self, covers: Callable[[Owned], bool]) -> Ownership:
        """Open a bundle that the placement has assigned to this node. Raises StorageError."""
        if self._follower is None:
            # Imported here, as a single process follows no other node.
            from kgw.ownership.catalog_follower import CatalogFollower

            self._follower = CatalogFollower(self.topic_manager)
        await self._follower.catch_up(self.backend.state)
        ownership = Ownership(self._services, covers)
        try:
            await ownership.open()
        except BaseException:
            await ownership.aclose()
            raise
        self.placement.ownerships.append(ownership)
        # A topic may have been created since the partitions of the bundle were opened.
        await self.partitions.open(covers)
        return ownership

    async def close_ownership(self, ownership: Ownership) -> None:
        """Close a bundle that the placement has assigned to another node. Raises StorageError."""
        self.placement.ownerships.remove(ownership)
        await ownership.aclose()

    def _committed(self, group_id: str, topic_id: TopicId, partition: int) -> int | None:
        """Return a group's durable committed offset in a partition; None if it has none."""
        ownership = self.placement.ownership(CoordinatorKey(CoordinatorType.GROUP, group_id))
        one = None if ownership is None else ownership.committed(group_id, topic_id, partition)
        return None if one is None else one.offset

    @property
    def lag(self) -> LagMonitor:
        """The monitor of consumer lag, created at first use or after the first interval."""
        if self._lag is None:
            # Imported here, as it takes 5 ms and is not needed in the first minute.
            from kgw.lag import monitor

            self._lag = monitor.LagMonitor(
                self.groups,
                self.catalog,
                self.log_manager.forecast,
                self.clock,
                self.config,
                self.metrics,
                self.backend.state.lag_history,
                self.positions,
                lambda error: self.report_internal_error("lag", error),
                self._group_figures(),
            )
        return self._lag

    def _open_labels(self) -> None:
        """Create the metrics by topic and partition, if they are configured."""
        # Imported here, as few configurations need it.
        from kgw.partitions.labelled import TopicFigures
        from kgw.partitions.series_room import SeriesRoom

        self._series_room = SeriesRoom(self.config.metrics_labels_series_max)
        if self.catalog.counts is not None:
            self._figures = TopicFigures(
                self.catalog,
                self.catalog.counts,
                self.metrics,
                self._series_room,
                by_topic="topic" in self.config.metrics_labels,
                by_partition="partition" in self.config.metrics_labels,
            )
            self.catalog.when_gone.append(self._figures.forget_topic)

    def _group_figures(self) -> GroupFigures | None:
        labels = self.config.metrics_labels
        if self._series_room is None or "group" not in labels:
            return None
        from kgw.lag.labelled import GroupFigures

        return GroupFigures(self.metrics, self._series_room, by_partition="partition" in labels)

    async def sample_metrics(self, limit_s: float = _METRICS_WAIT_S) -> None:
        """Sample the metrics that are older than a few seconds.

        If lag cannot be sampled within `limit_s`, its last sample is kept: the other metrics are
        useful without it, and monitoring would regard a server without metrics as down.
        """
        metrics = self.metrics
        if not metrics.build_info:
            built_from = await asyncio.to_thread(_built_from)
            python = ".".join(map(str, version_info[:3]))
            metrics.build_info[__version__, built_from, python] = 1
        if self._figures is not None and self.is_started:
            await finish(self._figures.look())
        if self.config.lag_interval_ms and self.is_started and not self.node.is_replaced:
            if self._lag is None:
                await asyncio.to_thread(import_module, "kgw.lag.monitor")
            # After the timeout the sampling of lag continues in its own task.
            with suppress(KgwError, TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self.lag.fresh(_METRICS_FRESH_S)
        else:
            # Needed if lag was sampled only once, for the admin API: that sample would stay for
            # ever.
            metrics.forget_lag()
        await self.problem_watch.look()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                room = await self.backend.disk_room()
            metrics.disk_free_bytes = None if room is None else room.free_bytes
            metrics.disk_reserve_bytes = None if room is None else room.reserve_bytes

    def _open_lag(self) -> None:
        self.catalog.when_gone.append(self.positions.forget_topic)
        if self.config.lag_interval_ms:
            self._watching = asyncio.ensure_future(self._watch_lag())

    def _committed_back(self, group_id: str, place: Place, offset: int, before: int) -> None:
        self.lag.committed_back(group_id, place, offset, before)

    async def _watch_lag(self) -> None:
        """Wait for one interval, then start the lag monitor with its own schedule."""
        interval_s = self.config.lag_interval_ms / 1000
        await self.clock.sleep_until(self.clock.monotonic_s() + interval_s)
        if "kgw.lag.monitor" not in modules:
            await asyncio.to_thread(import_module, "kgw.lag.monitor")
        if self._figures is not None:
            # Topics and partitions must get their series before groups do, even if no metrics have
            # been requested yet.
            await finish(self._figures.look())
        self.lag.start()

    @property
    def problems(self) -> list[Problem]:
        """All known problems, including those that are harmless so far."""
        found: list[Problem] = []
        if self.is_stopping:
            found.append(Problem(STOPPING, "the process is stopping"))
        lease = self.backend.lease
        if lease.status is not LeaseStatus.LEADING:
            found.append(Problem(NOT_LEADING, lease.why_not_leading))
        elif not self.is_started:
            found.append(Problem(STARTING, "the process is starting"))
        found += [Problem(STANDBYS, text) for text in lease.problems]
        if not self.is_started:
            return found
        late = self.metrics.transaction_ends_late
        if late:
            found.append(Problem(TRANSACTIONS, f"the ends of {late} transactions are not written"))
        opening = (Problem(UNOPENED, text) for text in self.partitions.problems)
        return [
            *found,
            *self.backend.health.found,
            *self.cold_reads.problems,
            *opening,
            *self.refusals.problems,
            *self.log_manager.found,
        ]

    def _count(self) -> None:
        """Update the metrics that are not counted continuously."""
        metrics, sessions = self.metrics, self.fetch_sessions
        metrics.topics = len(self.catalog.topics)
        metrics.partitions = self.catalog.partition_count
        metrics.waiting_fetches = self.fetch_deadlines.count
        appended = self.catalog.appended
        metrics.appended_batches = appended.batches
        metrics.appended_records = appended.records
        metrics.appended_bytes = appended.size_bytes
        metrics.standbys = len(self.backend.lease.standbys)
        metrics.leading = int(self.backend.lease.status is LeaseStatus.LEADING)
        metrics.unsynced_bytes, metrics.unsynced_age_s = self.backend.unsynced
        metrics.quarantine_bytes = self.backend.quarantined_bytes
        metrics.offset_anomalies.update(self.backend.recovery_anomalies)
        if self.credentials is not None:
            metrics.delegation_tokens = self.credentials.tokens.valid_count(self.clock.wall_ms())
        metrics.fetch_sessions = len(sessions)
        metrics.fetch_session_partitions = sessions.size
        metrics.fetch_session_evictions = sessions.evictions
        recompressed = self.catalog.recompressed
        metrics.recompressed_batches = recompressed.batches
        metrics.recompressed_bytes = {
            "came": recompressed.bytes_before,
            "stored": recompressed.bytes_after,
        }

    async def _checkpoint_regularly(self) -> None:
        await self.partitions.opened()
        try:
            await self.backend.forget_others()
        except KgwError as error:
            _log.error("old checkpoints could not be removed: %s", error)
        while True:
            # The first checkpoint is made at once: after an unclean start the logs then need not be
            # read again if the next start comes soon.
            try:
                await self.checkpoint()
            except KgwError as error:
                _log.error("a checkpoint failed; the next start will read more: %s", error)
            interval_s = self.config.checkpoint_interval_ms / 1000
            await self.clock.sleep_until(self.clock.monotonic_s() + interval_s)


def _built_from() -> str:
    # Imported here, as only metrics need the file that it reads.
    from kgw.version import commit

    return commit()


def _texts(settings: Mapping[str, Value]) -> dict[str, str]:
    return {name: SERVER_SETTINGS[name].format(value) for name, value in settings.items()}


async def stored_config(state: StateStore, config: Config) -> Config:
    """Return a configuration with the stored dynamic settings. Raises StorageError."""
    row = await load_cluster_row(state, BROKER_CONFIG, "settings that were changed live are lost")
    if row is None:
        return config
    for name, text in json.loads(row.value).items():
        try:
            config = config.with_dynamic({name: text})
        except ConfigError as error:
            _log.error("a stored server setting is left out: %s", error)
    return config
