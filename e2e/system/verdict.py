"""The verdict: one row for each thing that must be true, printed as a table and written as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SHOWN = 5


class Row(NamedTuple):
    """One thing that must be true of a gateway."""

    gateway: str
    what: str
    problems: Sequence[str]
    """What is wrong, in words; nothing where it is true."""
    figures: str = ""

    @property
    def is_true(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class Verdict:
    """What a run has found."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.seconds: dict[str, float] = {}
        """How long each part took."""

    @property
    def is_good(self) -> bool:
        """Whether there is something, and all of it is true."""
        return bool(self.rows) and all(row.is_true for row in self.rows)

    def table(self) -> str:
        """Return all rows as text, with the first problems below each that is not true."""
        widths = [max(len(row[column]) for row in self.rows) for column in (0, 1)]
        lines = []
        for row in self.rows:
            mark = "ok    " if row.is_true else "FAILED"
            lines.append(
                f"{mark} {row.gateway:{widths[0]}}  {row.what:{widths[1]}}  {row.figures}".rstrip()
            )
            lines += [f"         {one}" for one in row.problems[:_SHOWN]]
            if len(row.problems) > _SHOWN:
                lines.append(f"         and {len(row.problems) - _SHOWN} more")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        rows = [{**row._asdict(), "problems": list(row.problems)[:100]} for row in self.rows]
        said = {"good": self.is_good, "seconds": self.seconds, "rows": rows}
        path.write_text(json.dumps(said, indent=1) + "\n")
