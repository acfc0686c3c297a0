"""Comparing what lies beside a segment with the segment: its side file and Kafka's two indexes.

Piece by piece, while the segment is scanned: it may hold sixteen million batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.log.indexes import OFFSET_ENTRY, TIME_ENTRY
from kgw.backend.embedded.log.side import ENTRY, ENTRY_BYTES, SideEntry, decode_entry
from kgw.backend.embedded.offline.problems import Problem, Problems
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from struct import Struct

    from kgw.backend.embedded.files.fs import File
    from kgw.backend.embedded.offline.record_check import RecordCheck

_READ_ENTRIES: Final = 4096


class IndexCheck(ABC):
    """One of Kafka's indexes, gone through beside the batches that it is about."""

    suffix: ClassVar[str]
    row: ClassVar[Struct]

    def __init__(self, path: str, file: File, base_offset: int) -> None:
        self._path = path
        self._file = file
        self._base_offset = base_offset
        self._size_bytes = file.size()
        self._problems = Problems(path)
        is_whole = not self._size_bytes % self.row.size
        self._rows = self._read() if is_whole else iter(())
        self._row = next(self._rows, None)
        self._following = next(self._rows, None)

    @property
    def problems(self) -> list[Problem]:
        """What is wrong, once `finish` has been called."""
        if self._size_bytes % self.row.size:
            detail = f"has {self._size_bytes} bytes, which is no number of entries"
            return [Problem(self._path, detail)]
        return self._problems.all()

    def see(self, position: int, largest_timestamp_ms: int, last_offset: int) -> None:
        """Compare with the next batch."""
        place = self.place(position, last_offset)
        while self._row is not None:
            row = self._row
            at = self.place_of(row)
            if at > place and (
                # A wrong one must not hide those behind it.
                self._following is None or self.place_of(self._following) != place
            ):
                return
            is_right = at == place and self.agrees(row, largest_timestamp_ms, last_offset)
            self._judge(row, is_right=is_right)

    def finish(self) -> None:
        """Note that there are no more batches."""
        while self._row is not None:
            self._judge(self._row, is_right=False)

    def _judge(self, row: tuple[int, int], *, is_right: bool) -> None:
        self.judge(row, is_right=is_right)
        self._row, self._following = self._following, next(self._rows, None)

    def _read(self) -> Iterator[tuple[int, int]]:
        step = self.row.size * _READ_ENTRIES
        for start in range(0, self._size_bytes, step):
            yield from self.row.iter_unpack(
                self._file.pread(min(step, self._size_bytes - start), start)
            )

    @abstractmethod
    def place(self, position: int, last_offset: int) -> int:
        """Return what a batch is known by."""

    @abstractmethod
    def place_of(self, row: tuple[int, int]) -> int:
        """Return what the batch of an entry is known by."""

    @abstractmethod
    def agrees(self, row: tuple[int, int], largest_timestamp_ms: int, last_offset: int) -> bool:
        """Whether the rest of an entry is what it must be."""

    @abstractmethod
    def judge(self, row: tuple[int, int], *, is_right: bool) -> None:
        """Note what is wrong with an entry."""


class OffsetIndexCheck(IndexCheck):
    """Where batches lie."""

    suffix = layout.OFFSET_INDEX_SUFFIX
    row = OFFSET_ENTRY
    _previous = -1

    def place(self, position: int, last_offset: int) -> int:
        return position

    def place_of(self, row: tuple[int, int]) -> int:
        return row[1]

    def agrees(
        self,
        row: tuple[int, int],
        largest_timestamp_ms: int,
        last_offset: int,
    ) -> bool:
        return self._base_offset + row[0] == last_offset

    def judge(self, row: tuple[int, int], *, is_right: bool) -> None:
        relative, position = row
        if not is_right or relative <= self._previous:
            self._problems.add(f"entry ({relative}, {position}) is no batch's")
        self._previous = relative


class TimeIndexCheck(IndexCheck):
    """The largest timestamp up to a batch."""

    suffix = layout.TIME_INDEX_SUFFIX
    row = TIME_ENTRY
    _previous_ms = NO_TIMESTAMP_MS

    def place(self, position: int, last_offset: int) -> int:
        return last_offset

    def place_of(self, row: tuple[int, int]) -> int:
        return self._base_offset + row[1]

    def agrees(
        self,
        row: tuple[int, int],
        largest_timestamp_ms: int,
        last_offset: int,
    ) -> bool:
        return row[0] == largest_timestamp_ms

    def judge(self, row: tuple[int, int], *, is_right: bool) -> None:
        timestamp_ms, relative = row
        if not is_right:
            self._problems.add(f"entry ({timestamp_ms}, {relative}) is no batch's")
        if timestamp_ms <= self._previous_ms:
            self._problems.add(f"timestamp {timestamp_ms} does not rise")
        self._previous_ms = timestamp_ms


class DerivedCheck:
    """All that lies beside one segment; takes its entries from the scan."""

    def __init__(
        self,
        side_path: str,
        side_file: File | None,
        indexes: Sequence[IndexCheck],
        records: RecordCheck | None,
        *,
        may_lag: bool,
    ) -> None:
        self._side_path = side_path
        self._side_file = side_file
        self._indexes = indexes
        self._records = records
        self._may_lag = may_lag
        self._position = 0
        self._before: tuple[int, int] | None = None
        self._length_problems: list[Problem] = []
        self._side_problems = Problems(side_path)

    @property
    def problems(self) -> list[Problem]:
        """What is wrong, once `finish` has been called."""
        found = self._length_problems + self._side_problems.all()
        if self._records is not None:
            found += self._records.problems
        return found + [one for index in self._indexes for one in index.problems]

    def take(self, entries: bytearray, end_position: int) -> None:
        """Compare the next entries, as they should be, with what there is."""
        if self._side_file is not None and not self._may_lag:
            self._compare(self._side_file, entries)
        if self._records is not None:
            self._records.take(entries)
        self._position += len(entries)
        if self._indexes:
            for base_offset, timestamp_ms, _, position, *_ in ENTRY.iter_unpack(entries):
                self._see_before(base_offset)
                self._before = (position, timestamp_ms)

    def finish(self, entries: bytearray, next_offset: int) -> None:
        """Compare the last ones."""
        self.take(entries, 0)
        self._see_before(next_offset)
        for index in self._indexes:
            index.finish()
        if self._side_file is not None and not self._may_lag:
            size_bytes = self._side_file.size()
            if size_bytes != self._position:
                detail = f"has {size_bytes} bytes where {self._position} are right"
                self._length_problems.append(Problem(self._side_path, detail))

    def _see_before(self, next_offset: int) -> None:
        """Show the indexes a batch: where it ends is known from what follows it."""
        if self._before is not None:
            for index in self._indexes:
                index.see(*self._before, next_offset - 1)
        self._before = None

    def _compare(self, file: File, entries: bytearray) -> None:
        stored = file.pread(len(entries), self._position)
        if stored == entries:
            return
        for place in range(0, min(len(stored), len(entries)), ENTRY_BYTES):
            if stored[place : place + ENTRY_BYTES] == entries[place : place + ENTRY_BYTES]:
                continue
            number = (self._position + place) // ENTRY_BYTES
            found, right = decode_entry(stored, place), decode_entry(entries, place)
            if found is None:
                self._side_problems.add(f"entry {number} fails its checksum")
            elif right is not None and not _agree(found, right):
                self._side_problems.add(f"entry {number} is {found}, not {right}")


def _agree(found: SideEntry, right: SideEntry) -> bool:
    return found._replace(durable_end=0) == right._replace(durable_end=0)
