"""Decodes the requests of one connection. A repeated header is decoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.protocol.framing import decode_request_header

if TYPE_CHECKING:
    from collections.abc import Generator

    from kgw.protocol.codec import Codec
    from kgw.protocol.schema import Request

CLIENT_ID_POSITION: Final = 8
"""The position of the client id in a header, after API key, version and correlation id.

From here on, all headers of a client are the same.
"""
# A longer header is decoded every time, to save the memory of ten thousand idle connections.
_KNOWN_HEADER_BYTES = 256


class RequestDecoder:
    """Decodes the requests of one connection, and remembers the last header."""

    __slots__ = ("_header", "_header_end", "_is_flexible", "client_id")

    def __init__(self) -> None:
        self.client_id: str | None = None
        """The client id of the last request."""
        self._header = b""
        self._header_end = 0
        self._is_flexible: bool | None = None

    def decode(self, frame: memoryview, codec: Codec[Request]) -> Request:
        """Return the request in a frame without its length field. Raises DecodeError.

        Bytes after the request are ignored, as in Kafka: when librdkafka (2.16) requests all topics
        in Metadata 9 and later, it writes null as four bytes instead of one.
        """
        end = self._header_end
        is_known = codec.flexible is self._is_flexible
        if not is_known or frame[CLIENT_ID_POSITION:end] != self._header:
            end = self._decode_header(frame, codec)
        request, _ = codec.decode_prefix(frame, end)
        return request

    def decode_in_turns(
        self, frame: memoryview, codec: Codec[Request]
    ) -> Generator[None, None, Request]:
        """Do the same as `decode` in steps (`kgw.turns`), for a large request."""
        return codec.decode_in_turns(frame, self._decode_header(frame, codec))

    def _decode_header(self, frame: memoryview, codec: Codec[Request]) -> int:
        """Decode the header of a request; return the position of its body."""
        self.client_id, end = decode_request_header(frame)
        if end <= _KNOWN_HEADER_BYTES:
            self._header = bytes(frame[CLIENT_ID_POSITION:end])
            self._header_end = end
            self._is_flexible = codec.flexible
        return end
