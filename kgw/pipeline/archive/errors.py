"""The errors of archives, and the rules of coverage that they name."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from kgw.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ArchiveError(PipelineError):
    """An archive cannot be used in the requested way; the text names the file or partition."""


class CoverageFault(Enum):
    """The ways in which an entry can break the rules of coverage."""

    FOREIGN_TOPIC_ID = "foreign topic id"
    WRONG_START = "wrong start"
    OVERLAP = "overlap"
    HOLE = "hole"
    UNKNOWN_PIECE = "unknown piece"
    WRONG_COUNT = "wrong count"
    DUPLICATE_PATH = "duplicate path"
    MISSING_FILE = "missing file"


class CoverageError(ArchiveError):
    """An entry would break a rule of coverage; `fault` names the rule."""

    def __init__(self, fault: CoverageFault, text: str) -> None:
        super().__init__(f"{fault.value}: {text}")
        self.fault = fault


class DamagedLogError(ArchiveError):
    """A version of the commit log is missing or cannot be read."""


class PublishError(ArchiveError):
    """A published table does not show the commit log's newest version; the commits succeeded.

    `versions` maps the kinds of the other tables to the versions that they show.
    """

    def __init__(self, text: str, versions: Mapping[str, int] = MappingProxyType({})) -> None:
        super().__init__(text)
        self.versions = versions
