"""DescribeDelegationToken (API key 41)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    byte_string,
    int16,
    int32,
    int64,
    string,
)


class DescribeDelegationTokenOwner(Struct):
    """An owner whose tokens are asked for."""

    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Request):
    """List tokens (KIP-48).

    Versions:
        1: same layout; the answer is sent before throttling
        3: same layout; the answer tells who asked for each (KIP-373)
    """

    api_key = ApiKey.DESCRIBE_DELEGATION_TOKEN
    valid_versions = (0, 3)
    flexible_since = 2

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable_since=0
    )
    """Null: all."""


class DescribedDelegationTokenRenewer(Struct):
    """Who besides the owner may renew it."""

    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Struct):
    """A token."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp: int = int64()
    """In milliseconds, as the two that follow."""
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    """Beyond which it cannot be renewed."""
    token_id: str = string()
    hmac: bytes = byte_string()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Response):
    """The tokens.

    Versions:
        1: same layout; sent before throttling, not after
        3: who asked for each (KIP-373)
    """

    api_key = ApiKey.DESCRIBE_DELEGATION_TOKEN
    valid_versions = (0, 3)
    flexible_since = 2

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
