"""A client that speaks HTTP or TLS is explained by its first bytes."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.protocol.api_keys import ApiKey
from kgw.security.tls.peeking import ENOUGH_BYTES, explain
from tests.security.tls.handshakes import client_context

API_VERSIONS = bytes.fromhex("0000001a 0012 0003 00000001")
CLIENT_HELLO = bytes.fromhex("1603010200 010001fc 0303")
TLS = (
    "The client speaks TLS, but this listener has none: set security.protocol of the client to"
    " PLAINTEXT or SASL_PLAINTEXT."
)
HTTP = "The client speaks HTTP, but this is a listener for Kafka's clients."


def client_hello() -> bytes:
    """Return what a client of TLS sends first."""
    outgoing = ssl.MemoryBIO()
    client = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (CLIENT_HELLO, TLS),
        (bytes.fromhex("160301"), TLS),
        (bytes.fromhex("160304"), TLS),
        (b"GET / HTTP/1.1\r\n", HTTP),
        (b"PUT /", HTTP),
        (b"OPTIONS * HTTP/1.1", HTTP),
        (b"PRI * HTTP/2.0\r\n", HTTP),
        (API_VERSIONS, None),
        (b"", None),
        (b"\x16", None),
        (b"\x16\x03", None),
        (b"GE", None),
        (b"OPTIONS", None),
        (b"SSH-2.0-", None),
        (b"GETTING ", None),
        # Another version of TLS.
        (bytes.fromhex("1603050102000100"), None),
    ],
)
def test_a_client_at_the_wrong_listener_is_explained(first: bytes, sentence: str | None) -> None:
    """The sentence says what to set; a few bytes are enough."""
    assert sentence == explain(first)


def test_a_real_client_is_explained() -> None:
    """OpenSSL begins as the sample does."""
    assert TLS == explain(client_hello())


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.SASL_HANDSHAKE])
def test_requests_of_kafka_are_not_explained(api_key: ApiKey) -> None:
    """A client need not begin with ApiVersions."""
    assert explain(b"\0\0\1\0" + api_key.to_bytes(2) + b"\0\1") is None


@given(st.binary(min_size=ENOUGH_BYTES, max_size=12))
def test_more_bytes_change_nothing(first: bytes) -> None:
    """With eight bytes the answer is final."""
    assert explain(first) == explain(first[:ENOUGH_BYTES])
