"""What an archive refuses, and which of its rules was broken."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from kgw.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ArchiveError(PipelineError):
    """An archive that cannot be used as asked; the text names the place."""


class Fault(Enum):
    """The rules of coverage, by what an entry that breaks one of them would do."""

    FOREIGN_TOPIC_ID = "foreign topic id"
    WRONG_START = "wrong start"
    OVERLAP = "overlap"
    HOLE = "hole"
    UNKNOWN_PIECE = "unknown piece"
    WRONG_COUNT = "wrong count"
    DUPLICATE_PATH = "duplicate path"
    MISSING_FILE = "missing file"


class CoverageError(ArchiveError):
    """An entry that would break a rule of coverage; `fault` names the rule."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(f"{fault.value}: {text}")
        self.fault = fault


class DamagedLogError(ArchiveError):
    """The commit log has a version that is missing, or one that cannot be read."""


class VersionTakenError(ArchiveError):
    """Another committer has written this version."""


class PublishError(ArchiveError):
    """A table that cannot be brought to where the commit log is; the commits stand.

    `versions` are those of the tables that are there, by kind.
    """

    def __init__(self, text: str, versions: Mapping[str, int] = MappingProxyType({})) -> None:
        super().__init__(text)
        self.versions = versions
