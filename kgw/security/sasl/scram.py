"""SCRAM (RFC 5802, RFC 7677): stored credentials, and the server's side of a login. Pure.

Names and passwords are used as the UTF-8 bytes that the client sends. Kafka's server and clients
apply no SASLprep and no Unicode normalisation either (`ScramFormatter.normalize`), so a password
means the same to both brokers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from math import log
from typing import TYPE_CHECKING, Final

from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.scram_messages import (
    ClientFinal,
    ClientFirst,
    decode_base64,
    encode_base64,
    parse_client_final,
    parse_client_first,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Kafka's bounds. A client hashes as often as the server says: a huge number would stop it."""

MAX_SALT_BYTES: Final = 1024
MAX_SALTED_PASSWORD_BYTES: Final = 1024
_SALT_NUMBER_BYTES: Final = 17
_SALT_NUMBER_BITS: Final = 130
_NONCE_BYTES: Final = 24
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


class ScramMechanism(Enum):
    """A SCRAM mechanism. The first number is its code in AlterUserScramCredentials."""

    SHA_256 = 1, "SCRAM-SHA-256", "sha256", 32
    SHA_512 = 2, "SCRAM-SHA-512", "sha512", 64

    def __init__(self, code: int, sasl_name: str, hash_name: str, key_bytes: int) -> None:
        self.code = code
        self.sasl_name = sasl_name
        self.hash_name = hash_name
        self.key_bytes = key_bytes

    @classmethod
    def named(cls, sasl_name: str) -> ScramMechanism:
        """Return the mechanism of a name. Raises ValueError."""
        for one in cls:
            if one.sasl_name == sasl_name:
                return one
        raise ValueError(f"{sasl_name!r} is no SCRAM mechanism")

    @classmethod
    def of_code(cls, code: int) -> ScramMechanism:
        """Return the mechanism of a code. Raises ValueError."""
        for one in cls:
            if one.code == code:
                return one
        raise ValueError(f"there is no mechanism {code}")

    def sign(self, key: bytes, data: bytes) -> bytes:
        """Return the HMAC of the data."""
        return hmac.digest(key, data, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What the server stores instead of a password. Its text form hides the keys.

    Raises ValueError for a salt, a key or an iteration count that no login could use.
    """

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def __post_init__(self) -> None:
        check_salt_and_iterations(self.salt, self.iterations)
        sizes = {one.key_bytes for one in ScramMechanism}
        if len(self.stored_key) not in sizes or len(self.server_key) != len(self.stored_key):
            raise ValueError("the keys of a SCRAM credential have the wrong length")

    def encode(self) -> bytes:
        """Return the stored form."""
        fields = {
            "salt": encode_base64(self.salt),
            "stored_key": encode_base64(self.stored_key),
            "server_key": encode_base64(self.server_key),
            "iterations": self.iterations,
        }
        return _ENCODER.encode(fields).encode()


def decode_credential(value: bytes) -> ScramCredential:
    """Decode the output of `ScramCredential.encode`. Raises ValueError for other bytes."""
    try:
        fields = json.loads(value)
        iterations = fields["iterations"]
        salt, stored_key, server_key = (
            decode_base64(fields[name]) for name in ("salt", "stored_key", "server_key")
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fields = None
    if fields is None or type(iterations) is not int:
        raise ValueError("not a stored SCRAM credential")
    if salt is None or stored_key is None or server_key is None:
        raise ValueError("not a stored SCRAM credential")
    return ScramCredential(salt, stored_key, server_key, iterations)


def check_salt_and_iterations(salt: bytes, iterations: int) -> None:
    """Raise ValueError for a salt or an iteration count outside the limits."""
    if not 0 < len(salt) <= MAX_SALT_BYTES:
        raise ValueError(f"a salt has 1 to {MAX_SALT_BYTES} bytes")
    if iterations < MIN_ITERATIONS:
        raise ValueError("Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise ValueError("Too many iterations")


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password. Takes milliseconds, so call it outside the event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def make_credential(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> ScramCredential:
    """Make the credential of a password. Raises ValueError for values outside the limits.

    It takes milliseconds (0.85 ms for SHA-256, 1.7 ms for SHA-512 with 4096 iterations), so call it
    outside the event loop.
    """
    check_salt_and_iterations(salt, iterations)
    salted = salt_password(mechanism, password, salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def credential_of_salted(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Make a credential of the salted password that AlterUserScramCredentials has.

    Takes microseconds. Raises ValueError for values outside the limits. As in Kafka, the salted
    password need not have the length of the mechanism's hash; no password has such a hash.
    """
    if not 0 < len(salted_password) <= MAX_SALTED_PASSWORD_BYTES:
        raise ValueError(f"a salted password has 1 to {MAX_SALTED_PASSWORD_BYTES} bytes")
    return ScramCredential(
        salt,
        mechanism.hash(mechanism.sign(salted_password, b"Client Key")),
        mechanism.sign(salted_password, b"Server Key"),
        iterations,
    )


def matches(credential: ScramCredential, mechanism: ScramMechanism, password: str) -> bool:
    """Return whether the credential was made of this password. For PLAIN.

    Takes milliseconds, so call it outside the event loop.
    """
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    stored_key = mechanism.hash(mechanism.sign(salted, b"Client Key"))
    return hmac.compare_digest(stored_key, credential.stored_key)


def new_salt(random_bytes: Callable[[int], bytes]) -> bytes:
    """Return a salt in the form that Kafka's tools give to salts."""
    return _salt_of(random_bytes(_SALT_NUMBER_BYTES))


def _salt_of(data: bytes) -> bytes:
    """Write 130 bits in base 36, as `ScramFormatter.secureRandomBytes` of Kafka does."""
    number = int.from_bytes(data, "big") >> (8 * len(data) - _SALT_NUMBER_BITS)
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return (digits or "0").encode()


class FakeCredentials:
    """Credentials for users who do not exist.

    A client learns salt and iterations of any user before it proves anything. An unknown user must
    therefore have both, and the same ones each time: they are made of a secret of the server and of
    the name. The salt has the form that Kafka's tools and `new_salt` give to salts. The iteration
    count is one that real users have for the mechanism: a count that a third of them have is the
    count of a third of the unknown users. For a mechanism that no user has, it is the least count.
    Delegation tokens have the least count, and real tokens have the salt of a fake.
    """

    def __init__(
        self, secret: bytes, users: Mapping[ScramMechanism, Mapping[int, int]] | None = None
    ) -> None:
        """`users` has the number of real users by mechanism and iteration count.

        Raises ValueError without a secret, and for counts that no credential may have.
        """
        if not secret:
            raise ValueError("a client could compute the fake salts of an empty secret")
        self._secret = secret
        self._users = {of: dict(counts) for of, counts in (users or {}).items()}
        for iterations, number in chain(*(one.items() for one in self._users.values())):
            if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS or number < 1:
                raise ValueError("the iteration counts are not those of credentials")

    def credential(self, mechanism: ScramMechanism, user: str, is_token: bool) -> ScramCredential:
        """Return the credential of an unknown user. No password is known to match it."""
        name = f"{mechanism.sasl_name}\0{'token' if is_token else 'user'}\0{user}".encode()
        seed = hmac.digest(self._secret, b"seed\0" + name, "sha512")
        return ScramCredential(
            _salt_of(seed[:_SALT_NUMBER_BYTES]),
            hmac.digest(self._secret, b"stored key\0" + name, mechanism.hash_name),
            hmac.digest(self._secret, b"server key\0" + name, mechanism.hash_name),
            MIN_ITERATIONS if is_token else self._iterations(mechanism, user),
        )

    def _iterations(self, mechanism: ScramMechanism, user: str) -> int:
        """Choose among the counts of real users by weighted rendezvous hashing.

        A name changes its count only when the number of users with some count changes, and then as
        few names as possible do. The mechanism is not hashed, because real users tend to have the
        same count for each of their mechanisms.
        """
        users = self._users.get(mechanism)
        if not users:
            return MIN_ITERATIONS

        def distance(iterations: int) -> float:
            seed = b"count\0%d\0" % iterations + user.encode()
            digest = hmac.digest(self._secret, seed, "sha256")
            uniform = (int.from_bytes(digest[:6], "big") + 1) / (1 << 48)
            return -log(uniform) / users[iterations]

        return min(users, key=distance)


class _State(Enum):
    FIRST = "the first message is expected"
    FINAL = "the final message is expected"
    SUCCEEDED = "the client has proved that it knows the password"
    FAILED = "the login is refused"


class ScramExchange:
    """One login: two messages of the client, each with an answer of the server.

    `credential_for(user)` returns the credential of a user, or None. For None the exchange goes on
    with a fake credential, does the same work, and fails at the end as it does for a wrong
    password. So it does for each delegation token, unless `supply` is called before the final
    message. Any failure raises AuthenticationFailed and ends the exchange; so does any message
    after the end.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_for: Callable[[str], ScramCredential | None],
        fakes: FakeCredentials,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._mechanism = mechanism
        self._credential_for = credential_for
        self._fakes = fakes
        self._random_bytes = random_bytes
        self._state = _State.FIRST
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._nonce = ""
        self._credential: ScramCredential | None = None
        self._is_known = False

    @property
    def succeeded(self) -> bool:
        return self._state is _State.SUCCEEDED

    @property
    def user(self) -> str:
        """The user name or the id of the token. Raises RuntimeError before the login succeeds."""
        return self._proved().user

    @property
    def is_token(self) -> bool:
        """Whether `user` is the id of a token. Raises RuntimeError before the login succeeds."""
        return self._proved().is_token

    @property
    def claimed_token(self) -> str | None:
        """The id of the delegation token that the client claims to know; None for a user.

        Also None unless the final message is expected.
        """
        is_expected = self._state is _State.FINAL and self._first and self._first.is_token
        return self._first.user if is_expected and self._first else None

    @property
    def salt(self) -> bytes:
        """The salt that the client was sent. Raises RuntimeError before that."""
        if self._credential is None:
            raise RuntimeError("no salt was sent yet")
        return self._credential.salt

    def supply(self, credential: ScramCredential) -> None:
        """Use the credential of the claimed token. Raises ValueError for one of another salt."""
        sent = self._credential
        if sent is None or (sent.salt, sent.iterations) != (credential.salt, credential.iterations):
            raise ValueError("the client was sent another salt")
        self._credential = credential
        self._is_known = True

    def respond(self, message: bytes) -> bytes:
        """Return the answer to a message of the client. Raises AuthenticationFailed."""
        state, self._state = self._state, _State.FAILED
        if state is _State.FIRST:
            answer = self._respond_to_first(parse_client_first(message, self._name))
            self._state = _State.FINAL
        elif state is _State.FINAL and self._first and self._credential:
            final = parse_client_final(message, self._name)
            answer = self._respond_to_final(final, self._first, self._credential)
            self._state = _State.SUCCEEDED
        else:
            raise AuthenticationFailed(self._name, "the client sends a message after the end")
        return answer.encode()

    @property
    def _name(self) -> str:
        return self._mechanism.sasl_name

    def _proved(self) -> ClientFirst:
        if self._first is None or not self.succeeded:
            raise RuntimeError("the login has not succeeded")
        return self._first

    def _respond_to_first(self, first: ClientFirst) -> str:
        if first.authorization_id not in {None, first.user}:
            raise AuthenticationFailed(
                self._name, "the client asks for the identity of another user", first.user
            )
        # The fake is made for each user, so that a known user costs the same.
        fake = self._fakes.credential(self._mechanism, first.user, first.is_token)
        known = None if first.is_token else self._credential_for(first.user)
        self._is_known = known is not None
        self._credential = fake if known is None else known
        self._first = first
        self._nonce = first.nonce + encode_base64(self._random_bytes(_NONCE_BYTES))
        salt = encode_base64(self._credential.salt)
        self._server_first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return self._server_first

    def _respond_to_final(
        self, final: ClientFinal, first: ClientFirst, credential: ScramCredential
    ) -> str:
        if final.channel_binding != encode_base64(first.gs2_header.encode()):
            self._refuse("the channel binding differs from the first message", first)
        # The whole nonce, by equality: to compare nothing was CVE-2024-56128 of Kafka.
        if final.nonce != self._nonce:
            self._refuse("the nonce differs from the server's", first)
        if len(final.proof) != self._mechanism.key_bytes:
            self._refuse("the proof has the wrong length", first)
        signed = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        signature = self._mechanism.sign(credential.stored_key, signed)
        client_key = bytes(one ^ two for one, two in zip(final.proof, signature, strict=True))
        is_proved = hmac.compare_digest(self._mechanism.hash(client_key), credential.stored_key)
        if not self._is_known:
            self._refuse("the user or the token is unknown", first)
        if not is_proved:
            self._refuse("the proof is wrong", first)
        return f"v={encode_base64(self._mechanism.sign(credential.server_key, signed))}"

    def _refuse(self, reason: str, first: ClientFirst) -> None:
        raise AuthenticationFailed(self._name, reason, first.user)
