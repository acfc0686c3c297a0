"""Extended attributes of entries, with owner, writer, number of changes, and chunks of a file.

SMQ's own attributes (`offset_min`, `offset_max`, `buffer_start`) are set too, for its readers.
"""

from __future__ import annotations

from itertools import starmap
from struct import Struct, error
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.chain.files import ChainFile, ChunkNote
from kgw.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.seaweedmq.filer import FilerEntry

IDENTITY: Final = "kgw.identity"
EPOCH: Final = "kgw.epoch"
CHANGES: Final = "kgw.changes"
WRITER: Final = "kgw.writer"
NOTES: Final = "kgw.notes"

NUMBER: Final = Struct(">q")
NOTE: Final = Struct(">qqI")


class Marks(NamedTuple):
    """The owner and writer of an entry, and its number of changes."""

    identity: bytes
    """The identity of the entry's chain."""
    epoch: int
    changes: int
    """The number of changes by writers, 1 for a new entry. A take-over does not change it. The
    epoch excludes old writers, and the number orders the changes of one writer, so a test can show
    the purpose of each."""
    writer: bytes
    """A token of the writer that made the last change. If two writers request the same epoch at the
    same time, it shows whose change was made."""

    @property
    def expected(self) -> dict[str, bytes]:
        """The attributes that a conditional update of this entry expects; no value is empty."""
        return {
            IDENTITY: self.identity,
            EPOCH: NUMBER.pack(self.epoch),
            CHANGES: NUMBER.pack(self.changes),
        }

    @property
    def attributes(self) -> dict[str, bytes]:
        """The extended attributes that store these marks."""
        return {**self.expected, WRITER: self.writer}

    def changed(self) -> Marks:
        """Return the marks after another change by the same writer."""
        return self._replace(changes=self.changes + 1)


def read_marks(entry: FilerEntry, place: str) -> Marks:
    """Return the marks of an entry. Raises CorruptionError, with `place` in it."""
    try:
        extended = entry.extended
        return Marks(
            extended[IDENTITY],
            NUMBER.unpack(extended[EPOCH])[0],
            NUMBER.unpack(extended[CHANGES])[0],
            extended[WRITER],
        )
    except (KeyError, error) as reason:
        raise CorruptionError(f"{place}: not written by kgw, or damaged: {reason!r}") from reason


def pack_notes(notes: Sequence[ChunkNote]) -> bytes:
    """Return the attribute that describes a file's chunks, with 20 bytes for each."""
    return b"".join(starmap(NOTE.pack, notes))


def file_attributes(
    marks: Marks, base_offset: int, notes: bytes, end_offset: int
) -> dict[str, bytes]:
    """Return the extended attributes of a file, given its packed notes."""
    attributes = {**marks.attributes, NOTES: notes, "buffer_start": NUMBER.pack(base_offset)}
    if notes:
        attributes["offset_min"] = notes[: NUMBER.size]
        attributes["offset_max"] = NUMBER.pack(end_offset - 1)
    return attributes


def read_listed_file(
    entry: FilerEntry | None, file: ChainFile, identity: bytes, place: str, *, is_sealed: bool
) -> ChainFile:
    """Return a file with the chunks of its entry, after a comparison with the leader entry.

    Raises CorruptionError, with `place` in it, if the entry is missing, belongs to another chain or
    contradicts the leader entry. The active file may have grown since the leader entry was written.
    """
    if entry is None:
        raise CorruptionError(f"{place}: it is gone", file.end_offset)
    if read_marks(entry, place).identity != identity:
        raise CorruptionError(f"{place}: it is another's", file.end_offset)
    found = read_file(entry, file, place)
    if is_sealed and (found.size_bytes, found.end_offset) != (file.size_bytes, file.end_offset):
        message = (
            f"{place}: {found.size_bytes} bytes to offset {found.end_offset}, but the leader entry "
            f"has {file.size_bytes} to {file.end_offset}"
        )
        raise CorruptionError(message, file.end_offset)
    return found


def read_file(entry: FilerEntry, file: ChainFile, place: str) -> ChainFile:
    """Return a file with the chunks of its entry, and the leader entry's name and base offset.

    Raises CorruptionError, with `place` in it, when the entry contradicts itself or the leader
    entry.
    """
    found = ChainFile(
        file.name, file.base_offset, file.begun_ms, end_offset=file.base_offset, is_loaded=True
    )
    try:
        notes = [ChunkNote(*note) for note in NOTE.iter_unpack(entry.extended[NOTES])]
        end_offset = file.base_offset
        if notes:
            (last_offset,) = NUMBER.unpack(entry.extended["offset_max"])
            end_offset = last_offset + 1
    except (KeyError, error) as reason:
        raise CorruptionError(f"{place}: its attributes are damaged: {reason!r}") from reason
    if len(notes) != len(entry.chunks):
        message = f"{place}: {len(entry.chunks)} chunks, but {len(notes)} are described"
        raise CorruptionError(message)
    ends = [*(note.base_offset for note in notes[1:]), end_offset]
    lower = file.base_offset
    for chunk, note, end in zip(entry.chunks, notes, ends, strict=False):
        if chunk.position != found.size_bytes or not lower <= note.base_offset <= end:
            message = f"{place}: chunk {len(found.chunks)} does not follow the one before it"
            raise CorruptionError(message)
        lower = note.base_offset
        found.add(chunk, note, end)
    return found
