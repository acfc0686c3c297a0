"""Reads acknowledged records, by partition, from the journals of clients."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kgw.client.ack_journal import read_journal_line
from kgw.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

UNKNOWN_CRC = -1


class JournalError(PipelineError):
    """A journal cannot be read; the text names the file and line."""


class JournaledTopic(NamedTuple):
    """A topic with its topic id; the id is None if the journal has none."""

    topic: str
    topic_id: str | None


class Acks(NamedTuple):
    """The acknowledged records of a partition, by offset; each offset occurs once."""

    offsets: NDArray[np.int64]
    crcs: NDArray[np.int64]
    """`UNKNOWN_CRC` for a record without a CRC in the journal."""
    twice: NDArray[np.int64]
    """Offsets that were acknowledged for two different records; `crcs` has the later CRC."""


class JournalReader:
    """Reads a journal that may grow; each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._lines = 0

    def read_new(self, into: JournaledRecords) -> int:
        """Read the new complete lines, and return how many there were. Raises JournalError.

        A last line without a newline is not read: its writer has not finished it, or was killed.
        """
        count = 0
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._position += len(line)
                    self._lines += 1
                    if line.strip():
                        into.add(line, f"{self._path}:{self._lines}")
                        count += 1
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from None
        return count


class JournaledRecords:
    """The acknowledged records of all journals, in 16 bytes for each record."""

    def __init__(self) -> None:
        self._rows: dict[JournaledTopic, dict[int, tuple[array[int], array[int]]]] = {}

    @property
    def journaled_topics(self) -> list[JournaledTopic]:
        """The topics that have acknowledged records, by name and id."""
        return sorted(self._rows, key=lambda one: (one.topic, one.topic_id or ""))

    def add(self, line: bytes, place: str) -> None:
        """Add a line of a journal. Raises JournalError."""
        try:
            said = read_journal_line(line)
        except ValueError as error:
            raise JournalError(f"{place}: {error}") from None
        partitions = self._rows.setdefault(JournaledTopic(said.topic, said.topic_id), {})
        offsets, crcs = partitions.setdefault(said.partition, (array("q"), array("q")))
        offsets.append(said.offset)
        crcs.append(UNKNOWN_CRC if said.crc is None else said.crc)

    def partitions(self, life: JournaledTopic) -> dict[int, Acks]:
        """Return the acknowledged records of a topic, by partition."""
        return {
            partition: _acks(offsets, crcs)
            for partition, (offsets, crcs) in sorted(self._rows[life].items())
        }


def _acks(offsets: array[int], crcs: array[int]) -> Acks:
    all_offsets: NDArray[Any] = np.array(offsets, np.int64)
    all_crcs: NDArray[Any] = np.array(crcs, np.int64)
    # A stable sort, so that of equal offsets the last line stays the last.
    order = np.argsort(all_offsets, kind="stable")
    sorted_offsets, sorted_crcs = all_offsets[order], all_crcs[order]
    is_again = sorted_offsets[1:] == sorted_offsets[:-1]
    is_known = (sorted_crcs[1:] != UNKNOWN_CRC) & (sorted_crcs[:-1] != UNKNOWN_CRC)
    differs = is_again & is_known & (sorted_crcs[1:] != sorted_crcs[:-1])
    is_last = np.append(~is_again, True)
    twice = np.unique(sorted_offsets[1:][differs])
    return Acks(sorted_offsets[is_last], sorted_crcs[is_last], twice)
