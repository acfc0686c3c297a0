"""Remembers passwords that were right, as a hash of a password takes milliseconds. Pure.

Prometheus sends user and password with each scrape, and a client of the agent with each call.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.security.sasl.scram import ScramCredential, ScramMechanism

LASTS_S: Final = 300.0
"""How long a password that was right is not hashed again."""
_MOST: Final = 1_000


class _Proof(NamedTuple):
    user: str
    credentials: Mapping[ScramMechanism, ScramCredential]
    """The user's credentials when the password was hashed."""
    until_s: float


class ProvedPasswords:
    """Messages of PLAIN whose password was right, by a digest that only this process can make.

    A proof ends with its time, and with any change of the user's credentials: when the user is
    deleted, or gets another password.
    """

    def __init__(self, secret: bytes, lasts_s: float = LASTS_S, most: int = _MOST) -> None:
        """`secret` is random; `most` is the number of messages that are remembered."""
        self._secret = secret
        self._lasts_s = lasts_s
        self._most = most
        self._proofs: dict[bytes, _Proof] = {}

    def __len__(self) -> int:
        return len(self._proofs)

    def __repr__(self) -> str:
        return f"<ProvedPasswords of {len(self)} messages>"

    def add(
        self,
        message: bytes,
        user: str,
        credentials: Mapping[ScramMechanism, ScramCredential],
        now_s: float,
    ) -> None:
        """Remember a message. `credentials` are those with which its password was compared."""
        if len(self._proofs) >= self._most:
            self._make_room(now_s)
        self._proofs[self._digest(message)] = _Proof(user, credentials, now_s + self._lasts_s)

    def user_of(
        self,
        message: bytes,
        credentials_of: Callable[[str], Mapping[ScramMechanism, ScramCredential]],
        now_s: float,
    ) -> str | None:
        """Return the user of a message that was right; None if its password must be hashed.

        `credentials_of` returns the present credentials of a user.
        """
        digest = self._digest(message)
        proof = self._proofs.get(digest)
        if proof is None:
            return None
        if now_s >= proof.until_s or credentials_of(proof.user) != proof.credentials:
            del self._proofs[digest]
            return None
        return proof.user

    def _digest(self, message: bytes) -> bytes:
        return hmac.digest(self._secret, message, "sha256")

    def _make_room(self, now_s: float) -> None:
        """Forget the proofs that have ended; the oldest one if there are none."""
        ended = [one for one, proof in self._proofs.items() if now_s >= proof.until_s]
        for one in ended or [next(iter(self._proofs))]:
            del self._proofs[one]
