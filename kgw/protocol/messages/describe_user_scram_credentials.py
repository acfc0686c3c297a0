"""DescribeUserScramCredentials (API key 50)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class UserName(Struct):
    """A user asked about."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Request):
    """Ask which SCRAM credentials users have (KIP-554)."""

    api_key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    valid_versions = (0, 0)
    flexible_since = 0

    users: list[UserName] | None = array(UserName, nullable_since=0)
    """Null or empty: all."""


class CredentialInfo(Struct):
    """A credential."""

    mechanism: int = int8()
    """1: SCRAM-SHA-256; 2: SCRAM-SHA-512."""
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    """One user's credentials, or why they cannot be told."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Response):
    """The credentials, without anything secret."""

    api_key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
