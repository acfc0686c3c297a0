"""The admin listeners: bound with the other listeners, and later served by uvicorn."""

from __future__ import annotations

import asyncio
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from kgw.config.listeners import is_https
from kgw.server.listeners import bind, bound_listener

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from socket import socket

    from kgw.admin.http import Switch
    from kgw.admin.serving import HttpServer, HttpsListeners
    from kgw.admin.token import TokenFile
    from kgw.config import Listener
    from kgw.gateway import Gateway
    from kgw.server.listener_security import ListenerSecurity

BACKLOG = 64
_NONE: Mapping[Listener, list[socket]] = MappingProxyType({})


class AdminServer:
    """Serves health, metrics and JSON of one gateway over HTTP, with and without TLS."""

    def __init__(
        self,
        gateway: Gateway,
        connections_max: int,
        request_s: float = 30.0,
        security: ListenerSecurity | None = None,
    ) -> None:
        """`connections_max` limits connections, and `request_s` is the time limit of a request.

        `security` is that of listeners with TLS; None if there are none.
        """
        self._gateway = gateway
        self._security = security
        self._connections_max = connections_max
        self._request_s = request_s
        self._token: TokenFile | None = None
        self._sockets: list[socket] = []
        self._tls_sockets: list[socket] = []
        self._http: HttpServer | None = None
        self._https: HttpsListeners | None = None
        self._serving: asyncio.Task[None] | None = None
        self._switch: Switch | None = None

    def serve(self, gateway: Gateway) -> None:
        """Use another gateway from now on, with the same sockets."""
        self._gateway = gateway
        if self._switch is not None:
            self._switch.serve(gateway)

    async def bind(
        self, listeners: Sequence[Listener], given: Mapping[Listener, list[socket]] = _NONE
    ) -> list[Listener]:
        """Bind every address; clients wait in the backlog until `start`.

        Return the addresses with the bound ports.

        For listeners in `given`, these sockets are used. Raises ListenError, and ConfigError if
        kgw.admin.token.file has no valid token; then no listener is open.
        """
        if self._gateway.config.admin_token_file:
            from kgw.admin.token import TokenFile

            self._token = await asyncio.to_thread(TokenFile, self._gateway.config.admin_token_file)
        loop = asyncio.get_running_loop()
        bound = []
        try:
            for listener in listeners:
                sockets = given.get(listener) or await bind(listener, loop)
                if is_https(listener):
                    self._tls_sockets += sockets
                else:
                    self._sockets += sockets
                for one in sockets:
                    # Listen now: otherwise a conflict would be reported later, without the
                    # listener's name.
                    one.listen(BACKLOG)
                bound.append(bound_listener(listener, sockets))
        except BaseException:
            self._close_sockets()
            raise
        return bound

    async def start(self) -> None:
        """Begin to serve; do nothing if it has begun.

        The imports run in a thread, so that Kafka clients are served meanwhile.
        """
        if self._http is not None:
            return
        for name in ("kgw.admin.serving", "prometheus_client"):
            await asyncio.to_thread(import_module, name)
        from kgw.admin.http import Switch
        from kgw.admin.serving import make_server

        self._switch = Switch(self._gateway, self._token)
        self._http = make_server(self._switch, self._connections_max, self._request_s)
        self._serving = asyncio.ensure_future(self._http.serve(sockets=list(self._sockets)))
        if self._tls_sockets and self._security is not None:
            self._serve_tls(self._http, self._security)

    def _serve_tls(self, http: HttpServer, security: ListenerSecurity) -> None:
        from kgw.admin.serving import HttpsListeners
        from kgw.server.limits import Limits

        gateway = self._gateway
        limits = Limits(
            connections=self._connections_max,
            login_timeout_s=gateway.config.login_timeout_ms / 1000,
            backlog=BACKLOG,
        )
        self._https = HttpsListeners(http, security, gateway.clock, gateway.metrics, limits)
        self._https.listen(self._tls_sockets, "admin")

    async def aclose(self) -> None:
        """Finish the current requests, then close everything."""
        if self._https is not None:
            await self._https.aclose()
        if self._http is not None and self._serving is not None:
            self._http.should_exit = True
            await self._serving
        self._close_sockets()

    def _close_sockets(self) -> None:
        for one in (*self._sockets, *self._tls_sockets):
            one.close()
        self._sockets.clear()
        self._tls_sockets.clear()
