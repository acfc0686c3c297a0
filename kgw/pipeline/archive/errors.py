"""The errors of archives, and the rules of coverage that they name."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from kgw.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ArchiveError(PipelineError):
    """An archive cannot be used in this way; the text names the file or partition."""


class CoverageFault(Enum):
    """The rules of coverage, named by the effect of an entry that breaks them."""

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
    """A table could not be updated to the commit log's version; the commits themselves succeeded.

    `versions` has the versions of the other tables, by kind.
    """

    def __init__(self, text: str, versions: Mapping[str, int] = MappingProxyType({})) -> None:
        super().__init__(text)
        self.versions = versions
