"""What a chain consists of, as its owner sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.seaweedmq.filer import Chunk
    from kgw.types import Buffer


class NotWriterError(StorageError):
    """Another writer has taken the chain over. Nothing of what waited was stored."""

    # Clients look for the new leader and send it again.
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class ChainOptions(NamedTuple):
    """What bounds a chain's appends."""

    chunk_bytes: int = 4 << 20
    """What waits becomes chunks of about this size. One payload may be larger."""
    file_chunks: int = 64
    """A file with so many is followed by another. Its whole list is sent with each append, and the
    next file costs three requests: docs/decisions/0114 has the figures."""
    waiting_bytes: int = 64 << 20
    """More than this does not wait; a payload is taken all the same when nothing does."""
    refuse_after_s: float = 30.0
    """What could not be sent for so long is refused."""


class ChunkNote(NamedTuple):
    """What a file's attributes say of each chunk, so that a reader need not open it."""

    base_offset: int
    """Of its first entry, in the owner's count."""
    largest_timestamp_ms: int
    content_bytes: int = 0
    """What the owner counts of it, without framing say; below 4 GiB."""


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
    content_bytes: int = 0
    """Of its chunks together, as the owner counts them."""
    chunks: list[Chunk] = field(default_factory=list)
    """Empty, with `notes`, until `load` has been called on a file of another writer's time."""
    notes: list[ChunkNote] = field(default_factory=list)
    is_loaded: bool = False

    def add(self, chunk: Chunk, note: ChunkNote, end_offset: int) -> None:
        """Count a chunk that has been entered behind the others."""
        self.chunks.append(chunk)
        self.notes.append(note)
        self.size_bytes += chunk.size_bytes
        self.content_bytes += note.content_bytes
        self.largest_timestamp_ms = max(self.largest_timestamp_ms, note.largest_timestamp_ms)
        self.end_offset = end_offset

    def forget(self) -> None:
        """Keep chunks and notes no more: `load` fetches them again."""
        self.chunks, self.notes, self.is_loaded = [], [], False


class Payload(NamedTuple):
    """What is appended at once and never torn: whole entries."""

    pieces: Sequence[Buffer]
    size_bytes: int
    base_offset: int
    end_offset: int
    largest_timestamp_ms: int
    content_bytes: int = 0
    """What the owner counts of it: it comes back in notes and files."""


def note_of(payloads: Sequence[Payload]) -> ChunkNote:
    """Return what is said of a chunk that holds these payloads."""
    return ChunkNote(
        payloads[0].base_offset,
        max([payload.largest_timestamp_ms for payload in payloads]),
        sum([payload.content_bytes for payload in payloads]),
    )
