"""The paths of an archive's files: `<root>/<topic>/<topic-id>/p=00007/...` and `.../_log/...`.

A data file's name ends with a token of its writer. If two archivers read the same range, they write
two different files, and the one whose commit fails removes only its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kgw.pipeline.archive.errors import ArchiveError

if TYPE_CHECKING:
    from uuid import UUID

MAX_TOPIC_LENGTH: Final = 249
COMPACTED: Final = "compacted"
"""The kind of files that compaction has written: they may lack records whose key a later record
has."""
KINDS: Final = frozenset({"append", "merged", COMPACTED})
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_TOKEN: Final = re.compile(r"[a-z0-9]{1,32}")
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")
_DATA_FILE: Final = re.compile(
    r"p=(\d{5,10})/(\d{20})-(\d{20})-(append|merged|compacted)-[a-z0-9]{1,32}\.parquet"
)


def generation_directory(root: str, topic: str, topic_id: UUID) -> Path:
    """Return the directory of a topic id.

    Raises ArchiveError for an invalid topic name, for a name that would leave the root, and if the
    root is not a local directory: an object store has no exclusive link.
    """
    if "://" in root:
        scheme = root.partition("://")[0]
        raise ArchiveError(f"an archive in {scheme}:// is not supported; name a local directory")
    if not root:
        raise ArchiveError("the root of an archive cannot be empty")
    if not _TOPIC.fullmatch(topic) or len(topic) > MAX_TOPIC_LENGTH or topic in {".", ".."}:
        raise ArchiveError(f"{topic!r} is not a topic name")
    if topic_id.int == 0:
        raise ArchiveError(f"topic {topic!r} has no topic id; an archive needs one")
    return Path(root) / topic / str(topic_id)


def partition_directory(partition: int) -> str:
    """Return the name of a partition's directory inside its generation."""
    return f"p={partition:05d}"


def data_path(partition: int, first: int, last: int, kind: str, token: str) -> str:
    """Return a data file's path inside its generation; `last` is inclusive."""
    if kind not in KINDS or not _TOKEN.fullmatch(token) or not 0 <= first <= last or partition < 0:
        raise ArchiveError(f"no name for {kind!r} {partition}/{first}-{last} of {token!r}")
    return f"{partition_directory(partition)}/{first:020d}-{last:020d}-{kind}-{token}.parquet"


def parse_data_path(path: str) -> tuple[int, int, int, str] | None:
    """Return (partition, first, last, kind) of a data file's path; None for any other path."""
    match = _DATA_FILE.fullmatch(path)
    if match is None:
        return None
    partition, first, last, kind = match.groups()
    return int(partition), int(first), int(last), kind


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a writer's temporary file."""
    return _TEMPORARY.fullmatch(name) is not None
