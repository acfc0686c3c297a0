"""Lives of topics: what in a directory is an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kgw.pipeline.archive.lives import archived_lives, archived_topics

if TYPE_CHECKING:
    from pathlib import Path


def test_a_copy_beside_an_archive_is_no_life(tmp_path: Path) -> None:
    """Whoever puts one there, under another name, can still use the archive."""
    first, second = UUID(int=7), UUID(int=9)
    for place in (f"a/{second}", f"a/{first}", f"a/{first}.bak", f"a/{second.hex}", "b/old"):
        (tmp_path / place / "_log").mkdir(parents=True)
    assert ["a"] == archived_topics(tmp_path)
    assert [first, second] == archived_lives(tmp_path, "a")
