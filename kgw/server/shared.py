"""What a connection needs of the server round it: the seam at which tests put a stand-in."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from asyncio import Transport

    from kgw.handlers.context import DueAnswer, Session
    from kgw.metrics import Metrics
    from kgw.server.connection import KafkaConnection
    from kgw.server.limits import Limits
    from kgw.server.memory import RequestMemory
    from kgw.server.receiving import FrameReceiver
    from kgw.types import Buffer


class Dispatch(Protocol):
    """What answers requests: `kgw.handlers.dispatch.Dispatcher`, or a test's."""

    def start(self, frame: memoryview, session: Session) -> list[Buffer] | DueAnswer | None: ...

    def may_overlap(self, frame: Buffer) -> bool: ...

    def is_fetch(self, frame: Buffer) -> bool: ...

    @property
    def has_large_work(self) -> bool: ...


class Shared(Protocol):
    """What connections have in common: the server, or a test's stand-in for it."""

    @property
    def dispatcher(self) -> Dispatch: ...

    limits: Limits
    memory: RequestMemory
    metrics: Metrics
    receive_buffer: memoryview
    now_s: float
    """Monotonic time of the last sweep: exact enough for deadlines, free to read."""
    sweep_interval_s: float
    has_sent_much: bool
    """Whether a Fetch has to wait for a turn: so much was sent since the loop looked at others."""

    def admit(self, connection: KafkaConnection, transport: Transport) -> Session | None:
        """Count a new connection in; None refuses it."""

    def request_turn(self, connection: FrameReceiver) -> None:
        """Have `take_turn` called once, after those of connections that asked before."""

    def hold(self, connection: FrameReceiver) -> None:
        """Have `take_turn` called once the dispatcher has no large work."""

    def answer_soon(self, connection: KafkaConnection) -> None:
        """Have `write_answers` called once, soon: after what else is answered in this turn."""

    def note_sent(self, size_bytes: int) -> None:
        """Count a large answer that was handed to a transport."""

    def forget(self, connection: KafkaConnection) -> None:
        """Count a connection out."""

    def report_drop(self, connection: KafkaConnection, reason: str, detail: str) -> None:
        """Note that the server ended a connection, and why."""

    def report_bug(self, error: BaseException) -> None:
        """Note an error that no handler of errors expected."""


class State(IntEnum):
    """How far a connection is from its end."""

    OPEN = 0
    REFUSING = 1
    """The client broke the protocol. Closed once what it sent before is answered."""
    FINISHING = 2
    """The server drains. Shut once what was started is answered."""
    LINGERING = 3
    """Our side is shut; what still arrives is thrown away."""
    CLOSED = 4
    NOT_ADMITTED = 5


# An enum's attribute takes 0.3 us to look up (Python 3.11), a module's 0.02: a connection asks for
# its state several times a request.
OPEN: Final = State.OPEN
REFUSING: Final = State.REFUSING
FINISHING: Final = State.FINISHING
LINGERING: Final = State.LINGERING
CLOSED: Final = State.CLOSED
NOT_ADMITTED: Final = State.NOT_ADMITTED
