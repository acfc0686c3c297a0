"""The events that a state machine handles, its effects, and the declaration of a kind of machine.

A machine is pure: `handle` takes an event and the time, and returns effects in order. It knows no
store, no clock and no connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from enum import Enum

    from kgw.errors import ErrorCode
    from kgw.state.base import RowKey
    from kgw.types import TopicId

NEVER_S = float("inf")

ResultT_co = TypeVar("ResultT_co", covariant=True)


# --- events --------------------------------------------------------------------------------------


class Request(Protocol[ResultT_co]):
    """A request of a client or an administrator."""

    def refused(self, error: ErrorCode) -> ResultT_co:
        """Return the answer for an error code. The request has changed nothing."""


class Asked(NamedTuple):
    """A request has arrived; the machine answers `waiter` now or later."""

    request: Request[Any]
    waiter: Any


class TimePassed(NamedTuple):
    """`next_deadline_s` has passed."""


class AllStored(NamedTuple):
    """All rows that the machine has changed are durable, and the effects behind them are done."""


class Returned(NamedTuple):
    """The work of a `Call` has ended."""

    request: Any
    result: Any
    """Valid only if `error` is NONE."""
    error: ErrorCode


class Abandoned(NamedTuple):
    """The machine gets no further requests. It must answer every waiter with this error."""

    error: ErrorCode


Event: TypeAlias = Asked | TimePassed | AllStored | Returned | Abandoned
"""The events of every kind of machine. A kind may have further events."""


# --- effects -------------------------------------------------------------------------------------


class StoredRow(Protocol):
    """The content of a stored row, from which a machine can be restored."""

    def encode(self, running_ms: int) -> bytes:
        """Return the stored form. `running_ms` is the time at which the change was queued."""


class Persist(NamedTuple):
    """Store all changes or none. The effects behind it wait until the changes are durable."""

    rows: Mapping[RowKey, StoredRow | None] = {}
    """The rows by key; None deletes a row."""
    more: Any = None
    """Changes of other data, which the runtime stores with the rows."""
    is_urgent: bool = True
    """If False, no effect waits for it: it is stored with the next urgent write, or a little
    later."""
    may_join: bool = False
    """Whether it may be stored together with the write before it, if both have `may_join`."""


class Answer(NamedTuple):
    """Answer the waiter of a request once all changes before this effect are durable."""

    waiter: Any
    result: object
    at_once: bool = False
    """Answer without waiting for changes, as the answer does not depend on them."""
    weight: int = 0
    """The work that the answer causes; a usual answer has 1.

    After `Runtime.finished_per_turn` of these units the event loop runs other work.
    """


class Call(NamedTuple):
    """Begin work outside of the machine.

    The machine gets the result in the event `Returned`, unless it was replaced meanwhile. The
    runtime has a service, which is a coroutine function, for each class of request.
    """

    request: Any


class Compute(NamedTuple):
    """The `request` of a `Call` that runs a function in a thread and returns its result."""

    function: Callable[..., object]
    arguments: tuple[Any, ...] = ()


class DescribeTopics(NamedTuple):
    """The `request` of a `Call` that returns a `TopicMetadata` by name for each existing topic."""

    names: tuple[str, ...]


class TopicMetadata(NamedTuple):
    """The id and partition count of a topic, for machines that assign partitions."""

    topic_id: TopicId
    partition_count: int


class CreateTopic(NamedTuple):
    """The `request` of a `Call` that creates a topic and returns its `TopicMetadata`."""

    name: str
    partition_count: int
    configs: Mapping[str, str | None]


class Become(NamedTuple):
    """Replace the machine by one of another kind, which begins with the rows persisted so far.

    It must be the last effect. If those rows cannot be stored, a machine of the old kind is
    restored from the rows that are stored.
    """

    kind: str
    event: Any = None
    """An event for the new state machine, or None."""


# --- machines ------------------------------------------------------------------------------------


class Machine(Protocol):
    """The state machine of one group or transactional id, of some kind."""

    @property
    def state(self) -> Enum:
        """The current state. Its value is a label of the gauge of states."""

    @property
    def is_vacant(self) -> bool:
        """Whether the machine may be removed if it has no stored rows."""

    @property
    def next_deadline_s(self) -> float:
        """The monotonic time of the next `TimePassed`. The event may come early, never late."""

    def handle(self, event: Any, now: Any) -> list[Any]:
        """Handle an event, and return its effects in order."""


class DecodedRow(NamedTuple):
    """A loaded row, with the key of its entry."""

    key: str
    """The key of the entry: the id of the group or the transactional id."""
    row: StoredRow


class Kind(NamedTuple):
    """The declaration of one kind of machine: its rows, and the function that creates one."""

    row_kinds: tuple[str, ...]
    """The kinds of rows of its machines. No other kind of machine has rows of these kinds."""
    decode: Callable[[str, str, bytes], DecodedRow]
    """Returns the content of a row from its kind, key and value. Raises ValueError."""
    begin: Callable[..., Machine]
    """Returns a machine restored from its rows, or a new machine if there are none."""
