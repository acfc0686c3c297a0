"""Users, tokens and randomness for the tests of logins, and a count of costly calls."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections import Counter
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from kgw.security.principal import Principal
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.scram import (
    FakeCredentials,
    ScramCredential,
    ScramExchange,
    ScramMechanism,
    make_credential,
)
from kgw.security.sasl.tokens import DelegationToken, TokenLimits, TokenRules
from tests.security.sasl.scram_client import ScramClient

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

MECHANISMS = list(ScramMechanism)
NAMES = [one.sasl_name for one in MECHANISMS]
PASSWORD = "alice-hunter2"
SALT = b"1wq0z8fj2k5mhv7c3d9xtb6yrn"
FAKES = FakeCredentials(b"the secret of the server")
DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
RULES = TokenRules("master", TokenLimits(7 * DAY_MS, DAY_MS))
TOKEN = RULES.create("token-1", ALICE, BOB, [], 0, NOW_MS)


def always(_: str) -> bool:
    """Let every password be checked."""
    return True


def numbered_bytes(count: int) -> bytes:
    """Return always the same bytes in place of random ones."""
    return bytes(range(count))


@cache
def credential_of(
    mechanism: ScramMechanism, password: str = PASSWORD, iterations: int = 4096
) -> ScramCredential:
    """Return the credential of a password, made once."""
    return make_credential(mechanism, password, SALT, iterations)


class Logins:
    """Alice with both mechanisms, Sha256 and Sha512 with one each, and a token of Alice's."""

    def __init__(self) -> None:
        self.tokens: dict[str, DelegationToken] = {"token-1": TOKEN}
        self.kept: dict[tuple[ScramMechanism, str], ScramCredential] = {}
        """The credentials of tokens that logins have made."""

    def user_credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        has = user in {"alice", mechanism.hash_name}
        return credential_of(mechanism) if has else None

    def token(self, token_id: str) -> DelegationToken | None:
        return self.tokens.get(token_id)

    def token_credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential | None:
        return self.kept.get((mechanism, token_id))

    def token_credential_maker(
        self, mechanism: ScramMechanism, token_id: str, salt: bytes
    ) -> Callable[[], ScramCredential]:
        return partial(RULES.credential, token_id, mechanism, salt)

    def keep_token_credential(
        self, mechanism: ScramMechanism, token_id: str, credential: ScramCredential
    ) -> None:
        self.kept[mechanism, token_id] = credential


def open_scram(
    mechanism: ScramMechanism,
    users: dict[str, ScramCredential] | None = None,
    random_bytes: Callable[[int], bytes] = numbered_bytes,
    fakes: FakeCredentials = FAKES,
) -> ScramExchange:
    """Open an exchange with a server that knows only Alice, or the given users; no tokens."""
    known = {"alice": credential_of(mechanism)} if users is None else users

    def credential_for(user: str) -> ScramCredential | None:
        try:
            return known[user]
        except KeyError:
            return None

    return ScramExchange(mechanism, credential_for, fakes, random_bytes)


NONCE = "fyko+d2lbbFgONRv9qkxdawL"
SERVER_NONCE = b64encode(numbered_bytes(24)).decode()


def valid_messages(mechanism: ScramMechanism) -> tuple[bytes, bytes]:
    """Return the messages of a client that logs in at `open_scram`."""
    client = ScramClient(mechanism.sasl_name, PASSWORD)
    server_first = open_scram(mechanism).respond(client.first())
    return client.first(), client.final(server_first)


def attempt(exchange: ScramExchange, *messages: bytes) -> AuthenticationFailed | None:
    """Send the messages; return the refusal, or None if the login succeeds."""
    try:
        for message in messages:
            exchange.respond(message)
    except AuthenticationFailed as error:
        assert not exchange.succeeded
        return error
    return None if exchange.succeeded else AuthenticationFailed("", "not finished")


class Calls:
    """Count the calls whose number could tell two logins apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: Counter[str] = Counter()
        for module, name in [
            (hmac, "digest"),
            (hmac, "compare_digest"),
            (hashlib, "new"),
            (hashlib, "pbkdf2_hmac"),
        ]:
            monkeypatch.setattr(module, name, self._counting(name, getattr(module, name)))

    def take(self) -> Counter[str]:
        """Return the calls since the last time."""
        made, self.made = self.made, Counter()
        return made

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            self.made[name] += 1
            if name == "pbkdf2_hmac":
                self.made[f"iterations of {arguments[0]}"] += arguments[3]
            return call(*arguments, **named)

        return counting
