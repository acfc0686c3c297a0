"""The headers of requests and responses, and which version of them goes with a message.

They are read and written by hand: a header is on the path of every request, and an unauthenticated
peer can send anything in it.
"""

from __future__ import annotations

import struct
from struct import Struct as Layout
from typing import TYPE_CHECKING

from kgw.errors import DecodeError, EncodeError
from kgw.protocol.api_keys import MESSAGE_KEYS, ApiKey
from kgw.protocol.primitives import (
    read_nullable_string,
    skip_tagged_fields,
    write_nullable_string,
)

if TYPE_CHECKING:
    from kgw.protocol.primitives import Buffer

_REQUEST_PREFIX = Layout(">hhi")
_CORRELATION_ID = Layout(">i")


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
