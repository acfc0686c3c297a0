"""Changes that once went unnoticed, each with the tests that notice it now.

`planted/*.toml` lists them by the text of the code, so that an entry moves with its code: whoever
rewrites the lines rewrites the entry, too.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).with_name("planted")


class PlantedChange(NamedTuple):
    """One text of a module becomes another one."""

    name: str
    path: str
    old: str
    new: str
    does: str
    """What harm the change does."""
    tests: tuple[str, ...]
    """Tests that fail with the change: node ids without parameters."""

    def apply(self, source: bytes) -> bytes:
        """Return the changed source. Raises ValueError unless the old text is there once."""
        count = source.count(self.old.encode())
        if count != 1:
            raise ValueError(f"{self.name}: its text is {count} times in {self.path}")
        return source.replace(self.old.encode(), self.new.encode())


def load_planted() -> list[PlantedChange]:
    """Return every listed change. Raises TypeError where a field is missing or unknown."""
    return [
        PlantedChange(**one | {"tests": tuple(one["tests"])})
        for file in sorted(_FOLDER.glob("*.toml"))
        for one in tomllib.loads(file.read_text(encoding="utf-8"))["change"]
    ]
