"""Logins with a user and a password in each request: HTTP Basic, over HTTP and over gRPC."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

from kgw.errors import ProtocolError
from kgw.handlers.login_attempts import LoginAttempts
from kgw.handlers.login_step import report_failure
from kgw.logs import EventLogger, QuietLog
from kgw.metrics import count
from kgw.security.login_refusals import LoginUnavailableError, TooManyFailuresError
from kgw.security.principal import USER_TYPE, Principal
from kgw.security.proved_passwords import ProvedPasswords
from kgw.security.sasl.basic import BASIC, plain_message
from kgw.security.sasl.errors import AuthenticationFailed, TooManyFailed
from kgw.security.sasl.exchange import Authenticated, PlainLogin, Work
from kgw.security.sasl.plain import parse_plain

if TYPE_CHECKING:
    from kgw.gateway import Gateway
    from kgw.security.credentials import Credentials

_log = EventLogger(__name__)
_SECRET_BYTES = 32


class PasswordLogins:
    """Checks users and passwords against the credentials that SCRAM uses, as PLAIN does."""

    def __init__(self, gateway: Gateway, listener: str) -> None:
        """`listener` names the listener in the log."""
        self._gateway = gateway
        self._listener = listener
        self._proved = ProvedPasswords(urandom(_SECRET_BYTES))
        self._quiet = QuietLog(_log)

    async def principal_of(self, credentials: bytes, host: str) -> Principal:
        """Return the principal of the client who sends these credentials of HTTP Basic.

        Raises AuthenticationFailed or TooManyFailuresError after
        `connection.failed.authentication.delay.ms`, and LoginUnavailableError.
        """
        stored, clock = self._gateway.credentials, self._gateway.clock
        if stored is None:
            raise LoginUnavailableError("a server that starts or stands by cannot check a login")
        began_s = clock.monotonic_s()
        attempts = LoginAttempts(stored.failed_logins, host, None, self._gateway)
        try:
            message = plain_message(credentials)
            name = parse_plain(message).user
            # Asked before the remembered passwords are: they could be guessed without limit.
            if not attempts.may_try(name):
                raise TooManyFailed(BASIC, user=name)
            user = self._proved.user_of(message, stored.of_user, clock.monotonic_s())
            if user is None:
                user = await self._prove(message, stored)
        except AuthenticationFailed as error:
            attempts.fail()
            is_limited = isinstance(error, TooManyFailed) or attempts.is_limited
            self._report(error, host)
            delay_s = self._gateway.config.connection_failed_authentication_delay_ms / 1000
            await clock.sleep_until(began_s + delay_s)
            if is_limited:
                text = "too many logins from this address have failed"
                raise TooManyFailuresError(text) from None
            raise
        attempts.succeed()
        return Principal(USER_TYPE, user)

    async def _prove(self, message: bytes, stored: Credentials) -> str:
        """Return the user whose password is in the message. Raises AuthenticationFailed."""
        clock = self._gateway.clock
        # Copied before the hash, as the user may get another password meanwhile.
        credentials = dict(stored.of_user(parse_plain(message).user))
        step = PlainLogin(stored, stored.fakes, lambda _: True).respond(message, clock.wall_ms())
        try:
            while isinstance(step, Work):
                step = step.then(await stored.threads.check(step))
        except ProtocolError as error:
            raise LoginUnavailableError(str(error)) from None
        if not isinstance(step, Authenticated):
            raise TypeError("PLAIN has one message")
        user = step.principal.name
        self._proved.add(message, user, credentials, clock.monotonic_s())
        count(self._gateway.metrics.logins, "done")
        return user

    def _report(self, error: AuthenticationFailed, host: str) -> None:
        client: dict[str, object] = {"client": host, "listener": self._listener}
        report_failure(error, error.user, client, self._quiet, self._gateway)
