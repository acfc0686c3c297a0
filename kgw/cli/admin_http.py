"""Asking a server's admin listener."""

from __future__ import annotations

from typing import Any

import click

from kgw.cli.errors import CommandError, ExitCode
from kgw.cli.settings import parsed
from kgw.config import parse_address

Address = tuple[str, int]

TIMEOUT_S = 10.0


def parse_admin(text: str) -> Address:
    """Return the (host, port) of `HOST:PORT`, with or without http:// before it."""
    return parse_address(text.removeprefix("http://").rstrip("/"))


class AdminRefusedError(CommandError):
    """The admin listener does not answer this one question."""


admin_option = click.option(
    "--admin",
    callback=parsed(parse_admin),
    envvar="KGW_ADMIN",
    show_envvar=True,
    metavar="HOST:PORT",
    help="The server's admin listener (kgw.admin.listeners), for what Kafka's protocol cannot say.",
)


def get(address: Address, path: str, **parameters: object) -> dict[str, Any]:
    """Return the JSON of a path. Parameters that are None are left out.

    Raises AdminRefusedError for what cannot be asked so, CommandError when nothing answers, or no
    kgw, or an error.
    """
    from http.client import HTTPConnection, HTTPException
    from json import loads
    from urllib.parse import urlencode

    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    where = f"http://{address[0]}:{address[1]}"
    connection = HTTPConnection(*address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"{path}?{query}" if query else path)
        response = connection.getresponse()
        value = loads(response.read())
    except OSError as error:
        raise CommandError(f"cannot ask {where}: {error}", ExitCode.CANNOT_CONNECT) from None
    except (HTTPException, ValueError):
        raise CommandError(f"{where} is no admin listener of kgw") from None
    finally:
        connection.close()
    if not isinstance(value, dict):
        raise CommandError(f"{where} is no admin listener of kgw")
    if response.status != 200:
        kind = AdminRefusedError if response.status in {400, 404} else CommandError
        raise kind(f"{where}: {value.get('error', response.status)}")
    return value


def get_all(address: Address, path: str, name: str, **parameters: object) -> list[dict[str, Any]]:
    """Return every entry of a list that comes in pages. Raises as `get`."""
    entries: list[dict[str, Any]] = []
    after = None
    while True:
        answer = get(address, path, limit=1_000, after=after, **parameters)
        entries += answer[name]
        after = answer["next"]
        if after is None:
            return entries
