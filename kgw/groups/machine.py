"""The machine of a group: its requests, the effects that only groups have, and how it begins.

Events and effects of every kind are in `kgw.coordinator.machine`; `coordinator.KINDS` lists the
kinds of groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from kgw.coordinator.machine import Answer, Become, Call, Machine, Persist, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.coordinator.machine import StoredRow
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
        """Return the error if there is no such group, or the kind of the one that is made.

        `has_room` says whether there may be another group.
        """


# --- effects -------------------------------------------------------------------------------------


class OffsetWrite(NamedTuple):
    """Changes of committed and pending offsets, which a `Persist` has as `more`."""

    offsets: OffsetChanges = {}  # noqa: RUF012 - a mapping that nobody changes
    drops_all: bool = False
    """Whether all committed and all pending offsets go."""
    pending: PendingChange | None = None
    """A change of the offsets that transactions are to commit."""


class RoundFormed(NamedTuple):
    """The answers of a new generation are given, which were ready at a monotonic time."""

    round: Round
    since_s: float


class RoundAssigned(NamedTuple):
    """The answers with the assignment of a generation are given, which were ready at a time."""

    round: Round
    since_s: float


Effect: TypeAlias = Persist | Answer | Call | Become | RoundFormed | RoundAssigned


# --- machines ------------------------------------------------------------------------------------


class GroupMachine(Machine, Protocol):
    """The rules of one group of some kind."""

    protocol_type: str
    empty_since_s: float
    """When the last member left; while there are members, that is past."""

    @property
    def generation(self) -> int:
        """The newest generation, or epoch."""

    @property
    def member_count(self) -> int:
        """How many members there are."""

    def describe(self) -> GroupDescription:
        """Return what DescribeGroups tells."""

    @property
    def pending_count(self) -> int:
        """How many ids were given to clients that have yet to join with them."""

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that members read now; None when nobody can say."""


class GroupLimits(NamedTuple):
    """What holds for every group of a coordinator."""

    max_size: int = (1 << 31) - 1
    initial_rebalance_delay_s: float = 0.0
    max_bytes: int = 16 << 20
    """Of what all members of a group say of themselves, and of what their leader assigns.

    Both are written with each generation, in one row, while everybody waits: 16 MB cost 100 ms.
    Kafka has the limit of a record, 1 MB.
    """


class Beginning(NamedTuple):
    """What a machine begins with."""

    group_id: str
    limits: GroupLimits
    trace: Trace
    now_s: float
    running_ms: int
    empty_since_s: float | None = None
    """None: as the rows say."""
    rows: Mapping[RowKey, StoredRow] = {}
    """What is stored of it: every member then has a whole session to be heard of again."""
    generation_floor: int = 0
    """No generation up to this one is given out, whatever the rows say."""
