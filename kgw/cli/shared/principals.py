"""Options whose values are principals, as in User:alice."""

from __future__ import annotations

from functools import partial

import click

from kgw.cli.shared.settings import parsed
from kgw.security.principal import parse_principal


def _principals(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    for text in (value,) if isinstance(value, str) else value:
        parse_principal(text)
    return value


principal_option = partial(click.option, callback=parsed(_principals), metavar="PRINCIPAL")
