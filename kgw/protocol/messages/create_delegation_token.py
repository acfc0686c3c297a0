"""CreateDelegationToken (API key 38)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.describe_delegation_token import DescribedDelegationTokenRenewer


class CreateDelegationTokenRequest(schema.Request, api_key=ApiKey.CREATE_DELEGATION_TOKEN):
    """Create a token with which other processes can act as its owner (KIP-48).

    Versions:
        1: same layout; the response is sent before throttling
        3: for another owner (KIP-373)
    """

    owner_principal_type: str | None = schema.string(since=3, nullable_since=3)
    """Null: the owner is the client that sends the request."""
    owner_principal_name: str | None = schema.string(since=3, nullable_since=3)
    """Null: the owner is the client that sends the request."""
    renewers: list[DescribedDelegationTokenRenewer] = schema.array(DescribedDelegationTokenRenewer)
    max_lifetime_ms: int = schema.int64()
    """-1: the broker's limit."""


class CreateDelegationTokenResponse(schema.Response, api_key=ApiKey.CREATE_DELEGATION_TOKEN):
    """The token.

    Versions:
        1: same layout; sent before throttling, not after
        3: the principal that requested the token (KIP-373)
    """

    error_code: int = schema.int16()
    principal_type: str = schema.string()
    principal_name: str = schema.string()
    token_requester_principal_type: str = schema.string(since=3)
    token_requester_principal_name: str = schema.string(since=3)
    issue_timestamp_ms: int = schema.int64()
    expiry_timestamp_ms: int = schema.int64()
    max_timestamp_ms: int = schema.int64()
    """The time beyond which the token cannot be renewed."""
    token_id: str = schema.string()
    hmac: bytes = schema.byte_string()
    """The secret; its base64 form is the SCRAM password."""
    throttle_time_ms: int = schema.int32()
