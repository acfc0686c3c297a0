"""The steps of a login, as a connection drives them. Pure.

A connection opens one `Exchange` for each SaslHandshake and gives it the bytes of each
SaslAuthenticate request. The exchange returns a step:

    step = exchange.respond(request.auth_bytes, now_ms)
    while isinstance(step, Work | Wait):
        if isinstance(step, Work):
            step = step.then(await run_in_thread(step.run))
        else:
            step = await step.run()

After the loop a `Challenge` is answered and the next request awaited, and an `Authenticated` ends
the login. A `Denied` is answered, too, but the login has failed: the next request only gets the
error. `respond`, `run` and `then` raise AuthenticationFailed.

A step is a value, so the same loop drives each mechanism. SCRAM takes microseconds for a message of
a user. PLAIN hashes the password, which takes milliseconds, in a `Work`; so does SCRAM with the
password of a delegation token, at the first login with this token. OAUTHBEARER checks the signature
of a token in a `Work`, and before it returns a `Wait` if the key set may have to be fetched.

Before it checks a password, an exchange asks `may_try` with the name that the client claims; for
False it raises TooManyFailed. A mechanism without a password, that nobody can guess, does not ask.

The callable of a `Work` reads only values that no other thread changes, and an exchange refuses
each message that comes after it has returned `Work` or `Wait`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from kgw.errors import ErrorCode, KafkaError
from kgw.security.oauth.claims import check_claims
from kgw.security.oauth.errors import TokenRefused
from kgw.security.principal import USER_TYPE, Principal, check_user_name
from kgw.security.sasl.errors import AuthenticationFailed, TooManyFailed
from kgw.security.sasl.oauthbearer import INVALID_TOKEN, OAUTHBEARER, parse_oauthbearer
from kgw.security.sasl.plain import PLAIN, PlainMessage, parse_plain
from kgw.security.sasl.scram import FakeCredentials, ScramExchange, ScramMechanism, matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kgw.security.oauth.claims import ClaimRules
    from kgw.security.oauth.key_set import VerificationKey
    from kgw.security.oauth.signed_tokens import SignedToken, TokenHeader
    from kgw.security.sasl.scram import ScramCredential
    from kgw.security.sasl.tokens import DelegationToken


KNOWN_BY_CREDENTIALS: Final = frozenset({PLAIN, *(one.sasl_name for one in ScramMechanism)})
"""The mechanisms that check a user by a SCRAM credential."""


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


class Denied(NamedTuple):
    """The login has failed; the client gets `data`, which tells it so, before the error."""

    data: bytes
    failure: AuthenticationFailed


def _same(step: Any) -> Any:
    return step


@dataclass(frozen=True, slots=True)
class Work:
    """A calculation of milliseconds, and the function that makes the next step of its result."""

    run: Callable[[], Any] = field(repr=False)
    """For a thread."""
    then: Callable[[Any], Step] = field(default=_same, repr=False)
    """For the event loop. By default the result is the next step."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Something to await in the event loop; its result is the next step."""

    run: Callable[[], Awaitable[Step]] = field(repr=False)


Step: TypeAlias = Challenge | Authenticated | Denied | Work | Wait


class Exchange(Protocol):
    """One login of one connection."""

    @property
    def mechanism(self) -> str: ...

    def respond(self, message: bytes, now_ms: int) -> Step:
        """Return the next step. Raises AuthenticationFailed, and then for each later message."""


class StoredLogins(Protocol):
    """The users and tokens of the server, as an exchange asks for them. Answers from memory."""

    def user_credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None: ...

    def token(self, token_id: str) -> DelegationToken | None: ...

    def token_credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential | None:
        """Return the credential of a token, if `keep_token_credential` has been called for it."""

    def token_credential_maker(
        self, mechanism: ScramMechanism, token_id: str, salt: bytes
    ) -> Callable[[], ScramCredential]:
        """Return a function that makes the credential of a token. For a thread."""

    def keep_token_credential(
        self, mechanism: ScramMechanism, token_id: str, credential: ScramCredential
    ) -> None:
        """Keep the credential for the next logins, as long as there is the token."""


class TrustedKeys(Protocol):
    """The keys and the rules by which tokens are accepted."""

    rules: ClaimRules

    def find(self, header: TokenHeader) -> VerificationKey | None:
        """Return the key of a token; None if it is not known."""

    async def find_again(self, header: TokenHeader) -> VerificationKey | None:
        """Do the same after the key set was fetched again, if that may help."""


def offered_mechanisms(
    enabled: Sequence[str], *, encrypted: bool, plain_without_tls: bool, tokens_without_tls: bool
) -> list[str]:
    """Return the mechanisms of a connection.

    PLAIN shows the password to the network, and OAUTHBEARER the token, which is as good as one.
    """
    shown = {PLAIN: not plain_without_tls, OAUTHBEARER: not tokens_without_tls}
    return [one for one in enabled if encrypted or not shown.get(one, False)]


def open_exchange(
    mechanism: str,
    offered: Sequence[str],
    logins: StoredLogins,
    fakes: FakeCredentials,
    random_bytes: Callable[[int], bytes],
    may_try: Callable[[str], bool],
    trust: TrustedKeys | None = None,
) -> Exchange:
    """Open a login. Raises UNSUPPORTED_SASL_MECHANISM for a mechanism that is not offered.

    OAUTHBEARER is not offered without `trust`.
    """
    if mechanism in offered:
        if mechanism == PLAIN:
            return PlainLogin(logins, fakes, may_try)
        if mechanism == OAUTHBEARER and trust is not None:
            return BearerLogin(trust)
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
        """The user in the first message of the client; None for a token."""
        self._now_ms = 0
        self._is_hashing = False
        self._exchange = ScramExchange(mechanism, self._credential_for, fakes, random_bytes)

    @property
    def mechanism(self) -> str:
        return self._mechanism.sasl_name

    def respond(self, message: bytes, now_ms: int) -> Step:
        if self._is_hashing:
            raise AuthenticationFailed(
                self.mechanism, "the client sends a message before the last one is answered"
            )
        self._now_ms = now_ms
        token_id = self._exchange.claimed_token
        claimed = self._claimed if token_id is None else token_id
        # Asked at the second message, which proves the password: between the two messages other
        # connections may have tried many passwords.
        if claimed is not None and not self._may_try(claimed):
            raise TooManyFailed(self.mechanism, user=claimed)
        if token_id is None or self._valid_token(token_id) is None:
            return self._step(message)
        logins, mechanism = self._logins, self._mechanism
        known = logins.token_credential(mechanism, token_id)
        if known is not None:
            self._exchange.supply(known)
            return self._step(message)
        self._is_hashing = True

        def go_on(credential: ScramCredential) -> Step:
            self._is_hashing = False
            logins.keep_token_credential(mechanism, token_id, credential)
            self._exchange.supply(credential)
            return self._step(message)

        return Work(logins.token_credential_maker(mechanism, token_id, self._exchange.salt), go_on)

    def _step(self, message: bytes) -> Step:
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

    def _credential_for(self, user: str) -> ScramCredential | None:
        self._claimed = user
        return self._logins.user_credential(self._mechanism, user)

    def _valid_token(self, token_id: str) -> DelegationToken | None:
        """Return the token. Kafka takes an expired token until it removes it; kgw does not."""
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


class BearerLogin:
    """A login with OAUTHBEARER: one message, which has the token."""

    def __init__(self, trust: TrustedKeys) -> None:
        self._trust = trust
        self._is_ended = False
        self._is_denied = False

    @property
    def mechanism(self) -> str:
        return OAUTHBEARER

    def respond(self, message: bytes, now_ms: int) -> Step:
        if self._is_denied:
            # Usually the byte 0x01, with which a client answers the denial.
            raise AuthenticationFailed(OAUTHBEARER, "the token was denied", is_logged=True)
        if self._is_ended:
            raise AuthenticationFailed(OAUTHBEARER, "the client sends a message after the end")
        self._is_ended = True
        asked = parse_oauthbearer(message)
        # Imported here, as PyJWT is: most servers accept no tokens.
        from kgw.security.oauth.signed_tokens import read_token

        try:
            token = read_token(asked.token)
        except TokenRefused as error:
            return self._deny(error.reason)
        key = self._trust.find(token.header)
        if key is not None:
            return Work(partial(self._check, token, key, asked.authorization_id, now_ms))
        return Wait(partial(self._look_again, token, asked.authorization_id, now_ms))

    async def _look_again(self, token: SignedToken, authorization_id: str, now_ms: int) -> Step:
        key = await self._trust.find_again(token.header)
        if key is None:
            return self._deny("the key set has no key for the token's algorithm and key id")
        return Work(partial(self._check, token, key, authorization_id, now_ms))

    def _check(
        self, token: SignedToken, key: VerificationKey, authorization_id: str, now_ms: int
    ) -> Step:
        try:
            accepted = check_claims(token.verified_payload(key), self._trust.rules, now_ms)
        except TokenRefused as error:
            return self._deny(error.reason, error.user)
        if authorization_id not in {"", accepted.subject}:
            return self._deny("the client asks for another identity", accepted.subject)
        principal = _principal(OAUTHBEARER, accepted.subject)
        return Authenticated(b"", principal, accepted.expires_ms, None)

    def _deny(self, reason: str, user: str | None = None) -> Denied:
        self._is_denied = True
        return Denied(INVALID_TOKEN, AuthenticationFailed(OAUTHBEARER, reason, user))


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
    try:
        check_user_name(user)
    except ValueError as error:
        raise AuthenticationFailed(mechanism, str(error), user) from None
    return Principal(USER_TYPE, user)
