"""AlterUserScramCredentials (API key 51)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    byte_string,
    int8,
    int16,
    int32,
    string,
)


class ScramCredentialDeletion(Struct):
    """A credential to delete."""

    name: str = string()
    mechanism: int = int8()
    """1: SCRAM-SHA-256; 2: SCRAM-SHA-512."""


class ScramCredentialUpsertion(Struct):
    """A credential to set."""

    name: str = string()
    mechanism: int = int8()
    """1: SCRAM-SHA-256; 2: SCRAM-SHA-512."""
    iterations: int = int32()
    salt: bytes = byte_string()
    salted_password: bytes = byte_string()
    """The broker never sees the password itself."""


class AlterUserScramCredentialsRequest(Request):
    """Set and delete SCRAM credentials (KIP-554)."""

    api_key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    valid_versions = (0, 0)
    flexible_since = 0

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """A user whose credentials changed, or why they did not."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class AlterUserScramCredentialsResponse(Response):
    """What became of each user."""

    api_key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
