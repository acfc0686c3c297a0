"""The problems that an audit can find."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kgw.pipeline.archive.errors import CoverageFault

if TYPE_CHECKING:
    from kgw.pipeline.archive.entry import DataFile

MAX_LEVEL: Final = 2
"""The highest level that reads only the archive, not the topic."""


class AuditProblem(StrEnum):
    """Every problem that an audit reports; the values are the names that docs/archive.md explains.

    Several levels may find the same problem, each in the data that it reads.
    """

    # Problems of the commit log.
    FOREIGN_TOPIC_ID = CoverageFault.FOREIGN_TOPIC_ID.value
    WRONG_START = CoverageFault.WRONG_START.value
    OVERLAP = CoverageFault.OVERLAP.value
    HOLE = CoverageFault.HOLE.value
    UNKNOWN_PIECE = CoverageFault.UNKNOWN_PIECE.value
    WRONG_COUNT = CoverageFault.WRONG_COUNT.value
    DUPLICATE_PATH = CoverageFault.DUPLICATE_PATH.value
    DAMAGED_LOG = "damaged log"
    # Problems of data files.
    MISSING_FILE = CoverageFault.MISSING_FILE.value
    TRUNCATED_FILE = "truncated file"
    FILE_TOO_LONG = "file too long"
    DAMAGED_FILE = "damaged file"
    ALTERED_FILE = "altered file"
    WRONG_COLUMNS = "wrong columns"
    WRONG_RANGE = "wrong range"
    WRONG_ROWS = "wrong rows"
    WRONG_TIMES = "wrong times"
    ORDER = "order"
    DUPLICATE = "duplicate"
    UNDECLARED_RECORD = "undeclared record"
    GAP = "gap"
    # Problems of published tables.
    DAMAGED_TABLE = "damaged table"
    FOREIGN_TABLE = "foreign table"
    TABLE_AHEAD = "table ahead"
    TABLE_BEHIND = "table behind"
    TABLE_DIFFERS = "table differs"
    # Records that differ between the topic and its archive, or its acknowledged records.
    LOST_RECORD = "lost record"
    FOREIGN_RECORD = "foreign record"
    ALTERED_RECORD = "altered record"
    GAP_IN_THE_TOPIC = "gap in the topic"
    OFFSET_GIVEN_TWICE = "offset given twice"
    DAMAGED_RECORDS = "damaged records"
    MISSING_TOPIC = "missing topic"
    RECREATED_TOPIC = "recreated topic"
    MISSING_PARTITION = "missing partition"
    END_WENT_BACK = "end went back"
    START_WENT_BACK = "start went back"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A problem that an audit has found; `text` names the file, offset or partition.

    `file` is None if the problem is in the log or a table.
    """

    level: int
    name: AuditProblem
    text: str
    file: DataFile | None = None
