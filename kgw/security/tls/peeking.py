"""Explains, by its first bytes, why a client at a listener without TLS is refused. Pure.

A frame that is refused closes its connection in any case (`kgw.protocol.framing`). With this module
the log can say why: "a frame of 369295872 bytes" is a client that wants TLS.
"""

from __future__ import annotations

from typing import Final

ENOUGH_BYTES: Final = 8
"""The number of bytes after which the answer is final."""

_HANDSHAKES: Final = tuple(bytes([0x16, 3, minor]) for minor in range(5))
_HTTP: Final = (
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"TRACE ",
    b"CONNECT ",
    b"PRI * ",
)


def explain(first: bytes) -> str | None:
    """Return a sentence about a client that speaks HTTP or TLS; None for another client."""
    if first.startswith(_HTTP):
        return "The client speaks HTTP, but this is a listener for Kafka's clients."
    if first.startswith(_HANDSHAKES):
        return (
            "The client speaks TLS, but this listener has none: set security.protocol of the client"
            " to PLAINTEXT or SASL_PLAINTEXT."
        )
    return None
