"""The topics and topic ids of an archive; a topic that is created again has a new topic id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.names import generation_directory

if TYPE_CHECKING:
    from pathlib import Path


_PARTS: Final = ("_log", "p=*")
"""The subdirectories by which the directory of a topic id is recognised. Data files without a
commit log are enough: whoever reads the archive then reports the lost log."""


class ArchivedTopic(NamedTuple):
    """A topic in an archive, with one topic id."""

    root: Path
    topic: str
    topic_id: UUID

    @property
    def generation(self) -> Path:
        """The directory of this topic id."""
        return generation_directory(str(self.root), self.topic, self.topic_id)

    @property
    def log(self) -> CommitLog:
        """The commit log of this topic id."""
        return CommitLog(self.generation, self.topic_id)


def archived_topics(root: Path) -> list[str]:
    """Return the names of an archive's topics, sorted."""
    generations = {one.parent for part in _PARTS for one in root.glob(f"*/*/{part}")}
    return sorted({one.parent.name for one in generations if _topic_id(one) is not None})


def archived_topic_ids(root: Path, topic: str) -> list[UUID]:
    """Return the topic ids that an archive has of a topic, sorted."""
    generations = {one.parent for part in _PARTS for one in (root / topic).glob(f"*/{part}")}
    return sorted(one for one in map(_topic_id, generations) if one is not None)


def _topic_id(generation: Path) -> UUID | None:
    """Return the topic id in a directory's name; None for another name, e.g. that of a copy."""
    name = generation.name
    try:
        topic_id = UUID(name)
    except ValueError:
        return None
    return topic_id if str(topic_id) == name else None
