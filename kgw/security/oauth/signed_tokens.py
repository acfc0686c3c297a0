"""Reads the header of a token (JWS in its compact form, RFC 7515), and checks its signature.

Needs PyJWT. Pure.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from jwt import PyJWS

from kgw.security.oauth.claims import MAX_TOKEN_BYTES
from kgw.security.oauth.errors import TokenRefused
from kgw.security.oauth.key_set import ALGORITHMS
from kgw.security.oauth.strict_json import parse_object

if TYPE_CHECKING:
    from kgw.security.oauth.key_set import VerificationKey

_MAX_HEADER_BYTES: Final = 8_192
"""Some issuers put a chain of certificates into the header."""
_MAX_KEY_ID: Final = 1_000
_FORM = re.compile(r"([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_REFUSED_NAMES: Final = ("crit", "b64", "enc", "zip")
"""Names of extensions that give a token another meaning. RFC 7515 demands that a reader refuses a
token if it does not understand an extension in `crit`."""


class TokenHeader(NamedTuple):
    """The claimed algorithm and key. Anybody can write both."""

    algorithm: str
    key_id: str | None


@dataclass(frozen=True, slots=True)
class SignedToken:
    """A token whose signature has not been checked yet. The text form hides it."""

    header: TokenHeader
    text: str = field(repr=False)

    def verified_payload(self, key: VerificationKey) -> bytes:
        """Return the claims if the key has signed them. Raises TokenRefused."""
        algorithm = self.header.algorithm
        if algorithm not in key.algorithms:
            raise TokenRefused("the key does not fit the algorithm of the token")
        payload = None
        try:
            checked = PyJWS(algorithms=[algorithm]).decode_complete(
                self.text, key.public_key, algorithms=[algorithm]
            )
            payload = checked["payload"]
        except Exception:  # noqa: BLE001 - whatever a library says of such bytes, they are refused
            # Its text may have a part of the token, and would be the context of the next error.
            payload = None
        if not isinstance(payload, bytes):
            raise TokenRefused("the signature is wrong, or the token is malformed")
        return payload


def read_token(text: str) -> SignedToken:
    """Read the header of a token. Raises TokenRefused.

    The members `jwk`, `jku`, `x5c` and `x5u`, by which a token names its own key, have no effect:
    some issuers write them, and a key is taken from the operator's key set alone.
    """
    if len(text) > MAX_TOKEN_BYTES:
        raise TokenRefused(f"the token has more than {MAX_TOKEN_BYTES} bytes")
    parts = _FORM.fullmatch(text)
    if parts is None:
        raise TokenRefused("the token is no signed JWT: it has not three parts in base64url")
    header = _header(parts[1])
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused("the algorithm of the token is not accepted")
    if any(name in header for name in _REFUSED_NAMES):
        raise TokenRefused("the header of the token demands an extension")
    if str(header.get("cty", "")).lower() in {"jwt", "application/jwt"}:
        raise TokenRefused("the token contains another token")
    key_id = header.get("kid")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _MAX_KEY_ID):
        raise TokenRefused("the key id of the token is no string, or too long")
    return SignedToken(TokenHeader(algorithm, key_id), text)


def _header(part: str) -> dict[str, object]:
    header = None
    if len(part) <= _MAX_HEADER_BYTES:
        try:
            header = parse_object(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        except (ValueError, Base64Error):
            header = None
    if header is None:
        raise TokenRefused("the header of the token is no JSON object, or too long")
    return header
