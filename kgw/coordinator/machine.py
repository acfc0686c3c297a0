"""The events that a machine takes, the effects that it returns, and how a kind is declared.

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
        """Return the answer that says that it was not done, and why."""


class Asked(NamedTuple):
    """A request has arrived; the machine answers `waiter` now or later."""

    request: Request[Any]
    waiter: Any


class TimePassed(NamedTuple):
    """`next_deadline_s` has passed."""


class AllStored(NamedTuple):
    """All rows that the machine has changed are durable, and the effects after them are done."""


class Returned(NamedTuple):
    """The work of a `Call` has ended."""

    request: Any
    result: Any
    """It counts only if `error` is NONE."""
    error: ErrorCode


class Abandoned(NamedTuple):
    """The machine gets no further requests: it answers every waiter with this error."""

    error: ErrorCode


Event: TypeAlias = Asked | TimePassed | AllStored | Returned | Abandoned
"""The events of every kind. A kind may have more."""


# --- effects -------------------------------------------------------------------------------------


class StoredRow(Protocol):
    """The content of a row that a machine is restored from."""

    def encode(self, running_ms: int) -> bytes:
        """Return the stored form, given the running time at which the change was queued."""


class Persist(NamedTuple):
    """Store changes, all or none. Effects that follow wait until they are durable."""

    rows: Mapping[RowKey, StoredRow | None] = {}
    """None deletes a row."""
    more: Any = None
    """Further changes, which the runtime of this kind understands."""
    is_urgent: bool = True
    """False: no effect waits for it, and it is stored with the next write, or a little later."""
    may_join: bool = False
    """Whether it may be stored as part of the write before it, if that may be joined, too."""


class Answer(NamedTuple):
    """Answer the waiter of a request, not before all changes until then are durable."""

    waiter: Any
    result: object
    at_once: bool = False
    """Do not wait: the answer reveals nothing that could be lost."""
    weight: int = 0
    """How much work the answer sets off, in answers. The loop turns after some."""


class Call(NamedTuple):
    """Begin work outside of the machine. Its result comes back as `Returned`.

    A machine that was abandoned meanwhile gets no result. The runtime has a service for each class
    of request.
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
    """A topic as a machine assigns its partitions."""

    topic_id: TopicId
    partition_count: int


class CreateTopic(NamedTuple):
    """The `request` of a `Call` that creates a topic and returns its `TopicMetadata`."""

    name: str
    partition_count: int
    configs: Mapping[str, str | None]


class Become(NamedTuple):
    """Go on as another kind, from the rows that were persisted until now. It has to be the last.

    If those rows cannot be stored, the machine before is restored from the rows before.
    """

    kind: str
    event: Any = None
    """Handed to the new machine, if there is one."""


# --- machines ------------------------------------------------------------------------------------


class Machine(Protocol):
    """The rules of one state of some kind."""

    @property
    def state(self) -> Enum:
        """The gauge of states counts its value."""

    @property
    def is_vacant(self) -> bool:
        """Whether nothing is lost if the machine is forgotten, as far as nothing is stored."""

    @property
    def next_deadline_s(self) -> float:
        """The monotonic time of the next `TimePassed`. It may come early, never late."""

    def handle(self, event: Any, now: Any) -> list[Any]:
        """Take an event, and return its effects in order."""


class DecodedRow(NamedTuple):
    """A row as it was loaded."""

    key: str
    """The key of its entry."""
    row: StoredRow


class Kind(NamedTuple):
    """One kind of machine: how it is stored, and how a machine begins."""

    row_kinds: tuple[str, ...]
    """The kinds of rows that its machines persist. No other kind has them."""
    decode: Callable[[str, str, bytes], DecodedRow]
    """Returns the content of a row, given its kind, key and value. Raises ValueError."""
    begin: Callable[..., Machine]
    """Returns a machine as its rows say; without rows, a new one."""
