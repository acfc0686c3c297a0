"""The login of one connection (SASL): the shell round `SaslSession` and the `Exchange` of a login.

After SaslHandshake 0 the tokens of the mechanism come as frames without a header; after version 1
in SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

import asyncio
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, ProtocolError
from kgw.logs import EventLogger, QuietLog
from kgw.metrics import count
from kgw.protocol.framing import EncodedBody
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.exchange import Authenticated, Work
from kgw.security.sasl.session_rules import RequestVerdict, SaslSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.handlers.context import RequestContext
    from kgw.security.sasl.exchange import Exchange
    from kgw.types import Buffer

_LENGTH = Struct(">i")
_log = EventLogger(__name__)
_quiet = QuietLog(_log)


class Login:
    """The login of a connection to a listener that asks for one."""

    __slots__ = ("_sasl", "deadline_s", "exchange", "has_bare_tokens", "mechanisms", "when_open")

    def __init__(self, mechanisms: tuple[str, ...], max_reauth_ms: int, deadline_s: float) -> None:
        """`mechanisms` are the offered ones; the client must have logged in by `deadline_s`."""
        self.mechanisms = mechanisms
        self.deadline_s = deadline_s
        """The monotonic time at which a connection that has not logged in is ended; else inf."""
        self.exchange: Exchange | None = None
        """The login that has begun and not ended."""
        self.has_bare_tokens = False
        """Whether the next frame is a token without a header."""
        self.when_open: Callable[[], object] = bool
        """Called after the first login."""
        self._sasl = SaslSession(max_reauth_ms)

    def admits(self, api_key: int, now_s: float) -> bool:
        """Return whether a request is handled. False: it is answered with ILLEGAL_SASL_STATE.

        Raises ProtocolError if it ends the connection without an answer.
        """
        verdict = self._sasl.admit(api_key, now_s)
        if verdict is RequestVerdict.HANDLE:
            return True
        if verdict is RequestVerdict.CLOSE:
            problem = "before the login" if self._sasl.principal is None else "after it has ended"
            raise ProtocolError(f"a request with API key {api_key} {problem}")
        if verdict is RequestVerdict.REFUSE_AND_CLOSE:
            self._end()
        return False

    def begin(self, exchange: Exchange, now_s: float, *, has_bare_tokens: bool) -> None:
        """Begin a login. Raises KafkaError if a later login has another mechanism."""
        self._sasl.begin(exchange.mechanism, now_s)
        self.exchange = exchange
        self.has_bare_tokens = has_bare_tokens

    async def respond(self, token: bytes, context: RequestContext) -> tuple[bytes, int]:
        """Return the answer to a token of the client, and how long the login lasts, in ms.

        0 means that it has no end, or is not complete yet. Raises KafkaError if no login has begun,
        and if it fails, AuthenticationFailed after `connection.failed.authentication.delay.ms`.
        """
        exchange, clock = self.exchange, context.gateway.clock
        if exchange is None:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "no SaslHandshake came before")
        try:
            step = exchange.respond(token, clock.wall_ms())
            while isinstance(step, Work):
                step = await asyncio.to_thread(step.run)
            lasts_ms = 0
            if isinstance(step, Authenticated):
                lasts_ms = self._finish(step, context)
        except AuthenticationFailed as error:
            self._end()
            self._report(error, context)
            delay_s = context.gateway.config.connection_failed_authentication_delay_ms / 1000
            await clock.sleep_until(clock.monotonic_s() + delay_s)
            raise
        return step.data, lasts_ms

    def _finish(self, done: Authenticated, context: RequestContext) -> int:
        clock = context.gateway.clock
        is_first = self._sasl.principal is None
        lasts_ms = self._sasl.finish(done, clock.wall_ms(), clock.monotonic_s())
        self.exchange = None
        self.has_bare_tokens = False
        self.deadline_s = inf
        context.session.principal = done.principal
        count(context.gateway.metrics.logins, "done")
        if is_first:
            self.when_open()
        return lasts_ms

    def _end(self) -> None:
        """Refuse every further request."""
        self.exchange = None
        self.has_bare_tokens = False
        self._sasl.end()

    @staticmethod
    def _report(error: AuthenticationFailed, context: RequestContext) -> None:
        session, gateway = context.session, context.gateway
        count(gateway.metrics.logins, "failed")
        fields = {
            "mechanism": error.mechanism,
            "user": error.user,
            "why": error.reason,
            "client": session.client_host,
            "client_id": session.client_id,
        }
        _quiet.warning("a login failed", error.mechanism, gateway.clock.monotonic_s(), fields)


class BareToken(EncodedBody):
    """An answer without a header, for a client that has sent SaslHandshake 0."""

    def frame(self, correlation_id: int) -> list[Buffer]:
        """Return the length and the token; there is no correlation id."""
        return [_LENGTH.pack(len(self.body)) + self.body]


async def answer_bare_token(token: bytes, login: Login, context: RequestContext) -> BareToken:
    """Answer a token without a header. Raises ProtocolError if the login fails, as in Kafka."""
    try:
        data, _ = await login.respond(token, context)
    except KafkaError as error:
        raise ProtocolError(str(error)) from None
    return BareToken(flexible=False, body=data)
