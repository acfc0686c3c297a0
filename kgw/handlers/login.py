"""The login of one connection: which requests it may send, and for how long (KIP-152, KIP-368).

Before the end of the login only ApiVersions, SaslHandshake and SaslAuthenticate are answered; any
other request ends the connection. When a login has expired, the client must begin the next one,
with the same mechanism and as the same principal.

After SaslHandshake 0 the tokens of the mechanism come as frames without a header; after version 1
in SaslAuthenticate.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, ProtocolError
from kgw.protocol.api_keys import ApiKey
from kgw.security.sasl.session_rules import lifetime_ms, why_changed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.security.principal import Principal
    from kgw.security.sasl.exchange import Authenticated, Exchange

_BEFORE_LOGIN = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_TO_LOG_IN_AGAIN = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class Login:
    """The login of a connection to a listener that asks for one."""

    __slots__ = (
        "_is_failed",
        "bare",
        "deadline_s",
        "exchange",
        "expires_s",
        "mechanism",
        "mechanisms",
        "principal",
        "when_open",
    )

    def __init__(self, mechanisms: tuple[str, ...], deadline_s: float) -> None:
        """`mechanisms` are the enabled ones; the client must have logged in by `deadline_s`."""
        self.mechanisms = mechanisms
        self.deadline_s = deadline_s
        """The monotonic time at which a connection that has not logged in is ended; else inf."""
        self.principal: Principal | None = None
        self.expires_s = -inf
        """The monotonic time until which requests are answered."""
        self.exchange: Exchange | None = None
        """The attempt that has begun."""
        self.bare: Exchange | None = None
        """The same, if the next frame is a token without a header."""
        self.when_open: Callable[[], object] = bool
        """Called after the first login."""
        self.mechanism = ""
        """The mechanism of the last attempt."""
        self._is_failed = False

    def is_open(self, now_s: float) -> bool:
        """Return whether every request is answered."""
        return now_s < self.expires_s

    def check(self, api_key: int) -> None:
        """Raise ProtocolError unless a request is answered without a valid login."""
        if self._is_failed:
            raise ProtocolError("a request after a failed login")
        if self.principal is None:
            if api_key not in _BEFORE_LOGIN:
                raise ProtocolError(f"a request with API key {api_key} before the login")
        elif api_key not in _TO_LOG_IN_AGAIN:
            raise ProtocolError(f"a request with API key {api_key} after the login has expired")

    def begin(self, mechanism: str, exchange: Exchange, *, with_bare_tokens: bool) -> None:
        """Begin an attempt. Raises KafkaError."""
        if self.exchange is not None or self.expires_s == inf:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "the client has begun a login already")
        self.exchange = exchange
        self.bare = exchange if with_bare_tokens else None
        if self.principal is not None and mechanism != self.mechanism:
            self.fail()
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"the mechanism of a login cannot change from {self.mechanism} to {mechanism}",
            )
        self.mechanism = mechanism

    def end(self, done: Authenticated, max_reauth_ms: int, now_s: float, now_ms: int) -> int:
        """Open the connection for requests; return for how many ms, 0 for ever.

        Raises KafkaError if the principal has changed.
        """
        self.exchange = self.bare = None
        before = self.principal
        problem = why_changed(before, done.principal)
        if problem is not None:
            self.fail()
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, problem)
        self.principal = done.principal
        lasts_ms = lifetime_ms(max_reauth_ms, done.expires_ms, now_ms)
        self.expires_s = now_s + lasts_ms / 1000 if lasts_ms else inf
        self.deadline_s = inf
        if before is None:
            self.when_open()
        return lasts_ms

    def fail(self) -> None:
        """Refuse every further request."""
        self.exchange = self.bare = None
        self.expires_s = -inf
        self._is_failed = True
