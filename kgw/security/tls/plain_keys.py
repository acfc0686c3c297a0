"""The server's key and certificates as gRPC takes them: PEM without a password."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.security.tls import pem
from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.pem import CERTIFICATE, PemBlock, read_pem
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.security.tls.keystores import KeyMaterial
    from kgw.security.tls.options import TlsOptions


class PlainKey(NamedTuple):
    """A private key without a password, and certificates; all of them PEM."""

    key: bytes
    chain: bytes
    trusted: bytes
    """The certificates of authorities; empty without a truststore."""

    def __repr__(self) -> str:
        """Show no key."""
        return "PlainKey()"


def plain_key(options: TlsOptions, material: KeyMaterial) -> PlainKey:
    """Return the key of a keystore. Raises TlsSettingError if it cannot be decrypted."""
    key = material.key.encode()
    if any(block.label == pem.ENCRYPTED_KEY for block in read_pem(material.key)):
        key = _decrypted(options, key, material.key_password or "")
    return PlainKey(key, _pem(material.chain), _pem(material.trusted))


def _pem(certificates: Iterable[bytes]) -> bytes:
    return "".join(PemBlock(CERTIFICATE, one).text for one in certificates).encode()


def _decrypted(options: TlsOptions, key: bytes, password: str) -> bytes:
    field = "keystore_location" if options.keystore_location else "keystore_key"
    setting = options.setting(field)
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )
    except ImportError:
        raise TlsSettingError(
            f"{setting} has an encrypted private key, which gRPC needs decrypted: that needs an"
            f" extra of kgw: {install_command('tls')}"
        ) from None
    try:
        found = load_pem_private_key(key, password.encode())
    except (ValueError, TypeError):
        found = None
    if found is None:
        raise TlsSettingError(
            f"{setting}: the private key cannot be decrypted: {options.setting('key_password')} is"
            " wrong, or the key is damaged."
        )
    return found.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
