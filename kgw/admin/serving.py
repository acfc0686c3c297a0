"""Runs uvicorn in the gateway's event loop. Only this module uses uvicorn.

The process handles signals, and stops this server. There are limits on what clients can occupy:
connections, the size of a request's head, and the time of a request.
"""

from __future__ import annotations

from contextlib import nullcontext
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractContextManager

    from starlette.types import ASGIApp
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

HEAD_BYTES_MAX = 16_384
IDLE_S = 5
GRACE_S = 2


def make_server(app: ASGIApp, connections_max: int, request_s: float) -> uvicorn.Server:
    """Return a server for an application, whose sockets are already listening."""
    config = uvicorn.Config(
        app,
        # Use h11, whose handling of every byte is known; speed does not matter here.
        http=_limited(connections_max, request_s),
        ws="none",
        lifespan="off",
        interface="asgi3",
        # kgw's own log is used, and only for errors: a line for each bad request would be too many.
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    return _Server(config)


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Install no signal handlers: the process handles signals."""
        return nullcontext()


def _limited(connections_max: int, seconds: float) -> type[asyncio.Protocol]:
    class Limited(_LimitedProtocol):
        limit = connections_max
        request_s = seconds

    return Limited


class _LimitedProtocol(H11Protocol):
    """uvicorn's protocol with two further limits.

    uvicorn's own limit counts only connections that have sent a request, and it has no time limit
    before the first request: a client that sends a byte a minute would stay for ever. Also, a
    client can open many connections without a request, which must not keep probes out.
    """

    limit: int
    request_s: float
    """The time limit for a response, counted from the start of the connection or from the response
    before."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()
        if len(self.connections) > self.limit:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._arm()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        if self.cycle is not None:
            # The invalid bytes may be in the body of a request that is being handled: without this,
            # uvicorn would log a traceback for a response that cannot be sent.
            self.cycle.disconnected = True

    def _make_room(self) -> None:
        """Close the connection that has waited longest for a request; this one if none waits."""
        others = cast("set[_LimitedProtocol]", self.connections) - {self}
        waiting = (one for one in others if not one.is_answering)
        closed = min(waiting, key=attrgetter("waits_until_s"), default=self)
        # Remove it now, as another client may connect before the closing is reported.
        self.connections.discard(closed)
        closed.transport.abort()

    @property
    def is_answering(self) -> bool:
        """Whether a request is being handled."""
        # It is None before the first request, although uvicorn's type says otherwise.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    @property
    def waits_until_s(self) -> float:
        """The deadline of the connection, by the event loop's clock."""
        return inf if self._deadline is None else self._deadline.when()

    def _arm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(self.request_s, self.transport.abort)
