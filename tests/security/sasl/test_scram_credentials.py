"""Credentials of SCRAM."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.security.sasl.scram import (
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
    decode_credential,
    make_credential,
    matches,
    new_salt,
)
from tests.security.sasl.logins import MECHANISMS, NAMES, PASSWORD, SALT, Calls, credential_of
from tests.security.sasl.scram_client import ScramClient

SHA_256 = ScramMechanism.SHA_256
SHA_512 = ScramMechanism.SHA_512

# RFC 7677, section 3.
RFC_BARE = "n=user,r=rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_FIRST = (
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
RFC_WITHOUT_PROOF = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
RFC_SIGNATURE = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_client_of_these_tests_is_that_of_rfc_7677() -> None:
    """Every other test relies on it."""
    client = ScramClient("SCRAM-SHA-256", "pencil", bare=RFC_BARE)
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = client.final(RFC_SERVER_FIRST.encode())
    assert final.decode() == f"{RFC_WITHOUT_PROOF},p={RFC_PROOF}"
    assert client.accepts(f"v={RFC_SIGNATURE}".encode())


def test_a_credential_is_that_of_rfc_7677() -> None:
    """Its keys accept the proof of the RFC, and make the signature of the RFC."""
    credential = make_credential(SHA_256, "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    signed = f"{RFC_BARE},{RFC_SERVER_FIRST},{RFC_WITHOUT_PROOF}".encode()
    signature = hmac.digest(credential.stored_key, signed, "sha256")
    proof = b64decode(RFC_PROOF)
    client_key = bytes(one ^ two for one, two in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    server_signature = hmac.digest(credential.server_key, signed, "sha256")
    assert b64encode(server_signature).decode() == RFC_SIGNATURE


def test_mechanisms_have_kafkas_codes_and_names() -> None:
    """The codes are those of AlterUserScramCredentials."""
    assert [(one.code, one.sasl_name) for one in ScramMechanism] == [
        (1, "SCRAM-SHA-256"),
        (2, "SCRAM-SHA-512"),
    ]
    assert [ScramMechanism.of_code(code) for code in (1, 2)] == [SHA_256, SHA_512]
    for code in (0, 3):
        with pytest.raises(ValueError, match=f"there is no mechanism {code}"):
            ScramMechanism.of_code(code)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
def test_a_salted_password_makes_the_credential_of_its_password(mechanism: ScramMechanism) -> None:
    """AlterUserScramCredentials has the salted password."""
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, PASSWORD.encode(), SALT, 4096)
    assert credential_of_salted(mechanism, salted, SALT, 4096) == credential_of(mechanism)


@pytest.mark.parametrize("size", [1, 18, 1024])
def test_a_salted_password_may_have_any_length(size: int) -> None:
    """As in Kafka. Nobody can log in unless it is the hash of a password."""
    credential = credential_of_salted(SHA_512, b"s" * size, SALT, 4096)
    assert not matches(credential, SHA_512, "s" * size)


@pytest.mark.parametrize("size", [0, 1025])
def test_a_salted_password_has_limits(size: int) -> None:
    """An empty one is no key, and a long one is kept from the hash."""
    with pytest.raises(ValueError, match="a salted password has 1 to 1024 bytes"):
        credential_of_salted(SHA_256, bytes(size), SALT, 4096)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
def test_a_credential_matches_its_password_only(mechanism: ScramMechanism) -> None:
    """Down to the last character."""
    credential = credential_of(mechanism)
    assert matches(credential, mechanism, PASSWORD)
    for other in ["", PASSWORD[:-1], f"{PASSWORD} ", PASSWORD.upper()]:
        assert not matches(credential, mechanism, other)


def test_passwords_are_compared_as_bytes() -> None:
    """Kafka applies no Unicode normalisation: two spellings of one letter are two passwords."""
    credential = make_credential(SHA_256, "caf\u00e9", SALT, 4096)
    assert matches(credential, SHA_256, "caf\u00e9")
    assert not matches(credential, SHA_256, "cafe\u0301")


@pytest.mark.parametrize(
    ("salt", "iterations", "message"),
    [
        (b"", 4096, "a salt has 1 to 1024 bytes"),
        (b"s" * 1025, 4096, "a salt has 1 to 1024 bytes"),
        (SALT, 4095, "Too few iterations"),
        (SALT, 16385, "Too many iterations"),
        (SALT, 1_000_000_000, "Too many iterations"),
        (SALT, -1, "Too few iterations"),
    ],
)
def test_salt_and_iterations_have_limits(
    salt: bytes, iterations: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value outside the limits is refused before any password is hashed."""
    calls = Calls(monkeypatch)
    with pytest.raises(ValueError, match=message):
        make_credential(SHA_256, PASSWORD, salt, iterations)
    with pytest.raises(ValueError, match=message):
        credential_of_salted(SHA_256, bytes(32), salt, iterations)
    assert calls.take()["pbkdf2_hmac"] == 0


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_kafkas_bounds_of_iterations_are_accepted(iterations: int) -> None:
    """Both belong to the range."""
    assert credential_of_salted(SHA_256, bytes(32), SALT, iterations).iterations == iterations


def test_a_credential_does_not_show_its_keys() -> None:
    """A log line may contain it."""
    assert repr(credential_of(SHA_256)) == "ScramCredential(iterations=4096)"


credentials = st.sampled_from([32, 64]).flatmap(
    lambda size: st.builds(
        ScramCredential,
        st.binary(min_size=1, max_size=100),
        st.binary(min_size=size, max_size=size),
        st.binary(min_size=size, max_size=size),
        st.integers(4096, 16384),
    )
)


@given(credentials)
def test_a_stored_credential_is_read_again(credential: ScramCredential) -> None:
    """Of both mechanisms."""
    assert decode_credential(credential.encode()) == credential


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
def test_a_truncated_credential_is_refused(mechanism: ScramMechanism) -> None:
    """At any length."""
    stored = credential_of(mechanism).encode()
    for length in range(len(stored)):
        with pytest.raises(ValueError, match=r".+"):
            decode_credential(stored[:length])


def test_the_stored_form_stays() -> None:
    """Credentials of an older version are read."""
    credential = ScramCredential(b"salt", bytes(32), b"\1" * 32, 4096)
    key, server_key = "A" * 43 + "=", "AQEB" * 10 + "AQE="
    assert (
        credential.encode()
        == (
            f'{{"salt":"c2FsdA==","stored_key":"{key}","server_key":"{server_key}","iterations":4096}}'
        ).encode()
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"c2FsdA=="', b'""'),
        (b'"c2FsdA=="', b'"c2FsdA"'),
        (b'"c2FsdA=="', b'"c2FsdB=="'),
        (b'"c2FsdA=="', b'"c2Fs dA=="'),
        (b'"c2FsdA=="', b"7"),
        (b'"c2FsdA=="', b"null"),
        (b"4096", b"1"),
        (b"4096", b"16385"),
        (b"4096", b"4096.0"),
        (b"4096", b'"4096"'),
        (b"4096", b"true"),
        (b"4096", b"null"),
        (b"AAAA=", b"="),
        (b'"server_key"', b'"other"'),
        (b"{", b"\xff"),
        (b"{", b"[" * 100_000),
    ],
)
def test_a_damaged_credential_is_refused(old: bytes, new: bytes) -> None:
    """With ValueError, as every other row."""
    stored = ScramCredential(b"salt", bytes(32), b"\1" * 32, 4096).encode()
    assert old in stored
    with pytest.raises(ValueError, match=r".+"):
        decode_credential(stored.replace(old, new))


@pytest.mark.parametrize("stored", [b"", b"[]", b"null", b"7", b"{}"])
def test_other_json_is_no_credential(stored: bytes) -> None:
    """With ValueError, as every other row."""
    with pytest.raises(ValueError, match="not a stored SCRAM credential"):
        decode_credential(stored)


def test_a_salt_has_the_form_of_kafkas_tools() -> None:
    """130 bits in base 36: else the salt would tell known users from unknown ones."""
    assert int(new_salt(lambda count: b"\xff" * count), 36) == 2**130 - 1
    assert new_salt(bytes) == b"0"
    numbers = range(99)
    salts = {new_salt(hashlib.shake_128(bytes([one])).digest) for one in numbers}
    assert len(salts) == len(numbers)
    for salt in salts:
        assert re.fullmatch(rb"[1-9a-z][0-9a-z]{20,25}", salt)
