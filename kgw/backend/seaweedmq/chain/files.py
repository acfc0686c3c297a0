"""What a chain consists of, as its owner sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.seaweedmq.filer import Chunk
    from kgw.types import Buffer


class NotWriterError(StorageError):
    """Another writer has taken the chain over. Nothing of what waited was stored."""


class ChainOptions(NamedTuple):
    """What bounds a chain's appends."""

    chunk_bytes: int = 4 << 20
    """What waits becomes chunks of about this size. One payload may be larger."""
    file_chunks: int = 256
    """A file with so many is followed by another: its whole list is sent with each append."""
    waiting_bytes: int = 64 << 20
    """More than this does not wait; a payload is taken all the same when nothing does."""
    refuse_after_s: float = 30.0
    """What could not be sent for so long is refused."""


class ChunkNote(NamedTuple):
    """What a file's attributes say of each chunk, so that a reader need not open it."""

    base_offset: int
    """Of its first entry, in the owner's count."""
    largest_timestamp_ms: int


@dataclass(slots=True)
class ChainFile:
    """One file of a chain, as the leader entry and its own attributes have it."""

    name: str
    base_offset: int
    begun_ms: int
    size_bytes: int = 0
    largest_timestamp_ms: int = -1
    end_offset: int = 0
    """Behind its last entry; the base offset when it has none."""
    chunks: list[Chunk] = field(default_factory=list)
    """Empty, with `notes`, until `load` has been called on a file of another writer's time."""
    notes: list[ChunkNote] = field(default_factory=list)
    is_loaded: bool = False

    def add(self, chunk: Chunk, note: ChunkNote, end_offset: int) -> None:
        """Count a chunk that has been entered behind the others."""
        self.chunks.append(chunk)
        self.notes.append(note)
        self.size_bytes += chunk.size_bytes
        self.largest_timestamp_ms = max(self.largest_timestamp_ms, note.largest_timestamp_ms)
        self.end_offset = end_offset


class Payload(NamedTuple):
    """What is appended at once and never torn: whole entries."""

    pieces: Sequence[Buffer]
    size_bytes: int
    base_offset: int
    end_offset: int
    largest_timestamp_ms: int
