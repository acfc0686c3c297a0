"""What a check of a data directory finds."""

from __future__ import annotations

from typing import Final, NamedTuple

_NAMED: Final = 100
"""Entries of one file that are named; of others it is said how many there are."""


class Problem(NamedTuple):
    """Something that is not as it must be."""

    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"


class Problems:
    """What is wrong with the entries of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._named: list[Problem] = []
        self._more = 0

    def add(self, detail: str) -> None:
        """Note one more."""
        if len(self._named) < _NAMED:
            self._named.append(Problem(self._path, detail))
        else:
            self._more += 1

    def all(self) -> list[Problem]:
        """Return the first ones by name, and how many more there are."""
        if not self._more:
            return self._named
        return [*self._named, Problem(self._path, f"has {self._more} more wrong entries")]
