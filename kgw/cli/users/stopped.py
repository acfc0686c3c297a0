"""The users of a data directory that no server has open: the first ones, before the first start."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from kgw.backend.embedded.offline.opening import opened_state
from kgw.backend.registry import open_backend
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.settings import load
from kgw.cli.users.deletions import deletion_of
from kgw.clock import SystemClock
from kgw.security.credentials import Credentials, check_user
from kgw.security.sasl.scram import credential_of_salted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from kgw.cli.users.deletions import Deletion
    from kgw.client.values import ScramUpsertion
    from kgw.config import Config
    from kgw.security.credentials import CredentialChanges
    from kgw.security.sasl.scram import ScramMechanism
    from kgw.state.base import StateStore

data_dir_option = click.option(
    "--data-dir",
    metavar="DIR",
    help="The data directory of a server that does not run, in place of --bootstrap. Where its "
    "state is comes from the environment, as for `kgw serve`. `add` creates it if it is missing.",
)


def set_stopped(data_dir: str, wanted: ScramUpsertion) -> None:
    """Set a credential.

    Raises CommandError for a name that no user may have, ConfigError, DataDirectoryError (also
    while a server has the directory open), StorageError.
    """
    try:
        check_user(wanted.user)
    except ValueError as error:
        raise CommandError(str(error)) from None
    credential = credential_of_salted(
        wanted.mechanism, wanted.salted_password, wanted.salt, wanted.iterations
    )
    changes: CredentialChanges = {(wanted.mechanism, wanted.user): credential}
    _with_credentials(data_dir, lambda credentials: credentials.change(changes), may_create=True)


def stopped_users(data_dir: str) -> list[tuple[str, str | None, int]]:
    """Return the users, their mechanisms and iterations, sorted. Raises as `set_stopped`."""
    found: list[tuple[str, str | None, int]] = []

    async def look(credentials: Credentials) -> None:
        found.extend(
            (user, mechanism.sasl_name, one.iterations)
            for user in sorted(credentials.users)
            for mechanism, one in credentials.of_user(user).items()
        )

    _with_credentials(data_dir, look)
    return found


def stopped_deletion(data_dir: str, user: str, mechanism: ScramMechanism | None) -> Deletion:
    """Find the passwords and tokens that `delete_stopped` would delete; raise as it does."""
    found: list[Deletion] = []

    async def look(credentials: Credentials) -> None:
        deletion = deletion_of(user, credentials.of_user(user), mechanism)
        token_count = len(credentials.tokens.of_users([user]))
        found.append(deletion._replace(token_count=token_count))

    _with_credentials(data_dir, look)
    (deletion,) = found
    return deletion


def delete_stopped(
    data_dir: str, user: str, mechanism: ScramMechanism | None
) -> list[ScramMechanism]:
    """Delete the credentials of a user, or one of them; return which.

    Raises CommandError if there is none; else as `set_stopped`.
    """
    deleted: list[ScramMechanism] = []

    async def delete(credentials: Credentials) -> None:
        deleted.extend(deletion_of(user, credentials.of_user(user), mechanism).mechanisms)
        await credentials.change({(one, user): None for one in deleted})

    _with_credentials(data_dir, delete)
    return deleted


def _with_credentials(
    data_dir: str,
    action: Callable[[Credentials], Coroutine[object, object, None]],
    *,
    may_create: bool = False,
) -> None:
    config = load(None, (), [("log.dirs", data_dir, "--data-dir")])
    if config.backend != "embedded":
        raise CommandError(
            f"--data-dir names a data directory, and KGW_BACKEND is {config.backend}: start the "
            "server with a listener that only this machine reaches, and use --bootstrap"
        )

    async def run() -> None:
        async with _opened(config, may_create=may_create) as state:
            credentials = Credentials(state)
            await credentials.load()
            await action(credentials)

    asyncio.run(run())


@asynccontextmanager
async def _opened(config: Config, *, may_create: bool) -> AsyncIterator[StateStore]:
    """Open the state of a data directory; make the directory if it is missing and may be made."""
    data_dir = config.log_dirs
    if await asyncio.to_thread(os.path.exists, data_dir):
        # The logs are not opened, so that a start after a crash recovers them.
        async with opened_state(data_dir, may_create=True) as state:
            yield state
    elif not may_create:
        raise CommandError(f"there is no data directory {data_dir}")
    else:
        backend = open_backend(config, SystemClock())
        await backend.open()
        try:
            yield backend.state
        finally:
            await backend.aclose()
