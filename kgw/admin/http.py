"""An ASGI application that serves the table of endpoints. Only this module uses Starlette.

Every error is a JSON object with `error`; only GET and HEAD are served. The client is found before
the path is looked up (`clients`). The rights of an endpoint are checked by the function that calls
it (`_answer`), so that no way to write its path leads around them.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from kgw.admin.answers import NotFoundError, Status, Text
from kgw.admin.clients import Clients, RefusedError
from kgw.admin.endpoints import ALL_ENDPOINTS
from kgw.admin.parameters import ParameterError, parse_query
from kgw.admin.rights import Viewer
from kgw.errors import KgwError
from kgw.logs import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from kgw.admin.answers import Answer
    from kgw.admin.endpoints import Endpoint
    from kgw.admin.rights import Client
    from kgw.admin.token import TokenFile
    from kgw.gateway import Gateway

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_CLIENT = "kgw.client"
"""The key of the client in the scope of a request."""


def application(gateway: Gateway, token: TokenFile | None = None) -> ASGIApp:
    """Return the application that serves every endpoint to clients with access."""
    routes = [
        Route(one.path, partial(_respond, gateway, one), methods=["GET"]) for one in ALL_ENDPOINTS
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refuse})
    app.router.redirect_slashes = False
    return _WithClient(app, Clients(gateway, token))


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


class _WithClient:
    """Adds the client to each request, or refuses the request, before routing."""

    def __init__(self, app: ASGIApp, clients: Clients) -> None:
        self._app = app
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            try:
                scope = {**scope, _CLIENT: await self._clients.client_of(scope)}
            except RefusedError as error:
                app = _json({"error": str(error)}, error.status, error.headers)
        await app(scope, receive, send)


async def _respond(gateway: Gateway, endpoint: Endpoint, request: Request) -> Response:
    answer = await _answer(gateway, endpoint, request.scope["query_string"], request.scope[_CLIENT])
    if isinstance(answer, Text):
        return Response(answer.content, headers=HEADERS, media_type=answer.media_type)
    if isinstance(answer, Status):
        return _json(answer.value, answer.code)
    return _json(answer)


async def _answer(
    gateway: Gateway, endpoint: Endpoint, query_string: bytes, client: Client
) -> Answer:
    """Return the answer of an endpoint, or an error.

    A client without the rights gets the fields for everybody, if there are any.
    """
    if not (gateway.is_started or endpoint.is_early):
        return Status(503, {"error": "the server is starting, or standing by"})
    viewer = Viewer(gateway.access, client, endpoint)
    is_whole = False
    try:
        query = parse_query(query_string, endpoint.parameters)
        # Probes without a login come every few seconds: their denials are no news.
        missing = viewer.missing_right(endpoint.rights, query, quiet=bool(endpoint.for_everybody))
        is_whole = client.is_known and not missing
        if not (is_whole or endpoint.for_everybody):
            return Status(403, {"error": missing or "no login"})
        answer = await endpoint.serve(gateway, query, viewer)
    except ParameterError as error:
        answer = Status(400, {"error": escape(str(error))})
    except NotFoundError as error:
        answer = Status(404, {"error": escape(str(error))})
    except KgwError as error:
        answer = Status(503, {"error": escape(str(error))})
    except Exception as error:  # noqa: BLE001 - every error has an answer
        gateway.report_internal_error(endpoint.name, error)
        answer = Status(500, {"error": "a bug of kgw; its log says more"})
    return answer if is_whole else _for_everybody(answer, endpoint)


def _for_everybody(answer: Answer, endpoint: Endpoint) -> Answer:
    """Return a response's status, with only the fields for everybody."""
    status, value = answer if isinstance(answer, Status) else (200, answer)
    if isinstance(value, Text):
        value = {}
    # The error of a query contains only the client's own text.
    names = ("error",) if status == 400 else endpoint.for_everybody
    return Status(status, {name: value[name] for name in names if name in value})


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
