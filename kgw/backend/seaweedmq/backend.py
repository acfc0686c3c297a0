"""The seaweedmq backend, which stores partitions in SMQ's files. Used in the event loop."""

from __future__ import annotations

from asyncio import Lock, Semaphore, ensure_future, gather, wait
from collections import Counter
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from kgw.backend.base import NOT_OPEN, Backend, Health
from kgw.backend.lease import Lease, LeaseStatus
from kgw.backend.seaweedmq.chain import Chain, Settler
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.entries.layouts import Layout
from kgw.backend.seaweedmq.filer import EntryExistsError, EntryMissingError
from kgw.backend.seaweedmq.log.detail import PartitionDetail, decode_detail
from kgw.backend.seaweedmq.log.log_files import LogFiles
from kgw.backend.seaweedmq.native.foreign_writes import look_at_conf, look_at_partition
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.partition_log import SeaweedMqPartitionLog
from kgw.backend.seaweedmq.shell import Shell
from kgw.backend.seaweedmq.state.placed_state import check_in_filer
from kgw.backend.seaweedmq.state.snapshots import snapshots_of
from kgw.backend.seaweedmq.topics.directories import TopicDirectories, twins
from kgw.backend.seaweedmq.topics.known_ends import KnownEnds
from kgw.backend.seaweedmq.topics.topic_conf import facts_of_row
from kgw.backend.seaweedmq.topics.topic_rows import TopicRows
from kgw.backend.seaweedmq.watch.expiry import ExpiryLook
from kgw.backend.seaweedmq.watch.fence import check_filers, check_version, wait_for_fence
from kgw.backend.seaweedmq.watch.watch import FilerWatch
from kgw.clock import SystemClock
from kgw.errors import (
    CorruptionError,
    DataDirectoryError,
    ErrorCode,
    KafkaError,
    KgwError,
    StorageError,
)
from kgw.logs import EventLogger
from kgw.problems import (
    DAMAGE,
    FILES,
    NO_PARTITION,
    SEAWEEDFS,
    STOPPED,
    STRANGERS,
    UNCLAIMED,
    Problem,
)
from kgw.state.base import DamagedRowsError
from kgw.state.kinds import BINDING_KIND, COPYING_KEY, TOPIC
from kgw.types import format_uuid

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from kgw.backend.base import ForeignTopic, LogSettings, PartitionLog
    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.lease.lease import FilerLease
    from kgw.backend.seaweedmq.native.topics import NativeTopics
    from kgw.backend.seaweedmq.state.offset_mirror import OffsetMirror
    from kgw.backend.seaweedmq.topics.directories import TopicPlace
    from kgw.backend.seaweedmq.topics.topic_conf import TopicFacts
    from kgw.clock import Clock
    from kgw.state.base import StateStore
    from kgw.types import PartitionKey, TopicId, TopicName

MakeNative: TypeAlias = "Callable[[Shell, Callable[[], None]], NativeTopics]"
"""Makes the object for foreign topics, given the shell of all partitions and a callback for changes
of these topics."""

_STUCK_S: Final = 10.0
"""An append that has waited for this long is reported as a problem."""

_STOPPED_NAMED: Final = 20
"""The most stopped partitions that a problem names. After a take-over, all may have stopped."""

_WAY_OUT: Final = (
    "nothing is written to it. Bring the files back from a backup, delete the topic, or have it go "
    "on without them (kgw log accept-loss)"
)

_log = EventLogger(__name__)


def private_directory(namespace: str) -> str:
    """Return kgw's own directory in a namespace, whose name no topic or file of SMQ can have."""
    return f"/topics/.kgw/{namespace}"


def state_directories(namespace: str) -> tuple[str, str]:
    """Return the directories of the state's chain of commits and of its snapshots."""
    state = f"{private_directory(namespace)}/state"
    return state, snapshots_of(state)


def directories_of(namespace: str) -> tuple[str, str]:
    """Return the two directories that contain everything of a namespace."""
    return f"/topics/{namespace}/", f"{private_directory(namespace)}/"


class SeaweedMqBackend(Backend):
    """Records and state in a SeaweedFS; nothing is kept on the gateway's own disk."""

    # Opening a partition takes at least five calls, so opening a thousand partitions takes long.
    start_waits_s = 1.0

    def __init__(
        self,
        filer: Filer,
        namespace: str,
        state: StateStore,
        options: SeaweedMqOptions | None = None,
        clock: Clock | None = None,
        lease: FilerLease | None = None,
        native: MakeNative | None = None,
    ) -> None:
        """Use a namespace of a SeaweedFS. Nothing is read or written before `open`.

        `state` is opened after SeaweedFS has been tested and the lease acquired, and closed before
        the lease is given back. State and lease use the same filer. Without a `lease`, every
        gateway that opens the namespace leads it. `native` makes the object that serves topics led
        by SMQ's broker.
        """
        self.state = state
        self._filer = filer
        self._namespace = namespace
        self._options = options or SeaweedMqOptions()
        self._clock = clock or SystemClock()
        self._partitions: dict[PartitionKey, SeaweedMqPartitionLog] = {}
        self._open_of: Counter[TopicId] = Counter()
        """The number of partitions of each topic that this backend has open or is opening."""
        self._locks: dict[PartitionKey, Lock] = {}
        self._described: dict[TopicId, TopicFacts] = {}
        """The facts about each topic that SMQ's tools need, taken from the catalogue."""
        self._unclaimed: tuple[str, ...] = ()
        self._strangers: dict[str, list[str]] = {}
        self._is_open = False
        self._filer_lease = lease
        self.lease = lease or Lease()
        self.lease.when_changed.append(self._lease_changed)
        self.mirror: OffsetMirror | None = None
        """Writes copies of committed offsets for SMQ's tools; set before `open`."""
        self._make_native = native
        self._native: NativeTopics | None = None
        self._opened = AsyncExitStack()
        """Releases the resources that `open` has acquired."""
        self._expiry = ExpiryLook(filer, self._clock)
        self._saving: Task[None] | None = None
        """The task that saves snapshots between the periodic ones, after many appended bytes."""
        # Set by `open`.
        self._watch: FilerWatch
        self._shell: Shell
        self._known_ends: KnownEnds
        self._topics: TopicDirectories
        self._topic_rows: TopicRows
        self._slots: Semaphore

    @property
    def location(self) -> str:
        """The namespace's directory on the filer."""
        return f"/topics/{self._namespace}"

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self) -> None:
        if self._is_open:
            raise DataDirectoryError(f"namespace {self._namespace} is open already")
        async with AsyncExitStack() as opened:
            await self._filer.open()
            opened.push_async_callback(self._filer.aclose)
            check_version(self._filer)
            await check_filers(self._filer, self._clock.monotonic_s())
            self._watch = FilerWatch(
                self._filer,
                self._clock,
                directories_of(self._namespace),
                self._restore,
                self._forget_sealed,
                self._expiry.expect,
            )
            await self._watch.check()
            directory = private_directory(self._namespace)
            await wait_for_fence(self._filer, directory, self._clock)
            if self._filer_lease is not None:
                opened.push_async_callback(self._filer_lease.aclose)
                await self._filer_lease.acquire()
                # Check again, because other filers may have joined while a standby waited.
                await check_filers(self._filer, self._clock.monotonic_s())
            self._watch.start()
            opened.push_async_callback(self._watch.aclose)
            await self.state.open()
            opened.push_async_callback(self.state.aclose)
            binding = await self.state.load(BINDING_KIND)
            check_in_filer(binding, self._namespace)
            if COPYING_KEY in binding:
                raise DataDirectoryError(
                    f"a copy of a state into namespace {self._namespace} was interrupted: repeat "
                    "it with `kgw state copy`"
                )
            self._known_ends = KnownEnds(self.state)
            await self._known_ends.open()
            self._shell = Shell(
                self._filer, self._clock, self._options, self.doubt, self._save_snapshots_soon
            )
            opened.push_async_callback(self._shell.aclose)
            opened.callback(self._open_of.clear)
            opened.callback(self._partitions.clear)
            if self.mirror is not None:
                # Close the mirror before the partitions, because it writes into their directories.
                opened.push_async_callback(self.mirror.aclose)
            if self._make_native is not None:
                self._native = self._make_native(self._shell, self._foreign_topics_changed)
                opened.push_async_callback(self._native.aclose)
                await self._native.open()
            self._topics = TopicDirectories(self._filer, self._namespace)
            self._topic_rows = TopicRows(self._topics, self._clock, self._options.close_s)
            opened.push_async_callback(self._topic_rows.aclose)
            self._opened = opened.pop_all()
        self._slots = Semaphore(self._options.open_at_once)
        self._unclaimed = ()
        self._is_open = True
        for problem in self.state.problems:
            self._shell.report(problem)
        if self._known_ends.damage is not None:
            self._shell.report(self._known_ends.damage)

    async def aclose(self) -> None:
        # Once another gateway leads, only that gateway may record the ends of the logs.
        await self._close(is_orderly=self.lease.status is not LeaseStatus.LOST)

    async def abandon(self) -> None:
        """Close without recording the ends of the logs, like a killed process."""
        await self._close(is_orderly=False)

    async def _close(self, *, is_orderly: bool) -> None:
        if not self._is_open:
            return
        self._is_open = False
        async with self._opened:
            deadline_s = self._close_by_s
            for log in self._partitions.values():
                log.appends.retire("the backend is closed")
            if self._saving is not None:
                # An orderly stop has already saved all snapshots.
                self._saving.cancel()
                await wait([self._saving])
                self._saving = None
            if is_orderly and self._filer.write_stop is not None:
                await self._restore_last(deadline_s)

            async def close(log: SeaweedMqPartitionLog) -> None:
                async with self._slots:
                    try:
                        await log.aclose(deadline_s, is_orderly=is_orderly)
                    except StorageError as error:
                        # No data is lost: the next start begins another leader epoch.
                        _log.warning(
                            "a partition was not left in order", partition=str(log.key), error=error
                        )

            await gather(*map(close, self._partitions.values()))
            if is_orderly:
                # If the state does not answer in time, it keeps the old ends.
                error = await self._until(deadline_s, self._save_ends())
                if error is not None:
                    _log.warning("where the logs end was not noted in the state", reason=error)

    async def _restore_last(self, deadline_s: float) -> None:
        """Restore changes that another filer has undone, which the next gateway cannot know."""
        error = await self._until(deadline_s, self._restore())
        if error is not None:
            _log.error(
                "what the filer may have lost was not put back before the stop", reason=error
            )
        elif self._watch.is_beside_others:
            _log.error(
                "kgw stops beside another filer: what that takes back from now on is not put back; "
                "see kgw log check",
                reason=self._filer.write_stop,
            )

    async def _until(self, deadline_s: float, doing: Awaitable[None]) -> str | None:
        """Wait for an awaitable until a deadline; return the reason if it failed or timed out."""
        task = ensure_future(doing)
        timer = self._clock.call_at(deadline_s, task.cancel)
        try:
            await wait([task])
        finally:
            timer.cancel()
            task.cancel()
        if task.cancelled():
            return "no answer in time"
        error = task.exception()
        return None if error is None else str(error)

    async def _save_ends(self) -> None:
        """Save the end of each log in the state. Raises StorageError."""
        await self._known_ends.save(
            {key: log.high_watermark for key, log in self._partitions.items()}
        )

    @property
    def _close_by_s(self) -> float:
        return self._clock.monotonic_s() + self._options.close_s

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageError("the backend is not open")

    # --- the lease -------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Check now whether another gateway leads, because it has written one of our files."""
        if self._filer_lease is not None:
            self._filer_lease.doubt()

    def _lease_changed(self) -> None:
        if self.lease.status is LeaseStatus.LOST:
            if self.mirror is not None:
                self.mirror.stop()
            if self._is_open:
                self._topic_rows.stop()

    async def _restore(self) -> None:
        """Restore the last changes if the filer has lost them. Raises StorageError."""
        await self.state.restore()

        async def restore(key: PartitionKey) -> None:
            log = self._partitions.get(key)
            if log is None:
                return
            try:
                await log.chain.ledger.restore()
            except CorruptionError as error:
                # Another writer must have left the state that the filer has.
                self._shell.report(str(error), DAMAGE)

        await self._side_by_side(restore, list(self._partitions))

    def _forget_sealed(self) -> None:
        """Drop entries that were kept for `_restore` in case a filer joins."""
        for log in self._partitions.values():
            log.chain.ledger.forget_sealed()

    async def directory_of(self, key: PartitionKey) -> str | None:
        """Return the directory of a partition's files; None if the partition is not open."""
        log = self._partitions.get(key)
        return None if log is None else log.chain.directory

    # --- topics that SMQ's broker leads ----------------------------------------------------------

    @property
    def foreign_topics(self) -> Sequence[ForeignTopic]:
        return () if self._native is None else self._native.topics

    def _foreign_topics_changed(self) -> None:
        if self.on_foreign_topics is not None:
            self.on_foreign_topics()

    async def release_partition(self, key: PartitionKey) -> None:
        if self._native is not None:
            await self._native.release(key)
        async with self._locks.setdefault(key, Lock()):
            log = self._partitions.pop(key, None)
            if log is None:
                return
            self._open_of[key.topic_id] -= 1
            log.appends.retire(f"partition {key} has been released")
            # Do not record the end of the log, so that the next leader begins another epoch.
            await log.aclose(self._close_by_s, is_orderly=False)

    # --- partitions ------------------------------------------------------------------------------

    @property
    def partitions(self) -> Mapping[PartitionKey, PartitionLog]:
        native = {} if self._native is None else self._native.logs
        return MappingProxyType({**self._partitions, **native})

    async def create_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        (log,) = await self.create_partitions([key], topic, settings)
        return log

    async def create_partitions(
        self, keys: Sequence[PartitionKey], topic: TopicName, settings: LogSettings
    ) -> list[PartitionLog]:
        self._check_open()
        _check_layout(settings)
        missing = [key for key in keys if key not in self._partitions]
        if missing:
            place = await self._place(topic, missing[0])
            await self._side_by_side(
                lambda key: self._adopt(key, lambda: self._create(key, place, settings)), missing
            )
            await self._write_conf(place, missing[0].topic_id)
        return [self._partitions[key] for key in keys]

    async def open_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        self._check_open()
        async with self._slots:
            if self._native is not None and self._native.has(key):
                return await self._native.open_partition(key)
            return await self._adopt(key, lambda: self._open(key, topic, settings))

    async def _side_by_side(
        self, do: Callable[[PartitionKey], Awaitable[object]], keys: Iterable[PartitionKey]
    ) -> None:
        """Call `do` for each key, a few at a time; after all calls, raise the first error."""

        async def bounded(key: PartitionKey) -> None:
            async with self._slots:
                await do(key)

        for outcome in await gather(*map(bounded, keys), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _adopt(
        self, key: PartitionKey, make: Callable[[], Awaitable[SeaweedMqPartitionLog]]
    ) -> SeaweedMqPartitionLog:
        """Return the log of a partition; the first caller makes it with `make`."""
        async with self._locks.setdefault(key, Lock()):
            log = self._partitions.get(key)
            if log is None:
                log = await make()
                if not self._is_open:
                    log.appends.retire("the backend is closed")
                    await log.aclose(self._close_by_s, is_orderly=False)
                    raise StorageError("the backend is closed")
                self._partitions[key] = log
                self._open_of[key.topic_id] += 1
        return log

    async def _place(self, topic: TopicName, key: PartitionKey) -> TopicPlace:
        found = await self._topics.find(topic, key.topic_id)
        return found or await self._topics.create(topic, key.topic_id, self._clock.wall_ms())

    def _settler(self, directory: str) -> Settler:
        return Settler(self._filer, self._clock, directory, self._shell.troubled_chains)

    async def _create(
        self, key: PartitionKey, place: TopicPlace, settings: LogSettings
    ) -> SeaweedMqPartitionLog:
        directory = place.partition(key.partition)
        detail = PartitionDetail()
        try:
            chain = await Chain.create(
                self._settler(directory), _identity(key), detail.encode(), self._options.chain
            )
        except EntryExistsError:
            # An earlier call has made the chain, but its answer was lost.
            return await self._take_over(key, directory, settings)
        return SeaweedMqPartitionLog(LogFiles(key, chain, detail, settings, self._shell))

    async def _open(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> SeaweedMqPartitionLog:
        _check_layout(settings)
        place = await self._topics.find(topic, key.topic_id)
        if place is not None:
            try:
                return await self._take_over(key, place.partition(key.partition), settings)
            except EntryMissingError:
                pass
        known_end = self._known_ends.of(key)
        if known_end:
            where = f"topic {topic}" if place is None else place.partition(key.partition)
            raise CorruptionError(
                f"{where}: all files of partition {key} are gone, and the state has it end at "
                f"{known_end}; {_WAY_OUT}"
            )
        place = await self._place(topic, key)
        directory = place.partition(key.partition)
        log = await self._create(key, place, settings)
        self._shell.report(
            f"partition {key} of topic {topic} was missing ({directory}); created empty",
            DAMAGE,
            partial(log.is_gone_below, 1),
        )
        await self._write_conf(place, key.topic_id)
        return log

    async def _write_conf(self, place: TopicPlace, topic_id: TopicId) -> None:
        facts = self._described.get(topic_id)
        await self._topics.write_conf(
            place,
            await self._topics.partitions(place),
            None if facts is None else facts.record_type,
        )

    async def _take_over(
        self, key: PartitionKey, directory: str, settings: LogSettings
    ) -> SeaweedMqPartitionLog:
        """Become the writer of an existing log. Raises EntryMissingError, StorageError."""
        chain = await Chain.take_over(self._settler(directory), _identity(key), self._options.chain)
        try:
            found = decode_detail(chain.detail)
            if lost := found.lost_end(chain.end_offset, self._known_ends.of(key)):
                # Otherwise offsets that consumers have read and committed would be assigned again.
                raise CorruptionError(f"{directory}/{LEADER}: {lost}; {_WAY_OUT}")
            files = LogFiles(key, chain, found, settings, self._shell)
            log = SeaweedMqPartitionLog(files)
            if found.clean_end != chain.end_offset and chain.end_offset:
                await log.verify_end()
            # Store the new epoch before a batch gets it.
            await files.save(lambda detail: detail.opened(chain.end_offset))
        except BaseException:
            await chain.aclose()
            raise
        return log

    def describe_topic(self, topic_id: TopicId, row: bytes) -> None:
        facts = facts_of_row(row)
        if facts is not None:
            self._described[topic_id] = facts
        self._topic_rows.note(topic_id, row)

    async def delete_partition(self, key: PartitionKey) -> None:
        self._check_open()
        log = self._partitions.pop(key, None)
        self._locks.pop(key, None)
        if log is not None:
            self._open_of[key.topic_id] -= 1
        if not self._open_of[key.topic_id]:
            # If the topic has other open partitions, only the partitions of a failed enlargement
            # are deleted.
            del self._open_of[key.topic_id]
            self._described.pop(key.topic_id, None)
        self._known_ends.forget(key)
        if log is not None:
            log.appends.retire(f"partition {key} has been deleted")
            with suppress(StorageError):
                await log.aclose(self._close_by_s, is_orderly=False)
        await self._topics.remove(key)

    # --- health ----------------------------------------------------------------------------------

    async def forget_others(self) -> None:
        """Report kgw's topics on the filer that the catalogue does not know.

        Known ends of logs are dropped if neither the catalogue nor a directory has their topic.
        """
        self._check_open()
        claimed = {key.topic_id for key in self._partitions}
        places = await self._topics.list_all()
        self._unclaimed = tuple(
            f"{place.directory} (topic id {format_uuid(topic_id)}) belongs to no topic; "
            "see `kgw log adopt`"
            for topic_id, (place, *others) in places.items()
            if topic_id not in claimed and not others
        )
        self._note_strangers({**self._strangers, self._topics.root: twins(places)})
        self._topic_rows.begin()
        if gone := self._known_ends.topics - self._open_of.keys() - places.keys():
            try:
                rows = await self.state.load(TOPIC)
            except DamagedRowsError:
                return  # A row that cannot be read may belong to such a topic.
            # A topic that cannot be opened still exists.
            gone = {one for one in gone if format_uuid(one) not in rows}
            self._known_ends.forget_topics(gone - self._open_of.keys())

    async def checkpoint(self) -> None:
        """Report changes by other programs in our directories, and record the ends of the logs.

        Nothing else must be saved here: opening a log reads only entries that appends have written.
        """
        self._check_open()
        self._topic_rows.begin()
        try:
            # Record the ends first, because the listing below may fail each time.
            await self._save_ends()
        finally:
            self._note_strangers(await self._look_for_strangers())
            await self._expiry.look(
                [
                    *state_directories(self._namespace),
                    *sorted(log.chain.directory for log in self._partitions.values()),
                ]
            )

    def _save_snapshots_soon(self) -> None:
        """Start saving snapshots in the background, unless they are being saved."""
        if self._saving is None and self.before_checkpoint is not None and self._is_open:
            self._shell.to_replay_bytes = 0
            self._saving = ensure_future(self._save_snapshots(self.before_checkpoint))

    async def _save_snapshots(self, save: Callable[[], Awaitable[None]]) -> None:
        try:
            await save()
        except KgwError as error:
            _log.warning("snapshots were not saved; the next start may read more", error=error)
        finally:
            self._saving = None

    async def _look_for_strangers(self) -> dict[str, list[str]]:
        """Return the changes that other programs made, by directory. Raises FilerError."""
        found: dict[str, list[str]] = {}
        numbers: dict[TopicId, list[int]] = {}
        for key in self._partitions:
            numbers.setdefault(key.topic_id, []).append(key.partition)

        async def look(key: PartitionKey) -> None:
            log = self._partitions.get(key)
            if log is not None:
                found[log.chain.directory] = await look_at_partition(self._filer, log.chain)

        await self._side_by_side(look, list(self._partitions))
        places = await self._topics.list_all(again=True)
        found[self._topics.root] = twins(places)
        for topic_id, partitions in numbers.items():
            facts = self._described.get(topic_id)
            if facts is not None:
                # Include partitions that cannot be opened.
                partitions = list(range(facts.partitions))  # noqa: PLW2901
            for place in places.get(topic_id, ()):
                found[place.parent] = await look_at_conf(self._filer, place, partitions)
                if facts is not None and facts.record_type is not None:
                    # An older kgw did not write the record type, or a broker has dropped it.
                    await self._topics.write_record_type(place, facts.record_type)
        return found

    def _note_strangers(self, found: dict[str, list[str]]) -> None:
        """Log each change by another program once, and list it as a problem while it lasts."""
        for directory, problems in found.items():
            for problem in problems:
                if problem not in self._strangers.get(directory, ()):
                    _log.warning("others write where kgw does", problem=problem)
        self._strangers = found

    async def look(self) -> None:
        if self._is_open:
            await self._filer.look()

    @property
    def recovery_anomalies(self) -> Mapping[str, int]:
        if self._native is None:
            return {}
        return {"native": self._native.anomalies}

    @property
    def health(self) -> Health:
        if not self._is_open:
            return Health((NOT_OPEN,))
        chains = [log.chain for log in self._partitions.values()]
        stuck = [chain for chain in chains if chain.stuck_s > _STUCK_S]
        lost = sum(1 for log in self._partitions.values() if log.has_failed)
        problems = [*self.state.found, *self._shell.found, *self._filer.problems]
        problems += [*self._watch.problems, *self._expiry.problems]
        for found in self._strangers.values():
            problems += [Problem(STRANGERS, text) for text in found]
        if self._partitions and len(stuck) + lost >= len(self._partitions):
            problems.append(Problem(NO_PARTITION, "no partition takes records"))
        stopped = [why for log in self._partitions.values() if (why := log.why_stopped)]
        problems += [Problem(STOPPED, why) for why in stopped[:_STOPPED_NAMED]]
        if len(stopped) > _STOPPED_NAMED:
            more = len(stopped) - _STOPPED_NAMED
            problems.append(Problem(STOPPED, f"{more} more partitions take no more writes"))
        if stuck:
            why = next((chain.trouble for chain in stuck if chain.trouble), "no answer")
            problems.append(
                Problem(
                    SEAWEEDFS,
                    f"{len(stuck)} partitions have waited for SeaweedFS for over {_STUCK_S:.0f} s: "
                    f"{why}",
                )
            )
        problems += [
            Problem(
                FILES,
                f"{chain.directory} lists {len(chain.files)} files, and at "
                f"{self._options.most_files} no append is taken: they are not joined, and the log "
                "says why",
            )
            for chain in chains
            if len(chain.files) > self._options.many_files
        ]
        unclaimed = (Problem(UNCLAIMED, text) for text in self._unclaimed)
        return Health((*problems, *unclaimed), len(self._unclaimed))


def _identity(key: PartitionKey) -> bytes:
    """Return the identity of a partition's chain, which is part of every conditional update."""
    return str(key).encode()


def _check_layout(settings: LogSettings) -> None:
    """Refuse a layout that does not exist. Raises KafkaError."""
    if settings.layout and settings.layout not in list(Layout):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"kgw.seaweedmq.layout={settings.layout}: {' or '.join(Layout)} is expected",
        )
