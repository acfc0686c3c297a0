"""Which requests a connection may send before, during and after its login (KIP-368). Pure.

| State | Requests that are handled |
| --- | --- |
| no login yet | ApiVersions, SaslHandshake |
| a login is open | SaslAuthenticate |
| logged in | all; SaslHandshake opens a new login if the session has an end |
| ended | none |

Time is given twice: wall time for the expiry of a credential, and monotonic time for the end of
the session, so that a change of the machine's clock neither ends nor extends a session.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from kgw.errors import ErrorCode, KafkaError
from kgw.protocol.api_keys import ApiKey
from kgw.security.sasl.errors import AuthenticationFailed

if TYPE_CHECKING:
    from kgw.security.principal import Principal
    from kgw.security.sasl.exchange import Authenticated

MIN_SECONDS_BETWEEN_LOGINS: Final = 1.0
"""Kafka begins at most one re-authentication of a connection in a second."""


class RequestVerdict(Enum):
    """What the connection does with a request."""

    HANDLE = "handles it"
    REFUSE = "answers ILLEGAL_SASL_STATE"
    REFUSE_AND_CLOSE = "answers ILLEGAL_SASL_STATE, then closes"
    CLOSE = "closes without an answer"


class _State(Enum):
    NO_LOGIN = 1
    LOGIN_OPEN = 2
    LOGGED_IN = 3
    ENDED = 4


def session_lifetime_ms(max_reauth_ms: int, expires_ms: int | None, now_ms: int) -> int | None:
    """Return the lifetime of a new session, or None if it has no end.

    It is the lesser of `connections.max.reauth.ms` (0: no limit) and the remaining time of the
    credential, and at least 0.
    """
    limits = [max_reauth_ms] if max_reauth_ms > 0 else []
    if expires_ms is not None:
        limits.append(expires_ms - now_ms)
    return max(0, min(limits)) if limits else None


class SaslSession:
    """The login state of one connection.

    `mechanism` and `principal` belong to the last login that has succeeded, or are None.
    """

    def __init__(self, max_reauth_ms: int) -> None:
        self.mechanism: str | None = None
        self.principal: Principal | None = None
        self.token_id: str | None = None
        self._max_reauth_ms = max_reauth_ms
        self._state = _State.NO_LOGIN
        self._deadline_s: float | None = None
        self._last_reauthentication_s: float | None = None
        self._open_mechanism = ""

    def admit(self, api_key: int, now_s: float) -> RequestVerdict:
        """Return the verdict on a request that has arrived. `now_s` is monotonic time."""
        if self._state is _State.NO_LOGIN:
            first = api_key in {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
            return RequestVerdict.HANDLE if first else RequestVerdict.CLOSE
        if self._state is _State.LOGIN_OPEN:
            is_login = api_key == ApiKey.SASL_AUTHENTICATE
            return RequestVerdict.HANDLE if is_login else RequestVerdict.REFUSE_AND_CLOSE
        if self._state is _State.ENDED:
            return RequestVerdict.CLOSE
        if api_key == ApiKey.SASL_HANDSHAKE and self._may_login_again(now_s):
            return RequestVerdict.HANDLE
        if self._deadline_s is not None and now_s >= self._deadline_s:
            return RequestVerdict.CLOSE
        if api_key in {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}:
            return RequestVerdict.REFUSE
        return RequestVerdict.HANDLE

    def begin(self, mechanism: str, now_s: float) -> None:
        """Open a login after an admitted SaslHandshake for an offered mechanism.

        Raises UNSUPPORTED_SASL_MECHANISM if a new login uses another mechanism than the last one;
        then the session has ended. Raises RuntimeError if a login is open or the session has ended.
        """
        if self._state not in {_State.NO_LOGIN, _State.LOGGED_IN}:
            raise RuntimeError("the session does not take a new login")
        if self.mechanism is not None:
            self._last_reauthentication_s = now_s
            if mechanism != self.mechanism:
                self.end()
                raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        self._open_mechanism = mechanism
        self._state = _State.LOGIN_OPEN

    def finish(self, login: Authenticated, wall_ms: int, now_s: float) -> int:
        """Note that the login has succeeded. Return the lifetime to answer; 0 means no end.

        Raises AuthenticationFailed if the principal has changed or the credential has expired;
        then the session has ended. Raises RuntimeError if no login is open.
        """
        if self._state is not _State.LOGIN_OPEN:
            raise RuntimeError("no login is open")
        self._state = _State.ENDED
        if self.principal is not None and login.principal != self.principal:
            raise AuthenticationFailed(self._open_mechanism, "the principal has changed")
        lifetime_ms = session_lifetime_ms(self._max_reauth_ms, login.expires_ms, wall_ms)
        if lifetime_ms == 0:
            # A client would take the answer 0 for a session without an end.
            raise AuthenticationFailed(self._open_mechanism, "the credential has expired")
        self.mechanism = self._open_mechanism
        self.principal = login.principal
        self.token_id = login.token_id
        self._deadline_s = None if lifetime_ms is None else now_s + lifetime_ms / 1000
        self._state = _State.LOGGED_IN
        return lifetime_ms or 0

    def end(self) -> None:
        """Note that a login has failed: no further request is handled."""
        self._state = _State.ENDED

    def _may_login_again(self, now_s: float) -> bool:
        last_s = self._last_reauthentication_s
        return self._deadline_s is not None and (
            last_s is None or now_s - last_s >= MIN_SECONDS_BETWEEN_LOGINS
        )
