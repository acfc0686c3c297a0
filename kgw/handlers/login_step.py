"""One step of a login: a token of the client, and the token of the server that answers it."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, ProtocolError
from kgw.logs import EventLogger, QuietLog
from kgw.metrics import count
from kgw.protocol.framing import EncodedBody
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.exchange import Authenticated, Work

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.handlers.login import Login
    from kgw.security.sasl.exchange import Exchange
    from kgw.types import Buffer

_LENGTH = Struct(">i")
_log = EventLogger(__name__)
_quiet = QuietLog(_log)


class BareToken(EncodedBody):
    """A token of the server without a header, for a client that has sent SaslHandshake 0."""

    def frame(self, correlation_id: int) -> list[Buffer]:
        """Return the length and the token; the correlation id is not used."""
        return [_LENGTH.pack(len(self.body)) + self.body]


async def answer_bare_token(
    token: bytes, login: Login, exchange: Exchange, context: RequestContext
) -> BareToken:
    """Answer a token without a header. Raises ProtocolError if the login fails, as in Kafka."""
    try:
        answer, _ = await next_token(login, exchange, token, context)
    except KafkaError as error:
        raise ProtocolError(error.message or error.code.name) from None
    return BareToken(flexible=False, body=answer)


async def next_token(
    login: Login, exchange: Exchange, token: bytes, context: RequestContext
) -> tuple[bytes, int]:
    """Return the token that answers a token of the client, and how long the login lasts, in ms.

    0 means that it lasts for ever, or that it has not ended yet. Raises KafkaError
    SASL_AUTHENTICATION_FAILED, after the delay for failed logins.
    """
    gateway, session = context.gateway, context.session
    try:
        step = exchange.respond(token)
        while isinstance(step, Work):
            step = await asyncio.to_thread(step.run)
        if not isinstance(step, Authenticated):
            return step.token, 0
        clock, config = gateway.clock, gateway.config
        lasts_ms = login.end(
            step, config.connections_max_reauth_ms, clock.monotonic_s(), clock.wall_ms()
        )
    except (AuthenticationFailed, KafkaError) as error:
        login.fail()
        count(gateway.metrics.logins, "failed")
        _quiet.warning(
            "a login failed",
            login.mechanism,
            gateway.clock.monotonic_s(),
            {
                "mechanism": login.mechanism,
                "client": session.client_host,
                "client_id": session.client_id,
                "why": error.reason if isinstance(error, AuthenticationFailed) else error.message,
            },
        )
        delay_s = gateway.config.connection_failed_authentication_delay_ms / 1000
        await gateway.clock.sleep_until(gateway.clock.monotonic_s() + delay_s)
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
    session.principal = step.principal
    count(gateway.metrics.logins, "done")
    return step.token, lasts_ms
