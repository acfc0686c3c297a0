"""The user and the password in an Authorization header: HTTP Basic (RFC 7617). Pure."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Final

from kgw.security.sasl.errors import AuthenticationFailed

BASIC: Final = "Basic"


def credentials_of(header: bytes, scheme: str) -> bytes | None:
    """Return the credentials in a header; None if the header has another scheme."""
    given, _, credentials = header.partition(b" ")
    if given.lower() != scheme.lower().encode():
        return None
    return credentials.strip(b" ")


def plain_message(credentials: bytes) -> bytes:
    """Return the credentials of HTTP Basic as the message of a PLAIN client (RFC 4616).

    `parse_plain` refuses what is wrong with the user and the password, which may contain a NUL.
    Raises AuthenticationFailed if these bytes are no credentials.
    """
    decoded = _decode(credentials)
    if decoded is None:
        raise AuthenticationFailed(BASIC, "the credentials are not base64")
    user, colon, password = decoded.partition(b":")
    if not colon:
        raise AuthenticationFailed(BASIC, "no colon stands between the user and the password")
    return b"\0" + user + b"\0" + password


def _decode(credentials: bytes) -> bytes | None:
    try:
        return b64decode(credentials, validate=True)
    except (binascii.Error, ValueError):
        return None
