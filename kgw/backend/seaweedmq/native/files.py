"""The log files of one partition that SMQ's broker writes, in the order of their offsets.

A file is named after the second of its first entry, and may grow during that second. Only two
numbers are kept for each file, because there may be a file for each second of years. The list of
chunks is fetched when a file is read.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from datetime import UTC, datetime
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from kgw.backend.seaweedmq.filer import Chunk, Filer, FilerEntry

_NAME: Final = re.compile(r"\d{4}-\d{2}-\d{2}-\d{2}-\d{2}-\d{2}")
_FORMAT: Final = "%Y-%m-%d-%H-%M-%S"
_NUMBER: Final = Struct(">q")
_FILES_LOADED: Final = 256
_FILES_AHEAD: Final = 64
"""Number of further files whose lists of chunks are fetched together with one, because reads are
sequential."""


class LogFile(NamedTuple):
    """A file with its chunks in order, as the filer lists it."""

    second: int
    """The Unix time in its name."""
    chunks: tuple[Chunk, ...]
    first_offset: int | None
    """The first offset by the file's attributes, sometimes one too high, or None."""
    last_offset: int | None
    """The last offset by the file's attributes, sometimes one too high."""

    @property
    def name(self) -> str:
        return file_name(self.second)

    @property
    def size_bytes(self) -> int:
        return sum(chunk.size_bytes for chunk in self.chunks)


def file_name(second: int) -> str:
    """Return the name of the log file whose first entry is of that second."""
    return datetime.fromtimestamp(second, UTC).strftime(_FORMAT)


def is_log_file_name(name: str) -> bool:
    """Return whether a name has the form that SMQ's broker gives to log files."""
    return _NAME.fullmatch(name) is not None


def read_log_file(entry: FilerEntry) -> LogFile | None:
    """Return a log file; None for archives, positions and every other entry."""
    if entry.is_directory or not is_log_file_name(entry.name):
        return None
    try:
        begun = datetime.strptime(entry.name, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    chunks = tuple(sorted(entry.chunks, key=lambda chunk: chunk.position))
    return LogFile(
        int(begun.timestamp()),
        chunks,
        _offset(entry, "offset_min"),
        _offset(entry, "offset_max"),
    )


def _offset(entry: FilerEntry, name: str) -> int | None:
    value = entry.extended.get(name, b"")
    return _NUMBER.unpack(value)[0] if len(value) == _NUMBER.size else None


class NativeLogFiles:
    """Finds the file of an offset. Used in the event loop alone."""

    def __init__(self, filer: Filer, directory: str) -> None:
        self.directory = directory
        self.size_bytes = 0
        self._filer = filer
        self._seconds = array("q")
        self._firsts = array("q")
        self._loaded: OrderedDict[int, LogFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seconds)

    # --- listing ---------------------------------------------------------------------------------

    async def list_from(self, second: int = 0) -> AsyncIterator[LogFile]:
        """Yield the files from a second on, by name. Raises FilerError, CorruptionError."""
        # A listing starts after a name, so use a prefix of the first file's name.
        after = file_name(second)[:-1] if second else ""
        async for entry in self._filer.list_entries(self.directory, after=after):
            file = read_log_file(entry)
            if file is not None and file.second >= second:
                yield file

    def add(self, file: LogFile, first_offset: int, size_bytes: int) -> None:
        """Add a new or grown file, with the first offset that was found in it."""
        self.size_bytes += size_bytes
        self._keep(file)
        number = bisect_right(self._firsts, first_offset)
        if file.second in self._seconds[max(number - 1, 0) : number]:
            return
        self._seconds.insert(number, file.second)
        self._firsts.insert(number, first_offset)

    def knows(self, second: int) -> bool:
        """Return whether a file has been added."""
        return self._number(second) is not None

    def forget(self, seconds: Iterable[int]) -> None:
        """Remove files that do not exist any more."""
        for second in seconds:
            number = self._number(second)
            if number is None:
                continue
            del self._seconds[number], self._firsts[number]
            self._loaded.pop(second, None)

    @property
    def seconds(self) -> list[int]:
        """The seconds of all files, in the order of their offsets."""
        return self._seconds.tolist()

    # --- where an offset is ----------------------------------------------------------------------

    def holder(self, offset: int) -> int | None:
        """Return the file for an offset; None if there are no files."""
        number = max(bisect_right(self._firsts, offset) - 1, 0)
        return self._seconds[number] if self._seconds else None

    def before(self, second: int) -> int | None:
        """Return the file before a file."""
        number = self._number(second)
        return self._seconds[number - 1] if number else None

    def after(self, second: int) -> int | None:
        """Return the file after a file."""
        number = self._number(second)
        if number is None or number + 1 == len(self._seconds):
            return None
        return self._seconds[number + 1]

    def first_offset(self, second: int | None) -> int | None:
        """Return the first offset of a file, if it is known."""
        number = None if second is None else self._number(second)
        return None if number is None else self._firsts[number]

    def at_time(self, second: int) -> int | None:
        """Return the file for the entries of a second."""
        number = max(bisect_right(self._seconds, second) - 1, 0)
        return self._seconds[number] if self._seconds else None

    def _number(self, second: int) -> int | None:
        # The seconds are in order unless the broker's clock has gone back.
        number = bisect_left(self._seconds, second)
        if self._seconds[number : number + 1] == array("q", [second]):
            return number
        try:
            return self._seconds.index(second)
        except ValueError:
            return None

    # --- chunks ----------------------------------------------------------------------------------

    async def file(self, second: int) -> LogFile:
        """Return a file with its chunks. Raises CorruptionError when it is gone, FilerError."""
        loaded = self._loaded.get(second)
        if loaded is None:
            ahead = 0
            async for file in self.list_from(second):
                self._keep(file)
                ahead += 1
                if ahead == _FILES_AHEAD:
                    break
            loaded = self._loaded.get(second)
        if loaded is None:
            raise CorruptionError(
                f"{self.directory}/{file_name(second)} is gone",
                self.first_offset(self.after(second)),
            )
        self._loaded.move_to_end(second)
        return loaded

    def _keep(self, file: LogFile) -> None:
        self._loaded[file.second] = file
        self._loaded.move_to_end(file.second)
        while len(self._loaded) > _FILES_LOADED:
            self._loaded.popitem(last=False)

    async def load(self, file: LogFile) -> None:
        """Do nothing, because a `LogFile` always has its chunks (`ChunkSource`)."""

    async def read(self, file: LogFile, chunk: int) -> bytes:
        """Return a chunk of a file. Raises CorruptionError, naming the file, FilerError."""
        one = file.chunks[chunk]
        try:
            return await self._filer.read_chunk(one, 0, one.size_bytes)
        except CorruptionError as error:
            raise CorruptionError(
                f"{self.directory}/{file.name}, chunk {chunk}: {error}",
                self.first_offset(self.after(file.second)),
            ) from error
