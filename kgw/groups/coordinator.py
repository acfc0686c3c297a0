"""GroupCoordinator: the requests of clients and administrators to groups.

The state machine of a group decides on its requests (`machine`), the table carries out the effects
that the machine returns (`table`), and `retention` deletes offsets that have expired or whose topic
was deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from kgw.coordinator.entry import Reply
from kgw.coordinator.machine import Answer, Asked, Persist
from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups.classic import CLASSIC_KIND
from kgw.groups.group import ListedGroup
from kgw.groups.machine import OffsetWrite
from kgw.groups.requests import CLASSIC
from kgw.groups.retention import OffsetRetention
from kgw.groups.states import MemberState
from kgw.groups.table import GroupTable
from kgw.offsets.pending import TransactionEnd
from kgw.types import REPLACEMENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from kgw.clock import Clock
    from kgw.coordinator.machine import Kind
    from kgw.groups.group import Group, GroupSettings
    from kgw.groups.machine import GroupRequest
    from kgw.groups.requests import CommitRequest, GroupDescription, TxnCommitRequest
    from kgw.metrics import Metrics
    from kgw.offsets.committed import CommittedOffset, Place
    from kgw.offsets.pending import PendingTable
    from kgw.offsets.table import OffsetTable
    from kgw.offsets.topic_offsets import OffsetChanges
    from kgw.state.base import StateStore
    from kgw.types import TopicId

ResultT = TypeVar("ResultT")

KINDS: Mapping[str, Kind] = {CLASSIC: CLASSIC_KIND}
"""The kinds of groups, by the group type in ListGroups."""


class GroupCoordinator:
    """The groups that this node coordinates.

    Groups of all kinds are in one table. Called in the event loop's thread only.
    """

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        settings: GroupSettings,
        metrics: Metrics,
        report_bug: Callable[[BaseException], None],
        kinds: Mapping[str, Kind] = KINDS,
        services: Mapping[type, Callable[[Any], Awaitable[object]]] | None = None,
    ) -> None:
        self._state = state
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._table = GroupTable(state, clock, settings, metrics, report_bug, kinds, services)
        self._groups = self._table.entries
        self._retention = OffsetRetention(self._table, clock, settings, metrics)
        self.forget_topic = self._retention.forget_topic
        self.when_committed_back: list[Callable[[str, Place, int, int], None]] = []
        """Called when a member commits a lower offset than before.

        The arguments are the group's id, (topic id, partition), the new and the previous offset.
        Not called for commits without a generation, such as an administrator's reset.
        """

    # --- start and stop --------------------------------------------------------------------------

    async def open(
        self,
        topic_exists: Callable[[TopicId], bool],
        is_ours: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Load the groups that this node coordinates; `is_ours` decides by the group's id.

        Drops committed offsets of topics that do not exist. Raises StorageError.
        """
        # Imported here: a node without stored groups calls `open_empty` and does not need it.
        from kgw.groups.loading import OffsetLoader

        await self._table.load()
        gone_topics = await OffsetLoader(self._state, self._clock, self._table).load(topic_exists)
        for group in self._table:
            if not is_ours(group.key):
                self._table.remove(group)
        self._table.open()
        for topic_id in gone_topics:
            self.forget_topic(topic_id)
        self._retention.start()

    def keep_offsets_of(self, groups: Callable[[], Collection[str]]) -> None:
        """Set the function that returns the groups whose committed offsets never expire.

        Retention calls it at the beginning of each sweep.
        """
        self._retention.kept_groups = groups

    def open_empty(self) -> None:
        """Begin without loading, for a new data directory, which has no groups."""
        self._table.open()
        self._retention.start()

    def answer_waiters(self) -> None:
        """Answer all requests that wait for other members; this process stops or is replaced.

        From now on a request only waits until its changes are stored.
        """
        self._table.answer_waiters()

    async def aclose(self) -> None:
        """Do the same as `answer_waiters`, and wait until the submitted writes are stored."""
        self.answer_waiters()
        await self._table.aclose()

    def forget_all(self) -> None:
        """Forget all groups, also in the metrics: another node serves them.

        Call it after `aclose`.
        """
        self._table.forget_all()

    # --- requests --------------------------------------------------------------------------------

    def ask(self, group_id: str, request: GroupRequest[ResultT]) -> Reply[ResultT]:
        """Pass a request to a group, and return its reply.

        The reply may be complete at once, or when other members have sent their requests and the
        changes are stored. Its type depends on the request, see `requests`.
        """
        reply = Reply(request.refused)
        group = self._groups.get(group_id)
        if group is None or not self._table.is_open:
            if not self._table.is_open:
                reply.refuse(self._table.loading)
                return reply
            if REPLACEMENT in group_id:
                reply.refuse(ErrorCode.INVALID_GROUP_ID)
                return reply
            has_room = len(self._groups) < self._settings.groups_max
            found = request.without_group(group_id, has_room=has_room)
            if isinstance(found, ErrorCode):
                reply.refuse(found)
                return reply
            group = self._table.create(group_id, found)
        self._table.step(group, Asked(request, reply))
        return reply

    def commit(self, group_id: str, request: CommitRequest) -> Reply[ErrorCode]:
        """Store committed offsets. If calls commit the same partition, the last call wins."""
        reply = self.ask(group_id, request)
        if not reply.is_done:
            # If the reply is not there yet, the commit was accepted and is being stored.
            for change in request.offsets.values():
                if change is not None:
                    self._metrics.offset_commits += len(change)
            group = self._groups.get(group_id)
            if request.generation >= 0 and group is not None:
                self._tell_of_going_back(group, request.offsets)
        return reply

    def commit_in_transaction(self, group_id: str, request: TxnCommitRequest) -> Reply[ErrorCode]:
        """Store a transaction's offsets, which are pending until it ends.

        The caller must check that the transaction is ongoing and includes the group, and must not
        suspend between the check and this call. So `end_transaction` comes later, and its change is
        stored after this one.
        """
        if not group_id:
            return _answered(ErrorCode.INVALID_GROUP_ID)
        commit = request.commit
        group = self._groups.get(group_id)
        pending = None if group is None else group.pending.get(commit.producer_id)
        if pending is not None and pending.producer_epoch > commit.producer_epoch:
            return _answered(ErrorCode.INVALID_PRODUCER_EPOCH)
        if self._table.is_open and group is None and not any(commit.offsets.values()):
            found = request.without_group(group_id, has_room=True)
            return _answered(found if isinstance(found, ErrorCode) else NO_ERROR)
        reply = self.ask(group_id, request)
        if not reply.is_done:
            self._metrics.offset_commits += sum(map(len, commit.offsets.values()))
        return reply

    def end_transaction(
        self, group_id: str, producer_id: int, producer_epoch: int, is_commit: bool
    ) -> Reply[ErrorCode]:
        """Commit or drop the pending offsets of a transaction, as a marker in Kafka does.

        May be called again for the same transaction. The reply is INVALID_PRODUCER_EPOCH if the
        pending offsets belong to a later transaction; COORDINATOR_NOT_AVAILABLE if the change could
        not be stored: the offsets are still pending, and the caller must try again; NOT_COORDINATOR
        if another process has taken over the state: the caller must send the end of the transaction
        to that process.
        """
        if not self._table.is_open:
            return _answered(self._table.loading)
        group = self._groups.get(group_id)
        if group is None:
            if not self._table.doubtful:
                return _answered(NO_ERROR)
            # A failed commit may have stored its row. A write for this group makes the next flush
            # delete such rows, and the reply waits for it.
            group = self._table.create(group_id, CLASSIC)
        pending = group.pending.get(producer_id)
        if pending is not None and pending.producer_epoch > producer_epoch:
            return _answered(ErrorCode.INVALID_PRODUCER_EPOCH)
        if pending is not None and is_commit:
            self._tell_of_going_back(group, pending.changes())
        end = TransactionEnd(producer_id, producer_epoch, is_commit)
        reply: Reply[ErrorCode] = Reply(lambda error: error)
        write = self._table.submit(group, Persist(more=OffsetWrite(pending=end)))
        write.effects.append(Answer(reply, NO_ERROR))
        return reply

    def _tell_of_going_back(self, group: Group, changes: OffsetChanges) -> None:
        if not self.when_committed_back:
            return
        for topic_id, change in changes.items():
            for partition, offset, before in group.offsets.topic(topic_id).taken_back(change):
                for tell in self.when_committed_back:
                    tell(group.key, (topic_id, partition), offset, before)

    # --- committed offsets -----------------------------------------------------------------------

    def offsets(self, group_id: str) -> OffsetTable | None:
        """Return a group's durable offsets; None if the group does not exist."""
        group = self._groups.get(group_id)
        return None if group is None else group.offsets

    def unstable_offsets(self, group_id: str) -> PendingTable | None:
        """Return the offsets that ongoing transactions commit; None if there are none.

        The committed offsets of these partitions are unstable (KIP-447). No client may see the
        pending offsets.
        """
        group = self._groups.get(group_id)
        return group.pending if group is not None and group.pending else None

    def subscribed_topics(self, group_id: str) -> frozenset[str] | ErrorCode:
        """Return the topics to which the group subscribes, whose offsets may not be deleted.

        Or return GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if the subscriptions of members are
        unknown.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        topics = group.machine.subscribed_topics()
        return ErrorCode.NON_EMPTY_GROUP if topics is None else topics

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> Reply[ErrorCode]:
        """Delete committed offsets durably. It is no error if a partition has none."""
        reply: Reply[ErrorCode] = Reply(lambda error: error)
        group = self._groups.get(group_id)
        changes: dict[TopicId, dict[int, CommittedOffset | None]] = {}
        for topic_id, partition in places:
            changes.setdefault(topic_id, {})[partition] = None
        if not self._table.is_open:
            reply.refuse(self._table.loading)
        elif group is None:
            reply.refuse(ErrorCode.GROUP_ID_NOT_FOUND)
        elif not changes:
            reply.set_result(NO_ERROR)
        else:
            write = self._table.submit(group, Persist(more=OffsetWrite(changes)))
            write.effects.append(Answer(reply, NO_ERROR))
        return reply

    # --- administration --------------------------------------------------------------------------

    def listed(self) -> Iterator[ListedGroup]:
        """Yield the groups that exist at the first `next()`. Skips those removed meanwhile.

        A group's state is read when the group is yielded.
        """
        for group in self._table:
            machine = group.machine
            yield ListedGroup(group.key, machine.protocol_type, machine.state.value, group.kind)

    def ids(self) -> list[str]:
        """Return the id of every group."""
        return list(self._groups)

    def member_count(self, group_id: str) -> int:
        """Return how many members a group has; 0 if there is no such group."""
        group = self._groups.get(group_id)
        return 0 if group is None else group.machine.member_count

    def describe(self, group_id: str) -> GroupDescription | None:
        group = self._groups.get(group_id)
        return None if group is None else group.machine.describe()

    def members(self, group_id: str, member_id: str | None = None) -> list[dict[str, Any]] | None:
        """Return a group's members and their states as JSON values; None if there is no group.

        Member ids that no client has joined with yet come last, as `pending`. With a `member_id`
        the list has only this member; its state is `unknown` if it is not in the group.
        """
        described = self.describe(group_id)
        if described is None:
            return None
        found = {
            one.member_id: {
                "member_id": one.member_id,
                "group_instance_id": one.group_instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "state": one.state.value,
            }
            for one in described.members
        }
        found |= {one: _nameless(one, MemberState.PENDING) for one in described.pending_ids}
        if member_id is None:
            return list(found.values())
        return [found.get(member_id) or _nameless(member_id, MemberState.UNKNOWN)]

    def explain(self, group_id: str) -> dict[str, Any] | None:
        """Return a group's last rebalances and decisions as JSON values; None without a group."""
        group = self._groups.get(group_id)
        if group is None:
            return None
        machine = group.machine
        return {
            "group_id": group_id,
            "type": group.kind,
            "state": machine.state.value,
            "generation": machine.generation,
            "members": machine.member_count,
            "pending_members": machine.pending_count,
            "transactions": [
                {
                    "producer_id": producer_id,
                    "producer_epoch": pending.producer_epoch,
                    "partitions": pending.size,
                }
                for producer_id, pending in group.pending.items()
            ],
            **group.trace.export(self._clock.monotonic_s(), self._clock.wall_ms()),
        }


def _nameless(member_id: str, state: MemberState) -> dict[str, Any]:
    """Return a member as JSON values, if only its id is known."""
    return {
        "member_id": member_id,
        "group_instance_id": None,
        "client_id": None,
        "client_host": None,
        "state": state.value,
    }


def _answered(code: ErrorCode) -> Reply[ErrorCode]:
    reply: Reply[ErrorCode] = Reply(lambda error: error)
    reply.set_result(code)
    return reply
