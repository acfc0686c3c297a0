"""The rules by which delegation tokens (KIP-48, KIP-373) are created, renewed and expired. Pure.

The rules are those of Kafka's `DelegationTokenControlManager`. A token is used with SCRAM: its id
is the user name, and its HMAC in base64 is the password.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.security.principal import (
    ANONYMOUS,
    USER_TYPE,
    Principal,
    check_user_name,
    parse_principal,
)
from kgw.security.sasl.scram import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    make_credential,
)
from kgw.security.sasl.scram_messages import encode_base64

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_TIMESTAMPS: Final = ("issue_timestamp_ms", "max_timestamp_ms", "expiry_timestamp_ms")
_LATEST_MS: Final = (1 << 63) - 1
_LONGEST_TOKEN_BYTES: Final = 4096
"""The longest stored form of a token. It limits the names of its owner and its renewers."""
SHORTEST_SAFE_SECRET: Final = 32
"""The least number of characters that a secret should have."""
_ID_BYTES: Final = 16
# No token id has a space, so the HMAC of a token is never a function of the key id.
_KEY_ID_SALT: Final = b"kgw key id"
_KEY_ID_BYTES: Final = 8


class DelegationToken(NamedTuple):
    """A token without its HMAC, which is computed from the id and the server's secret."""

    token_id: str
    owner: Principal
    """The principal of a client that logs in with the token."""
    requester: Principal
    """The principal that has created the token."""
    renewers: tuple[Principal, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    """No renewal extends the token beyond this time."""
    expiry_timestamp_ms: int
    key_id: str
    """Says with which secret the HMAC is computed (`TokenRules.key_id`)."""

    def is_expired(self, now_ms: int) -> bool:
        return self.max_timestamp_ms < now_ms or self.expiry_timestamp_ms < now_ms

    def is_owner_or_renewer(self, principal: Principal) -> bool:
        """Return whether the principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    def is_of_any(self, principals: Collection[Principal]) -> bool:
        """Return whether one of the principals may describe the token without a right.

        The requester has got the HMAC, and may see it again, but does not renew the token.
        """
        return any(one in principals for one in (self.owner, self.requester, *self.renewers))

    def encode(self) -> bytes:
        """Return the stored form."""
        fields = {
            "token_id": self.token_id,
            "owner": str(self.owner),
            "requester": str(self.requester),
            "renewers": [str(one) for one in self.renewers],
            "issue_timestamp_ms": self.issue_timestamp_ms,
            "max_timestamp_ms": self.max_timestamp_ms,
            "expiry_timestamp_ms": self.expiry_timestamp_ms,
            "key_id": self.key_id,
        }
        return _ENCODER.encode(fields).encode()


def decode_token(value: bytes) -> DelegationToken:
    """Decode the output of `DelegationToken.encode`. Raises ValueError for other bytes."""
    try:
        fields = json.loads(value)
        token_id, key_id = fields["token_id"], fields["key_id"]
        issue_ms, max_ms, expiry_ms = timestamps = [fields[name] for name in _TIMESTAMPS]
        token = DelegationToken(
            token_id,
            parse_principal(fields["owner"]),
            parse_principal(fields["requester"]),
            tuple(parse_principal(one) for one in fields["renewers"]),
            issue_ms,
            max_ms,
            expiry_ms,
            key_id,
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a stored delegation token: {error!r}") from error
    if not token_id or not isinstance(token_id, str):
        raise ValueError("not a stored delegation token: it has no id")
    if any(type(one) is not int for one in timestamps):
        raise ValueError("not a stored delegation token: a timestamp is not a number")
    if type(key_id) is not str:
        raise ValueError("not a stored delegation token: the id of its key is no text")
    return token


def new_token_id(random_bytes: Callable[[int], bytes]) -> str:
    """Return a random id, in the form of Kafka's ids.

    As in Kafka it does not begin with a dash: programs would take it for an option.
    """
    while True:
        text = encode_base64(random_bytes(_ID_BYTES)).rstrip("=")
        token_id = text.replace("+", "-").replace("/", "_")
        if not token_id.startswith("-"):
            return token_id


class TokenLimits(NamedTuple):
    """`delegation.token.max.lifetime.ms` and `delegation.token.expiry.time.ms`."""

    max_lifetime_ms: int
    expiry_time_ms: int


class TokenRules:
    """Kafka's rules. `secret` is `delegation.token.secret.key`; None disables tokens.

    Each method returns a new token and changes nothing. `token` is the stored token that has the
    HMAC of the request, or None.
    """

    def __init__(self, secret: str | None, limits: TokenLimits) -> None:
        self._secret = secret
        self._limits = limits

    @property
    def is_enabled(self) -> bool:
        """Whether the server has tokens."""
        return bool(self._secret)

    @property
    def has_short_secret(self) -> bool:
        """Whether the secret can be found by trying, from one token and its HMAC."""
        return bool(self._secret) and len(self._secret or "") < SHORTEST_SAFE_SECRET

    @cached_property
    def key_id(self) -> str:
        """The same text for the same secret, from which the secret cannot be computed.

        Tokens that were made with another secret have another key id. The first use takes
        milliseconds, so make it outside the loop. Raises DELEGATION_TOKEN_AUTH_DISABLED.
        """
        secret = self._checked_secret()
        digest = hashlib.pbkdf2_hmac("sha512", secret.encode(), _KEY_ID_SALT, MIN_ITERATIONS)
        return digest[:_KEY_ID_BYTES].hex()

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token. Raises DELEGATION_TOKEN_AUTH_DISABLED."""
        return hmac.digest(self._checked_secret().encode(), token_id.encode(), "sha512")

    def credential(self, token_id: str, mechanism: ScramMechanism, salt: bytes) -> ScramCredential:
        """Make the credential of a token. Takes milliseconds, so call it outside the loop."""
        password = encode_base64(self.hmac(token_id))
        return make_credential(mechanism, password, salt, MIN_ITERATIONS)

    def create(
        self,
        token_id: str,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        max_lifetime_ms: int,
        now_ms: int,
    ) -> DelegationToken:
        """Return a new token; a lifetime of 0 or less means the server's. Raises KafkaError.

        The caller checks whether the requester may create tokens of another owner. Kafka logs a
        client in as a user with the owner's name, so an owner of another type is refused.
        """
        if any(one.principal_type != USER_TYPE for one in (owner, *renewers)):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        key_id = self.key_id
        for one in renewers if owner == requester else (owner, *renewers):
            _check_name(one.name)
        limit_ms = self._limits.max_lifetime_ms
        lifetime_ms = min(limit_ms, max_lifetime_ms) if max_lifetime_ms > 0 else limit_ms
        max_timestamp_ms = min(_LATEST_MS, now_ms + lifetime_ms)
        token = DelegationToken(
            token_id,
            owner,
            requester,
            tuple(dict.fromkeys(renewers)),
            now_ms,
            max_timestamp_ms,
            min(max_timestamp_ms, now_ms + self._limits.expiry_time_ms),
            key_id,
        )
        if len(token.encode()) > _LONGEST_TOKEN_BYTES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the owner and the renewers are too long")
        return token

    def renew(
        self, token: DelegationToken | None, principal: Principal, period_ms: int, now_ms: int
    ) -> DelegationToken:
        """Return the token with a new expiry timestamp. Raises KafkaError.

        A period of 0 or less means the server's. A short period makes the expiry earlier.
        """
        found = self._check_known(token)
        _check_not_expired(found, now_ms)
        _check_may_change(found, principal)
        limit_ms = self._limits.expiry_time_ms
        return _expiring(found, now_ms + (min(limit_ms, period_ms) if period_ms > 0 else limit_ms))

    def expire(
        self, token: DelegationToken | None, principal: Principal, period_ms: int, now_ms: int
    ) -> DelegationToken | None:
        """Return the token with a new expiry timestamp, or None to remove it. Raises KafkaError.

        A negative period removes the token at once, also one that has expired. Kafka then answers
        with the present time as the expiry timestamp.
        """
        found = self._check_known(token)
        _check_may_change(found, principal)
        if period_ms < 0:
            return None
        _check_not_expired(found, now_ms)
        return _expiring(found, now_ms + period_ms)

    def _checked_secret(self) -> str:
        if not self._secret:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return self._secret

    def _check_known(self, token: DelegationToken | None) -> DelegationToken:
        self._checked_secret()
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token


def _check_not_expired(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_may_change(token: DelegationToken, principal: Principal) -> None:
    if not token.is_owner_or_renewer(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_name(name: str) -> None:
    """Raise INVALID_REQUEST for a name that no client can log in with."""
    try:
        check_user_name(name)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def check_token_requests_allowed(principal: Principal, used_token_id: str | None) -> None:
    """Raise DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that may not create or renew tokens.

    A client that has logged in with a token could extend its own access for ever; a client without
    a login has no identity to delegate.
    """
    if used_token_id is not None or principal == ANONYMOUS:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _expiring(token: DelegationToken, timestamp_ms: int) -> DelegationToken:
    return token._replace(expiry_timestamp_ms=min(token.max_timestamp_ms, timestamp_ms))
