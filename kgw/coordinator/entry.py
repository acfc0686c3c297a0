"""An entry of the runtime (one group or transactional id), its writes, and replies to requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kgw.completion import Completion
from kgw.coordinator.machine import NEVER_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

    from kgw.clock import Timer
    from kgw.coordinator.machine import StoredRow
    from kgw.errors import ErrorCode
    from kgw.state.base import RowKey

ResultT = TypeVar("ResultT")


class Reply(Completion[ResultT]):
    """The answer to one request, which may come later. It is never an exception."""

    __slots__ = ("_refused",)

    def __init__(self, refused: Callable[[ErrorCode], ResultT]) -> None:
        """`refused` makes the answer from an error code."""
        # The attributes are set without super(), which is slower: each request creates a reply.
        self.error = None
        self.is_done = False
        self._callbacks = None
        self._refused = refused

    def refuse(self, error: ErrorCode) -> None:
        """Answer with an error: the request has changed nothing."""
        self.set_result(self._refused(error))


class Entry:
    """One group or transactional id: its machine, its rows, and its timer."""

    __slots__ = (
        "calls",
        "counted_state",
        "durable",
        "joinable",
        "key",
        "kind",
        "last_write",
        "machine",
        "submitted",
        "timer",
        "timer_s",
        "unwritten",
    )

    machine: Any

    def __init__(self, key: str) -> None:
        self.key = key
        self.kind = ""
        """The name of the machine's kind."""
        self.durable: dict[RowKey, StoredRow] = {}
        """The stored rows of the machine."""
        self.submitted: dict[RowKey, StoredRow] = {}
        """The rows that the machine will have when every queued write is stored."""
        self.last_write: Write | None = None
        """The last urgent write of rows, which answers wait for; None once it is stored."""
        self.joinable: Write | None = None
        """The last write, if the next one may be stored together with it."""
        self.unwritten = 0
        """How many writes are not durable yet."""
        self.calls = 0
        """How many calls of this machine are running."""
        self.timer: Timer | None = None
        self.timer_s = NEVER_S
        self.counted_state: Enum | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.machine!r}>"


class Write(NamedTuple):
    """One change of one entry, and the effects that wait until it is durable."""

    entry: Any
    rows: dict[RowKey, StoredRow | None]
    more: Any
    """Changes of other data than the machine's rows, such as committed offsets."""
    running_ms: int
    """The running time (`kgw.clock.RunningClock`) at which the rows were submitted."""
    effects: list[Any]
