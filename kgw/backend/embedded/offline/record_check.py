"""Reading the records of every batch of a segment, to find those whose header lies."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kgw.backend.embedded.log.side import ENTRY_BYTES, decode_entry
from kgw.backend.embedded.offline.problems import Problem, Problems
from kgw.records.batch import HEADER_BYTES, read_batch
from kgw.records.crc import crc32c
from kgw.records.errors import RecordError
from kgw.records.reader import read_records

if TYPE_CHECKING:
    from kgw.backend.embedded.files.fs import File


class RecordCheck:
    """The records of one segment."""

    def __init__(self, path: str, file: File, partition: int) -> None:
        self._file = file
        self._partition = partition
        self._problems = Problems(path)

    @property
    def problems(self) -> list[Problem]:
        """What is wrong with the batches that have been read."""
        return self._problems.all()

    def take(self, entries: bytearray) -> None:
        """Read the records of each whole batch that side entries name. Raises OSError."""
        for place in range(0, len(entries), ENTRY_BYTES):
            entry = decode_entry(entries, place)
            if entry is None:
                continue
            header = self._file.pread(HEADER_BYTES, entry.position)
            if crc32c(header) != entry.header_crc:
                continue  # damage, which is told already, and may be as long as the segment
            data = self._file.pread(entry.size_bytes, entry.position)
            try:
                deque(read_records(read_batch(data)), maxlen=0)
            except RecordError as error:
                self._problems.add(
                    f"partition {self._partition}: the batch at offset {entry.base_offset} is not "
                    f"what its header says: {error}"
                )
