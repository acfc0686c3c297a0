"""A problem that the check of a backend's files reports."""

from __future__ import annotations

from typing import NamedTuple


class StorageProblem(NamedTuple):
    """A violated invariant of a stored file."""

    path: str
    """The path of the file, in the data directory or on the filer."""
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"
