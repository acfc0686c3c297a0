"""AlterUserScramCredentials (API key 51)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ScramCredentialDeletion(schema.Struct):
    """A credential to delete."""

    name: str = schema.string()
    mechanism: int = schema.int8()
    """1: SCRAM-SHA-256; 2: SCRAM-SHA-512."""


class ScramCredentialUpsertion(schema.Struct):
    """A credential to set."""

    name: str = schema.string()
    mechanism: int = schema.int8()
    """1: SCRAM-SHA-256; 2: SCRAM-SHA-512."""
    iterations: int = schema.int32()
    salt: bytes = schema.byte_string()
    salted_password: bytes = schema.byte_string()
    """The broker never sees the password itself."""


class AlterUserScramCredentialsRequest(schema.Request, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    """Set and delete SCRAM credentials (KIP-554)."""

    deletions: list[ScramCredentialDeletion] = schema.array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = schema.array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(schema.Struct):
    """A user whose credentials changed, or the error that prevented it."""

    user: str = schema.string()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)


class AlterUserScramCredentialsResponse(
    schema.Response, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS
):
    """The result for each user."""

    throttle_time_ms: int = schema.int32()
    results: list[AlterUserScramCredentialsResult] = schema.array(
        AlterUserScramCredentialsResult, may_be_encoded=True
    )
