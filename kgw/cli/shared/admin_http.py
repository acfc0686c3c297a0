"""HTTP requests to a server's admin listener."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.settings import FunctionT, parsed, with_variables_checked
from kgw.config import ConfigError, parse_peer
from kgw.config.listeners import format_address

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 10.0
SLOW_S = 1.0
_TOKEN_FILE = f"{__name__}.token_file"


class Address(NamedTuple):
    """The address of an admin listener, and the token for it."""

    host: str
    port: int
    token: str = ""


def parse_admin(text: str) -> Address:
    """Parse `HOST:PORT`, with or without http:// before it."""
    return Address(*parse_peer(text.removeprefix("http://").rstrip("/")))


class AdminRefusedError(CommandError):
    """The admin listener has refused a request."""


def _keep(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    ctx.meta[_TOKEN_FILE] = path


def _with_token(ctx: click.Context, param: click.Parameter, text: str | None) -> Address | None:
    address = cast("Address | None", parsed(parse_admin)(ctx, param, text))
    path = ctx.meta[_TOKEN_FILE]
    if address is None or path is None:
        return address
    from kgw.admin.token import read_token

    try:
        return address._replace(token=read_token(path).decode("ascii"))
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--token-file") from None


def admin_option(function: FunctionT) -> FunctionT:
    """Add --admin and --token-file; the command gets both as one argument `admin`, or None."""
    function = click.option(
        "--token-file",
        is_eager=True,
        expose_value=False,
        callback=_keep,
        envvar="KGW_ADMIN_TOKEN_FILE",
        show_envvar=True,
        metavar="FILE",
        help="File that holds the token which the admin listener wants (kgw.admin.token.file).",
    )(function)
    return click.option(
        "--admin",
        callback=with_variables_checked(_with_token),
        envvar="KGW_ADMIN",
        show_envvar=True,
        metavar="HOST:PORT",
        help="The server's admin listener (kgw.admin.listeners), for what Kafka's protocol cannot "
        "say.",
    )(function)


def get(address: Address | tuple[str, int], path: str, **parameters: object) -> dict[str, Any]:
    """Return the JSON that the admin listener has at a path.

    Parameters with the value None are not sent.

    Raises AdminRefusedError if the request is refused; CommandError for no response, for another
    server than kgw, and for an error.
    """
    from http.client import HTTPConnection, HTTPException
    from json import loads
    from urllib.parse import urlencode

    host, port, token = Address(*address)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    where = f"http://{format_address(host, port)}"
    connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        with _telling(where):
            connection.request("GET", f"{path}?{query}" if query else path, headers=headers)
            response = connection.getresponse()
            value = loads(response.read())
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"cannot ask {where}: {reason}", ExitCode.CANNOT_CONNECT) from None
    except (HTTPException, ValueError):
        raise CommandError(f"{where} is no admin listener of kgw") from None
    finally:
        connection.close()
    if not isinstance(value, dict):
        raise CommandError(f"{where} is no admin listener of kgw")
    if response.status == 401:
        problem = "does not take the token" if token else "wants a token: --token-file"
        raise CommandError(f"{where} {problem}", ExitCode.USAGE)
    if response.status != 200:
        kind = AdminRefusedError if response.status in {400, 404} else CommandError
        raise kind(f"{where}: {value.get('error', response.status)}")
    return value


@contextmanager
def _telling(where: str) -> Iterator[None]:
    """After a second, tell the user that the command waits for a response.

    If packets to the address are dropped, there is no response until the time limit. Threads
    without a click context, such as the one of `kgw top`, print nothing.
    """
    if click.get_current_context(silent=True) is None:
        yield
        return
    from threading import Timer

    from kgw.cli.shared.client import delay_teller
    from kgw.client.delays import ClientDelay

    delay = ClientDelay(f"{where} does not answer", "waiting", TIMEOUT_S - SLOW_S)
    timer = Timer(SLOW_S, delay_teller(), (delay,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def get_pages(
    address: Address | tuple[str, int], path: str, **parameters: object
) -> Iterator[dict[str, Any]]:
    """Yield every page of a paged list. Raises as `get`."""
    after = None
    while True:
        page = get(address, path, limit=1_000, after=after, **parameters)
        yield page
        after = page["next"]
        if after is None:
            return


def get_all(
    address: Address | tuple[str, int], path: str, name: str, **parameters: object
) -> list[dict[str, Any]]:
    """Return every entry of a paged list. Raises as `get`."""
    return [entry for page in get_pages(address, path, **parameters) for entry in page[name]]
