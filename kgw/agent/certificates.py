"""The certificates of the agent's listener, which gRPC exchanges while connections stay open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.security.tls.plain_keys import PlainKey


def server_credentials(
    first: PlainKey,
    present: Callable[[], PlainKey | None],
    *,
    asks_for_certificates: bool,
) -> Any:
    """Return the credentials of a gRPC server whose key and certificates may change.

    gRPC calls `present` in threads of its own, once before each handshake.
    """
    return grpc.dynamic_ssl_server_credentials(
        _configuration(first), _Changes(first, present), asks_for_certificates
    )


class _Changes:
    """Tells gRPC which certificates have changed since the last handshake."""

    def __init__(self, first: PlainKey, present: Callable[[], PlainKey | None]) -> None:
        self._used = first
        self._present = present

    def __call__(self) -> Any:
        """Return other certificates, if there are any; None to go on with the same ones."""
        key = self._present()
        if key is None or key == self._used:
            return None
        self._used = key
        return _configuration(key)


def _configuration(key: PlainKey) -> Any:
    return grpc.ssl_server_certificate_configuration([(key.key, key.chain)], key.trusted or None)
