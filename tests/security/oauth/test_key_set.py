"""Key sets: which keys can check a token, and which are left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kgw.security.oauth.errors import KeySetError, TokenRefused
from kgw.security.oauth.key_set import ALGORITHMS as ACCEPTED
from kgw.security.oauth.key_set import MAX_KEYS, KeySet, parse_key_set
from kgw.security.oauth.signed_tokens import read_token
from tests.security.oauth.issuing import ALGORITHMS, encode, jwk, key_set, token


def parsed(*keys: dict[str, Any]) -> KeySet:
    """Parse a set of these keys, and a good one."""
    return parse_key_set(key_set(*keys, jwk("EdDSA", "good")))


def refusal(data: bytes) -> str:
    """Return why a key set is refused."""
    with pytest.raises(KeySetError) as caught:
        parse_key_set(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_accepted_algorithms() -> None:
    """They are asymmetric without exception."""
    assert set(ALGORITHMS) == ACCEPTED
    assert not {one for one in ACCEPTED if one.startswith(("HS", "no"))}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_fits_the_algorithms_of_its_type(algorithm: str) -> None:
    """An RSA key fits six, the others one; `alg` narrows that to one."""
    found = parsed(jwk(algorithm, "a")).find(algorithm, "a")
    assert found is not None
    expected = {one for one in ALGORITHMS if one[:2] in {"RS", "PS"}}
    assert found.algorithms == (expected if algorithm in expected else {algorithm})
    narrowed = parsed(jwk(algorithm, "a", alg=algorithm)).find(algorithm, "a")
    assert narrowed is not None
    assert {algorithm} == narrowed.algorithms
    assert found.public_key == narrowed.public_key


def test_a_key_is_found_by_its_id_and_the_algorithm() -> None:
    """A token without an id gets the only key that fits."""
    keys = parse_key_set(key_set(jwk("RS256", "a"), jwk("ES256", "a"), jwk("ES256", "b", which=2)))
    assert [None, None, None] == [
        keys.find("ES384", "a"),
        keys.find("RS256", "b"),
        keys.find("ES256", None),
    ]
    only = keys.find("PS384", None)
    assert only is not None
    assert only == keys.find("RS256", "a")
    assert only != keys.find("ES256", "a") != keys.find("ES256", "b")
    assert [True, True, False] == [keys.has(one) for one in ("a", "b", "c")]


def test_a_key_without_an_id_has_none() -> None:
    """It serves tokens without an id, and no token with one."""
    keys = parse_key_set(key_set(jwk("ES256") | {"kid": "x"}, {**jwk("ES384"), "kid": None}))
    assert (None, None) == (keys.find("ES384", "x"), keys.find("ES384", ""))
    unnamed = dict(jwk("ES384"))
    del unnamed["kid"]
    keys = parse_key_set(key_set(unnamed))
    assert (None, None) == (keys.find("ES384", "key-ES384"), keys.find("ES384", ""))
    assert keys.find("ES384", None) is not None


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ({"kty": "oct", "k": encode(b"secret" * 8), "kid": "a"}, "type or a curve"),
        ({"kty": "oct", "k": encode(b"secret" * 8), "alg": "HS256"}, "type or a curve"),
        (jwk("RS256", alg="HS256"), "algorithm that is not served"),
        (jwk("RS256", alg="none"), "algorithm that is not served"),
        (jwk("RS256", alg="ES256"), "algorithm that is not served"),
        (jwk("RS256", alg=["RS256"]), "algorithm that is not served"),
        (jwk("RS256", use="enc"), "not for signatures"),
        (jwk("RS256", key_ops=["encrypt"]), "not for checking signatures"),
        (jwk("RS256", key_ops="verify"), "not for checking signatures"),
        (jwk("RS256", kid=7), "no string"),
        (jwk("RS256", d=encode(b"private")), "private part"),
        (jwk("ES256", d=encode(b"private")), "private part"),
        (jwk("EdDSA", d=encode(b"private")), "private part"),
        (jwk("ES256", crv="P-384"), "cannot be read"),
        (jwk("ES256", crv="secp256k1"), "type or a curve"),
        (jwk("ES256", crv=["P-256"]), "type or a curve"),
        (jwk("ES256", y=encode(bytes(32))), "cannot be read"),
        (jwk("ES256", x=encode(b"short")), "cannot be read"),
        (jwk("ES256", x=7), "cannot be read"),
        (jwk("ES256", y=None), "cannot be read"),
        (jwk("EdDSA", crv="Ed448"), "type or a curve"),
        (jwk("EdDSA", crv="X25519"), "type or a curve"),
        (jwk("EdDSA", x=encode(b"short")), "cannot be read"),
        (jwk("RS256", n=None), "cannot be read"),
        (jwk("RS256", e=encode(b"\2")), "cannot be read"),
        (jwk("RS256", n=encode(b"\xff" * 128)), "fewer than 2048 bits"),
        (jwk("RS256", kty=None), "type or a curve"),
        (jwk("ES256", "good"), ""),
        (jwk("EdDSA", "good", which=2), "the id of another one"),
        (["kty"], "no key"),
        ("RSA", "no key"),
    ],
)
def test_a_key_that_cannot_be_used_is_skipped(key: Any, reason: str) -> None:
    """The others are used; the reason has no part of the key."""
    keys = parse_key_set(json.dumps({"keys": [jwk("EdDSA", "good"), key]}).encode())
    if not reason:
        assert ((), 2) == (keys.skipped, len(keys.keys))
        return
    assert 1 == len(keys.keys)
    (skipped,) = keys.skipped
    assert reason in skipped
    assert encode(b"private") not in skipped


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no JSON object"),
        (b"<html>", "no JSON object"),
        (b"[]", "no JSON object"),
        (b"[" * 9_000, "no JSON object"),
        (b"\xff\xfe", "no JSON object"),
        (b'{"keys": [], "keys": []}', "a name twice"),
        (b"{}", 'no list "keys"'),
        (b'{"keys": {}}', 'no list "keys"'),
        (b'{"keys": []}', "it is empty"),
        (key_set({"kty": "oct", "k": "AAAA"}), "no key that can check a token: a key is of a type"),
        (key_set(*[jwk("ES256", str(at)) for at in range(MAX_KEYS + 1)]), "more than 100 keys"),
    ],
    ids=range(11),
)
def test_a_set_without_a_key_is_refused(data: bytes, reason: str) -> None:
    """A server with it could check no token."""
    assert reason in refusal(data)


def test_a_key_does_not_verify_another_algorithm() -> None:
    """Neither another one of its type that `alg` rules out, nor one of another type."""
    (narrow,) = parse_key_set(key_set(jwk("RS256", alg="RS256"))).keys
    (curve,) = parse_key_set(key_set(jwk("ES256"))).keys
    for text, key in ((token("RS512"), narrow), (token("RS256"), curve), (token(), narrow)):
        with pytest.raises(TokenRefused, match="does not fit"):
            read_token(text).verified_payload(key)
