"""Reads keystores and truststores: PEM as Kafka has it, and PKCS12."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.security.tls import pem
from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.options import CONVERT, PEM, TlsOptions, check_options
from kgw.security.tls.pem import PemBlock, read_pem
from kgw.security.tls.x509 import Certificate, distinguished_name, read_certificate
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_MAX_FILE_BYTES: Final = 16 << 20
_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_SEQUENCE: Final = b"\x30"


class KeyMaterial(NamedTuple):
    """The contents of a listener's keystore and truststore."""

    key: str
    """The private key as PEM."""
    key_password: str | None
    chain: tuple[bytes, ...]
    """Certificates in DER, the server's own one first."""
    trusted: tuple[bytes, ...]
    """Certificates of authorities in DER."""

    def __repr__(self) -> str:
        """Show no key."""
        return f"KeyMaterial({len(self.chain)} in the chain, {len(self.trusted)} trusted)"


def read_key_material(options: TlsOptions) -> KeyMaterial:
    """Check the options and read the files that they name. Raises TlsSettingError."""
    check_options(options)
    trusted = _read_truststore(options)
    if options.keystore_location and options.keystore_type != PEM:
        return _read_pkcs12_keystore(options, options.keystore_location, trusted)
    location = options.setting("keystore_location")
    if options.keystore_location:
        key_setting = chain_setting = location
        blocks = _read_pem_file(location, options.keystore_location)
        keys = chain = blocks
    else:
        key_setting = options.setting("keystore_key")
        chain_setting = options.setting("keystore_certificate_chain")
        keys = _read_pem_text(key_setting, options.keystore_key or "")
        chain = _read_pem_text(chain_setting, options.keystore_certificate_chain or "")
    return KeyMaterial(
        _only_key(options, key_setting, keys),
        options.key_password,
        _certificates(chain_setting, chain),
        trusted,
    )


def validity_warnings(options: TlsOptions, material: KeyMaterial, now_s: float) -> list[str]:
    """Return a sentence for each certificate that has expired or is not valid yet."""
    keystore, truststore = _keystore_field(options), "truststore_location"
    if not options.truststore_location:
        truststore = "truststore_certificates"
    return [
        f"{options.setting(field)}: {sentence}"
        for field, certificates in ((keystore, material.chain), (truststore, material.trusted))
        for certificate in certificates
        if (sentence := _validity_warning(read_certificate(certificate), now_s))
    ]


def server_certificate(options: TlsOptions, material: KeyMaterial) -> tuple[str, float] | None:
    """Return the setting and the name of the server's own certificate, and when it expires."""
    if not material.chain:
        return None
    certificate = read_certificate(material.chain[0])
    setting = options.setting(_keystore_field(options))
    return f"{setting}: the certificate {_name(certificate)}", certificate.not_after_s


def key_file_warning(setting: str, path: str, mode: int, *, owner: int, user: int) -> str | None:
    """Return a sentence about a file with a private key that other users can use; or None.

    `owner` is the user id of the file, `user` that of the server. A server can read a file of root
    only through its group, as Kubernetes and systemd arrange it: then the group may read it.
    """
    is_given_by_root = owner == 0 != user
    if not mode & (0o037 if is_given_by_root else 0o077):
        return None
    return (
        f"{setting}: {path} has a private key, and its mode {mode & 0o777:04o} opens it to other"
        f" users: set the mode to {'0640' if is_given_by_root else '0600'}."
    )


def _keystore_field(options: TlsOptions) -> str:
    return "keystore_location" if options.keystore_location else "keystore_certificate_chain"


def _validity_warning(certificate: Certificate, now_s: float) -> str | None:
    if now_s > certificate.not_after_s:
        return (
            f"the certificate {_name(certificate)} expired on {date_text(certificate.not_after_s)}."
        )
    if now_s < certificate.not_before_s:
        begins = date_text(certificate.not_before_s)
        return f"the certificate {_name(certificate)} is not valid before {begins}."
    return None


def _name(certificate: Certificate) -> str:
    try:
        return distinguished_name(certificate.subject)
    except ValueError:
        return certificate.subject.hex()


def date_text(time_s: float) -> str:
    """Return a time as the log shows it."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d at %H:%M:%S UTC")


# --- PEM ---


def _read_pem_file(setting: str, path: str) -> list[PemBlock]:
    data = _read_file(setting, path)
    if data.startswith(_SEQUENCE):
        kind = setting.removesuffix("location") + "type"
        raise TlsSettingError(f"{setting}: {path} is not PEM; if it is PKCS12, set {kind}=PKCS12.")
    return _read_pem_text(setting, data.decode("ascii", "replace"), f"{setting}: {path}")


def _read_pem_text(setting: str, text: str, subject: str | None = None) -> list[PemBlock]:
    subject = subject or setting
    try:
        blocks = read_pem(text)
    except ValueError as error:
        raise TlsSettingError(f"{subject} cannot be read: {error}.") from None
    if not blocks:
        raise TlsSettingError(f"{subject} is not PEM: it has no line -----BEGIN ...-----.")
    return blocks


def _only_key(options: TlsOptions, setting: str, blocks: Iterable[PemBlock]) -> str:
    keys = [one for one in blocks if one.label in pem.PLAIN_KEYS or one.label == pem.ENCRYPTED_KEY]
    if not keys:
        raise TlsSettingError(
            f"{setting} has no private key: PEM with BEGIN PRIVATE KEY is needed."
        )
    if len(keys) > 1:
        raise TlsSettingError(f"{setting} has {len(keys)} private keys; it must have one.")
    if keys[0].label == pem.ENCRYPTED_KEY and not options.key_password:
        raise TlsSettingError(
            f"{setting} has an encrypted private key, but {options.setting('key_password')} is not"
            " set."
        )
    return keys[0].text


def _certificates(setting: str, blocks: Iterable[PemBlock]) -> tuple[bytes, ...]:
    certificates = tuple(one.der for one in blocks if one.label == pem.CERTIFICATE)
    if not certificates:
        raise TlsSettingError(
            f"{setting} has no certificate: PEM with BEGIN CERTIFICATE is needed."
        )
    _check_certificates(setting, certificates)
    return certificates


def _check_certificates(setting: str, certificates: Iterable[bytes]) -> None:
    for position, certificate in enumerate(certificates, 1):
        try:
            read_certificate(certificate)
        except ValueError:
            raise TlsSettingError(f"{setting}: its certificate {position} is damaged.") from None


def _read_truststore(options: TlsOptions) -> tuple[bytes, ...]:
    location = options.setting("truststore_location")
    if options.truststore_location and options.truststore_type != PEM:
        return _read_pkcs12_truststore(options, options.truststore_location)
    if options.truststore_location:
        setting = location
        blocks = _read_pem_file(location, options.truststore_location)
    elif options.truststore_certificates:
        setting = options.setting("truststore_certificates")
        blocks = _read_pem_text(setting, options.truststore_certificates)
    else:
        return ()
    if any(one.label == pem.REVOCATION_LIST for one in blocks):
        # To ignore the list would accept the certificates that it revokes.
        raise TlsSettingError(f"{setting} has a certificate revocation list, which kgw cannot use.")
    return _certificates(setting, blocks)


# --- PKCS12 ---


def _read_pkcs12_keystore(
    options: TlsOptions, path: str, trusted: tuple[bytes, ...]
) -> KeyMaterial:
    setting = options.setting("keystore_location")
    password = options.keystore_password
    if options.key_password and options.key_password != password:
        raise TlsSettingError(
            f"{options.setting('key_password')} differs from"
            f" {options.setting('keystore_password')}: in PKCS12 both are the same password."
        )
    store = _load_pkcs12(setting, path, password, options.setting("keystore_password"))
    if store.key is None or store.cert is None:
        raise TlsSettingError(f"{setting}: {path} has no private key with its certificate.")
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
    )

    # OpenSSL gets the key encrypted under a password that this process alone knows.
    once = token_hex(32)
    key = store.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(once.encode())
    ).decode()
    first = store.cert.certificate.public_bytes(Encoding.DER)
    others = [one.certificate.public_bytes(Encoding.DER) for one in store.additional_certs]
    _check_certificates(setting, [first, *others])
    return KeyMaterial(key, once, _chain_of(first, others), trusted)


def _read_pkcs12_truststore(options: TlsOptions, path: str) -> tuple[bytes, ...]:
    setting = options.setting("truststore_location")
    password_setting = options.setting("truststore_password")
    store = _load_pkcs12(setting, path, options.truststore_password, password_setting)
    from cryptography.hazmat.primitives.serialization import Encoding

    found = [store.cert, *store.additional_certs] if store.cert else store.additional_certs
    trusted = tuple(one.certificate.public_bytes(Encoding.DER) for one in found)
    if not trusted:
        raise TlsSettingError(f"{setting}: {path} has no certificate.")
    _check_certificates(setting, trusted)
    return trusted


def _load_pkcs12(
    setting: str, path: str, password: str | None, password_setting: str
) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise TlsSettingError(
            f"{setting} is PKCS12, which needs an extra of kgw: {install_command('tls')}"
        ) from None
    data = _read_file(setting, path)
    if not data.startswith(_SEQUENCE):
        hint = ""
        if b"-----BEGIN " in data:
            hint = f"; it is PEM, so set {setting.removesuffix('location')}type=PEM"
        raise TlsSettingError(f"{setting}: {path} is not PKCS12{hint}.")
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except UnsupportedAlgorithm:
        raise TlsSettingError(
            f"{setting}: {path} is encrypted with an algorithm that is too old; write it again"
            " with a present keytool or openssl."
        ) from None
    except (ValueError, TypeError):
        raise TlsSettingError(
            f"{setting}: {path} cannot be opened: {password_setting} is wrong, or the file is"
            " damaged."
        ) from None


def _chain_of(first: bytes, others: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return a certificate and its issuers in order, which PKCS12 does not keep."""
    by_subject = {read_certificate(one).subject: one for one in others}
    chain = [first]
    while issuer := by_subject.pop(read_certificate(chain[-1]).issuer, None):
        if issuer not in chain:
            chain.append(issuer)
    return tuple(chain)


# --- files ---


def _read_file(setting: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TlsSettingError(f"{setting}: cannot read {path}: {error.strerror}.") from None
    if not data:
        raise TlsSettingError(f"{setting}: {path} is empty.")
    if len(data) > _MAX_FILE_BYTES:
        raise TlsSettingError(f"{setting}: {path} is larger than {_MAX_FILE_BYTES} bytes.")
    if data.startswith(_JKS):
        raise TlsSettingError(
            f"{setting}: {path} is a JKS keystore, which kgw cannot read; {CONVERT}"
        )
    return data
