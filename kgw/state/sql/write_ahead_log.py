"""Distinguishes a damaged write-ahead log of SQLite from a log that a crash has cut.

SQLite reads a write-ahead log up to the first frame whose checksum fails and treats the rest as an
unfinished commit. This is right after a power loss; after a flipped bit the remaining frames
contain acknowledged commits, which would be lost silently. A commit is synced before the next one
is written: if a valid frame follows after the failed frame and the end of a commit, the failed
frame was durable once.

Damage in the very last commit cannot be detected: it looks like a torn commit.

File (sqlite.org/fileformat2.html, section 4): a header of 32 bytes, its checksum over the first 24;
then frames of 24 bytes and a page: page number, size of the database after a commit or 0, the two
salts of the header, and a checksum over the first 8 bytes and the page, which continues the
checksum of the previous frame.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.state.sql.small_files import read_if_there

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

_HEADER: Final = Struct(">8I")
_FRAME: Final = Struct(">6I")
_MAGICS: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""The byte order in which checksums are computed."""
_CHECKED_HEADER_BYTES: Final = 24
_CHECKED_FRAME_BYTES: Final = 8
_WORD_MASK: Final = 0xFFFFFFFF


class _Checksum(NamedTuple):
    first: int
    second: int


def find_damage(path: str | PathLike[str]) -> str | None:
    """Return a proof that the log at `path` is damaged, or None if there is none.

    A missing or empty log is not damaged. Raises OSError.
    """
    content = read_if_there(path)
    if content is None:
        return None
    if not any(content[: _HEADER.size]):
        # The file is empty, or only its length had reached the disk.
        return None
    return _Log(content).find_damage()


class _Log:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._order = ""
        self._page_bytes = 0
        self._salts = (0, 0)

    def find_damage(self) -> str | None:
        content = self._content
        if len(content) < _HEADER.size:
            return None
        header = _HEADER.unpack_from(content)
        self._order = _MAGICS.get(header[0], "")
        checksum = _Checksum(header[6], header[7])
        # The header lies in one sector and is synced before the first frame: it cannot be torn.
        if not self._order or self._sum(0, _CHECKED_HEADER_BYTES, _Checksum(0, 0)) != checksum:
            return "its header fails its checksum"
        self._page_bytes = header[2]
        self._salts = (header[4], header[5])
        size = _FRAME.size + self._page_bytes
        count = (len(content) - _HEADER.size) // size
        number = 0
        while number < count and self._follows(number, checksum):
            checksum = self._checksum(number)
            number += 1
        for later in range(number, count - 1):
            if self._is_commit(later) and self._follows(later + 1, self._checksum(later)):
                return f"frame {number + 1} fails its checksum, and commits follow it"
        if number < count - 1 and self._was_commit(number, checksum):
            return f"the header of frame {number + 1} is damaged, and commits follow it"
        return None

    def _position(self, number: int) -> int:
        return _HEADER.size + number * (_FRAME.size + self._page_bytes)

    def _checksum(self, number: int) -> _Checksum:
        """Return the checksum field of a frame."""
        return _Checksum(*_FRAME.unpack_from(self._content, self._position(number))[4:])

    def _is_commit(self, number: int) -> bool:
        return self._database_pages(number) != 0

    def _database_pages(self, number: int) -> int:
        """Return the database size in a frame, which ends a commit; 0 if it does not."""
        return int(_FRAME.unpack_from(self._content, self._position(number))[1])

    def _was_commit(self, number: int, before: _Checksum) -> bool:
        """Return whether only a frame's header is damaged, and the frame ended a commit."""
        position = self._position(number)
        if self._is_commit(number):
            # If its checksum field is damaged, the next frame continues from the right checksum.
            return self._follows(number + 1, self._frame_sum(position, before))
        if not self._follows(number + 1, self._checksum(number)):
            return False
        # Otherwise the flipped bit may have been the only one in the size of the database.
        words = list(unpack_from(f"{self._order}2I", self._content, position))
        for bit in range(32):
            checksum = _add(before, (words[0], 1 << bit))
            if self._sum(position + _FRAME.size, self._page_bytes, checksum) == self._checksum(
                number
            ):
                return True
        return False

    def _follows(self, number: int, before: _Checksum) -> bool:
        """Return whether a frame is valid and continues from the checksum `before`."""
        position = self._position(number)
        if _FRAME.unpack_from(self._content, position)[2:4] != self._salts:
            return False
        return self._frame_sum(position, before) == self._checksum(number)

    def _frame_sum(self, position: int, before: _Checksum) -> _Checksum:
        checksum = self._sum(position, _CHECKED_FRAME_BYTES, before)
        return self._sum(position + _FRAME.size, self._page_bytes, checksum)

    def _sum(self, position: int, size_bytes: int, before: _Checksum) -> _Checksum:
        words = unpack_from(f"{self._order}{size_bytes // 4}I", self._content, position)
        return _add(before, words)


def _add(before: _Checksum, words: Sequence[int]) -> _Checksum:
    """Continue a checksum over an even number of words."""
    first, second = before
    pairs = iter(words)
    for word in pairs:
        first = (first + word + second) & _WORD_MASK
        second = (second + next(pairs) + first) & _WORD_MASK
    return _Checksum(first, second)
