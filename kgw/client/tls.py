"""TLS of the client: its context, and error texts for failed handshakes.

Certificates and keys are PEM, or PKCS12 through the package cryptography. No error text has a
password or a part of a file.
"""

from __future__ import annotations

import os
import re
import ssl
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, NamedTuple

from kgw.client.errors import ClientError, HungUpError, TlsError
from kgw.config.properties import PropertyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.client.client_properties import GivenProperties

_TYPES = ("PEM", "PKCS12")
_JKS = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE = 0x30
_LINE = 64
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_KEY_OF = {
    "ssl.keystore.certificate.chain": "ssl.keystore.key",
    "ssl.certificate.location": "ssl.key.location",
}
"""For each property with the client's certificate, the property with its private key."""
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class _Store(NamedTuple):
    """A store of Kafka: a truststore or a keystore."""

    what: str

    @property
    def location(self) -> str:
        return f"ssl.{self.what}.location"

    @property
    def type(self) -> str:
        return f"ssl.{self.what}.type"

    @property
    def password(self) -> str:
        return f"ssl.{self.what}.password"


_TRUST, _KEY = _Store("truststore"), _Store("keystore")


def client_context(given: GivenProperties) -> ssl.SSLContext:
    """Return the context that the properties ask for. Raises PropertyError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions(context, given)
    context.check_hostname = _checks_name(given)
    context.verify_mode = ssl.CERT_REQUIRED
    # As in Java, a certificate of the truststore is trusted whoever has signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load_trust(context, given)
    _load_identity(context, given)
    return context


def _set_versions(context: ssl.SSLContext, given: GivenProperties) -> None:
    name = "ssl.enabled.protocols"
    versions = [one.strip() for one in given.text(name).split(",") if one.strip()]
    for one in versions:
        if one not in _VERSIONS:
            raise PropertyError(name, f"a version is refused: {' and '.join(_VERSIONS)} are spoken")
    enabled = sorted(_VERSIONS[one] for one in versions or _VERSIONS)
    context.minimum_version, context.maximum_version = enabled[0], enabled[-1]


def _checks_name(given: GivenProperties) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    if not given.has(name):
        return True
    algorithm = given.text(name)
    if algorithm.lower() not in {"https", "none", ""}:
        raise PropertyError(name, "it is neither https nor empty")
    return algorithm.lower() == "https"


# --- trusted certificates ---


def _load_trust(context: ssl.SSLContext, given: GivenProperties) -> None:
    name = _only_one(
        given, ("ssl.truststore.certificates", "ssl.truststore.location", "ssl.ca.location")
    )
    if name is None or (name == "ssl.ca.location" and given.text(name) == "probe"):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    if name == "ssl.truststore.certificates":
        certificates = _certificates(given.text(name), name)
    elif name == "ssl.ca.location":
        certificates = _certificates(_pem_text(_read(given, name), name, None), name)
    else:
        certificates = _stored_trust(given)
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        raise PropertyError(name, "it has a certificate that cannot be read") from None


def _stored_trust(given: GivenProperties) -> str:
    name = _TRUST.location
    content = _read(given, name)
    if _type_of(content, given, _TRUST) == "PEM":
        _refuse_password(given, _TRUST)
        return _certificates(_pem_text(content, name, _TRUST), name)
    _, certificates = _open_pkcs12(content, given, _TRUST)
    return _certificates(certificates, name)


# --- the client's own certificate ---


def _load_identity(context: ssl.SSLContext, given: GivenProperties) -> None:
    name = _only_one(
        given,
        ("ssl.keystore.certificate.chain", "ssl.keystore.location", "ssl.certificate.location"),
    )
    key = _only_one(given, ("ssl.keystore.key", "ssl.key.location"))
    if name is None or name not in _KEY_OF:
        if key is not None:
            certificate = next(one for one, its_key in _KEY_OF.items() if its_key == key)
            raise PropertyError(key, f"{certificate} is missing")
        if name is None:
            return
        pem, password = _stored_identity(given)
    else:
        if key != _KEY_OF[name]:
            raise PropertyError(name, f"{_KEY_OF[name]} is missing")
        texts = [
            given.text(one)
            if name == "ssl.keystore.certificate.chain"
            else _pem_text(_read(given, one), one, None)
            for one in (name, key)
        ]
        pem = _certificates(texts[0], name) + _private_key(texts[1], key)
        password = given.text("ssl.key.password")
    with _as_file(pem) as path:
        try:
            # Without the function OpenSSL would ask for the password at the terminal.
            context.load_cert_chain(path, password=lambda: password)
        except (ssl.SSLError, ValueError) as error:
            raise PropertyError(*_unloaded(error, name, is_encrypted="ENCRYPTED" in pem)) from None


def _stored_identity(given: GivenProperties) -> tuple[str, str]:
    """Return the keystore's key and certificates as PEM, and the password of the key."""
    name = _KEY.location
    content = _read(given, name)
    if _type_of(content, given, _KEY) == "PEM":
        _refuse_password(given, _KEY)
        text = _pem_text(content, name, _KEY)
        pem = _certificates(text, name) + _private_key(text, name)
        return pem, given.text("ssl.key.password")
    key, certificates = _open_pkcs12(content, given, _KEY)
    if not key:
        raise PropertyError(name, "it has no private key")
    return _certificates(certificates, name) + key, ""


def _unloaded(error: Exception, name: str, *, is_encrypted: bool) -> tuple[str, str]:
    """Return the property and the reason why a certificate and its key cannot be used."""
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return name, "the private key does not belong to the certificate"
    if is_encrypted:
        return name, "the private key cannot be decrypted: is ssl.key.password right?"
    return name, "the private key or the certificate cannot be read"


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """Yield the path of a file with this text: OpenSSL reads keys from files only.

    The file is in memory where the system can do that, else readable by its owner alone.
    """
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):  # noqa: PTH112 - no Path here
        with open(os.memfd_create("kgw"), "w", encoding="ascii") as stream:  # noqa: PTH123 - as above
            stream.write(pem)
            stream.flush()
            yield f"/proc/self/fd/{stream.fileno()}"
    else:
        with NamedTemporaryFile("w", encoding="ascii") as stream:
            stream.write(pem)
            stream.flush()
            yield stream.name


# --- files ---


def _only_one(given: GivenProperties, names: tuple[str, ...]) -> str | None:
    """Return the one property that has a value; None if none has."""
    found = [one for one in names if given.text(one)]
    if len(found) > 1:
        raise PropertyError(found[1], f"{found[0]} is given, too: only one of them can count")
    return found[0] if found else None


def _read(given: GivenProperties, name: str) -> bytes:
    path = given.text(name)
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - pathlib costs start-up time
            return stream.read()
    except OSError as error:
        why = (error.strerror or "it cannot be read").lower()
        raise PropertyError(name, f"cannot read {path}: {why}") from None


def _type_of(content: bytes, given: GivenProperties, store: _Store) -> str:
    """Return PEM or PKCS12: as the property says, else by the first bytes."""
    name = given.text(store.type).upper()
    if name == "JKS" or content.startswith(_JKS):
        asked = store.type if name == "JKS" else store.location
        raise PropertyError(
            asked,
            "a JKS is not read: convert it with keytool -importkeystore -srckeystore "
            f"{given.text(store.location)} -destkeystore {store.what}.p12 -deststoretype PKCS12",
        )
    if not name:
        return "PKCS12" if content[:1] == bytes([_DER_SEQUENCE]) else "PEM"
    if name not in _TYPES:
        raise PropertyError(store.type, f"it is neither {' nor '.join(_TYPES)}")
    return name


def _refuse_password(given: GivenProperties, store: _Store) -> None:
    if given.text(store.password):
        its_key = "; the password of a private key is ssl.key.password" if store is _KEY else ""
        raise PropertyError(store.password, f"a PEM file has none{its_key}")


def _open_pkcs12(content: bytes, given: GivenProperties, store: _Store) -> tuple[str, str]:
    """Return the private key, "" if there is none, and the certificates, as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    password = given.text(store.password)
    try:
        opened = load_pkcs12(content, password.encode() or None)
    except ValueError:
        raise PropertyError(
            store.location,
            f"the PKCS12 file cannot be opened: is {store.password} "
            f"{'right' if password else 'missing'}?",
        ) from None
    key = opened.key and opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificates = [
        one.certificate.public_bytes(Encoding.PEM)
        for one in (opened.cert, *opened.additional_certs)
        if one is not None
    ]
    return (key or b"").decode(), b"".join(certificates).decode()


def _pem_text(content: bytes, name: str, store: _Store | None) -> str:
    if b"-----BEGIN " not in content:
        hint = "" if store is None else f"; is it a PKCS12 ({store.type})?"
        raise PropertyError(name, f"the file is not PEM{hint}")
    return content.decode("utf-8", "replace")


def _certificates(text: str, name: str) -> str:
    """Return only the certificates of a PEM text."""
    found = [
        _lines(one[1], one[2])
        for one in _PEM.finditer(text)
        if one[1] in {"CERTIFICATE", "X509 CERTIFICATE"}
    ]
    if not found:
        raise PropertyError(name, "it has no certificate (-----BEGIN CERTIFICATE-----)")
    return "".join(found)


def _private_key(text: str, name: str) -> str:
    """Return only the private key of a PEM text."""
    for one in _PEM.finditer(text):
        if one[1].endswith("PRIVATE KEY"):
            return _lines(one[1], one[2])
    raise PropertyError(name, "it has no private key (-----BEGIN PRIVATE KEY-----)")


def _lines(label: str, body: str) -> str:
    """Return a block of PEM in the lines that OpenSSL wants.

    In a properties file a block is often one line with blanks.
    """
    if ":" in body:  # the headers of an old form of encryption
        content = body.strip()
    else:
        packed = "".join(body.split())
        content = "\n".join(packed[at : at + _LINE] for at in range(0, len(packed), _LINE))
    block = f"-----BEGIN {label}-----\n{content}\n-----END {label}-----\n"
    return block.encode("ascii", "replace").decode("ascii")


# --- failures ---


def is_tls_error(error: OSError) -> bool:
    """Return whether TLS has failed, and not the connection below it."""
    return isinstance(error, ssl.SSLError)


EXPIRED, NOT_YET_VALID = 10, 9
"""OpenSSL's codes for a certificate of the server, or of an authority, outside its dates."""
WRONG_NAME = frozenset({62, 64})
"""Those for a certificate that is for other hosts."""
_PLAIN_TEXT = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
)
WANTS_CERTIFICATE = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED"})
"""OpenSSL's reason when the server asks for a client's certificate, and was shown none."""
_NO_COMMON_GROUND = frozenset({"SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_PROTOCOL_VERSION"})


_OWN_CERTIFICATE = (
    "does it ask for a client's certificate (ssl.keystore.location), and trust the given one?"
)


def tls_failure(address: str, error: OSError) -> ClientError:
    """Return the error that says in one line why there is no connection with TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"{address} is not trusted: {_distrust(error)}"
        return TlsError(text, reason=error.reason or "", verify_code=error.verify_code)
    if not isinstance(error, ssl.SSLError):
        return HungUpError(
            f"{address} closed the connection during the TLS handshake: does it speak plain text, "
            "or ask for a client's certificate (ssl.keystore.location)?"
        )
    reason = error.reason or ""
    return TlsError(_refusal(address, reason), reason=reason)


def _refusal(address: str, reason: str) -> str:
    if reason in _PLAIN_TEXT:
        return f"{address} does not speak TLS: is security.protocol right?"
    if reason in WANTS_CERTIFICATE:
        return f"{address} asks for a client's certificate (ssl.keystore.location)"
    if reason in _NO_COMMON_GROUND:
        return (
            f"{address} refused the TLS handshake: is there a common version of TLS, and "
            f"{_OWN_CERTIFICATE}"
        )
    if "ALERT" in reason:
        alert = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        return f"{address} refused the TLS handshake ({alert}): {_OWN_CERTIFICATE}"
    return f"TLS with {address} failed: {reason.replace('_', ' ').lower() or 'unknown'}"


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code in WRONG_NAME:
        return f"{error.verify_message} (ssl.endpoint.identification.algorithm)"
    if code == EXPIRED:
        return "its certificate has expired"
    if code == NOT_YET_VALID:
        return "its certificate is not valid yet"
    return f"{error.verify_message} (ssl.truststore.location)"
