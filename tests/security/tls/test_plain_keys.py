"""Keys for gRPC: from each kind of keystore, without a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.keystores import read_key_material
from kgw.security.tls.options import TlsOptions
from kgw.security.tls.plain_keys import PlainKey, plain_key
from kgw.security.tls.reload import CertificateFiles
from tests.security.tls.handshakes import NOW_S, PASSWORD, options, pki, with_clients

if TYPE_CHECKING:
    from pathlib import Path


def number_of(key: PlainKey) -> int:
    """Return the private number of a key that has no password."""
    read = load_pem_private_key(key.key, None)
    return int(read.private_numbers().private_value)  # type: ignore[union-attr]


EXPECTED = pki().server.private_key.private_numbers().private_value


def key_of(given: TlsOptions) -> PlainKey:
    """Return the key of these options."""
    return plain_key(given, read_key_material(given))


def test_plain_pem() -> None:
    """A key without a password is taken as it is, with its chain and the authorities."""
    key = key_of(with_clients())
    assert EXPECTED == number_of(key)
    assert pki().server.chain_pem.encode() == key.chain
    assert pki().authority.truststore_pem.encode() == key.trusted
    assert b"" == key_of(options()).trusted


def test_encrypted_keystores(tmp_path: Path) -> None:
    """An encrypted key of PEM and one of PKCS12 are decrypted."""
    encrypted = options(keystore_key=pki().server.key_pem(PASSWORD), key_password=PASSWORD)
    assert EXPECTED == number_of(key_of(encrypted))
    file = tmp_path / "server.p12"
    file.write_bytes(pki().server.keystore_pkcs12(PASSWORD))
    stored = TlsOptions(
        keystore_type="PKCS12", keystore_location=str(file), keystore_password=PASSWORD
    )
    assert EXPECTED == number_of(key_of(stored))


def test_a_wrong_password() -> None:
    """The setting is named; neither the key nor a password is in the error or its context."""
    wrong = options(keystore_key=pki().server.key_pem(PASSWORD), key_password="canary-wrong")
    with pytest.raises(
        TlsSettingError, match=r"^ssl\.keystore\.key: .* ssl\.key\.password is wrong"
    ) as caught:
        key_of(wrong)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_no_key_is_shown() -> None:
    """The text form of a key has nothing of it, also inside of what was loaded."""
    assert "PlainKey()" == repr(key_of(options()))
    files = CertificateFiles(options(), NOW_S, with_key=True)
    assert "PRIVATE" not in repr(files.first)


def test_the_key_is_kept_for_who_wants_it() -> None:
    """Without an agent's listener no key stays in memory beside the context."""
    assert None is CertificateFiles(options(), NOW_S).first.key
    assert None is not CertificateFiles(options(), NOW_S, with_key=True).first.key
