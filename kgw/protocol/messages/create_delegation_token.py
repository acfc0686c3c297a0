"""CreateDelegationToken (API key 38)."""

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


class CreatableRenewers(Struct):
    """Who besides the owner may renew it."""

    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Request):
    """Ask for a token with which others can act as the owner (KIP-48).

    Versions:
        1: same layout; the answer is sent before throttling
        3: for another owner (KIP-373)
    """

    api_key = ApiKey.CREATE_DELEGATION_TOKEN
    valid_versions = (0, 3)
    flexible_since = 2

    owner_principal_type: str | None = string(since=3, nullable_since=3)
    """Null: whoever asks."""
    owner_principal_name: str | None = string(since=3, nullable_since=3)
    """Null: whoever asks."""
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()
    """-1: the broker's limit."""


class CreateDelegationTokenResponse(Response):
    """The token.

    Versions:
        1: same layout; sent before throttling, not after
        3: who asked for it (KIP-373)
    """

    api_key = ApiKey.CREATE_DELEGATION_TOKEN
    valid_versions = (0, 3)
    flexible_since = 2

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    """Beyond which it cannot be renewed."""
    token_id: str = string()
    hmac: bytes = byte_string()
    """The secret; its base64 form is the SCRAM password."""
    throttle_time_ms: int = int32()
