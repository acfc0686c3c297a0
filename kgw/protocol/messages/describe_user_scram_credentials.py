"""DescribeUserScramCredentials (API key 50)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class UserName(schema.Struct):
    """A requested user."""

    name: str = schema.string()


class DescribeUserScramCredentialsRequest(
    schema.Request, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
):
    """Ask which SCRAM credentials users have (KIP-554)."""

    users: list[UserName] | None = schema.array(UserName, nullable_since=0)
    """Null or empty: all."""


class CredentialInfo(schema.Struct):
    """A credential."""

    mechanism: int = schema.int8()
    """1: SCRAM-SHA-256; 2: SCRAM-SHA-512."""
    iterations: int = schema.int32()


class DescribeUserScramCredentialsResult(schema.Struct):
    """One user's credentials, or the error if they cannot be returned."""

    user: str = schema.string()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    credential_infos: list[CredentialInfo] = schema.array(CredentialInfo)


class DescribeUserScramCredentialsResponse(
    schema.Response, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
):
    """The credentials, without secrets."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    results: list[DescribeUserScramCredentialsResult] = schema.array(
        DescribeUserScramCredentialsResult, may_be_encoded=True
    )
