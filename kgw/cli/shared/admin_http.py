"""HTTP requests to a server's admin listener, over TLS if its address begins with https://.

A request has the token of --token-file; without one, the user and the password of --command-config.
A password is sent over TLS, or to this machine, and nowhere else.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from kgw.cli.shared.command_config import kept_security
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.settings import FunctionT, parsed, with_variables_checked
from kgw.config import ConfigError, parse_peer
from kgw.config.listeners import format_address, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPConnection
    from ssl import SSLContext

    from kgw.client.security import ClientLogin

TIMEOUT_S = 10.0
SLOW_S = 1.0
_TOKEN_FILE = f"{__name__}.token_file"


class Address(NamedTuple):
    """The address of an admin listener, with the login of the command."""

    host: str
    port: int
    token: str = ""
    is_https: bool = False
    tls: SSLContext | None = None
    """The trusted certificates; None: the certificates that the system trusts."""
    login: ClientLogin | None = None

    def __str__(self) -> str:
        """Return the URL, without a secret."""
        return f"http{'s' if self.is_https else ''}://{format_address(self.host, self.port)}"

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read a password."""
        return self.is_https or is_loopback(self.host)

    @property
    def authorization(self) -> str:
        """The value of the header Authorization; "" for none."""
        if self.token:
            return f"Bearer {self.token}"
        login = self.login
        if login is None or login.is_token or not self.is_private:
            return ""
        from base64 import b64encode

        return f"Basic {b64encode(f'{login.user}:{login.password}'.encode()).decode()}"

    def connect(self) -> HTTPConnection:
        """Return a connection, which is made at its first request."""
        from http.client import HTTPConnection, HTTPSConnection

        if not self.is_https:
            return HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        return HTTPSConnection(self.host, self.port, timeout=TIMEOUT_S, context=self.tls)


def parse_admin(text: str) -> Address:
    """Parse `HOST:PORT`, with or without http:// or https:// before it."""
    address = text.removeprefix("https://")
    host, port = parse_peer(address.removeprefix("http://").rstrip("/"))
    return Address(host, port, is_https=address != text)


class AdminRefusedError(CommandError):
    """The admin listener has refused a request."""


def _keep(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    ctx.meta[_TOKEN_FILE] = path


def _with_token(ctx: click.Context, param: click.Parameter, text: str | None) -> Address | None:
    address = cast("Address | None", parsed(parse_admin)(ctx, param, text))
    path = ctx.meta[_TOKEN_FILE]
    security = kept_security(ctx)
    if address is not None and security is not None:
        address = address._replace(tls=security.tls, login=security.password_login)
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
        "say; with https:// before it over TLS.",
    )(function)


def get(address: Address | tuple[str, int], path: str, **parameters: object) -> dict[str, Any]:
    """Return the JSON that the admin listener has at a path.

    Parameters with the value None are not sent.

    Raises AdminRefusedError if the request is refused; CommandError for no response, for another
    server than kgw, and for an error.
    """
    from http.client import HTTPException
    from json import loads
    from urllib.parse import urlencode

    asked = address if isinstance(address, Address) else Address(*address)
    authorization = asked.authorization
    headers = {"Authorization": authorization} if authorization else {}
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    where = str(asked)
    connection = asked.connect()
    try:
        with _telling(where):
            connection.request("GET", f"{path}?{query}" if query else path, headers=headers)
            response = connection.getresponse()
            value = loads(response.read())
    except OSError as error:
        raise _cannot_ask(asked, error) from None
    except (HTTPException, ValueError):
        raise CommandError(f"{where} is no admin listener of kgw") from None
    finally:
        connection.close()
    if not isinstance(value, dict):
        raise CommandError(f"{where} is no admin listener of kgw")
    if response.status == 401:
        raise CommandError(f"{where} {_who_is_wanted(asked)}", ExitCode.USAGE)
    if response.status != 200:
        kind = AdminRefusedError if response.status in {400, 403, 404} else CommandError
        raise kind(f"{where}: {value.get('error', response.status)}")
    return value


def _cannot_ask(asked: Address, error: OSError) -> CommandError:
    if asked.is_https:
        from kgw.client.tls import is_tls_error, tls_failure

        if is_tls_error(error):
            problem = tls_failure(str(asked), error)
            return CommandError(f"{problem} (--command-config)", ExitCode.CANNOT_CONNECT)
    reason = error.strerror or str(error)
    return CommandError(f"cannot ask {asked}: {reason}", ExitCode.CANNOT_CONNECT)


def _who_is_wanted(asked: Address) -> str:
    """Return why a server that wants to know its clients has refused a request."""
    if asked.token:
        return "does not take the token"
    if asked.authorization:
        return "does not take the user and the password of --command-config"
    if asked.login is not None and asked.login.is_token:
        return "wants a token of its own (--token-file) or a user, and no delegation token"
    if asked.login is not None:
        return "wants a login, and a password is sent to an address with https:// alone"
    return "wants a token (--token-file), or a user with a password (--command-config)"


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
