"""DescribeDelegationToken (API key 41)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribeDelegationTokenOwner(schema.Struct):
    """An owner whose tokens are requested."""

    principal_type: str = schema.string()
    principal_name: str = schema.string()


class DescribeDelegationTokenRequest(schema.Request, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    """List tokens (KIP-48).

    Versions:
        1: same layout; the response is sent before throttling
        3: same layout; the response has the principals that requested the tokens (KIP-373)
    """

    owners: list[DescribeDelegationTokenOwner] | None = schema.array(
        DescribeDelegationTokenOwner, nullable_since=0
    )
    """Null: all."""


class DescribedDelegationTokenRenewer(schema.Struct):
    """A principal, besides the owner, that may renew the token."""

    principal_type: str = schema.string()
    principal_name: str = schema.string()


class DescribedDelegationToken(schema.Struct):
    """A token."""

    principal_type: str = schema.string()
    principal_name: str = schema.string()
    token_requester_principal_type: str = schema.string(since=3)
    token_requester_principal_name: str = schema.string(since=3)
    issue_timestamp: int = schema.int64()
    """In milliseconds, as `expiry_timestamp` and `max_timestamp`."""
    expiry_timestamp: int = schema.int64()
    max_timestamp: int = schema.int64()
    """The time beyond which the token cannot be renewed."""
    token_id: str = schema.string()
    hmac: bytes = schema.byte_string()
    renewers: list[DescribedDelegationTokenRenewer] = schema.array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(schema.Response, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    """The tokens.

    Versions:
        1: same layout; sent before throttling, not after
        3: the principal that requested each token (KIP-373)
    """

    error_code: int = schema.int16()
    tokens: list[DescribedDelegationToken] = schema.array(
        DescribedDelegationToken, may_be_encoded=True
    )
    throttle_time_ms: int = schema.int32()
