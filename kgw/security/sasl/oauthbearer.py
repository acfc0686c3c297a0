"""The messages of an OAUTHBEARER client (RFC 7628). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.scram_messages import MAX_NAME_BYTES, decode_utf8

OAUTHBEARER: Final = "OAUTHBEARER"
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""The answer to a token that is not accepted. The client answers it with one byte, 0x01."""

_SEPARATOR: Final = "\x01"
_AUTH: Final = "auth"
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]+=*)")
_NAME = re.compile(r"(?:[^=,\x00-\x1f\x7f]|=2C|=3D)+")


@dataclass(frozen=True, slots=True)
class BearerMessage:
    """A token, which the text form hides, and the identity that the client asks for, or ""."""

    token: str = field(repr=False)
    authorization_id: str


def parse_oauthbearer(message: bytes) -> BearerMessage:
    """Parse the client's first message. Raises AuthenticationFailed.

    Extensions are checked and ignored, as in Kafka.
    """
    text = decode_utf8(message)
    if text is None:
        raise _failure("the message is not UTF-8")
    header, _, rest = text.partition(_SEPARATOR)
    flag, *names = header.split(",")
    if flag != "n" or len(names) != 2 or names[1]:
        raise _failure("the message does not begin with n,,")
    if not rest.endswith(_SEPARATOR + _SEPARATOR):
        raise _failure("the message does not end as RFC 7628 demands")
    pairs: dict[str, str] = {}
    for pair in rest[:-2].split(_SEPARATOR):
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise _failure("the message has a pair that is not KEY=VALUE")
        if key in pairs:
            raise _failure("the message has a key twice")
        pairs[key] = value
    bearer = _BEARER.fullmatch(pairs.get(_AUTH, ""))
    if bearer is None:
        raise _failure("the message has no auth=Bearer TOKEN")
    return BearerMessage(bearer[1], _authorization_id(names[0]))


def _authorization_id(text: str) -> str:
    if not text:
        return ""
    name = text.removeprefix("a=")
    if name == text or len(name.encode()) > MAX_NAME_BYTES or not _NAME.fullmatch(name):
        raise _failure("the message has an authorization id that is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")


def _failure(reason: str) -> AuthenticationFailed:
    return AuthenticationFailed(OAUTHBEARER, reason)
