"""What the state needs of files beside its database. By `os`: pathlib is 3 ms of a start."""

# ruff: noqa: PTH108, PTH123 - see above

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike


def read_if_there(path: str | PathLike[str]) -> bytes | None:
    """Return the whole of a file, None when there is none. Raises OSError."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except FileNotFoundError:
        return None


def remove_if_there(path: str) -> None:
    """Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def exists(path: str) -> bool:
    """Whether anything has this name, a link to nothing included. Raises OSError."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
