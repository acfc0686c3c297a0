"""`kgw users`: add, list, delete."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING, Final

import click

from kgw.cli.shared.client import (
    Bootstrap,
    check_place,
    client_options,
    confirm,
    dry_run_option,
    is_asked,
    with_client,
    yes_option,
)
from kgw.cli.shared.output import note_as, print_json, print_result
from kgw.cli.users.deletions import Deletion, deletion_of
from kgw.cli.users.passwords import password_file_option, read_password
from kgw.cli.users.stopped import (
    data_dir_option,
    delete_stopped,
    set_stopped,
    stopped_deletion,
    stopped_users,
)
from kgw.client import AdminClient
from kgw.client.values import ScramUpsertion
from kgw.security.principal import USER_TYPE
from kgw.security.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    new_salt,
    salt_password,
)
from kgw.types import printable

if TYPE_CHECKING:
    from kgw.client import AsyncClient

_MECHANISMS = click.Choice([one.sasl_name for one in ScramMechanism], case_sensitive=False)

_PRINCIPAL_BEGIN: Final = f"{USER_TYPE}:"


@click.group(short_help="Add, list and delete users who log in with SCRAM.")
def users() -> None:
    """Add, list and delete users who log in with SCRAM.

    A user has a password for each mechanism. The server stores a salted hash instead of the
    password.
    """


@users.command()
@click.argument("name")
@click.option(
    "--mechanism",
    type=_MECHANISMS,
    default=ScramMechanism.SHA_512.sasl_name,
    help="The mechanism that the user's clients use.",
)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    metavar="N",
    help="How often the password is hashed.",
)
@password_file_option
@data_dir_option
@client_options
def add(
    *,
    name: str,
    mechanism: str,
    iterations: int,
    password_file: str | None,
    data_dir: str | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Add a user, or change the password of one.

    The password is salted and hashed here; the server is sent only the result. A session that is
    open stays open. The first user of a server that serves nobody without a login is added with
    --data-dir before its start.
    """
    check_place(data_dir)
    if name.startswith(_PRINCIPAL_BEGIN):
        text = f"the principal of this user is User:{name}: a name has no User: before it"
        note_as(f"warning: {text}", {"warning": text}, is_json=is_json)
    password = read_password(password_file, is_json=is_json)
    upsertion = new_credential(name, ScramMechanism.named(mechanism), iterations, password)
    if data_dir is not None:
        set_stopped(data_dir, upsertion)
    else:
        with_client(bootstrap, lambda client: AdminClient(client).set_scram_credential(upsertion))
    if is_json:
        print_json({"name": name, "mechanism": mechanism, "iterations": iterations})
    else:
        click.echo(printable(f"Set the password of {name} for {mechanism}."))


def new_credential(
    user: str, mechanism: ScramMechanism, iterations: int, password: str
) -> ScramUpsertion:
    """Return a credential with a new random salt."""
    salt = new_salt(urandom)
    salted_password = salt_password(mechanism, password, salt, iterations)
    return ScramUpsertion(user, mechanism, iterations, salt, salted_password)


@users.command("list")
@data_dir_option
@client_options
def list_users(*, data_dir: str | None, bootstrap: Bootstrap, is_json: bool) -> None:
    """List every user with the mechanisms that have a password."""
    check_place(data_dir)
    found: list[tuple[str, str | None, int]]
    if data_dir is not None:
        found = stopped_users(data_dir)
    else:
        asked = with_client(bootstrap, lambda client: AdminClient(client).scram_credentials())
        found = [(one.user, one.mechanism_name, one.iterations) for one in asked]
    rows = [dict(zip(("name", "mechanism", "iterations"), one, strict=True)) for one in found]
    columns = "name mechanism iterations"
    print_result(rows, columns, is_json=is_json, nothing="There are no users.")


@users.command()
@click.argument("name")
@click.option(
    "--mechanism",
    type=_MECHANISMS,
    help="Delete the password for this mechanism alone.  [default: for all]",
)
@yes_option
@dry_run_option
@data_dir_option
@client_options
def delete(
    *,
    name: str,
    mechanism: str | None,
    yes: bool,
    dry_run: bool,
    data_dir: str | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Delete a user, who can log in no more. A session that is open stays open.

    With the last password of a user, the delegation tokens that the user owns or has requested are
    deleted, too. At a terminal the question says so.
    """
    check_place(data_dir)
    named = None if mechanism is None else ScramMechanism.named(mechanism)
    if dry_run or is_asked(yes=yes):
        deletion = _deletion(name, named, data_dir, bootstrap)
        if dry_run:
            _print_deleted("Would delete", name, deletion.mechanisms, is_json=is_json)
            if deletion.tokens and not is_json:
                click.echo(printable(f"Would delete {deletion.tokens}."))
            return
        confirm(printable(deletion.question), yes=yes)

    if data_dir is not None:
        deleted = delete_stopped(data_dir, name, named)
    else:

        async def action(client: AsyncClient) -> list[ScramMechanism]:
            admin = AdminClient(client)
            mechanisms = [named] if named is not None else []
            if named is None:
                credentials = await admin.scram_credentials([name])
                mechanisms = [one.mechanism for one in credentials if one.mechanism is not None]
            await admin.delete_scram_credentials(name, mechanisms)
            return mechanisms

        deleted = with_client(bootstrap, action)
    _print_deleted("Deleted", name, deleted, is_json=is_json)


def _deletion(
    user: str, mechanism: ScramMechanism | None, data_dir: str | None, bootstrap: Bootstrap
) -> Deletion:
    """Find the passwords of a deletion. Raises CommandError if there are none."""
    if data_dir is not None:
        return stopped_deletion(data_dir, user, mechanism)
    # A client sees only some of the tokens, so that the number of the tokens stays unknown.
    found = with_client(bootstrap, lambda client: AdminClient(client).scram_credentials([user]))
    return deletion_of(user, [one.mechanism for one in found], mechanism)


def _print_deleted(
    verb: str, user: str, mechanisms: list[ScramMechanism], *, is_json: bool
) -> None:
    if is_json:
        print_json([{"name": user, "mechanism": one.sasl_name} for one in mechanisms])
        return
    for one in mechanisms:
        click.echo(printable(f"{verb} the password of {user} for {one.sasl_name}."))
