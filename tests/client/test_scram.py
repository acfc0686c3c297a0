from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.client.scram import ScramClient, ScramError, plain_token
from kgw.security.sasl.scram import ScramMechanism, salt_password

# The example of RFC 7677.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def begun() -> ScramClient:
    """Return the example's client after its first message."""
    client = ScramClient(ScramMechanism.SHA_256, "user", NONCE)
    assert b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO" == client.first()
    return client


def answered(password: str) -> ScramClient:
    """Return the example's client after its final message."""
    client = begun()
    challenge = client.challenge(SERVER_FIRST)
    salted = salt_password(client.mechanism, password, challenge.salt, challenge.iterations)
    client.final(challenge, salted)
    return client


def test_the_example_of_the_rfc() -> None:
    """Every message is that of RFC 7677, and the server's signature is accepted."""
    client = begun()
    challenge = client.challenge(SERVER_FIRST)
    salted = salt_password(ScramMechanism.SHA_256, "pencil", challenge.salt, challenge.iterations)
    assert CLIENT_FINAL == client.final(challenge, salted)
    client.check(SERVER_FINAL)


def server_first(**changes: str) -> bytes:
    """Return a first message of a server with other attributes."""
    parts = {"r": f"{NONCE}more", "s": "c2FsdA==", "i": "4096", **changes}
    return ",".join(f"{name}={value}" for name, value in parts.items() if value != "-").encode()


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (server_first(r="another" + NONCE), "does not begin with the client's"),
        (server_first(r=NONCE[:-1]), "does not begin with the client's"),
        (server_first(r=NONCE.upper() + "more"), "does not begin with the client's"),
        (server_first(r=f"{NONCE}é"), "does not begin with the client's"),
        (server_first(r=""), "does not begin with the client's"),
        (server_first(r=NONCE), "has added nothing"),
        (server_first(i="4095"), "4095 iterations; 4096 to 16384 are allowed"),
        (server_first(i="1"), "iterations; 4096"),
        (server_first(i="16385"), "16385 iterations; 4096 to 16384 are allowed"),
        (server_first(i="2147483647"), "iterations; 4096"),
        (server_first(i="99999999999"), "is no number"),
        (server_first(i="0"), "is no number"),
        (server_first(i="-4096"), "is no number"),
        (server_first(i="4096x"), "is no number"),
        (server_first(i="٤٠٩٦"), "is no number"),
        (server_first(i="-"), "not the form"),
        (server_first(s=""), "salt is empty"),
        (server_first(s="c2FsdA"), "not base64"),
        (server_first(s="c2Fsd!A=="), "not base64"),
        (server_first(s="-"), "not the form"),
        (b"s=c2FsdA==," + server_first(s="-"), "not the form"),
        (b"m=ext," + server_first(), "an extension of SCRAM that is not known"),
        (b"e=unknown-user", "the server says 'unknown-user'"),
        (b"", "not the form"),
        (b"\xff", "not UTF-8"),
        (server_first() + b"," + b"x" * 5000, "too long"),
    ],
)
def test_a_first_message_that_was_tampered_with_is_refused(message: bytes, problem: str) -> None:
    """Before anything is hashed."""
    with pytest.raises(ScramError, match=problem):
        begun().challenge(message)


def test_the_limits_of_the_iterations_are_allowed() -> None:
    """Both ends, and extensions after them are ignored."""
    for count in (4096, 16384):
        challenge = begun().challenge(server_first(i=str(count)) + b",ext=1")
        assert (count, b"salt") == (challenge.iterations, challenge.salt)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"v=" + b64encode(bytes(32)), "has not proved"),
        (SERVER_FINAL[:-1] + b"5", "not base64|has not proved"),
        (b"v=", "has not proved"),
        (b"", "not the form"),
        (b"x=1", "not the form"),
        (b"e=invalid-proof", "the server says 'invalid-proof'"),
        (b"v=%%%", "not base64"),
    ],
)
def test_a_server_that_does_not_prove_itself_is_refused(message: bytes, problem: str) -> None:
    """Whoever only pretends to have checked the password can send no signature."""
    with pytest.raises(ScramError, match=problem):
        answered("pencil").check(message)


def test_a_server_with_another_password_is_refused() -> None:
    """Its signature is right for another salted password."""
    with pytest.raises(ScramError, match="has not proved"):
        answered("crayon").check(SERVER_FINAL)


def test_nothing_is_proved_before_the_final_message() -> None:
    """A client that was answered out of order refuses."""
    with pytest.raises(ScramError, match="has not proved"):
        begun().check(SERVER_FINAL)


def test_a_delegation_token_says_so() -> None:
    """Kafka's extension follows the nonce."""
    client = ScramClient(ScramMechanism.SHA_512, "token", "abc", is_token=True)
    assert b"n,,n=token,r=abc,tokenauth=true" == client.first()


@pytest.mark.parametrize("mechanism", ScramMechanism)
@given(
    user=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    salt=st.binary(min_size=1, max_size=32),
)
def test_both_sides_prove_that_they_know_the_password(
    mechanism: ScramMechanism, user: str, password: str, salt: bytes
) -> None:
    """For any name and password, against the formulas of RFC 5802 on the server's side."""
    name = "sha256" if mechanism is ScramMechanism.SHA_256 else "sha512"
    client = ScramClient(mechanism, user, "c-nonce")
    first = client.first().decode()
    escaped = user.replace("=", "=3D").replace(",", "=2C")
    assert f"n,,n={escaped},r=c-nonce" == first
    message = f"r=c-nonce-s,s={b64encode(salt).decode()},i=4096"
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, 1)
    final = client.final(client.challenge(message.encode()), salted)
    without_proof, _, proof = final.decode().rpartition(",p=")
    signed = f"{first[3:]},{message},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    signature = hmac.digest(stored_key, signed, name)
    expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert b64encode(expected).decode() == proof
    server_key = hmac.digest(salted, b"Server Key", name)
    client.check(b"v=" + b64encode(hmac.digest(server_key, signed, name)))


def test_plain_has_no_authorization_id() -> None:
    """The name and the password follow two NULs (RFC 4616)."""
    assert b"\0ali\xc3\xa7e\0s3cret" == plain_token("aliçe", "s3cret")


def test_numbers_of_the_mechanisms_are_kafkas() -> None:
    """As in DescribeUserScramCredentials."""
    assert {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2} == {
        one.sasl_name: one.code for one in ScramMechanism
    }
