"""Frames: four bytes of length, then a request or a response with its header."""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING

from kgw.errors import FrameTooLargeError, ProtocolError
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec
from kgw.protocol.headers import decode_response_header, encode_request_header
from kgw.protocol.message_classes import response_class

if TYPE_CHECKING:
    from kgw.protocol.primitives import Buffer
    from kgw.protocol.schema import Request, Response

_SIZE = Layout(">i")
# Size and correlation id; and an empty section of tagged fields.
_HEADER = Layout(">ii")
_FLEXIBLE_HEADER = Layout(">iix")
_API_VERSIONS = int(ApiKey.API_VERSIONS)

# A body's first piece up to this size is copied behind the header; a longer one gets a buffer of
# its own, because one more entry in a gather write costs less than the copy.
_JOIN_BYTES = 16_384


class FrameBuffer:
    """Splits a stream of bytes, cut anywhere, into frames.

    Memory grows with the bytes that have come, never with the length that a peer announces.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._data = bytearray()

    def __len__(self) -> int:
        """The number of bytes held of a frame that is not complete."""
        return len(self._data)

    def feed(self, data: Buffer) -> list[bytes]:
        """Take the next bytes and return the frames that they complete, without their lengths.

        Raises FrameTooLargeError as soon as a length above the limit can be read, and
        ProtocolError for a negative one. The stream cannot be used after either.
        """
        self._data += data
        held = self._data
        frames = []
        position = 0
        while len(held) - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(held, position)
            if size < 0:
                raise ProtocolError(f"a frame of {size} bytes")
            if size > self.max_frame_bytes:
                raise FrameTooLargeError(
                    f"a frame of {size} bytes: at most {self.max_frame_bytes} are read"
                )
            start = position + _SIZE.size
            if start + size > len(held):
                break
            position = start + size
            frames.append(bytes(held[start:position]))
        if position:
            del held[:position]
        return frames


def request_frame(
    message: Request, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """Return a whole frame with this request, as buffers for one gather write."""
    parts = codec(type(message), version).encode_parts(message)
    header = encode_request_header(message.api_key, version, correlation_id, client_id)
    size = len(header) + sum(map(len, parts))
    return _join_first(_SIZE.pack(size) + header, parts)


def response_frame(message: Response, version: int, correlation_id: int) -> list[Buffer]:
    """Return a whole frame with this response, as buffers for one gather write."""
    ours = codec(type(message), version)
    parts = ours.encode_parts(message)
    size = sum(map(len, parts))
    # As `headers.response_header_version` says, without asking it for each response.
    if ours.flexible and message.api_key != _API_VERSIONS:
        return _join_first(_FLEXIBLE_HEADER.pack(size + 5, correlation_id), parts)
    return _join_first(_HEADER.pack(size + 4, correlation_id), parts)


def body_frame(body: bytes, correlation_id: int, *, flexible: bool) -> list[Buffer]:
    """Return a whole frame of a response that is encoded already; not for ApiVersions."""
    size = len(body)
    if flexible:
        return [_FLEXIBLE_HEADER.pack(size + 5, correlation_id) + body]
    return [_HEADER.pack(size + 4, correlation_id) + body]


def decode_response(frame: Buffer, api_key: int, version: int) -> tuple[int, Response]:
    """Return correlation id and message of the response to a request of this key and version."""
    correlation_id, position = decode_response_header(frame, api_key, version)
    return correlation_id, codec(response_class(api_key), version).decode(frame, position)


def _join_first(head: bytes, parts: list[Buffer]) -> list[Buffer]:
    if len(parts[0]) <= _JOIN_BYTES:
        return [head + parts[0], *parts[1:]]
    return [head, *parts]
