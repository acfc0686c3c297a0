"""One step of a login: the answer to a token of the client.

After SaslHandshake 0 the tokens come as frames without a header; after version 1 in
SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, ProtocolError
from kgw.metrics import count
from kgw.protocol.framing import EncodedBody
from kgw.security.sasl.errors import AuthenticationFailed, TooManyFailed
from kgw.security.sasl.exchange import Authenticated, Denied, Wait, Work

if TYPE_CHECKING:
    from kgw.gateway import Gateway
    from kgw.handlers.context import RequestContext
    from kgw.handlers.login import Login
    from kgw.logs import QuietLog
    from kgw.types import Buffer

_LENGTH = Struct(">i")


def login_of(context: RequestContext) -> Login:
    """Return the login of a connection. Raises KafkaError if its listener has none."""
    login = context.session.login
    if login is None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "this listener takes clients without SASL")
    return login


async def answer_token(token: bytes, login: Login, context: RequestContext) -> tuple[bytes, int]:
    """Return the answer to a token of the client, and how long the login lasts, in ms.

    0 means that it has no end, or is not complete yet. Raises KafkaError if no login has begun, and
    if it fails, AuthenticationFailed after `connection.failed.authentication.delay.ms`; that time
    begins before the password is checked, so that a client cannot tell whether it was.
    """
    exchange, attempts, clock = login.exchange, login.attempts, context.gateway.clock
    credentials = context.gateway.credentials
    if exchange is None or attempts is None or credentials is None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "no SaslHandshake came before")
    began_s = clock.monotonic_s()
    lasts_ms = 0
    user = None
    try:
        step = exchange.respond(token, clock.wall_ms())
        while isinstance(step, Work | Wait):
            if isinstance(step, Work):
                step = step.then(await credentials.threads.check(step))
            else:
                step = await step.run()
        if login.exchange is not exchange:
            reason = "another request came before the end of the login"
            raise AuthenticationFailed(exchange.mechanism, reason)
        if isinstance(step, Authenticated):
            user = step.principal.name
            lasts_ms = login.finish(step, clock.wall_ms(), clock.monotonic_s())
            attempts.succeed()
            context.session.principal = step.principal
            count(context.gateway.metrics.logins, "done")
        if isinstance(step, Denied):
            login.deny(clock.monotonic_s() + _delay_s(context))
            _report(step.failure, step.failure.user, login, context)
            await clock.sleep_until(began_s + _delay_s(context))
    except AuthenticationFailed as error:
        attempts.fail()
        is_limited = attempts.is_limited
        delay_s = 0.0 if error.is_logged else _delay_s(context)
        login.end(clock.monotonic_s() + delay_s)
        if not error.is_logged:
            _report(error, error.user or user, login, context)
            await clock.sleep_until(began_s + delay_s)
        if is_limited:
            raise TooManyFailed(error.mechanism) from None
        raise
    return step.data, lasts_ms


def _delay_s(context: RequestContext) -> float:
    return context.gateway.config.connection_failed_authentication_delay_ms / 1000


def _report(
    error: AuthenticationFailed, user: str | None, login: Login, context: RequestContext
) -> None:
    session = context.session
    fields: dict[str, object] = {"client": session.client_host, "client_id": session.client_id}
    report_failure(error, user, fields, login.failures, context.gateway)


def report_failure(
    error: AuthenticationFailed,
    user: str | None,
    client: dict[str, object],
    failures: QuietLog,
    gateway: Gateway,
) -> None:
    """Count a failed login, and log it with these fields of the client."""
    is_limited = isinstance(error, TooManyFailed)
    count(gateway.metrics.logins, "limited" if is_limited else "failed")
    fields = {"mechanism": error.mechanism, "user": user, "why": error.reason, **client}
    now_s = gateway.clock.monotonic_s()
    if is_limited:
        fields["setting"] = "kgw.failed.logins.per.minute"
        event = "a login was refused: too many have failed from this address"
        failures.warning(event, "limited", now_s, fields)
    else:
        failures.warning("a login failed", error.mechanism, now_s, fields)


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
