"""The users of a data directory that no server has open: the first ones, before the first start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from kgw.backend.registry import open_backend
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.settings import load
from kgw.clock import SystemClock
from kgw.security.credentials import Credentials, check_user
from kgw.security.sasl.scram import credential_of_salted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kgw.client.values import ScramUpsertion
    from kgw.security.credentials import CredentialChanges
    from kgw.security.sasl.scram import ScramMechanism

data_dir_option = click.option(
    "--data-dir",
    metavar="DIR",
    help="The data directory of a server that does not run, in place of --bootstrap; created if "
    "missing. Where its state is comes from the environment, as for `kgw serve`.",
)


def check_place(data_dir: str | None) -> None:
    """Fail if a command names a data directory and a server."""
    source = click.get_current_context().get_parameter_source("bootstrap")
    if data_dir is not None and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--data-dir and --bootstrap exclude each other")


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
    _with_credentials(data_dir, lambda credentials: credentials.change(changes))


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


def delete_stopped(
    data_dir: str, user: str, mechanism: ScramMechanism | None
) -> list[ScramMechanism]:
    """Delete the credentials of a user, or one of them; return which.

    Raises CommandError if there is none; else as `set_stopped`.
    """
    deleted: list[ScramMechanism] = []

    async def delete(credentials: Credentials) -> None:
        deleted.extend(
            one for one in credentials.of_user(user) if mechanism is None or one is mechanism
        )
        if not deleted:
            what = "no password" if mechanism is None else f"no password for {mechanism.sasl_name}"
            raise CommandError(f"the user {user} has {what}")
        await credentials.change({(one, user): None for one in deleted})

    _with_credentials(data_dir, delete)
    return deleted


def _with_credentials(
    data_dir: str, action: Callable[[Credentials], Coroutine[object, object, None]]
) -> None:
    config = load(None, (), [("log.dirs", data_dir, "--data-dir")])

    async def run() -> None:
        backend = open_backend(config, SystemClock())
        await backend.open()
        try:
            credentials = Credentials(backend.state)
            await credentials.load()
            await action(credentials)
        finally:
            await backend.aclose()

    asyncio.run(run())
