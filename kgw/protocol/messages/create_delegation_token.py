"""CreateDelegationToken (API key 38)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class CreatableRenewers(schema.Struct):
    """Who besides the owner may renew it."""

    principal_type: str = schema.string()
    principal_name: str = schema.string()


class CreateDelegationTokenRequest(schema.Request, api_key=ApiKey.CREATE_DELEGATION_TOKEN):
    """Ask for a token with which others can act as the owner (KIP-48).

    Versions:
        1: same layout; the answer is sent before throttling
        3: for another owner (KIP-373)
    """

    owner_principal_type: str | None = schema.string(since=3, nullable_since=3)
    """Null: whoever asks."""
    owner_principal_name: str | None = schema.string(since=3, nullable_since=3)
    """Null: whoever asks."""
    renewers: list[CreatableRenewers] = schema.array(CreatableRenewers)
    max_lifetime_ms: int = schema.int64()
    """-1: the broker's limit."""


class CreateDelegationTokenResponse(schema.Response, api_key=ApiKey.CREATE_DELEGATION_TOKEN):
    """The token.

    Versions:
        1: same layout; sent before throttling, not after
        3: who asked for it (KIP-373)
    """

    error_code: int = schema.int16()
    principal_type: str = schema.string()
    principal_name: str = schema.string()
    token_requester_principal_type: str = schema.string(since=3)
    token_requester_principal_name: str = schema.string(since=3)
    issue_timestamp_ms: int = schema.int64()
    expiry_timestamp_ms: int = schema.int64()
    max_timestamp_ms: int = schema.int64()
    """Beyond which it cannot be renewed."""
    token_id: str = schema.string()
    hmac: bytes = schema.byte_string()
    """The secret; its base64 form is the SCRAM password."""
    throttle_time_ms: int = schema.int32()
