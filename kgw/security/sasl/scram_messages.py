"""The two messages of a SCRAM client (RFC 5802, section 7). Pure.

Both parsers are strict. They know the extension `tokenauth` of Kafka, ignore other optional
extensions as RFC 5802 demands, and refuse mandatory extensions (`m=`), repeated attributes, and
attributes in another order. Kafka's own parser takes only ASCII names; these take any UTF-8.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from kgw.security.sasl.errors import AuthenticationFailed

MAX_SCRAM_MESSAGE_BYTES: Final = 8192
MAX_NAME_BYTES: Final = 1024
"""The longest user name in UTF-8, after unescaping. RFC 4616 asks servers for at least 255."""

_NAME: Final = re.compile(r"(?:[^=,\0]|=2C|=3D)+")
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,256}")
_ATTRIBUTE: Final = re.compile(r"([A-Za-z]+)=([^\0]+)")
_RESERVED: Final = frozenset("anmrcsipve")
_TOKEN_EXTENSION: Final = "tokenauth"  # noqa: S105 - the name of an extension, not a secret


class ClientFirst(NamedTuple):
    """The first message: the client names a user."""

    gs2_header: str
    """The channel flag and the authorization id with their commas, as sent."""
    bare: str
    """The message without the header, as sent."""
    authorization_id: str | None
    user: str
    nonce: str
    is_token: bool
    """The user name is the id of a delegation token (KIP-48)."""


class ClientFinal(NamedTuple):
    """The final message: the proof that the client knows the password."""

    without_proof: str
    channel_binding: str
    """The client's repetition of the header, in base64, as sent."""
    nonce: str
    proof: bytes


def parse_client_first(message: bytes, mechanism: str) -> ClientFirst:
    """Parse the first message. Raises AuthenticationFailed."""
    text = _decode_text(message, mechanism)
    flag, _, rest = text.partition(",")
    authorization, comma, bare = rest.partition(",")
    if flag.startswith("p="):
        raise AuthenticationFailed(mechanism, "the client demands channel binding")
    if flag not in {"n", "y"} or not comma:
        raise AuthenticationFailed(mechanism, "the first message has no valid GS2 header")
    authorization_id = None
    if authorization:
        if not authorization.startswith("a="):
            raise AuthenticationFailed(mechanism, "the first message has no valid GS2 header")
        authorization_id = _unescape_name(authorization[2:], mechanism)
    attributes = _parse_attributes(bare, mechanism)
    if [name for name, _ in attributes[:2]] != ["n", "r"]:
        raise AuthenticationFailed(mechanism, "the first message does not begin with name, nonce")
    return ClientFirst(
        f"{flag},{authorization},",
        bare,
        authorization_id,
        _unescape_name(attributes[0][1], mechanism),
        _check_nonce(attributes[1][1], mechanism),
        _is_token(_check_extensions(attributes[2:], mechanism), mechanism),
    )


def parse_client_final(message: bytes, mechanism: str) -> ClientFinal:
    """Parse the final message. Raises AuthenticationFailed."""
    text = _decode_text(message, mechanism)
    attributes = _parse_attributes(text, mechanism)
    names = [name for name, _ in attributes]
    if len(names) < 3 or names[:2] != ["c", "r"] or names[-1] != "p":
        raise AuthenticationFailed(
            mechanism, "the final message is not channel binding, nonce, extensions, proof"
        )
    _check_extensions(attributes[2:-1], mechanism)
    proof = decode_base64(attributes[-1][1])
    if proof is None:
        raise AuthenticationFailed(mechanism, "the proof is not base64")
    return ClientFinal(
        text.rpartition(",")[0],
        attributes[0][1],
        attributes[1][1],
        proof,
    )


def escape_name(name: str) -> str:
    """Return the form of a user name in SCRAM messages."""
    return name.replace("=", "=3D").replace(",", "=2C")


def encode_base64(data: bytes) -> str:
    """Return the base64 text, with padding."""
    return b64encode(data).decode("ascii")


def decode_base64(text: str) -> bytes | None:
    """Return the bytes, or None for a text that `encode_base64` would not write."""
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if encode_base64(data) == text else None


def decode_utf8(data: bytes) -> str | None:
    """Return the text, or None. The decoder's exception holds the bytes, so it ends here."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _decode_text(message: bytes, mechanism: str) -> str:
    if len(message) > MAX_SCRAM_MESSAGE_BYTES:
        raise AuthenticationFailed(mechanism, "the message is too long")
    text = decode_utf8(message)
    if text is None:
        raise AuthenticationFailed(mechanism, "the message is not UTF-8")
    return text


def _parse_attributes(text: str, mechanism: str) -> list[tuple[str, str]]:
    attributes = []
    for part in text.split(","):
        match = _ATTRIBUTE.fullmatch(part)
        if match is None:
            raise AuthenticationFailed(mechanism, "the message has a malformed attribute")
        attributes.append((match[1], match[2]))
    names = [name for name, _ in attributes]
    if "m" in names:
        raise AuthenticationFailed(mechanism, "the client demands an unknown extension")
    if len(set(names)) < len(names):
        raise AuthenticationFailed(mechanism, "the message repeats an attribute")
    return attributes


def _check_extensions(extensions: list[tuple[str, str]], mechanism: str) -> dict[str, str]:
    """Return the extensions. RFC 5802 reserves the names of its own attributes."""
    if any(name in _RESERVED for name, _ in extensions):
        raise AuthenticationFailed(mechanism, "the message has an attribute in the wrong place")
    return dict(extensions)


def _is_token(extensions: dict[str, str], mechanism: str) -> bool:
    value = extensions.get(_TOKEN_EXTENSION, "false").lower()
    if value not in {"true", "false"}:
        raise AuthenticationFailed(mechanism, "tokenauth is neither true nor false")
    return value == "true"


def _unescape_name(name: str, mechanism: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise AuthenticationFailed(mechanism, "a name is not escaped correctly")
    unescaped = name.replace("=2C", ",").replace("=3D", "=")
    if len(unescaped.encode()) > MAX_NAME_BYTES:
        raise AuthenticationFailed(mechanism, "a name is too long")
    return unescaped


def _check_nonce(nonce: str, mechanism: str) -> str:
    if _NONCE.fullmatch(nonce) is None:
        raise AuthenticationFailed(mechanism, "a nonce is not 1 to 256 printable characters")
    return nonce
