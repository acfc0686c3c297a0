"""A SCRAM client for tests, written from RFC 5802. It deviates from the RFC if a test asks."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from functools import cache

HASHES = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}


@cache
def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Hash a password; tests ask for the same one again and again."""
    name = HASHES[mechanism]().name
    return hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)


class ScramClient:
    """One login. `bare` and `header` are sent as given, and the proof is made of what was sent."""

    def __init__(
        self,
        mechanism: str,
        password: str,
        *,
        bare: str = "n=alice,r=fyko+d2lbbFgONRv9qkxdawL",
        header: str = "n,,",
    ) -> None:
        self.mechanism = mechanism
        self.password = password
        self.bare = bare
        self.header = header
        self._server_signature = b""

    def first(self) -> bytes:
        return f"{self.header}{self.bare}".encode()

    def final(
        self,
        server_first: bytes,
        *,
        binding: str | None = None,
        nonce: str | None = None,
        template: str = "c={binding},r={nonce},p={proof}",
    ) -> bytes:
        """Return the final message; the proof is right for everything before its last comma."""
        attributes = dict(one.split("=", 1) for one in server_first.decode().split(","))
        salt, iterations = b64decode(attributes["s"]), int(attributes["i"])
        if binding is None:
            binding = b64encode(self.header.encode()).decode()
        if nonce is None:
            nonce = attributes["r"]
        without_proof = template.format(binding=binding, nonce=nonce, proof="").rpartition(",")[0]
        signed = f"{self.bare},{server_first.decode()},{without_proof}".encode()
        password = salted(self.mechanism, self.password, salt, iterations)
        client_key = self._hmac(password, b"Client Key")
        stored_key = HASHES[self.mechanism](client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(one ^ two for one, two in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(password, b"Server Key"), signed)
        return template.format(
            binding=binding, nonce=nonce, proof=b64encode(proof).decode()
        ).encode()

    def accepts(self, server_final: bytes) -> bool:
        """Return whether the server has proved that it knows the credential."""
        return server_final == b"v=" + b64encode(self._server_signature)

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, HASHES[self.mechanism]).digest()
