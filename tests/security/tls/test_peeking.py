"""What a client speaks, by its first bytes."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.protocol.api_keys import ApiKey
from kgw.security.tls.peeking import ENOUGH_BYTES, Speech, explain, recognise
from tests.security.tls.handshakes import client_context

API_VERSIONS = bytes.fromhex("0000001a 0012 0003 00000001")
CLIENT_HELLO = bytes.fromhex("1603010200 010001fc 0303")


def client_hello() -> bytes:
    """Return what a client of TLS sends first."""
    outgoing = ssl.MemoryBIO()
    client = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("first", "speech"),
    [
        (API_VERSIONS, Speech.KAFKA),
        (bytes.fromhex("00000100 0000 0009"), Speech.KAFKA),
        (CLIENT_HELLO, Speech.TLS),
        (bytes.fromhex("160301"), Speech.TLS),
        (b"GET / HTTP/1.1\r\n", Speech.HTTP),
        (b"PUT /", Speech.HTTP),
        (b"OPTIONS * HTTP/1.1", Speech.HTTP),
        (b"PRI * HTTP/2.0\r\n", Speech.HTTP),
        (b"", Speech.TOO_SHORT),
        (b"\x16", Speech.TOO_SHORT),
        (b"\x16\x03", Speech.TOO_SHORT),
        (b"GE", Speech.TOO_SHORT),
        (b"OPTIONS", Speech.TOO_SHORT),
        (API_VERSIONS[:7], Speech.TOO_SHORT),
        (b"SSH-2.0-", Speech.UNKNOWN),
        (b"\xff", Speech.UNKNOWN),
        (b"GETTING ", Speech.UNKNOWN),
        # Another version of TLS, an unknown API, a frame without room for a header.
        (bytes.fromhex("1603050102000100"), Speech.UNKNOWN),
        (bytes.fromhex("0000001a 7000 0003"), Speech.UNKNOWN),
        (bytes.fromhex("0000001a 0012 4000"), Speech.UNKNOWN),
        (bytes.fromhex("00000004 0012 0003"), Speech.UNKNOWN),
    ],
)
def test_a_client_is_recognised(first: bytes, speech: Speech) -> None:
    """A few bytes are enough."""
    assert speech is recognise(first)


def test_a_real_client_is_recognised() -> None:
    """OpenSSL begins as the sample does."""
    assert recognise(client_hello()) is Speech.TLS


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.SASL_HANDSHAKE])
def test_each_request_is_kafkas(api_key: ApiKey) -> None:
    """A client need not begin with ApiVersions."""
    assert recognise(b"\0\0\1\0" + api_key.to_bytes(2) + b"\0\1") is Speech.KAFKA


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (
            CLIENT_HELLO,
            (
                "The client speaks TLS, but this listener has none: set"
                " security.protocol of the client to PLAINTEXT or SASL_PLAINTEXT."
            ),
        ),
        (
            b"GET / HTTP/1.1",
            "The client speaks HTTP, but this is a listener for Kafka's clients.",
        ),
        (API_VERSIONS, None),
        (b"SSH-2.0-", None),
    ],
)
def test_a_client_at_the_wrong_listener_is_explained(first: bytes, sentence: str | None) -> None:
    """The sentence says what to set."""
    assert sentence == explain(first)


@given(st.binary(min_size=ENOUGH_BYTES, max_size=12))
def test_more_bytes_change_nothing(first: bytes) -> None:
    """With eight bytes the answer is final."""
    assert recognise(first) is recognise(first[:ENOUGH_BYTES])
    assert recognise(first) is not Speech.TOO_SHORT
