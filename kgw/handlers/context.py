"""What a handler is told besides the request: who asks, over which connection, of which gateway."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from kgw.errors import ErrorCode, KafkaError
from kgw.placement import CoordinatorKey, CoordinatorType
from kgw.protocol.schema import Response

if TYPE_CHECKING:
    from asyncio import Future

    from kgw.gateway import Gateway
    from kgw.groups.coordinator import GroupCoordinator
    from kgw.placement import Node
    from kgw.protocol.api_keys import ApiKey
    from kgw.protocol.schema import Request
    from kgw.types import Buffer

LARGE_REQUEST_BYTES = 16 << 10
"""A request larger than this takes its turn among those of other connections."""

ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of a connection that has not authenticated."""


class KnownHeader(NamedTuple):
    """What a connection's requests have in common behind their correlation ids.

    Clients repeat it byte by byte, so that it need be decoded once: 3 of some 40 microseconds.
    """

    tail: bytes
    end: int
    flexible: bool | None
    """Whether it belongs to flexible requests; None fits no request."""


NO_HEADER = KnownHeader(b"", 0, None)


class PollBudget:
    """The bytes of large polls that all connections remember together."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class KnownRequest(NamedTuple):
    """A request that its client repeats byte by byte, the correlation id left out: a long poll."""

    api_version: int
    tail: bytes
    """Everything behind the correlation id."""
    request: Request
    budget: PollBudget | None = None
    """What a large one is counted in."""


class KeptPoll(Protocol):
    """What Fetch keeps of a poll that ended empty, for when it is repeated."""

    def stop(self) -> None:
        """Listen to its partitions no longer."""


class Session:
    """One connection, for as long as it lasts."""

    __slots__ = (
        "client_host",
        "client_id",
        "client_software_name",
        "client_software_version",
        "header",
        "listener_name",
        "local_address",
        "note_due_s",
        "poll",
        "polled",
        "principal",
        "produce_head_end",
    )

    def __init__(
        self,
        *,
        client_host: str = "",
        listener_name: str = "PLAINTEXT",
        local_address: tuple[str, int] | None = None,
    ) -> None:
        self.client_host = client_host
        self.listener_name = listener_name
        self.local_address = local_address
        self.client_id: str | None = None
        self.client_software_name = ""
        self.client_software_version = ""
        self.principal = ANONYMOUS
        self.header = NO_HEADER
        # Where the records of its last Produce began, if that may be repeated: `repeated_produce`.
        self.produce_head_end = 0
        self.polled: KnownRequest | None = None
        # What Fetch keeps of it, for the same request object.
        self.poll: KeptPoll | None = None
        # When the place that it fetches from is taken down again.
        self.note_due_s = float("-inf")

    def knows(self, request: Request) -> bool:
        """Whether this is the request that would be known again."""
        return self.polled is not None and self.polled.request is request

    def forget_poll(self) -> None:
        """Keep nothing of the last Fetch: another has come, or the connection has ended."""
        polled, self.polled = self.polled, None
        if polled is not None and polled.budget is not None:
            polled.budget.used_bytes -= len(polled.tail)
        poll, self.poll = self.poll, None
        if poll is not None:
            poll.stop()


class Submission:
    """Tells when a request that is answered in turns has submitted all that it changes.

    What comes behind it on the same connection, and may overlap it, starts then.
    """

    __slots__ = ("_callback", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._callback: Callable[[], object] | None = None

    def when_over(self, callback: Callable[[], object]) -> None:
        """Have something called when it is over, which it must not be yet."""
        self._callback = callback

    def end(self) -> None:
        """Declare it over; once more changes nothing."""
        self.is_over = True
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class RequestContext:
    """One request. `received_s` is the monotonic time from which its deadlines count.

    `submission` is set by a handler that goes on submitting after it has returned.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "correlation_id",
        "gateway",
        "received_s",
        "session",
        "submission",
    )

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        api_key: ApiKey,
        api_version: int,
        client_id: str | None,
        correlation_id: int,
        received_s: float,
    ) -> None:
        self.gateway = gateway
        self.session = session
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.correlation_id = correlation_id
        self.received_s = received_s
        self.submission: Submission | None = None


class EncodedBody(NamedTuple):
    """A response that was encoded before, in the version that is asked for now."""

    flexible: bool
    body: bytes


class DueAnswer:
    """The frame of an answer that comes later: as much of a future as a connection needs."""

    __slots__ = ("frame_bytes",)

    frame_bytes: int
    """Size of the request: the connection's note."""

    is_abandonable = False
    """Whether it may be given up when nobody waits for it any more."""
    submission: Submission | None = None
    """Set where later requests that may overlap this one have to wait for its end."""

    def done(self) -> bool:
        """Whether `result` can be called."""
        raise NotImplementedError

    def result(self) -> list[Buffer] | None:
        """Make the frame, to be called once; None when there is none.

        Raises ProtocolError and asyncio.CancelledError: the connection cannot go on.
        """
        raise NotImplementedError

    def when_done(self, callback: Callable[[object], object]) -> None:
        """Have something called, in the loop, once it is done; it may start no request."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Give the request up: nobody waits for its answer any more."""


class Due(Protocol):
    """What an answer can wait for."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def when_done(self, callback: Callable[[object], object]) -> None:
        """Have something called, in the loop, once it does not."""


class Later:
    """An answer that `make` builds once `due` is done.

    For the paths that run ten thousand times a second: a coroutine would need a task and two more
    turns of the loop. `make` is called in the loop.
    `abandon` is called when nobody waits for the answer any more.
    """

    __slots__ = ("abandon", "done", "make", "when_done")

    def __init__(
        self,
        due: Due,
        make: Callable[[], Response | EncodedBody | None],
        abandon: Callable[[], object] | None = None,
    ) -> None:
        self.done = due.done
        self.when_done = due.when_done
        self.make = make
        self.abandon = abandon


async def until_done(due: Due) -> None:
    """Wait for what tells by a callback that it is done."""
    if not due.done():
        done: Future[None] = get_running_loop().create_future()
        due.when_done(lambda _: None if done.done() else done.set_result(None))
        await done


def advertised_address(node: Node, context: RequestContext) -> tuple[str, int]:
    """Return the host and port at which this client is told to reach a node.

    Those of the listener that it came through (KIP-103). A listener that is bound to every address
    and advertised with none has an empty host: then it is the address that this client used.
    """
    session = context.session
    listener = node.listener(session.listener_name)
    if listener.host or session.local_address is None:
        return listener.host, listener.port
    return session.local_address[0], listener.port


def coordinates(group_id: str, context: RequestContext) -> bool:
    """Whether this node coordinates a group."""
    return context.gateway.placement.owns(CoordinatorKey(CoordinatorType.GROUP, group_id))


def coordinator(group_id: str, context: RequestContext) -> GroupCoordinator:
    """Return what coordinates a group. Raises KafkaError NOT_COORDINATOR: another node does."""
    if not coordinates(group_id, context):
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    return context.gateway.groups


Answer: TypeAlias = Response | Later | Awaitable[Response | EncodedBody | None] | None
"""A response at once, none at all (acks=0), or one that something has to be waited for."""
