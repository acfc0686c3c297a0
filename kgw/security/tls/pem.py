"""Splits PEM text into blocks, and writes blocks in the form that OpenSSL reads. Pure.

A value in a properties file has lost its line ends: Kafka accepts it, OpenSSL does not.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

_BLOCK: Final = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----((?:(?!-----).)*)-----END \1-----", re.DOTALL
)
_LINE_CHARACTERS: Final = 64

CERTIFICATE: Final = "CERTIFICATE"
ENCRYPTED_KEY: Final = "ENCRYPTED PRIVATE KEY"
PLAIN_KEYS: Final = frozenset({"PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"})
REVOCATION_LIST: Final = "X509 CRL"


class PemBlock(NamedTuple):
    """One block of PEM."""

    label: str
    der: bytes

    def __repr__(self) -> str:
        """Show no key."""
        return f"PemBlock({self.label}, {len(self.der)} bytes)"

    @property
    def text(self) -> str:
        """The block as PEM, with lines of 64 characters."""
        encoded = b64encode(self.der).decode()
        lines = [
            encoded[start : start + _LINE_CHARACTERS]
            for start in range(0, len(encoded), _LINE_CHARACTERS)
        ]
        return "\n".join([f"-----BEGIN {self.label}-----", *lines, f"-----END {self.label}-----\n"])


def read_pem(text: str) -> list[PemBlock]:
    """Return the blocks of a text. Raises ValueError, whose message has nothing of the text."""
    blocks: list[PemBlock] = []
    for label, body in _BLOCK.findall(text):
        if ":" in body:
            # Headers, as older programs of OpenSSL write them: Proc-Type, DEK-Info.
            raise ValueError(f"the {label} is encrypted in an old form: convert it to PKCS#8")
        try:
            blocks.append(PemBlock(label, b64decode("".join(body.split()), validate=True)))
        except ValueError:
            raise ValueError(f"the {label} is damaged") from None
    if text.count("-----BEGIN ") != len(blocks):
        raise ValueError("a block of the PEM has no end")
    return blocks
