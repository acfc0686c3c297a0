"""Reads the key set of an authorization server (JWKS, RFC 7517). Needs PyJWT. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from kgw.security.oauth.errors import KeySetError
from kgw.security.oauth.strict_json import parse_object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("EC", "P-521"): "ES512",
    ("OKP", "Ed25519"): "EdDSA",
}
"""The algorithm of each type of key and curve."""
ALGORITHMS: Final = _RSA | frozenset(_CURVES.values())
"""The accepted algorithms. All are asymmetric: a server that can check a token must not be able to
make one."""

MIN_RSA_BITS: Final = 2048
MAX_KEYS: Final = 100
_PUBLIC_MEMBERS: Final[tuple[str, ...]] = ("kty", "crv", "n", "e", "x", "y")
_PRIVATE_MEMBER: Final = "d"


class VerificationKey(NamedTuple):
    """A public key, and the algorithms that it may be used with."""

    key_id: str | None
    algorithms: frozenset[str]
    public_key: PublicKey


class KeySet(NamedTuple):
    """The keys that can be used."""

    keys: tuple[VerificationKey, ...] = ()
    skipped: tuple[str, ...] = ()
    """Why other keys cannot be used, each reason once."""

    def find(self, algorithm: str, key_id: str | None) -> VerificationKey | None:
        """Return the key for a token.

        A token without a key id gets a key only if exactly one key fits its algorithm.
        """
        found = [
            one for one in self.keys if algorithm in one.algorithms and key_id in {None, one.key_id}
        ]
        return found[0] if len(found) == 1 else None

    def has(self, key_id: str) -> bool:
        """Return whether a key has this id."""
        return any(one.key_id == key_id for one in self.keys)


def parse_key_set(data: bytes) -> KeySet:
    """Parse a key set. Raises KeySetError if no key of it can be used.

    A key that cannot be used is skipped, because authorization servers publish keys for other
    purposes in the same set.
    """
    try:
        listed = parse_object(data).get("keys")
    except ValueError:
        raise KeySetError("it is no JSON object, or has a name twice") from None
    if not isinstance(listed, list):
        raise KeySetError('it has no list "keys"')
    if len(listed) > MAX_KEYS:
        raise KeySetError(f"it has more than {MAX_KEYS} keys")
    keys: list[VerificationKey] = []
    skipped: list[str] = []
    for one in listed:
        try:
            key = _key(one)
            _check_unique(key, keys)
        except KeySetError as error:
            skipped.append(str(error))
        else:
            keys.append(key)
    if not keys:
        reasons = "; ".join(sorted(set(skipped))) or "it is empty"
        raise KeySetError(f"it has no key that can check a token: {reasons}")
    return KeySet(tuple(keys), tuple(dict.fromkeys(skipped)))


def _check_unique(key: VerificationKey, keys: Iterable[VerificationKey]) -> None:
    for one in keys:
        if one.key_id == key.key_id is not None and one.algorithms & key.algorithms:
            raise KeySetError("a key has the id of another one")


def _key(described: object) -> VerificationKey:
    """Return a key. Raises KeySetError."""
    if not isinstance(described, dict):
        raise KeySetError("an entry is no key")
    key_id = described.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise KeySetError("a key has an id that is no string")
    if described.get("use", "sig") != "sig":
        raise KeySetError("a key is not for signatures (use)")
    operations = described.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise KeySetError("a key is not for checking signatures (key_ops)")
    if _PRIVATE_MEMBER in described:
        # Whoever has read the key set can sign with such a key.
        raise KeySetError("a key is published with its private part")
    algorithms = _algorithms(described)
    return VerificationKey(key_id, algorithms, _public_key(described))


def _algorithms(described: dict[str, object]) -> frozenset[str]:
    """Return the algorithms of a key: by its type and curve, and by `alg` if it has that."""
    key_type, curve, named = (described.get(one) for one in ("kty", "crv", "alg"))
    if key_type == "RSA":
        algorithms = _RSA
    else:
        algorithms = frozenset(
            algorithm for kind, algorithm in _CURVES.items() if kind == (key_type, curve)
        )
    if not algorithms:
        raise KeySetError("a key is of a type or a curve that is not served")
    if named is None:
        return algorithms
    if not isinstance(named, str) or named not in algorithms:
        raise KeySetError("a key has an algorithm that is not served, or is not of its type")
    return frozenset({named})


def _public_key(described: dict[str, object]) -> PublicKey:
    # Only members of the public key go on. PyJWT would make a private key from the others.
    members: dict[str, Any] = {
        name: described[name] for name in _PUBLIC_MEMBERS if name in described
    }
    if not all(isinstance(one, str) for one in members.values()):
        raise KeySetError("a key cannot be read")
    key: object = None
    try:
        match members["kty"]:
            case "RSA":
                key = RSAAlgorithm.from_jwk(members)
            case "EC":
                key = ECAlgorithm.from_jwk(members)
            case _:
                key = OKPAlgorithm.from_jwk(members)
    except Exception:  # noqa: BLE001 - whatever a library says of such members, they are no key
        # Its text may have the whole key.
        key = None
    if key is None or not hasattr(key, "verify"):
        raise KeySetError("a key cannot be read")
    if getattr(key, "key_size", MIN_RSA_BITS) < MIN_RSA_BITS and members["kty"] == "RSA":
        raise KeySetError(f"an RSA key has fewer than {MIN_RSA_BITS} bits")
    return key  # type: ignore[return-value]
