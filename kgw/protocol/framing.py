"""Frames: four bytes of length, then a header, then the body of a request or a response.

Headers are read and written by hand: one is on the path of every request, and an unauthenticated
peer can send anything in it.
"""

from __future__ import annotations

import struct
from struct import Struct as Layout
from typing import TYPE_CHECKING

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
# Size and correlation id; and an empty section of tagged fields.
_HEADER = Layout(">ii")
_FLEXIBLE_HEADER = Layout(">iix")
_API_VERSIONS = int(ApiKey.API_VERSIONS)

# A body's first piece up to this size is copied behind the header; a longer one gets a buffer of
# its own, because one more entry in a gather write costs less than the copy.
_JOIN_BYTES = 16_384

_API_KEY = Layout(">h")
# A frame that was cut gets room for so many times the bytes it has sent, never for what it claims.
GROWTH = 4
FIRST_BUFFER_BYTES = 2048
_ANY_NUMBER = 1 << 31


class FrameReader:
    """Cuts a stream of bytes, wherever reads cut it, into frames.

    Each read goes to `room`: a buffer that is lent, and may be shared by many readers, or the frame
    that the last read left incomplete. Memory grows with the bytes that have come, never with the
    length that a peer announces. A frame shares its bytes with nothing.
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
        """`api_keys` for requests: a frame that begins with no such key is refused by that."""
        self._max_frame_bytes = max_frame_bytes
        self._min_frame_bytes = min_frame_bytes
        self._api_keys = api_keys
        # Part of a length.
        self._prefix = b""
        self._frame: memoryview | None = None
        self._filled = 0
        self._frame_bytes = 0
        self._rest: memoryview | None = None
        self.has_rest = False
        """Whether `take` has left something that must be taken before the next read."""
        self.held_bytes = 0
        """Memory for what has not been returned as a frame."""
        self.is_within_frame = False
        """Whether the last read ended within a frame, as far as it was cut."""

    @property
    def progress(self) -> str:
        """How much there is of the frame that was begun."""
        return f"{self._filled} of {self._frame_bytes} bytes"

    def room(self, shared: memoryview) -> memoryview:
        """Return where to read to: into `shared`, or into a frame that was begun."""
        if self._frame is not None:
            return self._frame[self._filled :]
        prefix = self._prefix
        if prefix:
            shared[: len(prefix)] = prefix
            return shared[len(prefix) :]
        return shared

    def take(self, shared: memoryview, nbytes: int, most: int = _ANY_NUMBER) -> list[memoryview]:
        """Return the frames that are complete with `nbytes` more in `room`, without their lengths.

        No more than `most` of them: while there is a rest (`has_rest`), `take_rest` must be called
        before the next read. Raises FrameTooLargeError as soon as a length above the limit is read,
        and ProtocolError for one below it or another API key; frames before it are returned first.
        The stream is of no use after that.
        """
        if self._frame is not None:
            return self._fill(self._frame, nbytes)
        return self._cut(shared, len(self._prefix) + nbytes, most)

    def take_rest(self, most: int = _ANY_NUMBER) -> list[memoryview]:
        """Return the frames that the last call has left, if it has left any; as `take`."""
        rest = self._rest
        return [] if rest is None else self._cut(rest, len(rest), most)

    def _cut(self, data: memoryview, end: int, most: int) -> list[memoryview]:
        self._rest = None
        self.has_rest = False
        self.held_bytes = 0
        frames: list[memoryview] = []
        position = 0
        while end - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, position)
            start = position + _SIZE.size
            if start + size > end or not self._min_frame_bytes <= size <= self._max_frame_bytes:
                problem = self._problem(size, data[start:end])
                if problem is None:
                    self._begin(size, data[start:end])
                elif frames:
                    self._keep(data[position:end])
                else:
                    raise problem
                return frames
            if len(frames) == most:
                self._keep(data[position:end])
                return frames
            position = start + size
            frames.append(memoryview(bytearray(data[start:position])))
        self._prefix = bytes(data[position:end])
        self.is_within_frame = position < end
        return frames

    def forget(self) -> None:
        """Hold nothing of what has come."""
        self._prefix = b""
        self._frame = self._rest = None
        self.has_rest = False
        self.held_bytes = 0
        self.is_within_frame = False

    def _problem(self, size: int, arrived: memoryview) -> ProtocolError | None:
        """Return why no frame may begin like this."""
        if size > self._max_frame_bytes:
            return FrameTooLargeError(
                f"a frame of {size} bytes: at most {self._max_frame_bytes} are read"
            )
        if size < self._min_frame_bytes:
            return ProtocolError(f"a frame of {size} bytes")
        if self._api_keys is not None and len(arrived) >= _API_KEY.size:
            # Garbage whose first bytes happen to be a length ends here, not at a deadline.
            (api_key,) = _API_KEY.unpack_from(arrived)
            if api_key not in self._api_keys:
                return ProtocolError(f"API key {api_key} does not exist")
        return None

    def _begin(self, size: int, arrived: memoryview) -> None:
        """Give a frame that was cut a buffer of its own."""
        filled = len(arrived)
        self._frame = memoryview(bytearray(min(size, max(FIRST_BUFFER_BYTES, filled * GROWTH))))
        self._frame[:filled] = arrived
        self._filled = filled
        self._frame_bytes = size
        self.held_bytes = len(self._frame)
        self.is_within_frame = True

    def _fill(self, frame: memoryview, nbytes: int) -> list[memoryview]:
        """Count bytes that were read into a frame; return it when it is whole."""
        filled = self._filled = self._filled + nbytes
        if filled == self._frame_bytes:
            self.forget()
            return [frame]
        if filled == len(frame):
            self._begin(self._frame_bytes, frame)
        return []

    def _keep(self, rest: memoryview) -> None:
        # A copy: others read into the same buffer before it is looked at again.
        self._rest = memoryview(bytearray(rest))
        self.has_rest = True
        self.held_bytes = len(rest)


def has_flexible_response_header(api_key: ApiKey, api_version: int) -> bool:
    """Whether the header of the response to this request has tagged fields.

    That of ApiVersions never has: the client does not know yet what the broker understood of its
    request (KIP-511).
    """
    return api_key is not ApiKey.API_VERSIONS and api_key.is_flexible(api_version)


def peek_request_header(frame: Buffer) -> tuple[int, int, int]:
    """Return API key, API version and correlation id, which every version of the header has.

    Enough to answer ApiVersions for a version that is not known.
    """
    if len(frame) < _REQUEST_PREFIX.size:
        raise DecodeError(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id = _REQUEST_PREFIX.unpack_from(frame)
    return api_key, api_version, correlation_id


def decode_request_header(frame: Buffer) -> tuple[str | None, int]:
    """Return the client id, which follows what `peek_request_header` reads, and where the body is.

    Its form is the same in flexible headers, so that a broker that does not know the version of a
    request can still read it (KIP-482).
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
    """Return the header, in the version that goes with this request."""
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
    """Return a whole frame with this request, as buffers for one gather write."""
    parts = codec(type(message), version).encode_parts(message)
    header = encode_request_header(message.api_key, version, correlation_id, client_id)
    size = len(header) + sum(map(len, parts))
    return _frame(_SIZE.pack(size) + header, parts)


def response_frame(message: Response, version: int, correlation_id: int) -> list[Buffer]:
    """Return a whole frame with this response, as buffers for one gather write."""
    ours = message.codecs.get(version) or codec(type(message), version)
    parts = ours.encode_parts(message)
    size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
    # As `has_flexible_response_header` says, without asking it for each response.
    if ours.flexible and message.api_key != _API_VERSIONS:
        head = _FLEXIBLE_HEADER.pack(size + 5, correlation_id)
    else:
        head = _HEADER.pack(size + 4, correlation_id)
    return _frame(head, parts)


def body_frame(body: bytes, correlation_id: int, *, flexible: bool) -> list[Buffer]:
    """Return a whole frame of a response that is encoded already; not for ApiVersions."""
    size = len(body)
    if flexible:
        return [_FLEXIBLE_HEADER.pack(size + 5, correlation_id) + body]
    return [_HEADER.pack(size + 4, correlation_id) + body]


def decode_response(frame: Buffer, api_key: int, version: int) -> tuple[int, Response]:
    """Return correlation id and message of the response to a request of this key and version."""
    correlation_id, position = decode_response_header(frame, ApiKey(api_key), version)
    return correlation_id, codec(response_class(api_key), version).decode(frame, position)


def _frame(head: bytes, parts: list[Buffer]) -> list[Buffer]:
    """Return a frame's pieces, given those of its body, which is used up."""
    if len(parts[0]) <= _JOIN_BYTES:
        head += parts.pop(0)
    return [head, *parts]
