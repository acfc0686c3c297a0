"""One step of a login: the answer to a token of the client.

After SaslHandshake 0 the tokens come as frames without a header; after version 1 in
SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, ProtocolError
from kgw.metrics import count
from kgw.protocol.framing import EncodedBody
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.exchange import Authenticated, Work

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.handlers.login import Login
    from kgw.types import Buffer

_LENGTH = Struct(">i")


async def answer_token(token: bytes, login: Login, context: RequestContext) -> tuple[bytes, int]:
    """Return the answer to a token of the client, and how long the login lasts, in ms.

    0 means that it has no end, or is not complete yet. Raises KafkaError if no login has begun, and
    if it fails, AuthenticationFailed after `connection.failed.authentication.delay.ms`.
    """
    exchange, clock = login.exchange, context.gateway.clock
    if exchange is None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "no SaslHandshake came before")
    lasts_ms = 0
    user = None
    try:
        step = exchange.respond(token, clock.wall_ms())
        while isinstance(step, Work):
            step = await asyncio.to_thread(step.run)
        if login.exchange is not exchange:
            reason = "another request came before the end of the login"
            raise AuthenticationFailed(exchange.mechanism, reason)
        if isinstance(step, Authenticated):
            user = step.principal.name
            lasts_ms = login.finish(step, clock.wall_ms(), clock.monotonic_s())
            context.session.principal = step.principal
            count(context.gateway.metrics.logins, "done")
    except AuthenticationFailed as error:
        login.end()
        _report(error, error.user or user, login, context)
        delay_s = context.gateway.config.connection_failed_authentication_delay_ms / 1000
        await clock.sleep_until(clock.monotonic_s() + delay_s)
        raise
    return step.data, lasts_ms


def _report(
    error: AuthenticationFailed, user: str | None, login: Login, context: RequestContext
) -> None:
    session, gateway = context.session, context.gateway
    count(gateway.metrics.logins, "failed")
    fields = {
        "mechanism": error.mechanism,
        "user": user,
        "why": error.reason,
        "client": session.client_host,
        "client_id": session.client_id,
    }
    now_s = gateway.clock.monotonic_s()
    login.failures.warning("a login failed", error.mechanism, now_s, fields)


class BareToken(EncodedBody):
    """An answer without a header, for a client that has sent SaslHandshake 0."""

    def frame(self, correlation_id: int) -> list[Buffer]:
        """Return the length and the token; there is no correlation id."""
        return [_LENGTH.pack(len(self.body)) + self.body]


async def answer_bare_token(token: bytes, login: Login, context: RequestContext) -> BareToken:
    """Answer a token without a header. Raises ProtocolError if the login fails, as in Kafka."""
    try:
        data, _ = await answer_token(token, login, context)
    except KafkaError as error:
        raise ProtocolError(str(error)) from None
    return BareToken(flexible=False, body=data)
