"""Request and response headers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as RequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeader2
from kio.static.primitive import i16, i32

from kgw.errors import DecodeError, EncodeError
from kgw.protocol.api_keys import MESSAGE_KEYS, ApiKey
from kgw.protocol.framing import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    peek_request_header,
)
from tests.protocol.kio_codec import Codec


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.PRODUCE, 8, 4),
        (ApiKey.PRODUCE, 9, 5),
        (ApiKey.API_VERSIONS, 2, 4),
        (ApiKey.API_VERSIONS, 3, 4),
        (ApiKey.SASL_HANDSHAKE, 1, 4),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 5),
    ],
)
def test_response_headers(api_key: ApiKey, version: int, body: int) -> None:
    """Flexible messages have flexible headers, except the answer to ApiVersions."""
    assert (7, body) == decode_response_header(b"\0\0\0\7\0", api_key, version)


@given(
    api_key=st.sampled_from(sorted(MESSAGE_KEYS)),
    version=st.integers(-1, 20),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=50),
)
@example(api_key=ApiKey.METADATA, version=8, correlation_id=1, client_id="kept")
@example(api_key=ApiKey.METADATA, version=9, correlation_id=1, client_id=None)
def test_request_headers_are_kios(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None
) -> None:
    """What is written and read by hand is what kio writes."""
    encoded = encode_request_header(api_key, version, correlation_id, client_id)
    theirs = RequestHeader2 if api_key.is_flexible(version) else RequestHeader1
    header = theirs(
        request_api_key=i16(api_key),
        request_api_version=i16(version),
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    assert encoded == Codec(theirs).encode(header)
    assert (client_id, len(encoded)) == decode_request_header(encoded + b"body")
    assert (api_key, version, correlation_id) == peek_request_header(encoded)


def test_headers_that_cannot_be_encoded() -> None:
    """A client id longer than Kafka allows, or that is not text, and numbers out of range."""
    for correlation_id, client_id in ((1, "x" * 40_000), (1, "\ud800"), (2**31, None)):
        with pytest.raises(EncodeError):
            encode_request_header(ApiKey.METADATA, 1, correlation_id, client_id)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x04\0\1\0\0\0\1\xff\xff",
        b"\3\xe7\0\1\0\0\0\1\xff\xff",
        b"\0\3\0\1\0\0\0",
        b"\0\3\0\1\0\0\0\1",
        b"\0\3\0\1\0\0\0\1\0",
        b"\0\3\0\1\0\0\0\1\0\5abc",
        b"\0\3\0\1\0\0\0\1\xff\xfe",
        b"\0\3\0\x09\0\0\0\1\xff\xff",
        b"\0\3\0\x09\0\0\0\1\xff\xff\1\0",
        b"\0\3\0\x09\0\0\0\1\xff\xff\x80",
    ],
)
def test_malformed_headers(frame: bytes) -> None:
    """Whatever a peer sends in the place of a header is a DecodeError or a header."""
    with pytest.raises(DecodeError):
        decode_request_header(frame)


def test_unknown_tagged_fields_in_the_header_are_skipped() -> None:
    """A newer client may say more in its header."""
    assert ("c", 16) == decode_request_header(b"\0\3\0\x09\0\0\0\1\0\1c\1\x07\2abBODY")
