"""The files, chunks and payloads of a chain, for the chain's owner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.seaweedmq.filer import Chunk
    from kgw.types import Buffer


class NotWriterError(StorageError):
    """Another writer has taken over the chain. No waiting payload was stored."""

    # Clients look for the new leader and send the batch again.
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class ChainOptions(NamedTuple):
    """The limits of a chain's appends."""

    chunk_bytes: int = 4 << 20
    """Waiting payloads are joined to chunks of about this size. A single payload may be larger."""
    file_chunks: int = 64
    """The number of chunks in a file after which another file begins. Each append sends the whole
    list of chunks, while a new file costs three requests (docs/decisions/0114)."""
    waiting_bytes: int = 64 << 20
    """A payload is refused if more bytes than this would wait, unless no other payload waits."""
    refuse_after_s: float = 30.0
    """A payload is refused if it could not be sent for this time."""


class ChunkNote(NamedTuple):
    """A chunk's description in its file's attributes, so that readers need not fetch the chunk."""

    base_offset: int
    """The offset of the chunk's first entry."""
    largest_timestamp_ms: int
    content_bytes: int = 0
    """The size of the content by the owner's count, for example without framing; below 4 GiB."""


@dataclass(slots=True)
class ChainFile:
    """A file of a chain, read from the leader entry and the file's attributes."""

    name: str
    base_offset: int
    begun_ms: int
    size_bytes: int = 0
    largest_timestamp_ms: int = -1
    end_offset: int = 0
    """The offset after the file's last entry; the base offset if the file is empty."""
    content_bytes: int = 0
    """The sum of the chunks' `content_bytes`."""
    chunks: list[Chunk] = field(default_factory=list)
    """Like `notes`, this is empty for older files of the chain until `load` is called."""
    notes: list[ChunkNote] = field(default_factory=list)
    is_loaded: bool = False

    def add(self, chunk: Chunk, note: ChunkNote, end_offset: int) -> None:
        """Add a chunk that has been entered at the end."""
        self.chunks.append(chunk)
        self.notes.append(note)
        self.size_bytes += chunk.size_bytes
        self.content_bytes += note.content_bytes
        self.largest_timestamp_ms = max(self.largest_timestamp_ms, note.largest_timestamp_ms)
        self.end_offset = end_offset

    @property
    def chunk_ends(self) -> list[int]:
        """The offset after the last entry of each chunk of a loaded file."""
        if not self.notes:
            return []
        return [*(note.base_offset for note in self.notes[1:]), self.end_offset]

    def forget(self) -> None:
        """Drop chunks and notes; `load` fetches them again."""
        self.chunks, self.notes, self.is_loaded = [], [], False


class Payload(NamedTuple):
    """Whole entries that are appended together, in one chunk."""

    pieces: Sequence[Buffer]
    size_bytes: int
    base_offset: int
    end_offset: int
    largest_timestamp_ms: int
    content_bytes: int = 0
    """The size by the owner's count, which is added to the sizes of the chunk and the file."""


def note_of(payloads: Sequence[Payload]) -> ChunkNote:
    """Return the description of a chunk with these payloads."""
    return ChunkNote(
        payloads[0].base_offset,
        max([payload.largest_timestamp_ms for payload in payloads]),
        sum([payload.content_bytes for payload in payloads]),
    )
