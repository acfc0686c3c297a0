"""The tokens of campaign A3, each bad in one way, and checkers that are broken in one way."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm

from tests.security.oauth.issuing import (
    AUDIENCE,
    HOUR_S,
    ISSUER,
    NOW_S,
    SKEW_S,
    claims,
    encode,
    hmac_of,
    jwk,
    private_key,
    sign,
    token,
)

OTHER = 2
"""The number of the attacker's keys, which no key set has."""
GOOD = token()
_HEADER, _PAYLOAD, _SIGNATURE = GOOD.split(".")


def _claims(**changed: Any) -> str:
    return token(payload=claims(**changed))


def _header(**changed: Any) -> str:
    return token(header=changed)


def _own_key(name: str, value: Any) -> str:
    """Return a token of the attacker that names the attacker's own key."""
    return token(header={name: value}, which=OTHER)


def _confused(secret: bytes, algorithm: str = "HS256", key_id: str = "key-RS256") -> str:
    """Return a token whose HMAC has a public key as its secret."""
    header = encode(json.dumps({"alg": algorithm, "kid": key_id}).encode())
    message = f"{header}.{encode(json.dumps(claims()).encode())}"
    return f"{message}.{encode(hmac_of(message, secret, f'sha{algorithm[2:]}'))}"


def _text(payload: str) -> str:
    return token(payload=payload)


def _with(name: str, value: str) -> str:
    """Return claims as JSON in which a name is there twice."""
    return f'{json.dumps(claims())[:-1]}, "{name}": {value}}}'


def _expiring(value: str) -> str:
    """Return claims as JSON with an expiry that is written in this way."""
    return json.dumps(claims(exp=0)).replace('"exp": 0', f'"exp": {value}')


def _bad_tokens() -> dict[str, str]:
    public = private_key("RS256").public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    curve_key = private_key("ES256").public_key()
    curve_pem = curve_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    attacker = jwk("ES256", "key-ES256", which=OTHER)
    other_claims = encode(json.dumps(claims(sub="mallory")).encode())
    unsigned = encode(json.dumps({"alg": "none"}).encode())
    flipped = bytearray(urlsafe_b64decode(_SIGNATURE + "=="))
    flipped[7] ^= 1
    return {
        # The algorithm.
        "none": token("none", signed_as="ES256", header={"kid": "key-ES256"}),
        "none without a signature": f"{unsigned}.{_PAYLOAD}.",
        "none with a signature of one byte": f"{unsigned}.{_PAYLOAD}.AA",
        "None in other letters": _header(alg="nOnE"),
        "no algorithm": _header(alg=None),
        "an algorithm that is a list": _header(alg=["ES256"]),
        "an algorithm that is null": token(header=json.dumps({"alg": None, "kid": "key-ES256"})),
        "HS256 with the public key as PEM": _confused(pem),
        "HS256 with the public key as DER": _confused(der),
        "HS512 with the public key as PEM": _confused(pem, "HS512"),
        "HS256 with the public key of a curve": _confused(curve_pem, key_id="key-ES256"),
        "HS256 with an empty secret": _confused(b""),
        "RS256 named, ES256 signed": token("RS256", signed_as="ES256"),
        "RS256 with the id of a key of a curve": token("RS256", header={"kid": "key-ES256"}),
        "ES256 with the key of another curve": _header(kid="key-ES384"),
        "ES256K": _header(alg="ES256K"),
        # The key.
        "another key": token(which=OTHER),
        "another RSA key": token("RS256", which=OTHER),
        "an unknown key id": _header(kid="key-unknown"),
        "another RSA key, without a key id": token("RS256", header={"kid": None}, which=OTHER),
        "a key id that is a number": _header(kid=7),
        "a key id that is a path": _header(kid="../../../dev/null"),
        "a key id of 2,000 letters": _header(kid="k" * 2_000),
        "its own key in jwk": _own_key("jwk", attacker),
        "its own key in jku": _own_key("jku", "https://attacker.example/keys"),
        "its own key in x5u": _own_key("x5u", "https://attacker.example/chain.pem"),
        "its own key in x5c": _own_key("x5c", ["MIIB"]),
        # The header.
        "crit": _header(crit=["exp"]),
        "crit that is empty": _header(crit=[]),
        "crit with b64": _header(crit=["b64"], b64=False),
        "b64": _header(b64=False),
        "a compressed one": _header(zip="DEF"),
        "an encrypted one": _header(enc="A256GCM"),
        "a nested one": token(header={"cty": "JWT"}, payload=json.dumps(GOOD)),
        "a name twice in the header": token(
            header='{"alg": "none", "alg": "ES256", "kid": "key-ES256"}'
        ),
        "a header that is a list": token(header='["ES256"]'),
        "a header that is no JSON": token(header="ES256"),
        "a header of 12,000 bytes": _header(pad="x" * 12_000),
        # The form.
        "cut": GOOD[:-9],
        "without a signature": f"{_HEADER}.{_PAYLOAD}",
        "with an empty signature": f"{_HEADER}.{_PAYLOAD}.",
        "with a signature of zeros": token(signature=bytes(64)),
        "four parts": f"{GOOD}.{_SIGNATURE}",
        "five parts": f"{GOOD}..",
        "with padding": f"{GOOD}==",
        "other claims, the old signature": f"{_HEADER}.{other_claims}.{_SIGNATURE}",
        "a signature with a bit changed": f"{_HEADER}.{_PAYLOAD}.{encode(bytes(flipped))}",
        "a signature with a byte more": token(signature=_signature() + b"\0"),
        "huge": token(payload=claims(pad="x" * 40_000)),
        # The claims.
        "no claims": _text("{}"),
        "claims that are a list": _text('[{"sub": "alice"}]'),
        "claims that are no JSON": _text("alice"),
        "claims nested 3,000 deep": _text("[" * 3_000 + "]" * 3_000),
        "another issuer": _claims(iss="https://attacker.example"),
        "an issuer that begins the same": _claims(iss=f"{ISSUER}.attacker.example"),
        "an issuer that is a list": _claims(iss=[ISSUER]),
        "no issuer": _claims(iss=None),
        "another audience": _claims(aud="other-service"),
        "an audience that begins the same": _claims(aud=f"{AUDIENCE}.attacker.example"),
        "an empty list of audiences": _claims(aud=[]),
        "an audience in an object": _claims(aud={AUDIENCE: 1}),
        "an audience and a number": _claims(aud=[AUDIENCE, 7]),
        "no audience": _claims(aud=None),
        "no expiry": _claims(exp=None),
        "an expiry that is null": _text(_expiring("null")),
        "an expiry that is a string": _claims(exp=str(NOW_S + HOUR_S)),
        "an expiry that is true": _claims(exp=True),
        "an expiry that is infinite": _text(_expiring("1e999")),
        "an expiry that is NaN": _claims(exp=float("nan")),
        "an expiry after the year 9999": _claims(exp=1e15),
        "an expiry of 5,000 digits": _text(_expiring("9" * 5_000)),
        "expired": _claims(exp=NOW_S - 1),
        "expired within the clock skew": _claims(exp=NOW_S - SKEW_S + 1),
        "expiring now": _claims(exp=NOW_S),
        "not valid yet": _claims(nbf=NOW_S + SKEW_S + 1),
        "a beginning that is a string": _claims(nbf=str(NOW_S)),
        "issued in the future": _claims(iat=NOW_S + SKEW_S + 1),
        "issued at a negative time": _claims(iat=-1),
        "no subject": _claims(sub=None),
        "an empty subject": _claims(sub=""),
        "a subject that is a number": _claims(sub=7),
        "the subject *": _claims(sub="*"),
        "the subject ANONYMOUS": _claims(sub="ANONYMOUS"),
        "a subject with a line break": _claims(sub="alice\nbob"),
        "a subject with a blank at its end": _claims(sub="alice "),
        "a subject of 300 letters": _claims(sub="a" * 300),
        "a subject that is half a character": _claims(sub="\ud800"),
        "a subject twice": _text(_with("sub", '"alice"')),
        "an expiry twice": _text(_with("exp", str(NOW_S + HOUR_S))),
        "scopes that are a number": _claims(scope=7),
        "scopes that are objects": _claims(scope=[{}]),
    }


def _signature() -> bytes:
    return sign("ES256", f"{_HEADER}.{_PAYLOAD}".encode())


BAD_TOKENS = _bad_tokens()

Checker = Callable[[str], str]
"""Returns the subject of a token; raises an exception for one that it does not accept."""


def accepted(checker: Checker) -> set[str]:
    """Return the names of the bad tokens that a checker accepts."""
    found = set()
    for name, text in BAD_TOKENS.items():
        # However a broken checker refuses a token.
        with suppress(Exception):
            checker(text)
            found.add(name)
    return found


# --- checkers that are broken on purpose ---


def _keys() -> dict[str, Any]:
    return {f"key-{one}": private_key(one).public_key() for one in ("RS256", "ES256", "ES384")}


def _checker(**missing: Any) -> Checker:
    """Return a checker that is right but for what is missing."""
    algorithms = missing.get("algorithms", ["RS256", "ES256", "ES384"])

    def check(text: str) -> str:
        header = jwt.get_unverified_header(text)
        key = _keys()[header["kid"]]
        if "own key" in missing and "jwk" in header:
            key = ECAlgorithm.from_jwk(header["jwk"])
        payload = jwt.PyJWS().decode(
            text, key, algorithms, options={"verify_signature": "signature" not in missing}
        )
        return _check(json.loads(payload), missing)

    return check


def _check(found: dict[str, Any], missing: dict[str, Any]) -> str:
    named: Any = found.get("aud")
    audiences: Any = [named] if isinstance(named, str) else named
    rules: dict[str, Callable[[], bool]] = {
        "issuer": lambda: found["iss"] == ISSUER,
        "audience": lambda: AUDIENCE in audiences,
        "expiry": lambda: NOW_S < found["exp"] < NOW_S + HOUR_S + 1,
        "beginning": lambda: found.get("nbf", 0) <= NOW_S + SKEW_S,
        "issue": lambda: 0 <= found.get("iat", 0) <= NOW_S + SKEW_S,
        "subject": lambda: isinstance(found["sub"], str) and found["sub"].isalnum(),
    }
    for name, holds in rules.items():
        if name not in missing and not holds():
            raise ValueError(name)
    return str(found.get("sub"))


def _confusing(text: str) -> str:
    """Accept the algorithm that the token names, with the public key as the secret of an HMAC."""
    message, _, signature = text.rpartition(".")
    header = json.loads(urlsafe_b64decode(text.split(".", maxsplit=1)[0] + "=="))
    pem = _keys()[header["kid"]].public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    given = urlsafe_b64decode(signature + "==")
    if header["alg"] != "HS256" or not hmac.compare_digest(given, hmac_of(message, pem)):
        raise ValueError
    return _check(json.loads(urlsafe_b64decode(message.split(".")[1] + "==")), {})


def _unsigned(text: str) -> str:
    """Accept tokens without an algorithm."""
    header, payload, *_ = text.split(".")
    if json.loads(urlsafe_b64decode(header + "=="))["alg"].lower() != "none":
        raise ValueError
    return _check(json.loads(urlsafe_b64decode(payload + "==")), {})


BROKEN: dict[str, tuple[Checker, str]] = {
    "accepts none": (_unsigned, "none without a signature"),
    "takes a public key for a secret": (_confusing, "HS256 with the public key as PEM"),
    "checks no signature": (_checker(signature=1), "another key"),
    "takes the key of the token": (_checker(**{"own key": 1}), "its own key in jwk"),
    "checks no issuer": (_checker(issuer=1), "no issuer"),
    "checks no audience": (_checker(audience=1), "another audience"),
    "checks no expiry": (_checker(expiry=1), "no expiry"),
    "checks no beginning": (_checker(beginning=1), "not valid yet"),
    "checks no time of issue": (_checker(issue=1), "issued in the future"),
    "checks no subject": (_checker(subject=1), "the subject *"),
    "takes a claim that is there twice": (_checker(), "a subject twice"),
}
"""For each broken checker a bad token that it accepts."""
