"""The client, and its options, for commands that talk to a server."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from kgw.cli.shared.command_config import command_config_option, given_security
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note_as
from kgw.cli.shared.settings import FunctionT, json_option, parsed, with_variables_checked
from kgw.client import AsyncClient, ClientDelay, Delays, ServerRefusedError
from kgw.config import parse_peer
from kgw.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.client import ClientSecurity

ResultT = TypeVar("ResultT")
Bootstrap = list[tuple[str, int]]

DEFAULT_PORT = 9092


def parse_bootstrap(text: str) -> Bootstrap:
    """Parse addresses `HOST[:PORT]`, separated by commas, to (host, port) pairs."""
    return [parse_peer(one.strip(), default_port=DEFAULT_PORT) for one in text.split(",")]


BOOTSTRAP = parsed(parse_bootstrap)
"""The callback of options that name servers."""

bootstrap_option = click.option(
    "-b",
    "--bootstrap",
    callback=with_variables_checked(BOOTSTRAP),
    default=f"127.0.0.1:{DEFAULT_PORT}",
    envvar="KGW_BOOTSTRAP",
    show_envvar=True,
    metavar="HOST:PORT",
    help="The server to talk to; several may be given, separated by commas.",
)
yes_option = click.option(
    "-y", "--yes", is_flag=True, help="Do not ask; without a terminal nothing is asked."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print what would be done, and change nothing."
)
topics_option = partial(
    click.option,
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P]",
    help="A topic, or some of its partitions; may be given several times.",
)
numbers_option = partial(
    click.option,
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
)
set_option = partial(click.option, "--set", "settings", multiple=True, metavar="KEY=VALUE")
unset_option = partial(click.option, "--unset", multiple=True, metavar="KEY")


def client_options(command: FunctionT) -> FunctionT:
    """Add --bootstrap, --command-config and --json to a command."""
    return bootstrap_option(command_config_option(json_option()(command)))


def check_place(data_dir: str | None) -> None:
    """Fail if a command names a data directory and a server."""
    source = click.get_current_context().get_parameter_source("bootstrap")
    if data_dir is not None and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--data-dir and --bootstrap exclude each other")


def is_asked(*, yes: bool) -> bool:
    """Return whether the user is asked before data is lost."""
    return not yes and sys.stdin.isatty()


def confirm(what: str, *, yes: bool, verb: str = "Delete") -> None:
    """Ask the user before data is lost; end the command unless the user agrees."""
    if is_asked(yes=yes):
        click.confirm(f"{verb} {what}?", abort=True, err=True)


def delay_teller() -> Callable[[ClientDelay], None]:
    """Return a function that prints a delay of the running command on standard error."""
    ctx = click.get_current_context()
    is_json = ctx.params.get("is_json", False)

    def tell(delay: ClientDelay) -> None:
        told = {"delay": delay.reason, "left_s": round(delay.left_s, 1)}
        note_as(str(delay), told, is_json=is_json)

    return tell


def with_client(
    bootstrap: Bootstrap, action: Callable[[AsyncClient], Awaitable[ResultT]]
) -> ResultT:
    """Connect as --command-config says, run `action`, and close the client.

    An error with a Kafka code becomes a CommandError.

    Retries and slow requests are reported on standard error.
    """
    return with_client_of(bootstrap, given_security(), action)


def with_client_of(
    bootstrap: Bootstrap,
    security: ClientSecurity | None,
    action: Callable[[AsyncClient], Awaitable[ResultT]],
) -> ResultT:
    """Do the same at another cluster than that of --bootstrap."""
    delays = Delays(delay_teller())

    async def run() -> ResultT:
        async with AsyncClient(
            bootstrap, client_id="kgw-cli", delays=delays, security=security
        ) as client:
            return await action(client)

    try:
        return asyncio.run(run())
    except (ServerRefusedError, KafkaError) as error:
        raise CommandError(str(error), kafka_error=error.code.name) from None


def assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse several KEY=VALUE to a dictionary of settings."""
    from kgw.config.load import split_assignment

    return dict(split_assignment(text) for text in texts)
