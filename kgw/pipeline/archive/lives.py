"""Which topics an archive has, and which lives of each: a topic created again begins a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.names import generation_directory

if TYPE_CHECKING:
    from pathlib import Path


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
    return sorted({log.parent.parent.name for log in root.glob("*/*/_log")})


def archived_lives(root: Path, topic: str) -> list[UUID]:
    """Return the topic ids of the lives that an archive has of a topic, in the order of the ids."""
    return sorted(UUID(log.parent.name) for log in (root / topic).glob("*/_log"))
