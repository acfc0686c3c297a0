"""Commits the replacement of files and holes by others with the same offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kgw.pipeline.archive.entry import CommitLogEntry
from kgw.pipeline.archive.errors import CoverageError, CoverageFault
from kgw.pipeline.archive.tables import publish
from kgw.pipeline.archive.units import remove_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.pipeline.archive.archived_topics import ArchivedTopic
    from kgw.pipeline.archive.commit_log import CommitLog
    from kgw.pipeline.archive.entry import Piece

# The faults that another committer can cause: it replaced a file first, or swept a new one.
_OVERTAKEN: Final = frozenset({CoverageFault.UNKNOWN_PIECE, CoverageFault.MISSING_FILE})


def replace_pieces(
    life: ArchivedTopic,
    log: CommitLog,
    removed: Sequence[Piece],
    added: Sequence[Piece],
    *,
    now_ms: int,
) -> bool:
    """Commit that `added` replaces `removed`; return False if another committer replaced one first.

    Pass the same `log` for all commits of a job: it remembers the versions that it has read. If the
    commit fails, the files of `added` are removed. The files of `removed` stay until the next
    sweep. The archive's tables are published after the commit. Raises ArchiveError, and
    PublishError if the commit succeeded but a table could not be published.
    """
    entry = CommitLogEntry(
        uuid4(),
        life.topic_id,
        added=tuple(added),
        removed=tuple(removed),
        committed_at_ms=now_ms,
    )
    try:
        log.commit(entry, planned_at=log.read().version)
    except CoverageError as error:
        remove_files(life.generation, added)
        if error.fault not in _OVERTAKEN:
            raise
        return False
    publish(life.generation, life.topic_id)
    return True
