"""The abilities of a terminal, from the user's environment variables."""

from __future__ import annotations

from os import environ
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_dumb(variables: Mapping[str, str] = environ) -> bool:
    """Return whether the terminal has neither colours nor cursor movement (TERM=dumb)."""
    return variables.get("TERM") == "dumb"


def has_colours(variables: Mapping[str, str] = environ) -> bool:
    """Return whether output may have colours: not on a dumb terminal or if NO_COLOR is set."""
    return not variables.get("NO_COLOR") and not is_dumb(variables)
