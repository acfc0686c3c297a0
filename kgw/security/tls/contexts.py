"""Makes the `ssl.SSLContext` of a listener."""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kgw.security.tls.alerts import AlertedHandshake
from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.options import (
    CIPHER_SUITES,
    NO_CLIENT_AUTH,
    REQUESTED,
    REQUIRED,
    TLS_1_2,
    TLS_1_3,
)
from kgw.security.tls.pem import CERTIFICATE, PemBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.security.tls.keystores import KeyMaterial
    from kgw.security.tls.options import TlsOptions

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {
    NO_CLIENT_AUTH: ssl.CERT_NONE,
    REQUESTED: ssl.CERT_OPTIONAL,
    REQUIRED: ssl.CERT_REQUIRED,
}


def context_from(options: TlsOptions, material: KeyMaterial) -> ssl.SSLContext:
    """Return the context of a listener whose files have been read. Raises TlsSettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = AlertedHandshake
    versions = [_VERSIONS[one] for one in options.enabled_protocols]
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # A resumed session has the client certificate of an earlier one, which is not verified again.
    # Connections of Kafka's clients are few and long, so that tickets would save little. Sessions
    # of TLS 1.2 that this context keeps cannot be disabled: see PrincipalMapper.principal_of.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    suites = [CIPHER_SUITES[one] for one in options.cipher_suites if one in CIPHER_SUITES]
    if suites:
        context.set_ciphers(":".join(suites))
    _load_key(context, options, material)
    if options.client_auth != NO_CLIENT_AUTH:
        context.verify_mode = _VERIFY_MODES[options.client_auth]
        # As in Java, an intermediate authority can be trusted without its root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_trusted(context, options, material)
    return context


def _load_key(context: ssl.SSLContext, options: TlsOptions, material: KeyMaterial) -> None:
    location = options.setting("keystore_location")
    key_setting = location if options.keystore_location else options.setting("keystore_key")
    text = material.key + "".join(PemBlock(CERTIFICATE, one).text for one in material.chain)
    try:
        with _readable(text.encode()) as path:
            # Without a function for the password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(path, password=lambda: material.key_password or "")
    except ssl.SSLError as error:
        raise TlsSettingError(_explain(error, options, key_setting)) from None
    except ValueError:
        # Python limits passwords to 1024 bytes.
        raise TlsSettingError(f"{options.setting('key_password')} is too long.") from None


def _explain(error: ssl.SSLError, options: TlsOptions, setting: str) -> str:
    reason = error.reason or ""
    if "MISMATCH" in reason or reason == "NO_CERTIFICATE_ASSIGNED":
        return f"{setting}: the private key does not fit the certificate."
    if "TOO_SMALL" in reason or "TOO_WEAK" in reason:
        return f"{setting}: OpenSSL finds the certificate or its key too weak ({reason})."
    if options.key_password:
        return (
            f"{setting}: the private key cannot be read: {options.setting('key_password')} is"
            " wrong, or the key is damaged."
        )
    return f"{setting}: the private key or a certificate is damaged ({reason or 'no reason'})."


def _load_trusted(context: ssl.SSLContext, options: TlsOptions, material: KeyMaterial) -> None:
    try:
        context.load_verify_locations(cadata=b"".join(material.trusted))
    except ssl.SSLError as error:
        field = "truststore_location" if options.truststore_location else "truststore_certificates"
        raise TlsSettingError(
            f"{options.setting(field)}: OpenSSL refuses a certificate ({error.reason})."
        ) from None


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """Yield the name of a file with this content, as OpenSSL reads keys only from named files.

    On Linux the file is in memory: it has no name but that of its descriptor in /proc, and it is
    gone when the descriptor is closed, also if the process is killed. Elsewhere, or without /proc,
    it is a temporary file with mode 0600, which is removed at once.
    """
    memfd_create = getattr(os, "memfd_create", None)
    if memfd_create is not None:
        with open(memfd_create("kgw-tls"), "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            path = f"/proc/self/fd/{file.fileno()}"
            if os.access(path, os.R_OK):
                file.write(content)
                yield path
                return
    descriptor, path = tempfile.mkstemp(prefix="kgw-tls-")
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
        yield path
    finally:
        Path(path).unlink()
