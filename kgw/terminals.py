"""What a terminal can show, by what its user has said."""

from __future__ import annotations

from os import environ
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_dumb(variables: Mapping[str, str] = environ) -> bool:
    """Whether the terminal obeys nothing: no colours, no moves of the cursor (TERM=dumb)."""
    return variables.get("TERM") == "dumb"


def has_colours(variables: Mapping[str, str] = environ) -> bool:
    """Whether a terminal may be given colours: NO_COLOR, whatever it is, says no."""
    return not variables.get("NO_COLOR") and not is_dumb(variables)
