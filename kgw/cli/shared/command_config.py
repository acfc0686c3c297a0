"""`--command-config`: how commands connect, from a properties file of Kafka's clients."""

from __future__ import annotations

import os
from stat import S_IROTH
from typing import TYPE_CHECKING, NamedTuple

import click

from kgw.cli.shared.output import note_as
from kgw.client.client_properties import ALIASES, SECRETS
from kgw.client.security import client_security
from kgw.config.properties import PropertiesSyntaxError, PropertyError, parse_properties
from kgw.config.setting import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.cli.shared.settings import FunctionT
    from kgw.client.security import ClientSecurity
    from kgw.config.properties import Property

_KEY = "kgw.command_config"


class ClientConfig(NamedTuple):
    """How to connect to a cluster, by a properties file of Kafka's clients."""

    security: ClientSecurity
    properties: Mapping[str, str]
    """The same as text, for tasks on other machines. Some of it may be secret."""
    warning: str
    """Printed before the first use; "" for none."""
    file: GivenFile

    def __repr__(self) -> str:
        """Hide the properties."""
        return f"ClientConfig({self.security!r})"


class GivenFile(NamedTuple):
    """The file of --command-config."""

    path: str
    properties: Mapping[str, Property]

    def __repr__(self) -> str:
        """Hide the properties."""
        return f"GivenFile({self.path!r})"

    def line_of(self, name: str) -> str:
        """Return ":LINE" of a property, whichever of its names the file has; "" without it."""
        return _line_of(name, self.properties)

    def values(self) -> dict[str, str]:
        """Return the values of all properties, passwords included."""
        return {name: one.value for name, one in self.properties.items()}


def load_client_properties(path: str) -> ClientConfig:
    """Read a properties file. Raises ConfigError, with the file's name and the line."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - pathlib costs start-up time
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {(error.strerror or 'unknown').lower()}") from None
    try:
        given = parse_properties(content.decode())
        properties = {name: one.value for name, one in given.items()}
        security = client_security(properties)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8: write other characters as \\uXXXX") from None
    except PropertiesSyntaxError as error:
        raise ConfigError(f"{path}:{error.line}: {error}") from None
    except PropertyError as error:
        raise ConfigError(f"{path}{_line_of(error.name, given)}: {error}") from None
    return ClientConfig(security, properties, _warning(path, mode, given), GivenFile(path, given))


def given_security() -> ClientSecurity | None:
    """Return how the running command connects; None for plain text without a login.

    Prints the warning of the file, if there is one, at the first call.
    """
    config = _given_config()
    return None if config is None else config.security


def given_properties() -> Mapping[str, str]:
    """Return the properties of the file, for tasks on other machines; otherwise the same."""
    config = _given_config()
    return {} if config is None else config.properties


def tell_warning(config: ClientConfig) -> None:
    """Print the warning of a file, if there is one."""
    if config.warning:
        told = {"warning": config.warning}
        is_json = click.get_current_context().params.get("is_json", False)
        note_as(f"warning: {config.warning}", told, is_json=is_json)


def _given_config() -> ClientConfig | None:
    ctx = click.get_current_context()
    config: ClientConfig | None = ctx.meta.get(_KEY)
    if config is not None:
        tell_warning(config)
        ctx.meta[_KEY] = config._replace(warning="")
    return config


def kept_security(ctx: click.Context) -> ClientSecurity | None:
    """Return the same for a command line that is being completed."""
    config: ClientConfig | None = ctx.meta.get(_KEY)
    return None if config is None else config.security


def given_file() -> GivenFile | None:
    """Return the file that the running command was given with --command-config."""
    config: ClientConfig | None = click.get_current_context().meta.get(_KEY)
    return None if config is None else config.file


def warn_if_everybody_reads(path: str, *, is_json: bool) -> None:
    """Print a warning if every user of this machine can read a file with a secret."""
    warning = _everybody_reads(path, os.stat(path).st_mode)  # noqa: PTH116 - as above
    if warning:
        note_as(f"warning: {warning}", {"warning": warning}, is_json=is_json)


def _keep(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    """Read the file, and store the result for the command that runs."""
    if path:
        ctx.meta[_KEY] = load_client_properties(path)


def other_cluster_option(name: str, needs: str) -> Callable[[FunctionT], FunctionT]:
    """Return an option with the properties file of a second cluster, as a ClientConfig or None.

    `needs` is the option with the address of that cluster. Without the file the command connects in
    plain text, as a login for one cluster must not be sent to another one.
    """
    return click.option(
        name,
        callback=lambda _, __, path: load_client_properties(path) if path else None,
        metavar="FILE",
        help=f"How to connect to {needs}, as --command-config does to --bootstrap.  [default: in "
        "plain text, without a login]",
    )


command_config_option = click.option(
    "--command-config",
    # Read before --admin, whose requests use it.
    is_eager=True,
    callback=_keep,
    expose_value=False,
    envvar="KGW_COMMAND_CONFIG",
    show_envvar=True,
    metavar="FILE",
    help="How to connect, in properties of Kafka's clients: TLS, user and password.",
)


def _line_of(name: str, given: Mapping[str, Property]) -> str:
    """Return ":LINE" of a property, whichever of its names the file has."""
    names = (name, *(alias for alias, kafkas in ALIASES.items() if kafkas == name))
    return next((f":{given[one].line}" for one in names if one in given), "")


def _warning(path: str, mode: int, given: Mapping[str, Property]) -> str:
    has_secret = any(name in SECRETS and one.value for name, one in given.items())
    return _everybody_reads(path, mode) if has_secret else ""


def _everybody_reads(path: str, mode: int) -> str:
    if not mode & S_IROTH:
        return ""
    return f"{path} has a password, and everybody on this machine can read it: chmod 600 {path}"
