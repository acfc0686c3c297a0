"""Which topics an archive has, and which lives of each: a topic created again begins a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.names import generation_directory

if TYPE_CHECKING:
    from pathlib import Path


_PARTS: Final = ("_log", "p=*")
"""What a life has: where the commit log is gone, files are left, and who reads it says so."""


class Life(NamedTuple):
    """One life of a topic in an archive."""

    root: Path
    topic: str
    topic_id: UUID

    @property
    def generation(self) -> Path:
        """Its directory."""
        return generation_directory(str(self.root), self.topic, self.topic_id)

    @property
    def log(self) -> CommitLog:
        """Its commit log."""
        return CommitLog(self.generation, self.topic_id)


def archived_topics(root: Path) -> list[str]:
    """Return the topics of which an archive has a life or more, by name."""
    generations = {one.parent for part in _PARTS for one in root.glob(f"*/*/{part}")}
    return sorted({one.parent.name for one in generations if _topic_id(one) is not None})


def archived_lives(root: Path, topic: str) -> list[UUID]:
    """Return the topic ids of the lives that an archive has of a topic, in the order of the ids."""
    generations = {one.parent for part in _PARTS for one in (root / topic).glob(f"*/{part}")}
    return sorted(one for one in map(_topic_id, generations) if one is not None)


def _topic_id(generation: Path) -> UUID | None:
    """Return whose life it is; None of a directory that no archive has named, as a copy."""
    name = generation.name
    try:
        topic_id = UUID(name)
    except ValueError:
        return None
    return topic_id if str(topic_id) == name else None
