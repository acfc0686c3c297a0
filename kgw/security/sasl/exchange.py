"""The steps of a login, as a connection drives them. Pure.

A connection opens one `Exchange` for each SaslHandshake and gives it the bytes of each
SaslAuthenticate request. The exchange returns a step:

    step = exchange.respond(request.auth_bytes, now_ms)
    while isinstance(step, Work):
        step = await run_in_thread(step.run)

After the loop a `Challenge` is answered and the next request awaited, and an `Authenticated` ends
the login. Both `respond` and `run` raise AuthenticationFailed.

A step is a value, so the same loop drives each mechanism. SCRAM takes microseconds for a message
and never returns `Work`. PLAIN hashes the password, which takes milliseconds, in a `Work`. For the
key set that OAUTHBEARER may have to fetch, another kind of step can hold a coroutine function: the
connection awaits it in the same loop, and its result is again a step.

Before it checks a password, an exchange asks `may_try` with the name that the client claims; for
False it raises TooManyFailed. A mechanism without a password, that nobody can guess, does not ask.

The callable of a `Work` reads only values that no other thread changes, and an exchange refuses
each message that comes after it has returned `Work`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from kgw.errors import ErrorCode, KafkaError
from kgw.security.principal import EVERY_NAME, USER_TYPE, Principal
from kgw.security.sasl.errors import AuthenticationFailed, TooManyFailed
from kgw.security.sasl.plain import PLAIN, PlainMessage, parse_plain
from kgw.security.sasl.scram import FakeCredentials, ScramExchange, ScramMechanism, matches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.security.sasl.scram import ScramCredential
    from kgw.security.sasl.tokens import DelegationToken


class Challenge(NamedTuple):
    """The server's answer in the middle of a login."""

    data: bytes


class Authenticated(NamedTuple):
    """The login has succeeded; `data` is the server's last answer."""

    data: bytes
    principal: Principal
    expires_ms: int | None
    """The time since the epoch at which the credential expires, or None."""
    token_id: str | None
    """The delegation token that the client has used, or None."""


@dataclass(frozen=True, slots=True)
class Work:
    """A calculation of milliseconds; its result is the next step. For a thread."""

    run: Callable[[], Step] = field(repr=False)


Step: TypeAlias = Challenge | Authenticated | Work


class Exchange(Protocol):
    """One login of one connection."""

    @property
    def mechanism(self) -> str: ...

    def respond(self, message: bytes, now_ms: int) -> Step:
        """Return the next step. Raises AuthenticationFailed, and then for each later message."""


class StoredLogins(Protocol):
    """The users and tokens of the server, as an exchange asks for them. Answers from memory."""

    def user_credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None: ...

    def token_credential(
        self, mechanism: ScramMechanism, token_id: str
    ) -> ScramCredential | None: ...

    def token(self, token_id: str) -> DelegationToken | None: ...


def offered_mechanisms(
    enabled: Sequence[str], *, encrypted: bool, plain_without_tls: bool
) -> list[str]:
    """Return the mechanisms of a connection. PLAIN shows the password to the network."""
    allowed = encrypted or plain_without_tls
    return [one for one in enabled if allowed or one != PLAIN]


def open_exchange(
    mechanism: str,
    offered: Sequence[str],
    logins: StoredLogins,
    fakes: FakeCredentials,
    random_bytes: Callable[[int], bytes],
    may_try: Callable[[str], bool],
) -> Exchange:
    """Open a login. Raises UNSUPPORTED_SASL_MECHANISM for a mechanism that is not offered."""
    if mechanism in offered:
        if mechanism == PLAIN:
            return PlainLogin(logins, fakes, may_try)
        for scram in ScramMechanism:
            if mechanism == scram.sasl_name:
                return ScramLogin(scram, logins, fakes, random_bytes, may_try)
    raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM)


class ScramLogin:
    """A login with SCRAM, as a user or with a delegation token."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        logins: StoredLogins,
        fakes: FakeCredentials,
        random_bytes: Callable[[int], bytes],
        may_try: Callable[[str], bool],
    ) -> None:
        self._mechanism = mechanism
        self._logins = logins
        self._may_try = may_try
        self._claimed: str | None = None
        """The name in the first message of the client."""
        self._now_ms = 0
        self._exchange = ScramExchange(mechanism, self._credential_for, fakes, random_bytes)

    @property
    def mechanism(self) -> str:
        return self._mechanism.sasl_name

    def respond(self, message: bytes, now_ms: int) -> Step:
        self._now_ms = now_ms
        # Asked at the second message, which proves the password: between the two messages other
        # connections may have tried many passwords.
        if self._claimed is not None and not self._may_try(self._claimed):
            raise TooManyFailed(self.mechanism, user=self._claimed)
        data = self._exchange.respond(message)
        if not self._exchange.succeeded:
            return Challenge(data)
        user = self._exchange.user
        if not self._exchange.is_token:
            return Authenticated(data, _principal(self.mechanism, user), None, None)
        token = self._valid_token(user)
        if token is None:
            reason = "the token was removed or has expired during the login"
            raise AuthenticationFailed(self.mechanism, reason, user)
        return Authenticated(data, token.owner, token.expiry_timestamp_ms, token.token_id)

    def _credential_for(self, user: str, is_token: bool) -> ScramCredential | None:
        self._claimed = user
        if not is_token:
            return self._logins.user_credential(self._mechanism, user)
        if self._valid_token(user) is None:
            return None
        return self._logins.token_credential(self._mechanism, user)

    def _valid_token(self, token_id: str) -> DelegationToken | None:
        """Return the token. Kafka takes an expired token until its next sweep; kgw does not."""
        token = self._logins.token(token_id)
        return None if token is None or token.is_expired(self._now_ms) else token


class PlainLogin:
    """A login with PLAIN, against the SCRAM credentials of the user.

    A user may have a credential of one SCRAM mechanism or of both. Each login hashes the password
    with both, and with a fake credential in place of a missing one: so an unknown user costs as
    much as a known user.
    """

    def __init__(
        self, logins: StoredLogins, fakes: FakeCredentials, may_try: Callable[[str], bool]
    ) -> None:
        self._logins = logins
        self._fakes = fakes
        self._may_try = may_try
        self._is_ended = False

    @property
    def mechanism(self) -> str:
        return PLAIN

    def respond(self, message: bytes, now_ms: int) -> Step:
        if self._is_ended:
            raise AuthenticationFailed(PLAIN, "the client sends a message after the end")
        self._is_ended = True
        login = parse_plain(message)
        if not self._may_try(login.user):
            raise TooManyFailed(PLAIN, user=login.user)
        checks = []
        for mechanism in ScramMechanism:
            fake = self._fakes.credential(mechanism, login.user, is_token=False)
            known = self._logins.user_credential(mechanism, login.user)
            checks.append((mechanism, fake if known is None else known, known is not None))
        return Work(lambda: _check_password(login, checks))


def _check_password(
    login: PlainMessage, checks: Sequence[tuple[ScramMechanism, ScramCredential, bool]]
) -> Authenticated:
    # A list, not a generator: `any` would stop at the first credential that matches.
    found = [
        matches(credential, mechanism, login.password) and is_known
        for mechanism, credential, is_known in checks
    ]
    if not any(found):
        is_known = any(known for _, _, known in checks)
        reason = "the password is wrong" if is_known else "the user is unknown"
        raise AuthenticationFailed(PLAIN, reason, login.user)
    return Authenticated(b"", _principal(PLAIN, login.user), None, None)


def _principal(mechanism: str, user: str) -> Principal:
    """Return the principal of a user who has shown the password. Raises AuthenticationFailed."""
    if user == EVERY_NAME:
        raise AuthenticationFailed(mechanism, "a user cannot have this name", user)
    return Principal(USER_TYPE, user)
