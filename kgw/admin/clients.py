"""Finds the principal of each request: by the token, a user's password, or a certificate.

- If a token or a login is needed, a request without either gets the public fields of the paths for
  everybody. All other paths refuse it, also paths that do not exist.
- If neither is needed, the client's certificate names the principal. A client without a certificate
  is anonymous. Then the Host header must name this machine: otherwise a web page whose host name
  points here (DNS rebinding) could read everything in a visitor's browser.

A browser sends neither the token nor a password to a page with another host name.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.admin.endpoints import PATHS_FOR_EVERYBODY
from kgw.admin.rights import Client
from kgw.admin.token import given_token, is_told
from kgw.config import ConfigError
from kgw.config.listeners import is_loopback, parse_address
from kgw.logs import EventLogger, QuietLog
from kgw.security.login_refusals import LoginUnavailableError, TooManyFailuresError
from kgw.security.principal import ADMIN_TOKEN, ANONYMOUS
from kgw.security.sasl.basic import BASIC, credentials_of
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.server.listeners import plain_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Scope

    from kgw.admin.token import TokenFile
    from kgw.gateway import Gateway
    from kgw.security.principal import Principal
    from kgw.server.password_logins import PasswordLogins

_log = EventLogger(__name__)
_HTTP_PORT = 80
_RETRY_AFTER_S = "60"

CERTIFIED = "kgw.certified"
"""The key, in the state of a connection, of the principal in the client's certificate."""


class RefusedError(Exception):
    """A request is refused before its path is looked up."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}


class Clients:
    """Finds the client of each request to one gateway."""

    def __init__(self, gateway: Gateway, token: TokenFile | None) -> None:
        self._gateway = gateway
        self._token = token
        self._logins: PasswordLogins | None = None
        self._quiet = QuietLog(_log)
        if gateway.config.admin_login:
            # Imported here: most admin listeners know no users.
            from kgw.server.password_logins import PasswordLogins

            self._logins = PasswordLogins(gateway, "admin")

    async def client_of(self, scope: Scope) -> Client:
        """Return the client of a request. Raises RefusedError."""
        headers = [value for name, value in scope["headers"] if name == b"authorization"]
        host = plain_host(str((scope.get("client") or ("",))[0]))
        if self._token is None and self._logins is None:
            certified: Principal | None = scope["state"].get(CERTIFIED)
            if certified is None:
                _check_host(scope)
            return Client(certified or ANONYMOUS, host)
        if not headers and scope["path"] in PATHS_FOR_EVERYBODY:
            return Client(ANONYMOUS, host, is_known=False)
        principal = await self._principal_of(headers, host) if len(headers) == 1 else None
        if principal is None:
            raise self._refusal(host, was_given=bool(headers))
        return Client(principal, host)

    async def _principal_of(self, headers: list[bytes], host: str) -> Principal | None:
        """Return the principal whom a header proves; None if it proves nobody."""
        if self._token is not None and given_token(headers) is not None:
            return ADMIN_TOKEN if await self._has_token(self._token, headers) else None
        password = credentials_of(headers[0], BASIC)
        if self._logins is None or password is None:
            return None
        try:
            return await self._logins.principal_of(password, host)
        except AuthenticationFailed:
            return None
        except TooManyFailuresError as error:
            self._gateway.metrics.admin_unauthorized += 1
            after = {"retry-after": _RETRY_AFTER_S, "connection": "close"}
            raise RefusedError(429, str(error), after) from None
        except LoginUnavailableError as error:
            raise RefusedError(503, str(error)) from None

    async def _has_token(self, token: TokenFile, headers: list[bytes]) -> bool:
        try:
            # In a thread, as the token's file may be on a slow disk.
            return is_told(headers, await asyncio.to_thread(token.token))
        except ConfigError as error:
            self._warn("no token is accepted", {"reason": str(error)})
            return False

    def _refusal(self, host: str, *, was_given: bool) -> RefusedError:
        """Return the refusal of a request that proves nobody; count and log it."""
        self._gateway.metrics.admin_unauthorized += 1
        self._warn("request of a client that is not known", {"client": host})
        needed, challenges = [], []
        if self._token is not None:
            needed.append("the token of kgw.admin.token.file")
            error = ', error="invalid_token"' if was_given else ""
            challenges.append(f'Bearer realm="kgw"{error}')
        if self._logins is not None:
            needed.append("a user and its password (kgw.admin.login)")
            challenges.append('Basic realm="kgw", charset="UTF-8"')
        return RefusedError(
            401,
            f"{' or '.join(needed)} is needed",
            # Close the connection, so that each further guess needs a new one.
            {"www-authenticate": ", ".join(challenges), "connection": "close"},
        )

    def _warn(self, event: str, fields: dict[str, object]) -> None:
        self._quiet.warning(event, event, self._gateway.clock.monotonic_s(), fields)


def _check_host(scope: Scope) -> None:
    """Raise RefusedError (Misdirected Request) unless the Host header names this machine."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not names_this_machine(hosts[0]):
        raise RefusedError(421, "the Host header does not name this machine")


def names_this_machine(host_header: bytes) -> bool:
    """Return whether a Host header is localhost or a loopback address, with or without a port."""
    try:
        host, _ = parse_address(host_header.decode("ascii"), default_port=_HTTP_PORT)
    except ValueError:
        return False
    return is_loopback(host.lower())
