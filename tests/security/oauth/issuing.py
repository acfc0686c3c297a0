"""An authorization server for tests: keys, key sets, and tokens of every kind, good and bad.

Tokens are put together by hand, and signed with the package cryptography: PyJWT, which the server
checks them with, refuses to make most bad ones.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kgw.security.oauth.claims import ClaimRules
from kgw.security.oauth.key_set import KeySet, VerificationKey, parse_key_set

if TYPE_CHECKING:
    from kgw.security.oauth.signed_tokens import TokenHeader

ISSUER = "https://issuer.example/realms/kafka"
AUDIENCE = "kafka.example"
NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1000
HOUR_S = 3600
SKEW_S = 30
RULES = ClaimRules(ISSUER, frozenset({AUDIENCE, "kafka-2"}), clock_skew_s=SKEW_S)

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
_CURVE_NAMES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}

_EXPONENT = 65537
_PRIMES = {
    1: (
        (
            "cc569c17a2a32422710cb66f89c7a8d56418d67d90543bdd24a24619eabed9470a7ea7283f967d19aa1ecfb2"
            "0771e600f83bdba82c5152703e477d0cc290c522d565a04958fc213e94d5050aa98629182131006f3e376137"
            "c66f99de7a2b72b55c728e03c13ec8b921ebdd1037edf900097c4b80a37d4bcc7a96504ee7a0d94f"
        ),
        (
            "cb1fb52610bf20c8adb6724050414225a19c01733c55731ad6cbd00562ccefc988e763ee71e8798ea04a0b29"
            "c022b2e9917a6226c4a469fc2faacde0a14b8975cda8a59b8088ca93623403f87334c66aa9e78fe38d1b4800"
            "4807dcaef54d57989c5dc7960059fb9a1a7bbe44d58f6e937cb48cbf66f98b084286ef4bb8d0e34f"
        ),
    ),
    2: (
        (
            "f5703087373014a0d596a1ab8ec3a32a9721dd8eb081c14abd561746b918293f5ee3f09cdfd186e30e368448"
            "7c258dd43557b08ef69e108d8e1d903d4f05966628203e15628f6e3a6b64c651611f231d9b193ab7c2d82882"
            "9d6c96b80f032924c95d1cf2728513de6e709f337da7e78b28cc76f37d0fe3a7cb9706c7a6acfb69"
        ),
        (
            "bcf72ec69394a1e868987b02469d109032216127c61c3fa008ffaf6311609c660bee35285101448deec5abb6"
            "df66dfa5fc52d40a2a902cb2083c4273ecbd486b7802098e8f8ee110a14f46f93c10b2f48cfa94b93e050ebd"
            "3e8fc75d3f3d0f12763179f1d2b916679914fcf6bfed90b111f81916b172ddc297df2741a7a045c3"
        ),
    ),
}
"""The primes of the RSA keys, which take long to find."""


def encode(data: bytes) -> str:
    """Encode a part of a token."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int, length: int = 0) -> str:
    """Encode a number of a key."""
    return encode(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))


@cache
def private_key(algorithm: str, which: int = 1) -> Any:
    """Return a private key for an algorithm, made once."""
    if algorithm in {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}:
        return _rsa_key(which)
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.from_private_bytes(bytes([which]) * 32)
    return ec.derive_private_key(which + 1234, _CURVES[algorithm])


def _rsa_key(which: int) -> rsa.RSAPrivateKey:
    p, q = (int(one, 16) for one in _PRIMES[which])
    d = rsa.rsa_recover_private_exponent(_EXPONENT, p, q)
    return rsa.RSAPrivateNumbers(
        p,
        q,
        d,
        rsa.rsa_crt_dmp1(d, p),
        rsa.rsa_crt_dmq1(d, q),
        rsa.rsa_crt_iqmp(p, q),
        rsa.RSAPublicNumbers(_EXPONENT, p * q),
    ).private_key(unsafe_skip_rsa_key_validation=True)


def jwk(algorithm: str, key_id: str | None = None, which: int = 1, **more: Any) -> dict[str, Any]:
    """Return a public key as a member of a key set. With None, a member of `more` is left out."""
    public = private_key(algorithm, which).public_key()
    described: dict[str, Any] = {"kid": key_id or f"key-{algorithm}", "use": "sig"}
    if algorithm[:2] in {"RS", "PS"}:
        numbers = public.public_numbers()
        described |= {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
    elif algorithm == "EdDSA":
        raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        described |= {"kty": "OKP", "crv": "Ed25519", "x": encode(raw)}
    else:
        numbers, length = public.public_numbers(), (public.curve.key_size + 7) // 8
        described |= {
            "kty": "EC",
            "crv": _CURVE_NAMES[algorithm],
            "x": number(numbers.x, length),
            "y": number(numbers.y, length),
        }
    described |= more
    return {name: value for name, value in described.items() if value is not None}


def key_set(*keys: dict[str, Any]) -> bytes:
    """Return a key set; by default one key for each kind of algorithm."""
    listed = keys or tuple(jwk(one) for one in ("RS256", "ES256", "ES384", "ES512", "EdDSA"))
    return json.dumps({"keys": listed}).encode()


def sign(algorithm: str, message: bytes, which: int = 1) -> bytes:
    """Sign with the private key of an algorithm."""
    key = private_key(algorithm, which)
    if algorithm == "EdDSA":
        signature: bytes = key.sign(message)
        return signature
    used = _HASHES[algorithm[2:]]
    if algorithm.startswith("RS"):
        signature = key.sign(message, padding.PKCS1v15(), used)
    elif algorithm.startswith("PS"):
        mask = padding.PSS(padding.MGF1(used), used.digest_size)
        signature = key.sign(message, mask, used)
    else:
        length = (key.curve.key_size + 7) // 8
        parts = decode_dss_signature(key.sign(message, ec.ECDSA(used)))
        signature = b"".join(part.to_bytes(length, "big") for part in parts)
    return signature


def claims(**changed: Any) -> dict[str, Any]:
    """Return the claims of a good token; None leaves one out."""
    found = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": NOW_S - 10,
        "nbf": NOW_S - 10,
        "exp": NOW_S + HOUR_S,
        "scope": "kafka",
        "jti": "1",
    } | changed
    return {name: value for name, value in found.items() if value is not None}


def token(
    algorithm: str = "ES256",
    *,
    header: dict[str, Any] | str | None = None,
    payload: dict[str, Any] | str | None = None,
    signed_as: str | None = None,
    which: int = 1,
    signature: bytes | None = None,
) -> str:
    """Return a token. By default it is a good one, for alice.

    `header` changes members of the header, or is a whole one; `payload` is the claims. It is signed
    with the key of the algorithm `signed_as`, or has the given signature.
    """
    key_algorithm = "RS256" if algorithm.startswith(("RS", "PS")) else algorithm
    if not isinstance(header, str):
        members: dict[str, Any] = {"alg": algorithm, "kid": f"key-{key_algorithm}", "typ": "at+jwt"}
        members |= header or {}
        header = json.dumps({name: one for name, one in members.items() if one is not None})
    if not isinstance(payload, str):
        payload = json.dumps(claims() if payload is None else payload)
    message = f"{encode(header.encode())}.{encode(payload.encode())}"
    if signature is None:
        signature = sign(signed_as or algorithm, message.encode(), which)
    return f"{message}.{encode(signature)}"


def token_for(subject: str, **changed: Any) -> str:
    """Return a good token for a user."""
    return token(payload=claims(sub=subject, **changed))


def hmac_of(text: str, secret: bytes, name: str = "sha256") -> bytes:
    """Return the signature of HS256 for `HEADER.PAYLOAD`."""
    return hmac.digest(secret, text.encode(), getattr(hashlib, name))


class FixedTrust:
    """Keys that never change. `asked` has the headers of tokens whose key was looked for again."""

    def __init__(self, keys: bytes | None = None, rules: ClaimRules = RULES) -> None:
        self.rules = rules
        self.keys: KeySet = parse_key_set(key_set() if keys is None else keys)
        self.asked: list[TokenHeader] = []

    def find(self, header: TokenHeader) -> VerificationKey | None:
        return self.keys.find(header.algorithm, header.key_id)

    async def find_again(self, header: TokenHeader) -> VerificationKey | None:
        self.asked.append(header)
        return self.find(header)


def message(text: str, authorization_id: str = "", **extensions: str) -> bytes:
    """Return the first message of an OAUTHBEARER client."""
    named = f"a={authorization_id}" if authorization_id else ""
    pairs = "".join(f"{key}={value}\x01" for key, value in extensions.items())
    return f"n,{named},\x01auth=Bearer {text}\x01{pairs}\x01".encode()
