"""What commands share that talk to a server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import click

from kgw.cli.errors import CommandError
from kgw.client import AsyncClient, ServerRefusedError
from kgw.config import parse_address
from kgw.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ResultT = TypeVar("ResultT")

DEFAULT_PORT = 9092


def parse_bootstrap(
    ctx: click.Context, param: click.Parameter, value: str
) -> list[tuple[str, int]]:
    """Return the (host, port) pairs of `HOST[:PORT]`, several separated by commas."""
    try:
        return [parse_address(text.strip(), default_port=DEFAULT_PORT) for text in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


bootstrap_option = click.option(
    "-b",
    "--bootstrap",
    callback=parse_bootstrap,
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    envvar="KGW_BOOTSTRAP",
    show_envvar=True,
    metavar="HOST:PORT",
    help="The server to talk to; several may be given, separated by commas.",
)


def with_client(
    bootstrap: list[tuple[str, int]],
    action: Callable[[AsyncClient], Awaitable[ResultT]],
    *,
    retry_s: float = 30.0,
) -> ResultT:
    """Connect, run the action and close. What is refused with a code becomes a CommandError."""

    async def run() -> ResultT:
        async with AsyncClient(bootstrap, client_id="kgw-cli", retry_s=retry_s) as client:
            return await action(client)

    try:
        return asyncio.run(run())
    except (ServerRefusedError, KafkaError) as error:
        raise CommandError(str(error), kafka_error=error.code.name) from None


def assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of several KEY=VALUE."""
    from kgw.config.load import split_assignment

    return dict(split_assignment(text) for text in texts)
