"""Headers, read by hand, against their declarations."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kgw.errors import DecodeError, EncodeError
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec
from kgw.protocol.headers import (
    RequestHeader,
    decode_request_header,
    encode_request_header,
    peek_request_header,
    request_header_version,
    response_header_version,
)


@pytest.mark.parametrize(
    ("api_key", "version", "request_version", "response_version"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 2, 1),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, 2, 1),
        (999, 5, 1, 0),
        (-1, 5, 1, 0),
    ],
)
def test_header_versions(
    api_key: int, version: int, request_version: int, response_version: int
) -> None:
    """Flexible messages have flexible headers, except the answer to ApiVersions."""
    assert request_version == request_header_version(api_key, version)
    assert response_version == response_header_version(api_key, version)


@given(
    api_key=st.sampled_from([*ApiKey, -5, 300]),
    version=st.integers(-1, 20),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=50),
)
@example(api_key=ApiKey.CONTROLLED_SHUTDOWN, version=0, correlation_id=1, client_id="lost")
@example(api_key=ApiKey.METADATA, version=1, correlation_id=1, client_id="kept")
@example(api_key=ApiKey.METADATA, version=9, correlation_id=1, client_id=None)
def test_headers_agree_with_their_declaration(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> None:
    """What is written and read by hand is what the generated codec writes and reads."""
    encoded = encode_request_header(api_key, version, correlation_id, client_id)
    header, position = decode_request_header(encoded + b"body")
    assert len(encoded) == position
    header_version = request_header_version(api_key, version)
    if header_version == 0:
        header.client_id = ""  # the default of a field that the version lacks
    assert encoded == codec(RequestHeader, header_version).encode(header)
    assert header == codec(RequestHeader, header_version).decode(encoded)
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
        b"\0\3\0\1\0\0\0",
        b"\0\3\0\1\0\0\0\1",
        b"\0\3\0\1\0\0\0\1\0",
        b"\0\3\0\1\0\0\0\1\0\5abc",
        b"\0\3\0\1\0\0\0\1\xff\xfe",
        b"\0\3\0\1\0\0\0\1\0\1\xff",
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
    header, position = decode_request_header(b"\0\3\0\x09\0\0\0\1\0\1c\1\x07\2abBODY")
    assert ("c", 1) == (header.client_id, header.correlation_id)
    assert 16 == position
