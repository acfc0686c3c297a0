"""The context of a request for its handler: the client, its connection, and the gateway."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kgw.completion import until_done
from kgw.errors import ErrorCode
from kgw.handlers.kept_polls import FetchDecoder, RepeatBudget
from kgw.protocol.codec import codec
from kgw.protocol.framing import EncodedBody
from kgw.protocol.request_decoder import RequestDecoder
from kgw.protocol.schema import Response, Struct
from kgw.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from kgw.completion import AnyCompletion, Completion
    from kgw.config import Node
    from kgw.gateway import Gateway
    from kgw.handlers.login import Login
    from kgw.protocol.api_keys import ApiKey
    from kgw.security.principal import Principal

LARGE_REQUEST_BYTES = 16 << 10
"""A larger request waits in a queue that all connections share."""


class Session:
    """The state of one connection."""

    __slots__ = (
        "client_host",
        "decoder",
        "fetch_decoder",
        "listener_name",
        "local_address",
        "login",
        "note_due_s",
        "principal",
    )

    def __init__(
        self,
        *,
        client_host: str = "",
        listener_name: str = "PLAINTEXT",
        local_address: tuple[str, int] | None = None,
        repeat_budget: RepeatBudget | None = None,
        principal: Principal = ANONYMOUS,
        login: Login | None = None,
    ) -> None:
        self.principal = principal
        """The identity of the client: from its certificate or its login."""
        self.login = login
        """The state of the login; None if the listener asks for none."""
        self.client_host = client_host
        self.listener_name = listener_name
        self.local_address = local_address
        self.decoder = RequestDecoder()
        self.fetch_decoder = FetchDecoder(self.decoder, repeat_budget or RepeatBudget())
        # A Fetch records its positions again from this time on.
        self.note_due_s = float("-inf")

    @property
    def client_id(self) -> str | None:
        """The client id of the last request."""
        return self.decoder.client_id

    def close(self) -> None:
        """Forget the last Fetch: the connection has ended."""
        self.fetch_decoder.forget()


class RequestContext:
    """One request on its way through the pipeline (`kgw.handlers.dispatch`)."""

    __slots__ = (
        "api_key",
        "api_version",
        "correlation_id",
        "gateway",
        "received_s",
        "request",
        "session",
        "submission",
    )

    request: Any
    """Set after the request is decoded."""

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        api_key: ApiKey,
        api_version: int,
        correlation_id: int,
    ) -> None:
        self.gateway = gateway
        self.session = session
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.received_s = gateway.clock.monotonic_s()
        """The monotonic time at which the timeouts of the request begin."""
        self.submission: Completion[None] | None = None
        """Done when the Produce has submitted all its batches: then the next Produce may begin.

        None if all were submitted when `answer` returned.
        """

    def count_error_codes(self, response: Response) -> None:
        """Count every code but NONE that a response says, as Kafka's `ErrorsPerSec` does."""
        version = self.api_version
        # As `response_frame` does it: one dictionary, as every answer comes here.
        ours = response.codecs.get(version) or codec(type(response), version)
        codes = ours.find_error_codes((response,))
        if codes:
            errors, api = self.gateway.metrics.answer_errors, self.api_key.name
            for code in codes:
                key = api, ErrorCode(code).name
                errors[key] = errors.get(key, 0) + 1


class Later:
    """An answer that `make` builds once `due` is done.

    Used for requests that come ten thousand times a second: a coroutine would need a task and two
    more turns of the loop. `make` is called in the loop, once. `abandon`, if there is one, is
    called when the client no longer waits for the answer. Without it, the request runs to its end.
    """

    __slots__ = ("abandon", "context", "due", "make")

    context: RequestContext
    """The context of the request; set by the dispatcher."""

    def __init__(
        self,
        due: AnyCompletion,
        make: Callable[[], Response | EncodedBody | None],
        abandon: Callable[[], object] | None = None,
    ) -> None:
        self.due = due
        self.make = make
        self.abandon = abandon

    async def made(self) -> Response | EncodedBody | None:
        """Wait for the answer and return it; give the answer up if the wait is cancelled."""
        try:
            await until_done(self.due)
        except CancelledError:
            if self.abandon is not None:
                self.abandon()
            raise
        return self.make()


async def made(answer: Answer) -> Response | EncodedBody | None:
    """Return the response in an answer; wait for it if necessary."""
    if answer is None or isinstance(answer, Struct):
        return answer
    return await (answer.made() if isinstance(answer, Later) else answer)


def advertised_address(node: Node, context: RequestContext) -> tuple[str, int]:
    """Return the host and port of a node for this client.

    They are those of the listener that the client is connected to (KIP-103). The host of a listener
    is empty if it is bound to every address and no address is advertised: the client then gets the
    address that it has connected to.
    """
    session = context.session
    listener = node.listener(session.listener_name)
    if listener.host or session.local_address is None:
        return listener.host, listener.port
    return session.local_address[0], listener.port


Answer: TypeAlias = Response | Later | Awaitable[Response | EncodedBody | None] | None
"""A response; None if there is no response (acks=0); or an object to wait for a response."""
