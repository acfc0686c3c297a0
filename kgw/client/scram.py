"""The client's side of SCRAM (RFC 5802, RFC 7677) and of PLAIN (RFC 4616). Pure.

As in Kafka, names and passwords are UTF-8 and are not normalized, and there is no channel binding.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, NamedTuple

from kgw.security.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS

if TYPE_CHECKING:
    from kgw.security.sasl.scram import ScramMechanism

_GS2_HEADER = "n,,"
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ITERATIONS = re.compile(r"[1-9][0-9]{0,9}")
_LONGEST_MESSAGE_BYTES = 4_096


class ScramError(Exception):
    """The server's message breaks the rules, or the server has not proved its knowledge."""


class ServerFirst(NamedTuple):
    """The server's first message."""

    message: str
    nonce: str
    salt: bytes
    iterations: int


def plain_token(user: str, password: str) -> bytes:
    """Return the only message of PLAIN."""
    return b"\0".join((b"", user.encode(), password.encode()))


class ScramClient:
    """One login with SCRAM: `first`, `challenge`, `final`, `check`, in this order."""

    def __init__(
        self, mechanism: ScramMechanism, user: str, nonce: str, *, is_token: bool = False
    ) -> None:
        """`nonce` must be new and random; `is_token` says that the user is a delegation token."""
        self.mechanism = mechanism
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if is_token else ""
        self._first_bare = f"n={name},r={nonce}{extension}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def challenge(self, message: bytes) -> ServerFirst:
        """Parse and check the server's first message. Raises ScramError."""
        text = _text(message)
        _check_error(text)
        attributes = text.split(",")
        if attributes[0].startswith("m="):
            raise ScramError("the server demands an extension of SCRAM that is not known")
        names = [one[:2] for one in attributes[:3]]
        if names != ["r=", "s=", "i="]:
            raise ScramError("the server's first message has not the form of SCRAM")
        nonce, salt, iterations = (one[2:] for one in attributes[:3])
        if not _NONCE.fullmatch(nonce) or not nonce.startswith(self._nonce):
            raise ScramError("the server's nonce does not begin with the client's")
        if len(nonce) == len(self._nonce):
            raise ScramError("the server has added nothing to the client's nonce")
        if not _ITERATIONS.fullmatch(iterations):
            raise ScramError("the server's number of iterations is no number")
        count = int(iterations)
        if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
            raise ScramError(
                f"the server asks for {count} iterations; "
                f"{MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed"
            )
        salt_bytes = _decode(salt)
        if not salt_bytes:
            raise ScramError("the server's salt is empty")
        return ServerFirst(text, nonce, salt_bytes, count)

    def final(self, challenge: ServerFirst, salted_password: bytes) -> bytes:
        """Return the client's final message, with the proof."""
        without_proof = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={challenge.nonce}"
        signed = f"{self._first_bare},{challenge.message},{without_proof}".encode()
        client_key = self._hmac(salted_password, b"Client Key")
        stored_key = hashlib.new(self.mechanism.hash_name, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted_password, b"Server Key"), signed)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def check(self, message: bytes) -> None:
        """Check the server's final message. Raises ScramError unless the server has proved itself.

        Only then is the login done: a server without the password's keys can accept any proof.
        """
        text = _text(message)
        _check_error(text)
        verifier = text.partition(",")[0]
        if not verifier.startswith("v="):
            raise ScramError("the server's final message has not the form of SCRAM")
        expected = self._signature
        if expected is None or not hmac.compare_digest(expected, _decode(verifier[2:])):
            raise ScramError("the server has not proved that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.mechanism.hash_name)


def _text(message: bytes) -> str:
    if len(message) > _LONGEST_MESSAGE_BYTES:
        raise ScramError("the server's message is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("the server's message is not UTF-8") from None


def _check_error(text: str) -> None:
    if text.startswith("e="):
        raise ScramError(f"the server says {text[2:].partition(',')[0]!r}")


def _decode(text: str) -> bytes:
    try:
        return b64decode(text.encode(), validate=True)
    except Base64Error:
        raise ScramError("the server's message has a field that is not base64") from None
