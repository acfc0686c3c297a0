"""Compares the side file and Kafka's two indexes of a segment with the segment.

It compares step by step while the segment is scanned, because a segment may have sixteen million
batches.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.log.indexes import OFFSET_ENTRY, TIME_ENTRY
from kgw.backend.embedded.log.side import ENTRY, ENTRY_BYTES, SideEntry, decode_entry
from kgw.backend.storage_problem import StorageProblem
from kgw.records.batch import HEADER_BYTES, read_batch
from kgw.records.crc import crc32c
from kgw.records.errors import RecordError
from kgw.records.reader import read_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kgw.backend.embedded.files.fs import File

_READ_ENTRIES: Final = 4096
_NAMED: Final = 100
"""The most wrong entries of a file to report one by one. Further ones are only counted."""


class Problems:
    """The wrong entries of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._named: list[StorageProblem] = []
        self._more = 0

    def add(self, detail: str) -> None:
        """Add a problem."""
        if len(self._named) < _NAMED:
            self._named.append(StorageProblem(self._path, detail))
        else:
            self._more += 1

    def all(self) -> list[StorageProblem]:
        """Return the first problems, and a problem with the number of further ones."""
        if not self._more:
            return self._named
        return [*self._named, StorageProblem(self._path, f"has {self._more} more wrong entries")]


class IndexCheck:
    """Compares one of Kafka's indexes with the batches of its segment.

    An entry has two values, which both increase from entry to entry. In the offset index, an entry
    has a batch's position and last offset. In the time index, it has a batch's last offset and the
    largest timestamp up to that batch.
    """

    def __init__(self, path: str, file: File, base_offset: int) -> None:
        self.problems = Problems(path)
        self._file = file
        self._base_offset = base_offset
        self._is_time = path.endswith(layout.TIME_INDEX_SUFFIX)
        self._row = TIME_ENTRY if self._is_time else OFFSET_ENTRY
        self._size_bytes = file.size()
        if self._size_bytes % self._row.size:
            self.problems.add(f"has {self._size_bytes} bytes, which is no number of entries")
            self._size_bytes = 0
        self._entries = self._read()
        self._next = next(self._entries, None)
        self._following = next(self._entries, None)
        self._value_before: int | None = None
        self._has_passed_damage = False

    def _read(self) -> Iterator[tuple[int, int]]:
        step = self._row.size * _READ_ENTRIES
        for start in range(0, self._size_bytes, step):
            data = self._file.pread(min(step, self._size_bytes - start), start)
            for first, second in self._row.iter_unpack(data):
                if self._is_time:
                    yield self._base_offset + second, first
                else:
                    yield second, self._base_offset + first

    def see(self, position: int, last_offset: int, timestamp_ms: int) -> None:
        """Compare the index with the next batch."""
        batch = (last_offset, timestamp_ms) if self._is_time else (position, last_offset)
        while self._next is not None:
            if self._next[0] > batch[0] and (
                # A wrong entry must not hide the correct entries after it.
                self._following is None or self._following[0] != batch[0]
            ):
                return
            self._judge(self._next, is_right=self._is_of(self._next, batch))

    def pass_damage(self, end_position: int, end_offset: int) -> None:
        """Skip the entries of a damaged range, because it is unknown whether they are right.

        The range may have had the largest timestamp, so the largest timestamp is unknown from here
        on.
        """
        end = end_offset if self._is_time else end_position
        while self._next is not None and self._next[0] < end:
            self._go_on()
        self._has_passed_damage = True

    def finish(self) -> None:
        """Report the remaining entries: there are no more batches."""
        while self._next is not None:
            self._judge(self._next, is_right=False)

    def _is_of(self, entry: tuple[int, int], batch: tuple[int, int]) -> bool:
        if self._is_time and self._has_passed_damage:
            return entry[0] == batch[0] and entry[1] >= batch[1]
        return entry == batch

    def _judge(self, entry: tuple[int, int], *, is_right: bool) -> None:
        if not is_right:
            self.problems.add(f"entry {entry} is no batch's")
        else:
            if self._value_before is not None and entry[1] <= self._value_before:
                self.problems.add(f"entry {entry} does not rise")
            self._value_before = entry[1]
        self._go_on()

    def _go_on(self) -> None:
        self._next, self._following = self._following, next(self._entries, None)


class RecordCheck:
    """Reads the records of every batch of a segment, to find batches whose header is wrong."""

    def __init__(self, path: str, file: File, partition: int) -> None:
        self.problems = Problems(path)
        self._file = file
        self._partition = partition

    def take(self, entries: bytearray) -> None:
        """Read the records of each intact batch with a side entry. Raises OSError."""
        for at in range(0, len(entries), ENTRY_BYTES):
            entry = decode_entry(entries, at)
            if entry is None:
                continue
            header = self._file.pread(HEADER_BYTES, entry.position)
            if crc32c(header) != entry.header_crc:
                continue  # damage, which is reported elsewhere and may be as long as the segment
            data = self._file.pread(entry.size_bytes, entry.position)
            try:
                deque(read_records(read_batch(data)), maxlen=0)
            except RecordError as error:
                self.problems.add(
                    f"partition {self._partition}: the batch at offset {entry.base_offset} is not "
                    f"what its header says: {error}"
                )


class DerivedCheck:
    """Checks all files beside one segment, with the entries that the scan produces."""

    def __init__(
        self,
        side_path: str,
        side_file: File | None,
        indexes: Sequence[IndexCheck],
        records: RecordCheck | None,
    ) -> None:
        """Without `side_file` or `records`, these are not checked."""
        self._side_file = side_file
        self._indexes = indexes
        self._records = records
        self._position = 0
        self._before: tuple[int, int, int] | None = None
        self._side_problems = Problems(side_path)
        self._has_passed_damage = False
        self.damaged_at: Collection[int] = ()
        """Positions of the damage found so far. The scan has made up the entries for these
        positions, so they are not compared."""

    @property
    def problems(self) -> list[StorageProblem]:
        """All problems, once `finish` has been called."""
        found = [self._side_problems, *(index.problems for index in self._indexes)]
        if self._records is not None:
            found.append(self._records.problems)
        return [problem for problems in found for problem in problems.all()]

    def take(self, entries: bytearray, end_position: int) -> None:
        """Compare the next entries, which the scan has made, with the files."""
        if self._side_file is not None:
            self._compare(self._side_file, entries)
        if self._records is not None:
            self._records.take(entries)
        if self._indexes:
            for base_offset, timestamp_ms, _, position, size_bytes, *_ in ENTRY.iter_unpack(
                entries
            ):
                self._see_before(base_offset)
                self._before = (position, size_bytes, timestamp_ms)

    def finish(self, entries: bytearray, next_offset: int) -> None:
        """Compare the last entries, and the sizes of the files."""
        self.take(entries, 0)
        self._see_before(next_offset)
        for index in self._indexes:
            index.finish()
        if self._side_file is not None:
            size_bytes = self._side_file.size()
            if size_bytes != self._position:
                self._side_problems.add(f"has {size_bytes} bytes where {self._position} are right")

    def _see_before(self, next_offset: int) -> None:
        """Pass the previous batch to the indexes, because its end is known only now."""
        if self._before is not None:
            position, size_bytes, timestamp_ms = self._before
            for index in self._indexes:
                if position in self.damaged_at:
                    index.pass_damage(position + size_bytes, next_offset)
                else:
                    index.see(position, next_offset - 1, timestamp_ms)

    def _compare(self, file: File, entries: bytearray) -> None:
        """Compare entries with the side file, from the position of the last comparison on."""
        stored, at = file.pread(len(entries), self._position), 0
        if stored == entries:
            self._position += len(entries)
            return
        for right_at in range(0, len(entries), ENTRY_BYTES):
            if at == len(stored):
                # In a damaged range, the side file's entries differ from the scan's entries.
                self._position += at
                stored, at = file.pread(len(entries), self._position), 0
            if stored[at : at + ENTRY_BYTES] != entries[right_at : right_at + ENTRY_BYTES]:
                right = decode_entry(entries, right_at)
                if right is not None and right.position in self.damaged_at:
                    self._position += at
                    self._pass_damage(file, right.end_position)
                    stored, at = file.pread(len(entries), self._position), 0
                    continue
                self._judge(decode_entry(stored, at), right, (self._position + at) // ENTRY_BYTES)
            at += ENTRY_BYTES
        self._position += at

    def _judge(self, found: SideEntry | None, right: SideEntry | None, number: int) -> None:
        if self._side_file is not None and number * ENTRY_BYTES >= self._side_file.size():
            return  # missing entries at the end are reported with the file's size
        if found is None:
            self._side_problems.add(f"entry {number} fails its checksum")
        elif right is not None and not self._agree(found, right):
            self._side_problems.add(f"entry {number} is {found}, not {right}")

    def _pass_damage(self, file: File, end_position: int) -> None:
        """Skip the side file's entries of a damaged range, from when its batches were intact."""
        self._has_passed_damage = True
        while data := file.pread(ENTRY_BYTES, self._position):
            entry = decode_entry(data)
            if entry is None:
                following = decode_entry(file.pread(ENTRY_BYTES, self._position + ENTRY_BYTES))
                if following is not None and following.position > end_position:
                    return  # it is the entry of the next batch
                number = self._position // ENTRY_BYTES
                self._side_problems.add(f"entry {number} fails its checksum")
            elif entry.position >= end_position:
                return
            self._position += len(data)

    def _agree(self, found: SideEntry, right: SideEntry) -> bool:
        if self._has_passed_damage and found.largest_timestamp_ms > right.largest_timestamp_ms:
            found = found._replace(largest_timestamp_ms=right.largest_timestamp_ms)
        return found._replace(durable_end=0) == right._replace(durable_end=0)
