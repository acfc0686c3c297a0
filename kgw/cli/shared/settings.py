"""Options that several commands share, and the output of the configuration."""

from __future__ import annotations

import re
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kgw.config import SERVER_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kgw.config import Config, Value

FunctionT = TypeVar("FunctionT", bound="Callable[..., Any]")

_DURATION = (
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)S)?)?"
)
_FACTORS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}

config_file_option = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    envvar="KGW_CONFIG",
    show_envvar=True,
    help="Settings as TOML.",
)
assignments_option = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="One setting by its name, as in num.partitions=3; may be given several times.",
)


class NumberRange(click.FloatRange):
    """Numbers in a range. click accepts NaN in every range, and infinity in one without an end."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Fails for text that is not a number, and for a number out of range."""
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value!r} is not a valid number.", param, ctx)
        return number


watch_option = partial(
    click.option, "--watch", "watch_s", type=NumberRange(min=0.1), metavar="SECONDS"
)


def parsed(parse: Callable[[Any], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a click callback that parses an option's value, if the option is given.

    A ValueError of the parser becomes a usage error.
    """

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> object:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback


def size_bytes(text: str) -> int:
    """Return the number of bytes in a size like `256m`. Raises ValueError."""
    from kgw.pipeline.options import parse_size_bytes

    return parse_size_bytes(text)


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration, like PT15M or P1DT2H. Raises ValueError."""
    match = re.fullmatch(_DURATION, text)
    if match is None or not any(match.groups()):
        raise ValueError(f"not a duration like PT15M or P1DT2H: {text}")
    return sum(int(match[unit] or 0) * factor for unit, factor in _FACTORS_MS.items())


size_option = partial(click.option, callback=parsed(size_bytes), metavar="BYTES")
duration_option = partial(click.option, callback=parsed(parse_duration_ms), metavar="DURATION")


def with_variables_checked(
    callback: Callable[[click.Context, click.Parameter, Any], Any],
) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that first refuses misspelt environment variables, e.g. of this option."""

    def checked(ctx: click.Context, param: click.Parameter, value: Any) -> object:
        if not ctx.resilient_parsing:
            _check_variables()
        return callback(ctx, param, value)

    return checked


def _check_variables() -> None:
    from os import environ

    from kgw.config.load import check_client_variables

    check_client_variables(environ)


def json_option(help_text: str = "Print the result as JSON.") -> Callable[[FunctionT], FunctionT]:
    """Return the --json option, which every command has."""
    return click.option("--json", "is_json", is_flag=True, help=help_text)


def load(
    config_file: str | None,
    assignments: Iterable[str],
    overrides: Iterable[tuple[str, str, str]] = (),
) -> Config:
    """Return the configuration from a file, the environment, assignments and flags.

    Raises ConfigError.
    """
    from os import environ

    from kgw.config import ConfigError, load_config
    from kgw.config.load import environment_name, split_assignment

    given = [(*split_assignment(text), "--set") for text in assignments]
    for name, _, _ in given:
        setting = SERVER_SETTINGS.get(name)
        if setting is not None and setting.is_sensitive:
            raise ConfigError(
                f"{name} is a secret, and everybody on this machine sees the arguments of a "
                f"command: give it by the variable {environment_name(name)}, or in --config FILE"
            )
    return load_config(config_file, environ, [*given, *overrides])


def print_config(config: Config, *, is_json: bool) -> None:
    """Print every setting with its value and origin: as TOML that --config takes, or as JSON."""
    from json import dumps

    if is_json:
        settings = {
            name: {"value": _shown(config, name), "origin": config.origin(name)}
            for name in SERVER_SETTINGS
        }
        click.echo(dumps(settings, indent=2))
        return
    # For these types, TOML values are written like JSON values.
    lines = [
        (f'"{name}" = {dumps(_shown(config, name))}', config.origin(name)) for name in config.values
    ]
    width = max(len(line) for line, _ in lines)
    for line, origin in lines:
        click.echo(f"{line:<{width}}  # {origin}")


def _shown(config: Config, name: str) -> Value:
    setting, value = SERVER_SETTINGS[name], config.get(name)
    return setting.format(value) if setting.is_sensitive else value
