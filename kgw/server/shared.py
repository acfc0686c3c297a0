"""What answers the requests of connections, and how far a connection is from its end."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from kgw.handlers.context import Later, Session
    from kgw.types import Buffer


class Dispatch(Protocol):
    """What answers requests: `kgw.handlers.dispatch.Dispatcher`, or a test's."""

    def start(self, frame: memoryview, session: Session) -> list[Buffer] | Later | None: ...

    def encode(self, later: Later) -> list[Buffer] | None: ...

    def may_overlap(self, frame: Buffer) -> bool: ...

    def is_fetch(self, frame: Buffer) -> bool: ...

    @property
    def has_large_work(self) -> bool: ...


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
