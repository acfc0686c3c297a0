"""The admin application without a socket: paths in, status and values out."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

import prometheus_client  # noqa: F401 - imported beforehand, as AdminServer does

from kgw.admin.clients import CERTIFIED
from kgw.admin.http import application

if TYPE_CHECKING:
    from kgw.admin.token import TokenFile
    from kgw.gateway import Gateway
    from kgw.security.principal import Principal


def basic(user: str, password: str) -> str:
    """Return the header with which a client of HTTP Basic logs in."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


class Answered(NamedTuple):
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The answer's JSON."""
        return json.loads(self.body)


class Admin:
    """Asks as uvicorn does."""

    def __init__(self, gateway: Gateway, token: TokenFile | None = None) -> None:
        self._app = application(gateway, token)

    async def get(
        self,
        target: str,
        *,
        method: str = "GET",
        hosts: tuple[str, ...] = ("127.0.0.1:9644",),
        authorizations: tuple[str, ...] = (),
        client: str = "127.0.0.1",
        certified: Principal | None = None,
    ) -> Answered:
        """Return the answer to one request. `certified` is named by the client's certificate."""
        path, _, query = target.partition("?")
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                *((b"host", host.encode("latin-1")) for host in hosts),
                *((b"authorization", one.encode("latin-1")) for one in authorizations),
            ],
            "client": (client, 1),
            "server": ("127.0.0.1", 9644),
            "state": {} if certified is None else {CERTIFIED: certified},
        }
        await self._app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        body = b"".join(part.get("body", b"") for part in sent[1:])
        return Answered(sent[0]["status"], headers, body)

    async def value(self, target: str) -> Any:
        """Return the JSON of a request that must succeed."""
        answer = await self.get(target)
        assert 200 == answer.status, answer
        return answer.value
