"""Recognises the protocol of a client by its first bytes. Pure.

A frame that is refused closes its connection in any case (`kgw.protocol.framing`). With this module
the log can say why: "a frame of 369295872 bytes" is a client that wants TLS.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

from kgw.protocol.api_keys import MESSAGE_KEYS

ENOUGH_BYTES: Final = 8
"""The number of bytes after which the answer is final."""

_HANDSHAKE: Final = b"\x16\x03"
_MAX_MINOR_VERSION: Final = 4
_REQUEST: Final = struct.Struct(">ihh")
_MAX_FRAME_BYTES: Final = 1 << 30
_MAX_API_VERSION: Final = 63
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


class Speech(Enum):
    """The protocol of a client."""

    KAFKA = "Kafka without TLS"
    TLS = "TLS"
    HTTP = "HTTP"
    UNKNOWN = "an unknown protocol"
    TOO_SHORT = "too few bytes"


def recognise(first: bytes) -> Speech:
    """Return the protocol of a connection with these first bytes."""
    begin = bytes(first[:ENOUGH_BYTES])
    if begin[:2] == _HANDSHAKE and begin[2:3] <= bytes([_MAX_MINOR_VERSION]):
        return Speech.TLS if len(begin) >= 3 else Speech.TOO_SHORT
    if begin.startswith(_HTTP):
        return Speech.HTTP
    if len(begin) < ENOUGH_BYTES:
        return _recognise_short(begin)
    size, api_key, api_version = _REQUEST.unpack(begin)
    is_frame = ENOUGH_BYTES <= size <= _MAX_FRAME_BYTES
    if is_frame and api_key in MESSAGE_KEYS and 0 <= api_version <= _MAX_API_VERSION:
        return Speech.KAFKA
    return Speech.UNKNOWN


def _recognise_short(begin: bytes) -> Speech:
    could_be_frame = begin[:1] < b"\x40"
    could_be_http = any(one.startswith(begin) for one in _HTTP)
    return Speech.TOO_SHORT if could_be_frame or could_be_http else Speech.UNKNOWN


def explain(first: bytes) -> str | None:
    """Return a sentence about a client that speaks no Kafka at a listener without TLS; or None."""
    speech = recognise(first)
    if speech is Speech.HTTP:
        return "The client speaks HTTP, but this is a listener for Kafka's clients."
    if speech is Speech.TLS:
        return (
            "The client speaks TLS, but this listener has none: set security.protocol of the client"
            " to PLAINTEXT or SASL_PLAINTEXT."
        )
    return None
