"""The client's side of OAUTHBEARER (RFC 7628), and the sources of its tokens.

A token comes from a file, or from a token endpoint by the grant of client credentials (RFC 6749,
section 4.4). No error text has a part of a token, of the client's secret or of an answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import quote_plus, urlencode

from kgw.client.errors import LoginError
from kgw.security.oauth.claims import MAX_TOKEN_BYTES
from kgw.security.oauth.http import HttpError, ask
from kgw.security.sasl.oauthbearer import OAUTHBEARER

if TYPE_CHECKING:
    from ssl import SSLContext

    from kgw.config.web_url import WebUrl

ACKNOWLEDGED: Final = b"\x01"
"""The client's answer to a denial."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_USED_LIFETIME: Final = 0.8
"""The part of a token's lifetime after which a login asks for a new one, as in Kafka. It is less
than the part of a session after which a connection logs in again."""
_ERRORS: Final = frozenset(
    {
        "access_denied",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_grant_type",
    }
)
"""The errors of a token endpoint that are shown: other texts could contain the secret."""
_DENIALS: Final = frozenset({"insufficient_scope", "invalid_request", "invalid_token"})
_OK: Final = 200


class TokenSource(Protocol):
    """Its text form names the source in error texts."""

    async def token(self, now_s: float) -> str:
        """Return a token for a login at this monotonic time. Raises LoginError."""


@dataclass(frozen=True)
class TokenLogin:
    """A login with tokens of OAuth."""

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = ()

    mechanism: str = field(default=OAUTHBEARER, init=False)

    def __str__(self) -> str:
        """Name the login in error texts."""
        return f"the login with the token from {self.source}"

    def message(self, token: str) -> bytes:
        """Return the client's first message."""
        pairs = (("auth", f"Bearer {token}"), *self.extensions)
        written = "".join(f"{key}={value}\x01" for key, value in pairs)
        return f"n,,\x01{written}\x01".encode()


def denial(message: bytes) -> str:
    """Return the reason why a server denies a token, in one word."""
    found = _object(message).get("status")
    return found if isinstance(found, str) and found in _DENIALS else "no known reason"


class FileTokenSource:
    """A token in a file. It is read at each login, because another program may replace it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __str__(self) -> str:
        return self._path

    async def token(self, now_s: float) -> str:
        return await asyncio.to_thread(self._read)

    def _read(self) -> str:
        try:
            with open(self._path, "rb") as stream:  # noqa: PTH123 - pathlib costs start-up time
                content = stream.read(MAX_TOKEN_BYTES + 2)
        except OSError as error:
            why = (error.strerror or "it cannot be read").lower()
            raise LoginError(f"cannot read the token in {self._path}: {why}") from None
        # Anything else than a token is not sent to a server.
        text = content.decode("ascii", "replace").strip()
        if len(text) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(text):
            raise LoginError(f"{self._path} is no token")
        return text


class _Kept(NamedTuple):
    """A token, and the monotonic times from which it is renewed and useless."""

    token: str
    renew_s: float
    end_s: float

    def __repr__(self) -> str:
        """Hide the token."""
        return "_Kept()"


class ClientCredentials(NamedTuple):
    """The identity of a program at a token endpoint."""

    client_id: str
    secret: str
    scope: str = ""
    is_url_encoded: bool = False
    """Whether id and secret are URL-encoded in the header, as RFC 6749 demands and Kafka does on
    request."""

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"ClientCredentials({self.client_id})"

    @property
    def authorization(self) -> str:
        """The value of the header `Authorization`."""
        pair = (self.client_id, self.secret)
        named = ":".join(map(quote_plus, pair) if self.is_url_encoded else pair)
        return f"Basic {b64encode(named.encode()).decode()}"


class EndpointTokenSource:
    """Tokens of a token endpoint. Logins share a token until most of its lifetime is over."""

    def __init__(
        self, url: WebUrl, credentials: ClientCredentials, tls: SSLContext | None = None
    ) -> None:
        """By default the endpoint's certificate must be one that the system trusts."""
        self._url = url
        self._credentials = credentials
        self._tls = tls
        self._kept: _Kept | None = None

    def __str__(self) -> str:
        return str(self._url)

    async def token(self, now_s: float) -> str:
        kept = self._kept
        if kept is not None and now_s < kept.renew_s:
            return kept.token
        try:
            token, lifetime_s = await self._ask()
        except LoginError:
            # The endpoint may be back before the token ends.
            if kept is not None and now_s < kept.end_s:
                return kept.token
            raise
        self._kept = None
        if lifetime_s is not None:
            self._kept = _Kept(token, now_s + lifetime_s * _USED_LIFETIME, now_s + lifetime_s)
        return token

    async def _ask(self) -> tuple[str, float | None]:
        """Return a new token, and its lifetime if the endpoint tells it."""
        form = {"grant_type": "client_credentials"}
        if self._credentials.scope:
            form["scope"] = self._credentials.scope
        headers = (("Authorization", self._credentials.authorization),)
        try:
            answer = await ask(self._url, headers=headers, form=urlencode(form), tls=self._tls)
        except HttpError as error:
            raise LoginError(f"no token from {self._url}: {error}") from None
        answered = _object(answer.body)
        if answer.status != _OK:
            said = answered.get("error")
            known = f", {said}" if isinstance(said, str) and said in _ERRORS else ""
            raise LoginError(f"no token from {self._url}: HTTP status {answer.status}{known}")
        token, kind = answered.get("access_token"), answered.get("token_type", "bearer")
        if (
            not isinstance(token, str)
            or not _TOKEN.fullmatch(token)
            or len(token) > MAX_TOKEN_BYTES
            or str(kind).lower() != "bearer"
        ):
            raise LoginError(f"the answer of {self._url} has no bearer token")
        return token, _lifetime_s(answered.get("expires_in"))


def _lifetime_s(value: object) -> float | None:
    """Return the lifetime that a token endpoint tells; some write the number as a string."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 < value < inf else None


def _object(content: bytes) -> dict[str, object]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
