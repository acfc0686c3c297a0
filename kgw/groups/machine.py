"""The state machine of a group: its requests, its own effects, and the arguments of a new one.

The events and effects of all state machines are in `kgw.coordinator.machine`; the kinds of groups
are listed in `coordinator.KINDS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from kgw.coordinator.machine import Answer, Become, Call, Machine, Persist, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.coordinator.machine import Asked, StoredRow
    from kgw.errors import ErrorCode
    from kgw.groups.requests import GroupDescription
    from kgw.groups.trace import Round, Trace
    from kgw.offsets.pending import PendingChange
    from kgw.offsets.topic_offsets import OffsetChanges
    from kgw.state.base import RowKey

ResultT_co = TypeVar("ResultT_co", covariant=True)


class GroupRequest(Request[ResultT_co], Protocol[ResultT_co]):
    """A request of a client or an administrator to a group; see `requests`."""

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode | str:
        """Return an error, or the kind of group to create, for a group that does not exist.

        `has_room` says whether the limit on the number of groups allows another group.
        """

    def other_kind(self) -> ErrorCode:
        """Return the error for a group of a kind that does not handle such requests."""


def refuse_other_kind(asked: Asked) -> Answer:
    """Return the answer to a request that this kind of group does not handle.

    Every machine gives it: the id in the request may be that of a group of another kind.
    """
    request = cast("GroupRequest[Any]", asked.request)
    return Answer(asked.waiter, request.refused(request.other_kind()), at_once=True)


# --- effects -------------------------------------------------------------------------------------


class OffsetWrite(NamedTuple):
    """Changes of committed and pending offsets: the value of `Persist.more`."""

    offsets: OffsetChanges = {}  # noqa: RUF012 - the mapping is never modified
    drops_all: bool = False
    """Whether all committed and pending offsets of the group are deleted."""
    pending: PendingChange | None = None
    """A change of the offsets in ongoing transactions."""


class RoundFormed(NamedTuple):
    """The JoinGroup answers of a new generation are sent, as the generation is stored."""

    round: Round
    since_s: float
    """The monotonic time at which the answers were ready."""


class RoundAssigned(NamedTuple):
    """The SyncGroup answers of a generation are sent, as its assignment is stored."""

    round: Round
    since_s: float
    """The monotonic time at which the answers were ready."""


Effect: TypeAlias = Persist | Answer | Call | Become | RoundFormed | RoundAssigned


# --- machines ------------------------------------------------------------------------------------


class GroupMachine(Machine, Protocol):
    """The rules of one group of some kind."""

    protocol_type: str
    empty_since_s: float
    """The monotonic time at which the last member left; meaningless while there are members."""

    @property
    def generation(self) -> int:
        """The current generation, or the group epoch in other kinds of groups."""

    @property
    def member_count(self) -> int:
        """How many members there are."""

    def describe(self) -> GroupDescription:
        """Return the group for DescribeGroups."""

    @property
    def pending_count(self) -> int:
        """How many member ids were given to clients that have not joined with them yet."""

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to; None if a subscription is unknown."""


class GroupLimits(NamedTuple):
    """The limits that apply to every group of a coordinator."""

    max_size: int = (1 << 31) - 1
    initial_rebalance_delay_s: float = 0.0
    max_bytes: int = 16 << 20
    """The size limit, in bytes, of the protocol metadata of all members; also the limit for the
    leader's assignments. Both are written in one row with each generation, while all members wait:
    16 MB take 100 ms. Kafka's limit is the size of a record, 1 MB."""


class Beginning(NamedTuple):
    """The arguments of a new machine."""

    group_id: str
    limits: GroupLimits
    trace: Trace
    now_s: float
    running_ms: int
    empty_since_s: float | None = None
    """None: take it from the rows."""
    rows: Mapping[RowKey, StoredRow] = {}
    """The stored rows of the group. The session timeouts of stored members start again."""
    generation_floor: int = 0
    """The next generation is higher than this number, even if the rows have a lower generation."""
