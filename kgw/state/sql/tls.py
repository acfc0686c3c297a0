"""TLS settings for connections to all database servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config.state_url import DISABLE, REQUIRE, VERIFY_FULL
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from ssl import SSLContext

    from kgw.config.state_url import StateUrl


def tls_context(url: StateUrl) -> SSLContext | None:
    """Return the TLS context for a connection, or None for an unencrypted one.

    Blocks for a few reads. Raises DataDirectoryError for files that cannot be used.
    """
    if url.tls == DISABLE:
        return None
    import ssl

    try:
        context = ssl.create_default_context(cafile=url.authority_path or None)
        context.check_hostname = url.tls == VERIFY_FULL
        if url.tls == REQUIRE:
            context.verify_mode = ssl.CERT_NONE
        if url.certificate_path:
            context.load_cert_chain(url.certificate_path, url.key_path or None)
    except OSError as error:
        raise DataDirectoryError(f"TLS for the state store ({url}): {error}") from error
    return context
