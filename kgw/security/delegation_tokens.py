"""The delegation tokens of a cluster: in memory for logins and requests, and in the state store.

The stored form has no HMAC: it is computed from the id of the token and the server's secret. Tokens
that were made with another secret than the present one are kept and are not used: they are valid
again when the server gets their secret back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.logs import EventLogger
from kgw.security.principal import USER_TYPE, Principal
from kgw.security.sasl.tokens import (
    SHORTEST_SAFE_SECRET,
    TokenLimits,
    TokenRules,
    decode_token,
    new_token_id,
)
from kgw.security.stored_rows import intact_rows
from kgw.state.base import Change
from kgw.state.kinds import DELEGATION_TOKEN
from kgw.turns import StepBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.security.sasl.scram import ScramCredential, ScramMechanism
    from kgw.security.sasl.tokens import DelegationToken
    from kgw.state.base import StateStore

_PER_TURN = 200
_log = EventLogger(__name__)


class TokenCaps(NamedTuple):
    """How many tokens there may be."""

    all_tokens: int
    of_one_principal: int
    """Tokens that a principal owns or has requested."""


class NewToken(NamedTuple):
    """A token that was created, and its HMAC."""

    token: DelegationToken
    hmac: bytes


class DelegationTokens:
    """The delegation tokens of the cluster. Call `load` before anything else."""

    def __init__(
        self,
        state: StateStore,
        rules: TokenRules,
        caps: TokenCaps | None,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`caps` is None if no server runs: then there are no new tokens, and no warnings."""
        self.rules = rules
        self.turn = asyncio.Lock()
        """Held while a change is decided and made; also while a user is deleted."""
        self._state = state
        self._caps = caps
        self._random_bytes = random_bytes
        self._tokens: dict[str, DelegationToken] = {}
        self._unusable: dict[str, DelegationToken] = {}
        """Tokens that were made with another secret."""
        self._ids: dict[bytes, str] = {}
        """The ids of tokens, by the digest of their HMAC."""
        self._counts: Counter[Principal] = Counter()
        """The number of tokens that a principal owns or has requested."""
        self._credentials: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        """By token and mechanism, since the first login with the token."""
        self._removing: asyncio.Task[None] | None = None

    @classmethod
    def configured(
        cls, state: StateStore, config: Config, random_bytes: Callable[[int], bytes]
    ) -> DelegationTokens:
        """Return the tokens of a server with these settings."""
        limits = TokenLimits(
            config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms
        )
        caps = TokenCaps(config.delegation_tokens_max, config.delegation_tokens_per_principal_max)
        rules = TokenRules(config.delegation_token_secret_key, limits)
        return cls(state, rules, caps, random_bytes)

    @classmethod
    def without_secret(cls, state: StateStore) -> DelegationTokens:
        """Return the tokens of a server that does not run: they can only be removed."""
        return cls(state, TokenRules(None, TokenLimits(0, 0)), None, bytes)

    async def load(self) -> None:
        """Read all rows. Raises StorageError.

        A damaged row is reported and left out: its token is unknown.
        """
        if self.rules.is_enabled:
            await asyncio.to_thread(lambda: self.rules.key_id)
            if self.rules.has_short_secret:
                _log.warning(
                    "delegation.token.secret.key is short: who has a token can find it by trying",
                    shortest_safe=SHORTEST_SAFE_SECRET,
                )
        budget = StepBudget(_PER_TURN)
        rows = await intact_rows(self._state, DELEGATION_TOKEN, _report_damage)
        for key, row in rows.items():
            try:
                token = decode_token(row.value)
                if key != token.token_id:
                    raise ValueError("the key of the row is another token")
            except ValueError as error:
                _log.error("a stored delegation token is damaged: it is unknown", why=str(error))
                continue
            self._add(token)
            if budget.spend():
                await asyncio.sleep(0)
        if self._unusable and self._caps is not None:
            self._tell_unusable()

    def _tell_unusable(self) -> None:
        if self.rules.is_enabled:
            event = (
                "delegation.token.secret.key has changed: the tokens that were created with "
                "another key are invalid, until the server gets that key back"
            )
        else:
            event = "delegation.token.secret.key is not set: the stored tokens are invalid"
        _log.warning(event, tokens=len(self._unusable))

    # --- questions -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of stored tokens, also of unusable ones."""
        return len(self._tokens) + len(self._unusable)

    def usable(self) -> Iterable[DelegationToken]:
        """Return the tokens that were made with the present secret, also expired ones."""
        return list(self._tokens.values())

    def valid_count(self, now_ms: int) -> int:
        """Return the number of tokens that clients can log in with."""
        return sum(not one.is_expired(now_ms) for one in self._tokens.values())

    def token(self, token_id: str) -> DelegationToken | None:
        """Return a token that was made with the present secret; it may have expired."""
        return self._tokens.get(token_id)

    def with_hmac(self, hmac: bytes) -> DelegationToken | None:
        """Return the token that has an HMAC.

        It is found by a digest, so that the time of the search tells nothing about HMACs.
        """
        token_id = self._ids.get(sha256(hmac).digest())
        if token_id is None or not compare_digest(self.rules.hmac(token_id), hmac):
            return None
        return self._tokens.get(token_id)

    def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential | None:
        """Return the credential of a token, if `keep_credential` has been called for it."""
        return self._credentials.get(token_id, {}).get(mechanism)

    def credential_maker(
        self, mechanism: ScramMechanism, token_id: str, salt: bytes
    ) -> Callable[[], ScramCredential]:
        """Return a function that makes the credential of a token. For a thread."""
        return partial(self.rules.credential, token_id, mechanism, salt)

    def keep_credential(
        self, mechanism: ScramMechanism, token_id: str, credential: ScramCredential
    ) -> None:
        """Keep the credential of a token for the next logins, unless the token was removed."""
        if token_id in self._tokens:
            self._credentials.setdefault(token_id, {})[mechanism] = credential

    # --- changes ---------------------------------------------------------------------------------

    async def create(
        self,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        max_lifetime_ms: int,
        now_ms: int,
    ) -> NewToken:
        """Create a token, durable on return. Raises KafkaError, StorageError.

        The caller holds `turn`, and checks whether the requester may create tokens of another
        owner. POLICY_VIOLATION means that there are too many tokens.
        """
        token_id = new_token_id(self._random_bytes)
        token = self.rules.create(token_id, owner, requester, renewers, max_lifetime_ms, now_ms)
        if self._is_full(token):
            await self._remove_expired(now_ms)
        if self._is_full(token):
            text = (
                "there are too many delegation tokens (kgw.delegation.tokens.max, "
                "kgw.delegation.tokens.per.principal.max)"
            )
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        await self._state.apply([_row(token)])
        self._add(token)
        return NewToken(token, self.rules.hmac(token_id))

    async def renew(
        self, hmac: bytes, principal: Principal, period_ms: int, now_ms: int
    ) -> DelegationToken:
        """Renew a token, durably on return; return it with its new expiry timestamp.

        The caller holds `turn`. Raises KafkaError, StorageError.
        """
        token = self.rules.renew(self.with_hmac(hmac), principal, period_ms, now_ms)
        await self._replace(token)
        return token

    async def expire(
        self, hmac: bytes, principal: Principal, period_ms: int, now_ms: int
    ) -> DelegationToken:
        """Expire or remove a token, durably on return; return it with its new expiry timestamp.

        A removed token expires now. The caller holds `turn`. Raises KafkaError, StorageError.
        """
        found = self.with_hmac(hmac)
        token = self.rules.expire(found, principal, period_ms, now_ms)
        if token is not None:
            await self._replace(token)
            return token
        if found is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        await self._remove([found])
        return found._replace(expiry_timestamp_ms=now_ms)

    async def remove_expired(self, now_ms: int) -> None:
        """Remove the expired tokens durably. Raises StorageError."""
        async with self.turn:
            await self._remove_expired(now_ms)

    def start(self, clock: Clock, interval_ms: int) -> None:
        """Remove the expired tokens now and after each interval, if the server has tokens."""
        if self.rules.is_enabled:
            self._removing = asyncio.ensure_future(self._remove_regularly(clock, interval_ms))

    def stop(self) -> None:
        """Remove no more expired tokens."""
        if self._removing is not None:
            self._removing.cancel()

    async def aclose(self) -> None:
        """Remove no more expired tokens, and wait for the end of a removal that has begun."""
        self.stop()
        removing, self._removing = self._removing, None
        if removing is not None:
            await asyncio.gather(removing, return_exceptions=True)

    async def _remove_regularly(self, clock: Clock, interval_ms: int) -> None:
        while True:
            try:
                await self.remove_expired(clock.wall_ms())
            except Exception as error:  # noqa: BLE001 - whatever it is, the next time may succeed
                _log.warning("expired delegation tokens could not be removed", why=str(error))
            await clock.sleep_until(clock.monotonic_s() + interval_ms / 1000)

    def of_users(self, names: Collection[str]) -> list[DelegationToken]:
        """Return the tokens that users own or have requested: the requester knows the HMAC."""
        principals = {Principal(USER_TYPE, name) for name in names}
        if not any(self._counts[one] for one in principals):
            return []
        return [
            token
            for tokens in (self._tokens, self._unusable)
            for token in tokens.values()
            if token.owner in principals or token.requester in principals
        ]

    def forget(self, tokens: Iterable[DelegationToken]) -> None:
        """Forget tokens whose rows have been removed. The caller holds `turn`."""
        for token in tokens:
            found = self._tokens.pop(token.token_id, None)
            if found is None:
                found = self._unusable.pop(token.token_id, None)
            else:
                self._ids.pop(self._digest(token), None)
            self._credentials.pop(token.token_id, None)
            if found is not None:
                self._counts.subtract({found.owner, found.requester})
        self._counts += Counter()

    def _is_full(self, token: DelegationToken) -> bool:
        """Return whether the caps allow no further token as this one."""
        if self._caps is None:
            return True
        most = max(self._counts[token.owner], self._counts[token.requester])
        return len(self) >= self._caps.all_tokens or most >= self._caps.of_one_principal

    def _add(self, token: DelegationToken) -> None:
        if self.rules.is_enabled and token.key_id == self.rules.key_id:
            self._tokens[token.token_id] = token
            self._ids[self._digest(token)] = token.token_id
        else:
            self._unusable[token.token_id] = token
        self._counts.update({token.owner, token.requester})

    def _digest(self, token: DelegationToken) -> bytes:
        return sha256(self.rules.hmac(token.token_id)).digest()

    async def _replace(self, token: DelegationToken) -> None:
        """Store a token with another expiry timestamp."""
        await self._state.apply([_row(token)])
        self._tokens[token.token_id] = token

    async def _remove_expired(self, now_ms: int) -> None:
        expired = [
            token
            for tokens in (self._tokens, self._unusable)
            for token in tokens.values()
            if token.is_expired(now_ms)
        ]
        if expired:
            await self._remove(expired)
            _log.info("expired delegation tokens were removed", tokens=len(expired))

    async def _remove(self, tokens: Sequence[DelegationToken]) -> None:
        await self._state.apply(removals(tokens))
        self.forget(tokens)


def _report_damage(why: str) -> None:
    _log.error("stored delegation tokens are damaged: they are unknown", why=why)


def removals(tokens: Iterable[DelegationToken]) -> list[Change]:
    """Return the changes of rows that remove tokens."""
    return [Change(DELEGATION_TOKEN, token.token_id, None) for token in tokens]


def _row(token: DelegationToken) -> Change:
    return Change(DELEGATION_TOKEN, token.token_id, token.encode())
