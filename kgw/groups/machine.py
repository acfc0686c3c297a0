"""What the coordinator knows of a group: a machine, the events that it takes and their effects.

A machine of any kind is pure: it is told what happens and when, and returns what is to be done, in
order. It knows no store, no clock and no connection. `coordinator.KINDS` lists what there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from enum import Enum

    from kgw.errors import ErrorCode
    from kgw.groups.requests import GroupDescription
    from kgw.groups.trace import Round, Trace
    from kgw.offsets.pending import PendingChange
    from kgw.offsets.topic_offsets import OffsetChanges
    from kgw.state.base import RowKey

NEVER_S = float("inf")

ResultT_co = TypeVar("ResultT_co", covariant=True)


# --- events --------------------------------------------------------------------------------------


class GroupRequest(Protocol[ResultT_co]):
    """Something that a client or an administrator asks of a group; see `requests`."""

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode | str:
        """Return the error where there is no such group, or the type of the one that is made.

        `has_room` says whether there may be another group.
        """

    def refused(self, error: ErrorCode) -> ResultT_co:
        """Return the answer that says that it was not done, and why."""


class Asked(NamedTuple):
    """Somebody asks for something, and `waiter` is to be answered."""

    request: GroupRequest[Any]
    waiter: object


class TimePassed(NamedTuple):
    """`next_deadline_s` has come."""


class AllStored(NamedTuple):
    """Everything that was to be persisted is durable, and what waited for it is answered now."""


class Abandoned(NamedTuple):
    """Nothing will be asked of the machine any more: whoever waits is to be answered with this."""

    error: ErrorCode


Event: TypeAlias = Asked | TimePassed | AllStored | Abandoned


# --- effects -------------------------------------------------------------------------------------


class StoredRow(Protocol):
    """The content of a row that a machine is restored from."""

    def encode(self, running_ms: int) -> bytes:
        """Return what is stored of it when it is submitted at a running time."""


class Persist(NamedTuple):
    """Store rows of the machine's own and committed offsets, all or none. Later answers wait."""

    rows: Mapping[RowKey, StoredRow | None] = {}
    """None: there is no such row any more."""
    offsets: OffsetChanges = {}  # noqa: RUF012 - a mapping that nobody changes
    drops_offsets: bool = False
    """Whether all committed offsets go, and all that is pending."""
    pending: PendingChange | None = None
    """What becomes of the offsets that a transaction is to commit."""


class Answer(NamedTuple):
    """Answer the waiter of a request.

    Not before everything that was to be persisted until then is durable, unless the answer is
    `at_once`: then it reveals nothing that could be taken back.
    """

    waiter: object
    result: object
    at_once: bool = False


class RoundFormed(NamedTuple):
    """A generation has formed; its answers follow. For the clock of coordinator time."""

    round: Round


class RoundAssigned(NamedTuple):
    """A generation has its assignment; its answers follow."""

    round: Round


Effect: TypeAlias = Persist | Answer | RoundFormed | RoundAssigned


# --- machines ------------------------------------------------------------------------------------


class GroupMachine(Protocol):
    """The rules of one group of some kind."""

    group_type: str
    """As ListGroups names it."""
    protocol_type: str
    empty_since_s: float
    """When the last member left; while there are members, that is past."""

    @property
    def state(self) -> Enum:
        """Its value is what clients are told: Dead while the deletion is being stored."""

    @property
    def generation(self) -> int:
        """The newest generation, or epoch."""

    @property
    def member_count(self) -> int:
        """How many members there are."""

    @property
    def is_vacant(self) -> bool:
        """Whether nobody is in it, nor has an id to come in with."""

    @property
    def next_deadline_s(self) -> float:
        """When it is to hear `TimePassed` next. That may come early, never late."""

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Take an event at a monotonic time, and return what is to be done, in order."""

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
    empty_since_s: float
    rows: Mapping[RowKey, StoredRow] = {}
    """What is stored of it: every member then has a whole session to be heard of again."""
    generation_floor: int = 0
    """No generation up to this one is given out, whatever the rows say."""


class DecodedRow(NamedTuple):
    """A row as it was loaded."""

    group_id: str
    row: StoredRow
    empty_since_ms: int
    """Running time since when the group is empty, -1 while there are members."""


class GroupKind(NamedTuple):
    """One kind of group: how it is stored, and how a machine of it begins."""

    row_kinds: tuple[str, ...]
    """The kinds of rows that its machines persist."""
    decode: Callable[[str, str, bytes], DecodedRow]
    """Returns what a row says, given its kind, key and content. Raises ValueError."""
    begin: Callable[[Beginning], GroupMachine]
    """Returns a machine in the state that its rows say; without rows, that of a new group."""
