"""Lives of topics: what in a directory is an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kgw.pipeline.archive.archived_topics import archived_topic_ids, archived_topics

if TYPE_CHECKING:
    from pathlib import Path


def test_a_copy_beside_an_archive_is_no_life(tmp_path: Path) -> None:
    """Whoever puts one there, under another name, can still use the archive."""
    first, second = UUID(int=7), UUID(int=9)
    for place in (f"a/{second}", f"a/{first}", f"a/{first}.bak", f"a/{second.hex}", "b/old"):
        (tmp_path / place / "_log").mkdir(parents=True)
    assert ["a"] == archived_topics(tmp_path)
    assert [first, second] == archived_topic_ids(tmp_path, "a")


def test_a_life_without_its_commit_log_is_one(tmp_path: Path) -> None:
    """Its files are still there: whoever looks at it is told that the log was lost."""
    life = UUID(int=7)
    (tmp_path / "a" / str(life) / "p=00000").mkdir(parents=True)
    (tmp_path / "b" / str(life)).mkdir(parents=True)
    assert ["a"] == archived_topics(tmp_path)
    assert ([life], []) == (archived_topic_ids(tmp_path, "a"), archived_topic_ids(tmp_path, "b"))
