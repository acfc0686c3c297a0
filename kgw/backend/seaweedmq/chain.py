"""A chain of files that one writer extends, and that another takes over for good.

A directory has an entry `leader`, which names the files in order, and the files. Every change of
the leader entry and of a file is a conditional update: it expects the epoch of the writer and the
number of changes made so far, and raises the number. So no stale writer changes anything once
another has raised the epochs, and no list that misses a chunk is ever written, not even by a
request of ours that arrives late. Partitions and the state store are chains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.seaweedmq.filer import Chunk, Filer
    from kgw.clock import Clock
    from kgw.completion import Completion
    from kgw.types import Buffer


class NotWriterError(StorageError):
    """Another writer has taken the chain over. Nothing of what waited was stored."""

    # Clients look for the new leader and send it again.
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class ChunkNote(NamedTuple):
    """What a file's attributes say of each chunk, so that a reader need not open it."""

    base_offset: int
    """Of its first entry, in the owner's count."""
    largest_timestamp_ms: int
    content_bytes: int = 0
    """What the owner counts of it: without the framing."""


@dataclass(slots=True)
class ChainFile:
    """One file of a chain, as the leader entry and its own attributes have it."""

    name: str
    base_offset: int
    begun_ms: int
    size_bytes: int = 0
    content_bytes: int = 0
    """Of its chunks together; known of every file of the list."""
    largest_timestamp_ms: int = -1
    chunks: list[Chunk] = field(default_factory=list)
    """Empty, with `notes`, until `load` has been called on a file of another writer's time."""
    notes: list[ChunkNote] = field(default_factory=list)
    is_loaded: bool = False


class Payload(NamedTuple):
    """What is appended at once and never torn: whole entries."""

    pieces: Sequence[Buffer]
    size_bytes: int
    base_offset: int
    end_offset: int
    largest_timestamp_ms: int
    content_bytes: int = 0
    """What the owner counts of it; it comes back in the chunk's note and in the file's sum."""


class Chain:
    """The writer of a chain, and who reads it. All in the event loop.

    Appends are stored in the order in which they were submitted. What gathers while one update is
    on its way becomes the next chunk; a chunk is uploaded while the one before it is entered.
    """

    directory: str
    identity: bytes
    """Whose chain it is: a topic's id and partition. Part of every condition."""
    epoch: int
    """Of this writer. Never 0."""
    detail: bytes
    """What the owner keeps in the leader entry."""
    files: list[ChainFile]
    """In order; the last one is active, if there is one."""
    end_offset: int
    """Behind everything that is stored."""
    on_lost: Callable[[NotWriterError], None] | None = None
    """Called once when another writer is known to have taken over."""

    @classmethod
    async def create(
        cls, filer: Filer, clock: Clock, directory: str, identity: bytes, detail: bytes
    ) -> Chain:
        """Make an empty chain with epoch 1. Raises EntryExistsError, FilerError."""
        raise NotImplementedError

    @classmethod
    async def take_over(cls, filer: Filer, clock: Clock, directory: str, identity: bytes) -> Chain:
        """Become the writer: from the return on, nobody else's update is taken.

        Raises the epoch of the leader entry and then of the active file, which is loaded; creates
        that file when the leader entry names one that is not there yet. Raises EntryMissingError
        when there is no chain, CorruptionError when it is another's or cannot be understood.
        """
        raise NotImplementedError

    def append(self, payload: Payload) -> Completion[None]:
        """Have a payload stored; done once the filer has entered its chunk.

        Its error is NotWriterError, or StorageError when it was refused for certain and nothing
        behind it was stored either: a payload whose outcome nobody knows waits until it is known.
        """
        raise NotImplementedError

    async def roll(self, base_offset: int) -> None:
        """Let what is appended from now on go into another file. Nothing for an empty one."""
        raise NotImplementedError

    async def save_detail(self, detail: bytes) -> None:
        """Keep other words of the owner in the leader entry, durably."""
        raise NotImplementedError

    async def drop_files(self, count: int, detail: bytes) -> None:
        """Forget the first files, with a new detail in the same change; then remove them."""
        raise NotImplementedError

    async def replace_files(
        self, first: int, count: int, written: Sequence[ChainFile], detail: bytes
    ) -> None:
        """Put files written by `write_file` in the place of sealed ones, in one change."""
        raise NotImplementedError

    async def write_file(self, payloads: Sequence[Payload], begun_ms: int) -> ChainFile:
        """Write a whole file that nothing names yet: for `replace_files`."""
        raise NotImplementedError

    async def load(self, file: ChainFile) -> None:
        """Fetch the chunks and notes of a sealed file, unless they are known."""
        raise NotImplementedError

    async def read(self, file: ChainFile, chunk: int) -> bytes:
        """Return the whole of one chunk of a loaded file. Raises CorruptionError, FilerError."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Wait until what was submitted is settled, and let go. The epoch stays."""
        raise NotImplementedError
