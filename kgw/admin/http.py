"""An ASGI application that serves the table of endpoints. Only this module uses Starlette.

Every error is a JSON object with `error`; only GET and HEAD are served. Access is checked before
the path is looked up. If a token is set, clients need the token. Without one, only clients on this
machine have access, and the Host header must name this machine: otherwise a web page whose host
name points here (DNS rebinding) could read everything in a visitor's browser. With a token, any
Host header is allowed, as no browser sends the token by itself.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from kgw.admin.answers import NotFoundError, Status, Text
from kgw.admin.endpoints import ALL_ENDPOINTS, PATHS_FOR_EVERYBODY
from kgw.admin.parameters import ParameterError, parse_query
from kgw.admin.token import is_told
from kgw.config import ConfigError
from kgw.config.listeners import is_loopback, parse_address
from kgw.errors import KgwError
from kgw.logs import EventLogger, QuietLog, escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from kgw.admin.answers import Answer
    from kgw.admin.endpoints import Endpoint
    from kgw.admin.token import TokenFile
    from kgw.gateway import Gateway

_log = EventLogger(__name__)

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_HTTP_PORT = 80


_STATUS_ONLY = "kgw.status_only"
"""Set in the scope of a request without the token that gets only the status and public fields."""


def application(gateway: Gateway, token: TokenFile | None = None) -> ASGIApp:
    """Return the application that serves every endpoint to clients with access."""
    routes = [
        Route(one.path, partial(_respond, gateway, one), methods=["GET"]) for one in ALL_ENDPOINTS
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refuse})
    app.router.redirect_slashes = False
    return OnlyThisMachine(app) if token is None else OnlyWithToken(app, token, gateway)


class Switch:
    """Passes requests to the application of the current gateway, which serves or is on standby."""

    def __init__(self, gateway: Gateway, token: TokenFile | None) -> None:
        self._token = token
        self.serve(gateway)

    def serve(self, gateway: Gateway) -> None:
        """Use another gateway from now on."""
        self._app = application(gateway, self._token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application."""
        await self._app(scope, receive, send)


class OnlyThisMachine:
    """Refuses requests whose Host header names another machine, before routing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or respond with 421 (Misdirected Request)."""
        app = self._app
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not names_this_machine(hosts[0]):
                app = _json({"error": "the Host header does not name this machine"}, 421)
        await app(scope, receive, send)


def names_this_machine(host_header: bytes) -> bool:
    """Return whether a Host header is localhost or a loopback address, with or without a port."""
    try:
        host, _ = parse_address(host_header.decode("ascii"), default_port=_HTTP_PORT)
    except ValueError:
        return False
    return is_loopback(host.lower())


class OnlyWithToken:
    """Refuses requests without the token, for any path, before routing.

    Probes have no token: a few paths return some fields to everybody.
    """

    def __init__(self, app: ASGIApp, token: TokenFile, gateway: Gateway) -> None:
        self._app = app
        self._token = token
        self._gateway = gateway
        self._quiet = QuietLog(_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or respond with 401 (Unauthorized)."""
        app = self._app
        if scope["type"] == "http":
            headers = [value for name, value in scope["headers"] if name == b"authorization"]
            if not headers and scope["path"] in PATHS_FOR_EVERYBODY:
                scope = {**scope, _STATUS_ONLY: True}
            elif not (headers and await self._is_told(headers)):
                app = self._refusal(scope, was_given=bool(headers))
        await app(scope, receive, send)

    async def _is_told(self, headers: list[bytes]) -> bool:
        try:
            # In a thread, as the token's file may be on a slow disk.
            return is_told(headers, await asyncio.to_thread(self._token.token))
        except ConfigError as error:
            self._warn("no token is accepted", {"reason": str(error)})
            return False

    def _refusal(self, scope: Scope, *, was_given: bool) -> Response:
        self._gateway.metrics.admin_unauthorized += 1
        client = scope.get("client") or ("",)
        self._warn("request without the token of kgw.admin.token.file", {"client": client[0]})
        challenge = 'Bearer realm="kgw"' + (', error="invalid_token"' if was_given else "")
        return _json(
            {"error": "the token of kgw.admin.token.file is needed"},
            401,
            # Close the connection, so that each further guess of the token needs a new one.
            {"www-authenticate": challenge, "connection": "close"},
        )

    def _warn(self, event: str, fields: dict[str, object]) -> None:
        self._quiet.warning(event, event, self._gateway.clock.monotonic_s(), fields)


async def _respond(gateway: Gateway, endpoint: Endpoint, request: Request) -> Response:
    answer = await _answer(gateway, endpoint, request.scope["query_string"])
    if _STATUS_ONLY in request.scope:
        answer = _for_everybody(answer, endpoint)
    if isinstance(answer, Text):
        return Response(answer.content, headers=HEADERS, media_type=answer.media_type)
    if isinstance(answer, Status):
        return _json(answer.value, answer.code)
    return _json(answer)


def _for_everybody(answer: Answer, endpoint: Endpoint) -> Answer:
    """Return a response's status, with only the fields for everybody."""
    status, value = answer if isinstance(answer, Status) else (200, answer)
    if isinstance(value, Text):
        value = {}
    # The error of a query contains only the client's own text.
    names = ("error",) if status == 400 else endpoint.for_everybody
    return Status(status, {name: value[name] for name in names if name in value})


async def _answer(gateway: Gateway, endpoint: Endpoint, query_string: bytes) -> Answer:
    if not (gateway.is_started or endpoint.is_early):
        return Status(503, {"error": "the server is starting, or standing by"})
    try:
        query = parse_query(query_string, endpoint.parameters)
        return await endpoint.serve(gateway, query)
    except ParameterError as error:
        return Status(400, {"error": escape(str(error))})
    except NotFoundError as error:
        return Status(404, {"error": escape(str(error))})
    except KgwError as error:
        return Status(503, {"error": escape(str(error))})
    except Exception as error:  # noqa: BLE001 - every error has an answer
        gateway.report_internal_error(f"GET {endpoint.path}", error)
        return Status(500, {"error": "a bug of kgw; its log says more"})


async def _refuse(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    texts = {404: "there is no such path; /api/v1 lists what there is", 405: "only GET is served"}
    text = texts.get(error.status_code, error.detail)
    return _json({"error": text}, error.status_code, error.headers)


def _json(
    value: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    # Use ASCII: clients choose group and topic names, which could otherwise break lines or control
    # a terminal.
    content = json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
    return Response(
        content, status, headers={**HEADERS, **(headers or {})}, media_type="application/json"
    )
