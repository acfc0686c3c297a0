"""Request and response headers, and which version of them goes with a message.

The request header is read by hand: it is on the path of every request, and an unauthenticated
peer can send anything in it.
"""

from __future__ import annotations

import struct
from struct import Struct as Layout
from typing import TYPE_CHECKING

from kgw.errors import DecodeError, EncodeError
from kgw.protocol.api_keys import ApiKey, flexible
from kgw.protocol.primitives import (
    read_nullable_string,
    skip_tagged_fields,
    write_nullable_string,
)
from kgw.protocol.schema import Message, int16, int32, string

if TYPE_CHECKING:
    from kgw.protocol.primitives import Buffer

_REQUEST_PREFIX = Layout(">hhi")
_CORRELATION_ID = Layout(">i")


class RequestHeader(Message):
    """What precedes every request.

    Versions:
        0: no client id; ControlledShutdown version 0 alone had it
        1: client id
        2: tagged fields; the client id keeps its old form, so that a broker that does not know the
           version can still read it (KIP-482)
    """

    valid_versions = (0, 2)
    flexible_since = 2

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    """Returned with the response."""
    client_id: str | None = string(since=1, nullable_since=1, compact=False)


class ResponseHeader(Message):
    """What precedes every response.

    Versions:
        1: tagged fields (KIP-482)
    """

    valid_versions = (0, 1)
    flexible_since = 1

    correlation_id: int = int32()
    """That of the request."""


def request_header_version(api_key: int, api_version: int) -> int:
    """Return the version of the header before this request."""
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if flexible(api_key, api_version) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Return the version of the header before the response to this request.

    ApiVersions is always answered with version 0: the client does not know yet what the broker
    understood of its request (KIP-511).
    """
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if flexible(api_key, api_version) else 0


def peek_request_header(frame: Buffer) -> tuple[int, int, int]:
    """Return API key, API version and correlation id, which every version of the header has.

    Enough to answer ApiVersions for a version that is not known.
    """
    if len(frame) < _REQUEST_PREFIX.size:
        raise DecodeError(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id = _REQUEST_PREFIX.unpack_from(frame)
    return api_key, api_version, correlation_id


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Return the header of a request and the position of its body."""
    api_key, api_version, correlation_id = peek_request_header(frame)
    position = _REQUEST_PREFIX.size
    version = request_header_version(api_key, api_version)
    client_id = None
    if version >= 1:
        client_id, position = read_nullable_string(frame, position)
    if version >= 2:
        position = skip_tagged_fields(frame, position, len(frame))
    header = RequestHeader(
        request_api_key=api_key,
        request_api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return header, position


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return the header, in the version that goes with this request."""
    version = request_header_version(api_key, api_version)
    try:
        out = bytearray(_REQUEST_PREFIX.pack(api_key, api_version, correlation_id))
    except struct.error as error:
        raise EncodeError(f"request header: {error}") from None
    if version >= 1:
        write_nullable_string(out, client_id)
    if version >= 2:
        out.append(0)
    return bytes(out)


def decode_response_header(frame: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """Return the correlation id of a response, and the position of its body."""
    if len(frame) < _CORRELATION_ID.size:
        raise DecodeError(f"a response of {len(frame)} bytes has no header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    position = _CORRELATION_ID.size
    if response_header_version(api_key, api_version) >= 1:
        position = skip_tagged_fields(frame, position, len(frame))
    return correlation_id, position
