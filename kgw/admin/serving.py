"""Runs uvicorn in the gateway's event loop. Only this module uses uvicorn.

The process handles signals, and stops this server. There are limits on what clients can occupy:
connections, handshakes, the size of a request's head, and the time of a request.
"""

from __future__ import annotations

from asyncio import get_running_loop
from contextlib import nullcontext
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kgw.admin.clients import CERTIFIED
from kgw.logs import EventLogger, QuietLog
from kgw.metrics import count
from kgw.security.principal import ANONYMOUS
from kgw.server.handshakes import Handshakes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from socket import socket

    from starlette.types import ASGIApp
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from kgw.clock import Clock
    from kgw.metrics import Metrics
    from kgw.server.limits import Limits
    from kgw.server.listener_security import ListenerSecurity

_log = EventLogger(__name__)

HEAD_BYTES_MAX = 16_384
IDLE_S = 5
GRACE_S = 2
RETRY_S = 1.0
"""How long no connection is accepted when no descriptor is left."""


def make_server(app: ASGIApp, connections_max: int, request_s: float) -> HttpServer:
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
    # Loaded now: a connection over TLS may come before uvicorn has begun.
    config.load()
    return HttpServer(config)


class HttpServer(uvicorn.Server):
    """uvicorn's server, which also takes connections that another object has accepted."""

    def new_connection(self) -> _LimitedProtocol:
        """Return the protocol of a connection, which counts once it is made."""
        protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state={}
        )
        return cast("_LimitedProtocol", protocol)

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
    https: HttpsListeners | None = None
    """The listeners that have accepted the connection, if it has TLS."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self.https is not None and not self.https.admit(self, transport):
            self.transport = transport
            transport.abort()
            return
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


class HttpsListeners:
    """Listeners with TLS. A client that does not end its handshake keeps nobody out.

    uvicorn learns of a connection after its handshake only.
    """

    def __init__(
        self,
        server: HttpServer,
        security: ListenerSecurity,
        clock: Clock,
        metrics: Metrics,
        limits: Limits,
    ) -> None:
        """`limits` has the number of handshakes, their time, and the backlog."""
        self.limits = limits
        self._server = server
        self._security = security
        self._clock = clock
        self._metrics = metrics
        self._loop = get_running_loop()
        self._handshakes = Handshakes(self, self._loop, clock)
        self._quiet = QuietLog(_log)

    def listen(self, sockets: Iterable[socket], name: str) -> None:
        """Accept connections at sockets, which are closed at the end."""
        if self._security.tls is None:
            raise ValueError(f"listener {name} has no certificate")
        for one in sockets:
            self._handshakes.listen(one, self._security.tls, self._new_connection, name)

    async def aclose(self) -> None:
        """Accept no further connections, and end the handshakes."""
        self._handshakes.stop_accepting()
        await self._handshakes.give_up()

    def _new_connection(self) -> _LimitedProtocol:
        connection = self._server.new_connection()
        connection.https = self
        return connection

    def admit(self, connection: _LimitedProtocol, transport: asyncio.Transport) -> bool:
        """Note who the client is, by its certificate. False: the connection must be closed."""
        accepted = self._handshakes.take(connection)
        if accepted is None:
            return False
        try:
            principal = self._security.principal(transport, self._clock.wall_ms() / 1000)
        except ValueError as error:
            self._warn("a certificate was refused", {"client": accepted.host, "why": str(error)})
            return False
        if principal != ANONYMOUS:
            connection.app_state[CERTIFIED] = principal
        return True

    # --- for the handshakes ----------------------------------------------------------------------

    def reserve(self, host: str) -> bool:
        """Make room for a handshake: the oldest ones are ended if there are too many."""
        while len(self._handshakes) >= self.limits.connections:
            self._handshakes.give_up_oldest()
        return True

    def release(self, host: str) -> None:
        """Do nothing: handshakes are counted together."""

    def report_handshake(self, host: str, listener_name: str, detail: str) -> None:
        """Count and log a handshake that failed, and why."""
        count(self._metrics.connections_dropped, "tls")
        fields = {"reason": "tls", "detail": detail, "client": host, "listener": listener_name}
        self._quiet.warning("connection closed", f"tls {detail}", self._now_s(), fields)

    def report_no_accept(self, error: OSError) -> None:
        """Log that a connection cannot be accepted, and try again soon."""
        self._warn("no connection can be accepted", {"why": error.strerror or str(error)})
        self._loop.call_later(RETRY_S, self._handshakes.go_on)

    def report_bug(self, error: BaseException) -> None:
        """Count and log an unexpected error."""
        self._metrics.internal_errors += 1
        _log.error("a connection failed through a bug of kgw", error=error)

    def _warn(self, event: str, fields: dict[str, object]) -> None:
        self._quiet.warning(event, event, self._now_s(), fields)

    def _now_s(self) -> float:
        return self._clock.monotonic_s()
