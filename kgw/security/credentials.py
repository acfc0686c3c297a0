"""The SCRAM credentials of all users: in memory for logins, and in the state store.

With a user's last credential, the delegation tokens of the user are removed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from os import urandom
from typing import TYPE_CHECKING, Final, TypeAlias

from kgw.logs import EventLogger
from kgw.security.delegation_tokens import DelegationTokens, removals
from kgw.security.login_threads import LoginThreads
from kgw.security.principal import check_user_name
from kgw.security.sasl.failed_logins import FailedLogins
from kgw.security.sasl.scram import (
    FakeCredentials,
    ScramCredential,
    ScramMechanism,
    decode_credential,
)
from kgw.security.stored_rows import intact_rows
from kgw.state.base import Change
from kgw.state.kinds import CLUSTER, SCRAM_CREDENTIAL, UNKNOWN_USERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kgw.security.sasl.tokens import DelegationToken
    from kgw.state.base import StateStore

CredentialKey: TypeAlias = tuple[ScramMechanism, str]
"""A mechanism and the name of a user."""
CredentialChanges: TypeAlias = dict[CredentialKey, ScramCredential | None]
"""New credentials; None for a deleted one."""

LONGEST_USER_BYTES: Final = 200
"""The longest name of a user, in UTF-8. Databases limit the keys of rows."""
_SECRET_BYTES = 32

_log = EventLogger(__name__)


class Credentials:
    """The credentials of all users, and of delegation tokens. Call `load` before anything else."""

    def __init__(self, state: StateStore, tokens: DelegationTokens | None = None) -> None:
        """Without `tokens` no token can be used. The tokens of a deleted user are removed, too."""
        self._state = state
        self.tokens = DelegationTokens.without_secret(state) if tokens is None else tokens
        self.turn = asyncio.Lock()
        """Held while a change is decided and made."""
        self._credentials: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        """By user, then by mechanism."""
        self._counts: Counter[tuple[ScramMechanism, int]] = Counter()
        """The number of users by mechanism and iterations."""
        self._secret = b""
        self.failed_logins = FailedLogins()
        """The logins that have failed in the last minute, of all users."""
        self.threads = LoginThreads()
        """Check the passwords and the signatures of all logins."""
        self.fakes: FakeCredentials
        """The credentials of users who do not exist. Set by `load` and `change`."""

    async def load(self) -> None:
        """Read all rows. Raises StorageError.

        A damaged row is reported and left out: its user cannot log in until it is set again.
        """
        rows = await intact_rows(self._state, SCRAM_CREDENTIAL, _report_damage)
        for key, row in rows.items():
            try:
                (mechanism, user), credential = _read(key, row.value)
            except ValueError as error:
                _log.error("a stored credential is damaged: its user cannot log in", why=str(error))
                continue
            self._credentials.setdefault(user, {})[mechanism] = credential
            self._counts[mechanism, credential.iterations] += 1
        self._secret = await _secret(self._state)
        self._make_fakes()
        await self.tokens.load()

    async def aclose(self) -> None:
        """End the threads, and the removal of expired tokens."""
        self.threads.close()
        await self.tokens.aclose()

    @property
    def users(self) -> Iterable[str]:
        """The names of all users who have a credential."""
        return self._credentials

    def of_user(self, user: str) -> Mapping[ScramMechanism, ScramCredential]:
        """Return the credentials of a user by mechanism."""
        return self._credentials.get(user, {})

    def user_credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self.of_user(user).get(mechanism)

    def token(self, token_id: str) -> DelegationToken | None:
        """Return a delegation token, which may have expired."""
        return self.tokens.token(token_id)

    def token_credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential | None:
        """Return the credential of a token, if `keep_token_credential` has been called for it."""
        return self.tokens.credential(mechanism, token_id)

    def token_credential_maker(
        self, mechanism: ScramMechanism, token_id: str, salt: bytes
    ) -> Callable[[], ScramCredential]:
        """Return a function that makes the credential of a token. For a thread."""
        return self.tokens.credential_maker(mechanism, token_id, salt)

    def keep_token_credential(
        self, mechanism: ScramMechanism, token_id: str, credential: ScramCredential
    ) -> None:
        """Keep the credential of a token for the next logins."""
        self.tokens.keep_credential(mechanism, token_id, credential)

    async def change(self, changes: CredentialChanges) -> None:
        """Set and delete credentials, durably on return. Raises StorageError.

        The caller holds `turn` if other changes can be made at the same time. A user who has no
        credential left is deleted: so are the delegation tokens that this user owns or has
        requested.
        """
        await self._store(changes)
        for (mechanism, user), credential in changes.items():
            found = self._credentials.setdefault(user, {})
            replaced = found.pop(mechanism, None)
            if replaced is not None:
                self._counts[mechanism, replaced.iterations] -= 1
            if credential is not None:
                found[mechanism] = credential
                self._counts[mechanism, credential.iterations] += 1
            if not found:
                del self._credentials[user]
        self._make_fakes()

    async def _store(self, changes: CredentialChanges) -> None:
        """Write the rows, and remove the tokens of users who are deleted, in one commit."""
        rows = credential_rows(changes)
        deleted = self._deleted_by(changes)
        if not deleted:
            await self._state.apply(rows)
            return
        async with self.tokens.turn:
            gone = self.tokens.of_users(deleted)
            await self._state.apply([*rows, *removals(gone)])
            self.tokens.forget(gone)
        if gone:
            _log.info("the delegation tokens of deleted users were removed", tokens=len(gone))

    def _deleted_by(self, changes: CredentialChanges) -> set[str]:
        """Return the users who have no credential left after these changes."""
        deleted: dict[str, set[ScramMechanism]] = {}
        kept: set[str] = set()
        for (mechanism, user), credential in changes.items():
            if credential is None:
                deleted.setdefault(user, set()).add(mechanism)
            else:
                kept.add(user)
        return {
            user
            for user, mechanisms in deleted.items()
            if user not in kept and not self.of_user(user).keys() - mechanisms
        }

    def _make_fakes(self) -> None:
        """Give unknown users the numbers of iterations that real users have at present."""
        users: dict[ScramMechanism, dict[int, int]] = {}
        for (mechanism, iterations), number in (+self._counts).items():
            users.setdefault(mechanism, {})[iterations] = number
        self.fakes = FakeCredentials(self._secret, users)


def check_user(name: str) -> None:
    """Raise ValueError for a name that cannot be stored with a password."""
    check_user_name(name)
    if len(name.encode()) > LONGEST_USER_BYTES:
        raise ValueError(f"the name of the user has more than {LONGEST_USER_BYTES} bytes")


def credential_rows(changes: CredentialChanges) -> list[Change]:
    """Return the changes of rows that set and delete credentials."""
    return [
        Change(
            SCRAM_CREDENTIAL,
            f"{mechanism.sasl_name}/{user}",
            None if credential is None else credential.encode(),
        )
        for (mechanism, user), credential in changes.items()
    ]


def _read(key: str, value: bytes) -> tuple[CredentialKey, ScramCredential]:
    """Decode a row. Raises ValueError."""
    name, _, user = key.partition("/")
    for mechanism in ScramMechanism:
        if mechanism.sasl_name == name and user:
            return (mechanism, user), decode_credential(value)
    raise ValueError(f"{key!r} is no mechanism and user")


def _report_damage(why: str) -> None:
    _log.error("stored credentials are damaged: their users cannot log in", why=why)


async def _secret(state: StateStore) -> bytes:
    """Return the stored secret; make it if there is none."""
    row = (await intact_rows(state, UNKNOWN_USERS, _report_damage)).get(CLUSTER)
    if row is not None:
        return row.value
    secret = urandom(_SECRET_BYTES)
    await state.apply([Change(UNKNOWN_USERS, CLUSTER, secret)])
    return secret
