"""Replaces a listener's certificates while its connections stay open.

`CertificateFiles` reads files, so that a caller runs it outside the event loop. The listener's
server gets a `ReloadableContext`.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, NamedTuple, Self

from kgw.security.tls.contexts import context_from
from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.expiry import CertificateExpiry
from kgw.security.tls.keystores import (
    key_file_warning,
    read_key_material,
    server_certificate,
    validity_warnings,
)
from kgw.security.tls.plain_keys import PlainKey, plain_key

if TYPE_CHECKING:
    from kgw.security.tls.options import TlsOptions


class FileStamp(NamedTuple):
    """Changes when a file is written again or replaced.

    The stamp of a symbolic link is that of its target. Kubernetes updates a secret by a link to
    another directory.
    """

    device: int
    inode: int
    size: int
    modified_ns: int


Stamps = dict[str, FileStamp | None]
"""The stamp of each path; None for a file that does not exist or cannot be reached."""


class Reload(NamedTuple):
    """The result of `CertificateFiles.look`."""

    context: ssl.SSLContext | None = None
    """A context from the new files."""
    warnings: tuple[str, ...] = ()
    """Certificates of the new files that have expired, or are not valid yet; a key file that other
    users can use."""
    expiry: CertificateExpiry | None = None
    """The end of the server's certificate in the context."""
    key: PlainKey | None = None
    """The private key and the certificates, for gRPC; only if the caller wants them."""


class CertificateFiles:
    """The keystore and the truststore of one listener."""

    def __init__(self, options: TlsOptions, now_s: float, *, with_key: bool = False) -> None:
        """Read the files for the first time. Raises TlsSettingError.

        `with_key`: the results have the private key, too.
        """
        self._options = options
        self._with_key = with_key
        self._loaded = stamps_of(options)
        """The stamps of the files in use, from before they were read."""
        self.first = _load(options, now_s, with_key=with_key)
        """The context from the files at the start."""

    def look(self, now_s: float, *, is_asked: bool = False) -> Reload:
        """Look whether the files have changed, and load them if so. Call it in a thread.

        If an operator has asked, files that seem the same are loaded, too. Files that cannot be
        loaded are tried again each time: a reason such as a missing permission goes away without a
        new stamp. Raises TlsSettingError, OSError.
        """
        # The stamps are read before the files, so that the next call notices a change in between.
        stamps = stamps_of(self._options)
        if stamps == self._loaded and not is_asked:
            return Reload()
        loaded = _load(self._options, now_s, with_key=self._with_key)
        self._loaded = stamps
        return loaded


def load_problem(error: Exception) -> str:
    """Return a sentence that says why files cannot be loaded. Equal causes give equal sentences."""
    if isinstance(error, TlsSettingError):
        return str(error)
    if isinstance(error, OSError):
        # Its whole text may have the name of a temporary file, which is never the same.
        return f"the certificates cannot be loaded: {error.strerror or type(error).__name__}."
    return f"the certificates cannot be loaded: {type(error).__name__}: {error}."


def stamps_of(options: TlsOptions) -> Stamps:
    """Return the present stamps of the files that the options name."""
    stamps: Stamps = {}
    for path in options.files:
        try:
            found = os.stat(path)  # noqa: PTH116 - follows links; a path is a string here
        except OSError:
            stamps[path] = None
        else:
            stamps[path] = FileStamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    return stamps


def _load(options: TlsOptions, now_s: float, *, with_key: bool) -> Reload:
    material = read_key_material(options)
    context = context_from(options, material)
    warnings = validity_warnings(options, material, now_s) + _key_file_warnings(options)
    found = server_certificate(options, material)
    expiry = None if found is None else CertificateExpiry(*found)
    key = plain_key(options, material) if with_key else None
    return Reload(context, warnings=tuple(warnings), expiry=expiry, key=key)


def _key_file_warnings(options: TlsOptions) -> list[str]:
    if not options.keystore_location:
        return []
    try:
        status = os.stat(options.keystore_location)  # noqa: PTH116 - as in `stamps_of`
    except OSError:
        # It was removed after it had been read.
        return []
    setting = options.setting("keystore_location")
    warning = key_file_warning(
        setting, options.keystore_location, status.st_mode, owner=status.st_uid, user=os.geteuid()
    )
    return [] if warning is None else [warning]


class ReloadableContext(ssl.SSLContext):
    """The context of a server. Each new connection uses the context that was set last.

    Servers of asyncio and of uvloop call `wrap_bio` once for each connection. An open connection
    keeps the context with which it began.

    `sni_callback` could exchange the context in the handshake, too. But then sessions belong to the
    first context: a client that resumes one is not verified with the new truststore, and neither
    `verify_mode` nor the protocols of the new context are used.
    """

    _current: ssl.SSLContext

    def __new__(cls, current: ssl.SSLContext) -> Self:
        """Create the outer context, which has no certificate and serves nobody by itself."""
        self = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        self._current = current
        return self

    @property
    def current(self) -> ssl.SSLContext:
        """The context of the next connection."""
        return self._current

    def replace(self, context: ssl.SSLContext) -> None:
        """Use this context for each connection that begins from now on."""
        self._current = context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin a connection with the current context."""
        return self._current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
