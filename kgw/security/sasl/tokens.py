"""The rules by which delegation tokens (KIP-48) are created, renewed and expired. Pure.

The rules are those of Kafka's `DelegationTokenControlManager`. A token is used with SCRAM: its id
is the user name, and its HMAC in base64 is the password.
"""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.security.principal import ANONYMOUS, USER_TYPE, Principal, parse_principal
from kgw.security.sasl.scram import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    make_credential,
)
from kgw.security.sasl.scram_messages import encode_base64

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_TIMESTAMPS: Final = ("issue_timestamp_ms", "max_timestamp_ms", "expiry_timestamp_ms")


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

    def is_expired(self, now_ms: int) -> bool:
        return self.max_timestamp_ms < now_ms or self.expiry_timestamp_ms < now_ms

    def is_owner_or_renewer(self, principal: Principal) -> bool:
        """Return whether the principal may renew, expire and always describe the token."""
        return principal == self.owner or principal in self.renewers

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
        }
        return _ENCODER.encode(fields).encode()


def decode_token(value: bytes) -> DelegationToken:
    """Decode the output of `DelegationToken.encode`. Raises ValueError for other bytes."""
    try:
        fields = json.loads(value)
        token_id = fields["token_id"]
        timestamps = [fields[name] for name in _TIMESTAMPS]
        token = DelegationToken(
            token_id,
            parse_principal(fields["owner"]),
            parse_principal(fields["requester"]),
            tuple(parse_principal(one) for one in fields["renewers"]),
            *timestamps,
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a stored delegation token: {error!r}") from error
    if not token_id or not isinstance(token_id, str):
        raise ValueError("not a stored delegation token: it has no id")
    if any(type(one) is not int for one in timestamps):
        raise ValueError("not a stored delegation token: a timestamp is not a number")
    return token


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

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token. Raises DELEGATION_TOKEN_AUTH_DISABLED."""
        if not self._secret:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return hmac.digest(self._secret.encode(), token_id.encode(), "sha512")

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
        self._check_enabled()
        if any(one.principal_type != USER_TYPE for one in (owner, *renewers)):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        limit_ms = self._limits.max_lifetime_ms
        max_timestamp_ms = now_ms + (
            min(limit_ms, max_lifetime_ms) if max_lifetime_ms > 0 else limit_ms
        )
        return DelegationToken(
            token_id,
            owner,
            requester,
            tuple(renewers),
            now_ms,
            max_timestamp_ms,
            min(max_timestamp_ms, now_ms + self._limits.expiry_time_ms),
        )

    def renew(
        self, token: DelegationToken | None, principal: Principal, period_ms: int, now_ms: int
    ) -> DelegationToken:
        """Return the token with a new expiry timestamp. Raises KafkaError.

        A period of 0 or less means the server's. A short period makes the expiry earlier.
        """
        found = self._check_change(token, principal, now_ms)
        limit_ms = self._limits.expiry_time_ms
        return _expiring(found, now_ms + (min(limit_ms, period_ms) if period_ms > 0 else limit_ms))

    def expire(
        self, token: DelegationToken | None, principal: Principal, period_ms: int, now_ms: int
    ) -> DelegationToken | None:
        """Return the token with a new expiry timestamp, or None to remove it. Raises KafkaError.

        A negative period removes the token at once. Kafka then answers with the period of the
        request as the expiry timestamp.
        """
        found = self._check_change(token, principal, now_ms)
        return None if period_ms < 0 else _expiring(found, now_ms + period_ms)

    def _check_enabled(self) -> None:
        if not self._secret:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def _check_change(
        self, token: DelegationToken | None, principal: Principal, now_ms: int
    ) -> DelegationToken:
        """Return the token. The order of the checks is Kafka's."""
        self._check_enabled()
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if token.is_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if not token.is_owner_or_renewer(principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token


def check_token_requests_allowed(principal: Principal, used_token_id: str | None) -> None:
    """Raise DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that may not create or renew tokens.

    A client that has logged in with a token could extend its own access for ever; a client without
    a login has no identity to delegate.
    """
    if used_token_id is not None or principal == ANONYMOUS:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _expiring(token: DelegationToken, timestamp_ms: int) -> DelegationToken:
    return token._replace(expiry_timestamp_ms=min(token.max_timestamp_ms, timestamp_ms))
