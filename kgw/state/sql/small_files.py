"""Functions for the files beside a state database.

They use `os`, as pathlib costs 3 ms at a start.
"""

# ruff: noqa: PTH108, PTH123 - see above

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike


def read_if_there(path: str | PathLike[str]) -> bytes | None:
    """Return the content of a file, or None if it does not exist. Raises OSError."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except FileNotFoundError:
        return None


def remove_if_there(path: str) -> None:
    """Remove a file if it exists. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def exists(path: str) -> bool:
    """Return whether there is a file, directory or link, even a broken link. Raises OSError."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
