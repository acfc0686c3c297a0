"""DescribeDelegationToken (API key 41)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribeDelegationTokenOwner(schema.Struct):
    """An owner whose tokens are asked for."""

    principal_type: str = schema.string()
    principal_name: str = schema.string()


class DescribeDelegationTokenRequest(schema.Request, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    """List tokens (KIP-48).

    Versions:
        1: same layout; the answer is sent before throttling
        3: same layout; the answer tells who asked for each (KIP-373)
    """

    owners: list[DescribeDelegationTokenOwner] | None = schema.array(
        DescribeDelegationTokenOwner, nullable_since=0
    )
    """Null: all."""


class DescribedDelegationTokenRenewer(schema.Struct):
    """Who besides the owner may renew it."""

    principal_type: str = schema.string()
    principal_name: str = schema.string()


class DescribedDelegationToken(schema.Struct):
    """A token."""

    principal_type: str = schema.string()
    principal_name: str = schema.string()
    token_requester_principal_type: str = schema.string(since=3)
    token_requester_principal_name: str = schema.string(since=3)
    issue_timestamp: int = schema.int64()
    """In milliseconds, as the two that follow."""
    expiry_timestamp: int = schema.int64()
    max_timestamp: int = schema.int64()
    """Beyond which it cannot be renewed."""
    token_id: str = schema.string()
    hmac: bytes = schema.byte_string()
    renewers: list[DescribedDelegationTokenRenewer] = schema.array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(schema.Response, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    """The tokens.

    Versions:
        1: same layout; sent before throttling, not after
        3: who asked for each (KIP-373)
    """

    error_code: int = schema.int16()
    tokens: list[DescribedDelegationToken] = schema.array(DescribedDelegationToken)
    throttle_time_ms: int = schema.int32()
