"""Committing that pieces stand for others of the same offsets, after which nobody reads those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kgw.pipeline.archive.entry import Entry
from kgw.pipeline.archive.errors import CoverageError, Fault
from kgw.pipeline.archive.tables import publish
from kgw.pipeline.archive.units import remove_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.pipeline.archive.commit_log import CommitLog
    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.archive.lives import Life

# What another committer may cause: it has replaced a piece itself, or swept a file for an orphan.
_OVERTAKEN: Final = frozenset({Fault.UNKNOWN_PIECE, Fault.MISSING_FILE})


def replace_pieces(
    life: Life,
    log: CommitLog,
    removed: Sequence[Piece],
    added: Sequence[Piece],
    *,
    now_ms: int,
) -> bool:
    """Commit that `added` stands for `removed`, and return whether it does.

    `log` is that of the life, the same one for all commits of a job: it goes on from what it has
    read. False when another committer has replaced some of `removed` before. Files of `added` are
    removed when nothing was committed; those of `removed` are left for the sweep. The archive's
    tables are published. Raises ArchiveError, and PublishError behind a commit that stands.
    """
    entry = Entry(
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
