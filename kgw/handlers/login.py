"""The state of the login of one connection (SASL)."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from kgw.errors import KafkaError, ProtocolError
from kgw.logs import EventLogger, QuietLog
from kgw.security.sasl.session_rules import RequestVerdict, SaslSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.handlers.login_attempts import LoginAttempts
    from kgw.security.sasl.exchange import Authenticated, Exchange, TrustedKeys

_log = EventLogger(__name__)


def failure_log() -> QuietLog:
    """Return a log that has one line for many failed logins."""
    return QuietLog(_log)


_ENDS_S = 5.0
"""How long after a failed login the server ends the connection, if the client does not."""


class Login:
    """The login of a connection to a listener that asks for one."""

    __slots__ = (
        "_sasl",
        "attempts",
        "deadline_s",
        "exchange",
        "failures",
        "has_bare_tokens",
        "mechanisms",
        "trust",
        "when_open",
    )

    def __init__(
        self,
        mechanisms: tuple[str, ...],
        max_reauth_ms: int,
        deadline_s: float,
        failures: QuietLog | None = None,
        trust: TrustedKeys | None = None,
    ) -> None:
        """`mechanisms` are the offered ones; the client must have logged in by `deadline_s`.

        The connections to a listener share `failures`, so that many failures are one line, and
        `trust`, which OAUTHBEARER needs.
        """
        self.mechanisms = mechanisms
        self.trust = trust
        self.failures = failures or failure_log()
        """The log of failed logins."""
        self.deadline_s = deadline_s
        """The monotonic time at which a connection that has not logged in is ended; else inf."""
        self.exchange: Exchange | None = None
        """The login that has begun and not ended."""
        self.attempts: LoginAttempts | None = None
        """The attempts of the login that was begun last."""
        self.has_bare_tokens = False
        """Whether the next frame is a token without a header."""
        self.when_open: Callable[[], object] | None = None
        """Called after the first login, if it is set."""
        self._sasl = SaslSession(max_reauth_ms)

    @property
    def mechanism(self) -> str | None:
        """The mechanism of the last login that has succeeded; None before the first."""
        return self._sasl.mechanism

    @property
    def token_id(self) -> str | None:
        """The delegation token of the last login that has succeeded; None if it had none."""
        return self._sasl.token_id

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
            self.end(now_s)
        return False

    def begin(
        self,
        exchange: Exchange,
        now_s: float,
        *,
        has_bare_tokens: bool,
        attempts: LoginAttempts,
    ) -> None:
        """Begin a login. `attempts` counts it if it fails.

        Raises KafkaError if a later login has another mechanism.
        """
        try:
            self._sasl.begin(exchange.mechanism, now_s)
        except KafkaError:
            self.end(now_s)
            raise
        self.exchange = exchange
        self.attempts = attempts
        self.has_bare_tokens = has_bare_tokens

    def finish(self, done: Authenticated, wall_ms: int, now_s: float) -> int:
        """Open the connection for requests; return for how many ms, 0 for ever.

        Raises AuthenticationFailed; then the login has ended.
        """
        is_first = self._sasl.principal is None
        lasts_ms = self._sasl.finish(done, wall_ms, now_s)
        self.exchange = None
        self.has_bare_tokens = False
        self.deadline_s = inf
        if is_first and self.when_open is not None:
            self.when_open()
        return lasts_ms

    def deny(self, now_s: float) -> None:
        """End the connection soon: the login has failed, and the client may ask for the error."""
        self.deadline_s = min(self.deadline_s, now_s + _ENDS_S)

    def end(self, now_s: float) -> None:
        """Refuse every further request, and end the connection soon: the login has failed."""
        self.deny(now_s)
        self.exchange = None
        self.has_bare_tokens = False
        self._sasl.end()
