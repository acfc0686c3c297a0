"""The table of endpoints as an ASGI application. The only module that knows Starlette.

Whatever goes wrong is a JSON object with `error`; only GET (and HEAD) is served. The Host header
must name this machine: a web page that lets its own name point here (DNS rebinding) would otherwise
read everything through its visitor's browser.
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
from kgw.admin.endpoints import ALL_ENDPOINTS
from kgw.admin.parameters import ParameterError, parse_query
from kgw.config.listeners import is_loopback, parse_address
from kgw.errors import KgwError
from kgw.logs import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from kgw.admin.endpoints import Endpoint
    from kgw.gateway import Gateway

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_HTTP_PORT = 80


def application(gateway: Gateway) -> ASGIApp:
    """Return the application that serves every endpoint."""
    routes = [
        Route(one.path, partial(_respond, gateway, one), methods=["GET"]) for one in ALL_ENDPOINTS
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refuse})
    app.router.redirect_slashes = False
    return OnlyThisMachine(app)


class OnlyThisMachine:
    """Refuses requests whose Host header names another machine than this one, before routing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 421 (Misdirected Request)."""
        app = self._app
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not names_this_machine(hosts[0]):
                app = _json({"error": "the Host header does not name this machine"}, 421)
        await app(scope, receive, send)


def names_this_machine(host_header: bytes) -> bool:
    """Whether a Host header is localhost or a loopback address, with any port or none."""
    try:
        host, _ = parse_address(host_header.decode("ascii"), default_port=_HTTP_PORT)
    except ValueError:
        return False
    return is_loopback(host.lower())


async def _respond(gateway: Gateway, endpoint: Endpoint, request: Request) -> Response:
    if not (gateway.is_started or endpoint.is_early):
        return _json({"error": "the server is starting, or standing by"}, 503)
    try:
        query = parse_query(request.scope["query_string"], endpoint.parameters)
        answer = await endpoint.serve(gateway, query)
    except ParameterError as error:
        return _json({"error": escape(str(error))}, 400)
    except NotFoundError as error:
        return _json({"error": escape(str(error))}, 404)
    except KgwError as error:
        return _json({"error": escape(str(error))}, 503)
    except Exception as error:  # noqa: BLE001 - every error has an answer
        gateway.report_internal_error(f"GET {endpoint.path}", error)
        return _json({"error": "a bug of kgw; its log says more"}, 500)
    if isinstance(answer, Text):
        return Response(answer.content, headers=HEADERS, media_type=answer.media_type)
    if isinstance(answer, Status):
        return _json(answer.value, answer.code)
    return _json(answer)


async def _refuse(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    texts = {404: "there is no such path; /api/v1 lists what there is", 405: "only GET is served"}
    text = texts.get(error.status_code, error.detail)
    return _json({"error": text}, error.status_code, error.headers)


def _json(
    value: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    # Group and topic names are anything that a client may send: as ASCII they cannot break a line
    # or a terminal.
    content = json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
    return Response(
        content, status, headers={**HEADERS, **(headers or {})}, media_type="application/json"
    )
