"""Frames: four bytes of length, then a header, then the body of a request or a response.

The code for headers is written by hand, not generated: every request needs it, and a peer without
authentication can send any bytes in a header.
"""

from __future__ import annotations

import struct
from struct import Struct as Layout
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import DecodeError, EncodeError, FrameTooLargeError, ProtocolError
from kgw.protocol.api_keys import MESSAGE_KEYS, ApiKey
from kgw.protocol.codec import codec, response_class
from kgw.protocol.primitives import (
    read_nullable_string,
    skip_tagged_fields,
    write_nullable_string,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from kgw.protocol.primitives import Buffer
    from kgw.protocol.schema import Request, Response

_SIZE = Layout(">i")
_REQUEST_PREFIX = Layout(">hhi")
_CORRELATION_ID = Layout(">i")
# Size and correlation id; in flexible headers also an empty section of tagged fields.
_HEADER = Layout(">ii")
_FLEXIBLE_HEADER = Layout(">iix")
_API_VERSIONS = int(ApiKey.API_VERSIONS)

# The first buffer of a body is copied behind the header up to this size. A longer one stays
# separate, as one more buffer in a gather write costs less than the copy.
_JOIN_BYTES = 16_384

_API_KEY = Layout(">h")
# The buffer of an incomplete frame has at most this many times the size of its received bytes. It
# does not depend on the announced length.
GROWTH = 4
FIRST_BUFFER_BYTES = 2048
_ANY_NUMBER = 1 << 31


class FrameReader:
    """Splits a stream of bytes into frames, regardless of the boundaries of reads.

    Each read goes to the buffer that `room` returns: the caller's buffer, which many readers may
    share, or the buffer of the frame that the last read left incomplete. Memory grows with the
    received bytes, not with the length that a peer announces. Each frame has its own buffer.
    """

    __slots__ = (
        "_api_keys",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_max_frame_bytes",
        "_min_frame_bytes",
        "_prefix",
        "_rest",
        "has_rest",
        "held_bytes",
        "is_within_frame",
    )

    def __init__(
        self,
        max_frame_bytes: int,
        min_frame_bytes: int = 0,
        api_keys: Container[int] | None = None,
    ) -> None:
        """`api_keys` is for requests: a frame that begins with another API key is refused."""
        self._max_frame_bytes = max_frame_bytes
        self._min_frame_bytes = min_frame_bytes
        self._api_keys = api_keys
        # The first bytes of an incomplete length.
        self._prefix = b""
        self._frame: memoryview | None = None
        self._filled = 0
        self._frame_bytes = 0
        self._rest: memoryview | None = None
        self.has_rest = False
        """Whether `take` has left bytes for which `take_rest` must be called before a read."""
        self.held_bytes = 0
        """The size of the buffers for bytes that have not been returned in a frame."""
        self.is_within_frame = False
        """Whether the last bytes that were split into frames ended within a frame."""

    def allow(
        self, max_frame_bytes: int, min_frame_bytes: int, api_keys: Container[int] | None
    ) -> None:
        """Change the limits for the next frames; see `__init__`."""
        self._max_frame_bytes = max_frame_bytes
        self._min_frame_bytes = min_frame_bytes
        self._api_keys = api_keys

    @property
    def progress(self) -> str:
        """The received and the total bytes of the incomplete frame."""
        return f"{self._filled} of {self._frame_bytes} bytes"

    def room(self, shared: memoryview) -> memoryview:
        """Return the buffer for the next read: `shared`, or that of an incomplete frame."""
        if self._frame is not None:
            return self._frame[self._filled :]
        prefix = self._prefix
        if prefix:
            shared[: len(prefix)] = prefix
            return shared[len(prefix) :]
        return shared

    def take(self, shared: memoryview, nbytes: int, most: int = _ANY_NUMBER) -> list[memoryview]:
        """Take `nbytes` that were read into `room`. Return the complete frames without lengths.

        It returns at most `most` frames. If bytes are left (`has_rest`), `take_rest` must be called
        before the next read. Raises FrameTooLargeError for a length above the maximum, and
        ProtocolError for one below the minimum or an unknown API key. Complete frames before such a
        frame are returned first; `take_rest` then raises. After an error the reader is unusable.
        """
        if self._frame is not None:
            return self._fill(self._frame, nbytes)
        end = len(self._prefix) + nbytes
        self._rest = None
        self.has_rest = False
        self.held_bytes = 0
        frames: list[memoryview] = []
        position = 0
        while end - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(shared, position)
            start = position + _SIZE.size
            if start + size > end or not self._min_frame_bytes <= size <= self._max_frame_bytes:
                problem = self._problem(size, shared[start:end])
                if problem is None:
                    self._begin(size, shared[start:end])
                elif frames:
                    self._keep(shared[position:end])
                else:
                    raise problem
                return frames
            if len(frames) == most:
                self._keep(shared[position:end])
                return frames
            position = start + size
            frames.append(memoryview(bytearray(shared[start:position])))
        self._prefix = bytes(shared[position:end])
        self.is_within_frame = position < end
        return frames

    def take_rest(self, most: int = _ANY_NUMBER) -> list[memoryview]:
        """Return frames from the bytes that the last call has left; see `take`."""
        rest = self._rest
        return [] if rest is None else self.take(rest, len(rest), most)

    def forget(self) -> None:
        """Drop all bytes that have not been returned in a frame."""
        self._prefix = b""
        self._frame = self._rest = None
        self.has_rest = False
        self.held_bytes = 0
        self.is_within_frame = False

    def _problem(self, size: int, arrived: memoryview) -> ProtocolError | None:
        """Return the error of a frame with this length and first bytes; None if it is allowed."""
        if size > self._max_frame_bytes:
            return FrameTooLargeError(
                f"a frame of {size} bytes: at most {self._max_frame_bytes} are read"
            )
        if size < self._min_frame_bytes:
            return ProtocolError(f"a frame of {size} bytes")
        if self._api_keys is not None and len(arrived) >= _API_KEY.size:
            # Without this check, garbage that begins like a valid length would wait for a timeout.
            (api_key,) = _API_KEY.unpack_from(arrived)
            if api_key not in self._api_keys:
                return ProtocolError(f"API key {api_key} does not exist")
        return None

    def _begin(self, size: int, arrived: memoryview) -> None:
        """Create a buffer for an incomplete frame, or a larger one."""
        filled = len(arrived)
        self._frame = memoryview(bytearray(min(size, max(FIRST_BUFFER_BYTES, filled * GROWTH))))
        self._frame[:filled] = arrived
        self._filled = filled
        self._frame_bytes = size
        self.held_bytes = len(self._frame)
        self.is_within_frame = True

    def _fill(self, frame: memoryview, nbytes: int) -> list[memoryview]:
        """Count bytes that were read into a frame. Return the frame when it is complete."""
        filled = self._filled = self._filled + nbytes
        if filled == self._frame_bytes:
            self.forget()
            return [frame]
        if filled == len(frame):
            self._begin(self._frame_bytes, frame)
        return []

    def _keep(self, rest: memoryview) -> None:
        # A copy, as other readers use the shared buffer before `take_rest` is called.
        self._rest = memoryview(bytearray(rest))
        self._prefix = b""
        self.has_rest = True
        self.held_bytes = len(rest)


def has_flexible_response_header(api_key: ApiKey, api_version: int) -> bool:
    """Return whether the header of the response to a request has tagged fields.

    The header of an ApiVersions response never has tagged fields: the client does not know yet
    which versions the broker supports (KIP-511).
    """
    return api_key is not ApiKey.API_VERSIONS and api_key.is_flexible(api_version)


def peek_request_header(frame: Buffer) -> tuple[int, int, int]:
    """Return API key, API version and correlation id, which every version of the header has.

    This is enough to answer an ApiVersions request of an unknown version.
    """
    if len(frame) < _REQUEST_PREFIX.size:
        raise DecodeError(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id = _REQUEST_PREFIX.unpack_from(frame)
    return api_key, api_version, correlation_id


def decode_request_header(frame: Buffer) -> tuple[str | None, int]:
    """Return the client id of a request and the position of its body. Raises DecodeError.

    The client id has the same form in flexible headers, so that a broker can read it without
    knowing the version of the request (KIP-482).
    """
    api_key, api_version, _ = peek_request_header(frame)
    if api_key not in MESSAGE_KEYS:
        raise DecodeError(f"API key {api_key} is not one that clients use")
    client_id, position = read_nullable_string(frame, _REQUEST_PREFIX.size)
    if ApiKey(api_key).is_flexible(api_version):
        position = skip_tagged_fields(frame, position, len(frame))
    return client_id, position


def encode_request_header(
    api_key: ApiKey, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return the header of a request, flexible if the request is."""
    try:
        out = bytearray(_REQUEST_PREFIX.pack(api_key, api_version, correlation_id))
    except struct.error as error:
        raise EncodeError(f"request header: {error}") from None
    write_nullable_string(out, client_id)
    if api_key.is_flexible(api_version):
        out.append(0)
    return bytes(out)


def decode_response_header(frame: Buffer, api_key: ApiKey, api_version: int) -> tuple[int, int]:
    """Return the correlation id of a response, and the position of its body."""
    if len(frame) < _CORRELATION_ID.size:
        raise DecodeError(f"a response of {len(frame)} bytes has no header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    position = _CORRELATION_ID.size
    if has_flexible_response_header(api_key, api_version):
        position = skip_tagged_fields(frame, position, len(frame))
    return correlation_id, position


def request_frame(
    message: Request, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """Return the frame of a request as buffers for one gather write."""
    parts = codec(type(message), version).encode_parts(message)
    header = encode_request_header(message.api_key, version, correlation_id, client_id)
    size = len(header) + sum(map(len, parts))
    head = _SIZE.pack(size) + header
    if len(parts[0]) <= _JOIN_BYTES:
        head += parts.pop(0)
    return [head, *parts]


def response_frame(message: Response, version: int, correlation_id: int) -> list[Buffer]:
    """Return the frame of a response as buffers for one gather write."""
    ours = message.codecs.get(version) or codec(type(message), version)
    parts = ours.encode_parts(message)
    size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
    # The same as `has_flexible_response_header`, without a call for each response.
    if ours.flexible and message.api_key != _API_VERSIONS:
        head = _FLEXIBLE_HEADER.pack(size + 5, correlation_id)
    else:
        head = _HEADER.pack(size + 4, correlation_id)
    if len(parts[0]) <= _JOIN_BYTES:
        head += parts.pop(0)
    return [head, *parts]


class EncodedBody(NamedTuple):
    """A response that is encoded already, in the requested version. Not for ApiVersions."""

    flexible: bool
    body: bytes

    def frame(self, correlation_id: int) -> list[Buffer]:
        """Return the frame of the response."""
        flexible, body = self
        size = len(body)
        if flexible:
            return [_FLEXIBLE_HEADER.pack(size + 5, correlation_id) + body]
        return [_HEADER.pack(size + 4, correlation_id) + body]


def decode_response(frame: Buffer, api_key: int, version: int) -> tuple[int, Response]:
    """Return the correlation id and the message of a response to a request of this version."""
    correlation_id, position = decode_response_header(frame, ApiKey(api_key), version)
    return correlation_id, codec(response_class(api_key), version).decode(frame, position)
