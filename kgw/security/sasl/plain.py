"""The message of a PLAIN client (RFC 4616): authorization id, user name, password. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.scram_messages import MAX_NAME_BYTES, decode_utf8

PLAIN: Final = "PLAIN"
MAX_PASSWORD_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """A user name and a password, which the text form hides."""

    user: str
    password: str = field(repr=False)


def parse_plain(message: bytes) -> PlainMessage:
    """Parse a message. Raises AuthenticationFailed.

    Kafka ignores all bytes after a third NUL. This parser refuses the message, because two parsers
    must not read two passwords from it.
    """
    if len(message) > 2 * MAX_NAME_BYTES + MAX_PASSWORD_BYTES + 2:
        raise AuthenticationFailed(PLAIN, "the message is too long")
    parts = [decode_utf8(one) for one in message.split(b"\0")]
    if len(parts) != 3:
        raise AuthenticationFailed(PLAIN, "the message has not exactly three parts")
    authorization_id, user, password = parts
    if authorization_id is None or user is None or password is None:
        raise AuthenticationFailed(PLAIN, "the message is not UTF-8")
    if not user or not password:
        raise AuthenticationFailed(PLAIN, "the user name or the password is empty")
    if len(user.encode()) > MAX_NAME_BYTES or len(password.encode()) > MAX_PASSWORD_BYTES:
        raise AuthenticationFailed(PLAIN, "the user name or the password is too long")
    if authorization_id not in {"", user}:
        raise AuthenticationFailed(PLAIN, "the client asks for the identity of another user", user)
    return PlainMessage(user, password)
