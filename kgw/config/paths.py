"""Makes paths absolute without pathlib, whose import would take 3 ms of a start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike


def absolute_path(path: str | PathLike[str]) -> str:
    """Return an absolute path without empty parts and `.`; `..` stays, as links may need it."""
    name = os.fspath(path)
    if not name.startswith("/"):
        name = f"{os.getcwd()}/{name}"  # noqa: PTH109 - see above
    return "/" + "/".join(part for part in name.split("/") if part not in {"", "."})
