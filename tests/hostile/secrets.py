"""Thirty secrets, each with a text that is found wherever it goes (campaign A11)."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECRETS: Final = (
    "password of the keystore in the configuration file",
    "password of the truststore in the configuration file",
    "password of the private key in the environment",
    "private key in the environment",
    "password of the state store in the environment",
    "secret of delegation tokens in the environment",
    "password in the address of the state store",
    "password in a misspelt environment variable",
    "password in a configuration file that is not TOML",
    "password as a flag, which is refused",
    "password of a keystore that it does not open",
    "header of the OTLP export",
    "header file of the OTLP export that cannot be read",
    "token of the admin side",
    "token that the admin side does not know",
    "password of a PLAIN login",
    "wrong password of a PLAIN login",
    "password in a PLAIN message without a name",
    "password in a PLAIN message with too many parts",
    "password in a token without a header",
    "password in a token before the handshake",
    "password in a token that is too long",
    "password of a SCRAM login",
    "wrong password of a SCRAM login",
    "extension of a SCRAM message",
    "salted password of a user through the API",
    "salted password of a user with too few iterations",
    "password as a setting through the API",
    "password as an unknown setting through the API",
    "password in the JAAS configuration of a listener through the API",
    "password of a user in a file of the command line",
    "password in the properties of the command line",
    "password in properties that cannot be read",
    "value of a record",
    "key of a record",
    "header of a record",
    "record of a batch that is refused",
)


def canary(secret: str) -> str:
    """Return the text of a secret: letters and digits, which no place writes in another way."""
    return f"Canary{SECRETS.index(secret):02d}a5f2Qx9{len(secret):02d}Zk"


def written(secret: str) -> Iterator[bytes]:
    """Yield the forms in which a secret could be told."""
    text = canary(secret)
    data = text.encode()
    yield data
    yield text.lower().encode()
    yield data.hex().encode()
    yield " ".join(f"{one:02x}" for one in data).encode()
    yield json.dumps(list(data)).encode()
    yield quote(text).encode()
    yield data[::-1]
    yield data.decode().encode("utf-16-le")
    # In base64 the bytes before it decide which of three texts it is.
    for before in range(3):
        encoded = b64encode(bytes(before) + data)
        # Without the characters that depend on what is before and behind it.
        yield encoded[4 if before else 0 : -4]


def leaks(outputs: Mapping[str, bytes]) -> list[str]:
    """Return which secrets are in which outputs."""
    return [
        f"{secret}: in {name}"
        for name, output in outputs.items()
        for secret in SECRETS
        if any(one in output for one in written(secret))
    ]
