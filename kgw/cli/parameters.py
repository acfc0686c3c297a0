"""What options and arguments are made into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


def parsed(parse: Callable[[Any], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that parses what was given, if anything was.

    A ValueError of the parser is wrong usage.
    """

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> object:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback
