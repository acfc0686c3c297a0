"""`kgw tokens`: create, renew, expire, list."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import click

from kgw.cli.shared.client import (
    Bootstrap,
    client_options,
    confirm,
    dry_run_option,
    is_asked,
    with_client,
    yes_option,
)
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.formats import format_time
from kgw.cli.shared.output import note, print_json, print_result
from kgw.cli.shared.principals import principal_option
from kgw.cli.shared.settings import duration_option
from kgw.cli.tokens.hmac_file import HmacFile
from kgw.client import ServerRefusedError
from kgw.client.delegation_tokens import AT_ONCE_MS, DEFAULT_MS, TokenClient, TokenDetails
from kgw.clock import SystemClock
from kgw.errors import ErrorCode
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.cli.shared.client import ResultT
    from kgw.client import AsyncClient

_COLUMNS = (
    "token_id owner requester renewers issued=issue_timestamp_ms expires=expiry_timestamp_ms "
    "latest=max_timestamp_ms"
)
_REASONS: Final = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the server has no delegation tokens: its setting "
    "delegation.token.secret.key switches them on",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "a login with a password or a certificate is "
    "needed: a client that has not logged in, or has logged in with a token, may not do this "
    "(--command-config)",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only the owner and the renewers of a token may "
    "renew and expire it",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "the right CREATE_TOKENS on the owner is "
    "missing",
}
"""For each code the sentence that is printed: the answers of these APIs have no text."""


@click.group(short_help="Create, renew, expire and list delegation tokens.")
def tokens() -> None:
    """Create, renew, expire and list delegation tokens.

    A token logs in its owner for a limited time, without the owner's password: with SCRAM, the id
    of the token as the user, its HMAC as the password, and tokenauth=true. The server's setting
    delegation.token.secret.key switches tokens on.
    """


@tokens.command()
@principal_option(
    "--owner", help="Whom the token logs in, as in User:alice.  [default: who runs the command]"
)
@principal_option(
    "--renewer",
    "renewers",
    multiple=True,
    help="Who may renew and expire it, besides the owner; may be given several times.",
)
@duration_option(
    "--max-lifetime",
    help="How long it can be renewed, as in P7D.  [default: as long as the server allows]",
)
@click.option(
    "--hmac-file",
    metavar="FILE",
    help="A new file for the HMAC, which is then not printed. Only its owner can read it.",
)
@client_options
def create(
    *,
    owner: str | None,
    renewers: tuple[str, ...],
    max_lifetime: int | None,
    hmac_file: str | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Create a delegation token.

    Whoever has its HMAC can log in as its owner, so it belongs into a file: give --hmac-file FILE.
    """
    with nullcontext() if hmac_file is None else HmacFile(hmac_file) as file:
        token = _with_tokens(
            bootstrap,
            lambda client: client.create(
                owner=owner,
                renewers=renewers,
                max_lifetime_ms=DEFAULT_MS if max_lifetime is None else max_lifetime,
            ),
        )
        if file is not None:
            file.write(token.token_id, token.password)
    secret = {"hmac": token.password} if hmac_file is None else {"hmac_file": hmac_file}
    if is_json:
        print_json(_row(token) | secret)
        return
    times = f"expires {_time(token)}, or {format_time(token.max_timestamp_ms)} if it is renewed"
    click.echo(printable(f"Created the token {token.token_id} of {token.owner}: {times}."))
    if hmac_file is not None:
        click.echo(printable(f"Its HMAC is in {hmac_file}."))
        return
    click.echo(f"HMAC: {token.password}")
    note("Whoever has the HMAC can log in as the owner: keep it in a file that only you can read.")


@tokens.command()
@click.argument("token_id")
@duration_option(
    "--period",
    help="How long it is valid from now on, as in PT12H.  [default: as long as the server allows]",
)
@client_options
def renew(*, token_id: str, period: int | None, bootstrap: Bootstrap, is_json: bool) -> None:
    """Make a delegation token expire later, but not after its maximum lifetime."""
    period_ms = DEFAULT_MS if period is None else period

    async def action(client: TokenClient) -> TokenDetails:
        token = await _find(client, token_id)
        expiry_ms = await client.renew(token.hmac, period_ms)
        return token._replace(expiry_timestamp_ms=expiry_ms)

    token = _with_tokens(bootstrap, action)
    if is_json:
        print_json(_row(token))
    else:
        click.echo(printable(f"Renewed the token {token_id}: it expires {_time(token)}."))


@tokens.command()
@click.argument("token_id")
@duration_option("--after", help="When it expires, as in PT1H.  [default: it is removed at once]")
@yes_option
@dry_run_option
@client_options
def expire(
    *,
    token_id: str,
    after: int | None,
    yes: bool,
    dry_run: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Make a delegation token expire sooner, or remove it.

    The token then opens no new session. A session that is open stays open until it ends.
    """
    if dry_run or (after is None and is_asked(yes=yes)):
        found = _with_tokens(bootstrap, lambda client: _find(client, token_id))
        if dry_run:
            _print_expired(_expired(found, after), after, is_dry_run=True, is_json=is_json)
            return
        what = f"the delegation token {token_id} of {found.owner}"
        confirm(printable(what), yes=yes, verb="Remove")
    period_ms = AT_ONCE_MS if after is None else after

    async def action(client: TokenClient) -> TokenDetails:
        token = await _find(client, token_id)
        expiry_ms = await client.expire(token.hmac, period_ms)
        return token._replace(expiry_timestamp_ms=expiry_ms)

    token = _with_tokens(bootstrap, action)
    _print_expired(token, after, is_dry_run=False, is_json=is_json)


def _expired(token: TokenDetails, after: int | None) -> TokenDetails:
    """Return a token with the new time at which it would expire, by the clock of this machine."""
    expiry_ms = min(SystemClock().wall_ms() + (after or 0), token.max_timestamp_ms)
    return token._replace(expiry_timestamp_ms=expiry_ms)


def _print_expired(
    token: TokenDetails, after: int | None, *, is_dry_run: bool, is_json: bool
) -> None:
    if is_json:
        print_json(_row(token))
    elif after is None:
        verb = "Would remove" if is_dry_run else "Removed"
        click.echo(printable(f"{verb} the token {token.token_id}."))
    else:
        verb = "would expire" if is_dry_run else "expires"
        click.echo(printable(f"The token {token.token_id} {verb} {_time(token)}."))


@tokens.command("list")
@principal_option(
    "--owner",
    "owners",
    multiple=True,
    help="Only tokens that this principal owns, may renew or has requested; may be given several "
    "times.",
)
@client_options
def list_tokens(*, owners: tuple[str, ...], bootstrap: Bootstrap, is_json: bool) -> None:
    """List the delegation tokens that the client may see, without their HMACs."""
    found = _with_tokens(bootstrap, lambda client: client.tokens(owners or None))
    print_result(
        [*map(_row, found)],
        _COLUMNS,
        is_json=is_json,
        nothing="There are no such delegation tokens.",
        renewers=lambda names: ",".join(names) or None,
        issue_timestamp_ms=format_time,
        expiry_timestamp_ms=format_time,
        max_timestamp_ms=format_time,
    )


async def _find(client: TokenClient, token_id: str) -> TokenDetails:
    """Return a token by its id. Raises CommandError."""
    for one in await client.tokens():
        if one.token_id == token_id:
            return one
    raise CommandError(f"there is no delegation token {token_id} that the client may see")


def _row(token: TokenDetails) -> dict[str, Any]:
    """Return everything but the HMAC."""
    return {name: value for name, value in token._asdict().items() if name != "hmac"} | {
        "renewers": [*token.renewers]
    }


def _time(token: TokenDetails) -> str:
    return format_time(token.expiry_timestamp_ms)


def _with_tokens(
    bootstrap: Bootstrap, action: Callable[[TokenClient], Awaitable[ResultT]]
) -> ResultT:
    """Connect and run `action`; turn error codes into the sentences of `_REASONS`."""

    async def act(client: AsyncClient) -> ResultT:
        try:
            return await action(TokenClient(client))
        except ServerRefusedError as error:
            reason = _REASONS.get(error.code)
            if reason is None:
                raise
            raise CommandError(reason, kafka_error=error.code.name) from None

    return with_client(bootstrap, act)
