"""The seam to SeaweedFS: entries of a filer, changed under a condition, and chunks that hold bytes.

`kgw.testing.filer` has an implementation in memory, and a suite of tests for implementations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import CorruptionError, StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from kgw.backend.seaweedmq.path_rules import PathRule
    from kgw.problems import Problem
    from kgw.types import Buffer


class FilerError(StorageError):
    """The filer or a volume server did not carry out the request, and never will."""


class OutcomeUnknownError(FilerError):
    """A change may or may not have been made, now or later: its answer did not come."""


class ConditionFailedError(FilerError):
    """An attribute of an entry does not have the expected value. Nothing was changed."""


class EntryExistsError(FilerError):
    """Another client has made the entry first. Nothing was changed."""


class EntryMissingError(FilerError):
    """There is no such entry. Nothing was changed."""


class ChunkMissingError(CorruptionError):
    """A chunk that an entry names is gone, shorter than the entry says, or cannot be decrypted."""


class ChunkTooLargeError(FilerError):
    """A chunk is larger than volume servers take: it will never be stored."""


class Chunk(NamedTuple):
    """A range of a file's bytes, written once, on a volume server."""

    file_id: str
    position: int
    """The position in the file of its first byte."""
    size_bytes: int
    modified_ns: int = 0
    """The time of the upload."""
    cipher_key: bytes = b""
    """The key it is encrypted with on its volume server; b"" for a chunk in the clear."""
    is_compressed: bool = False
    """Whether it was compressed before it was encrypted, as some clients of SeaweedFS do."""


class FilerEntry(NamedTuple):
    """A file, with its chunks or inline, or a directory, as its parent directory lists it."""

    name: str
    chunks: tuple[Chunk, ...] = ()
    content: bytes = b""
    """The inline bytes of a small file without chunks."""
    extended: Mapping[str, bytes] = {}
    is_directory: bool = False
    modified_s: int = 0
    expires_s: int = 0
    """The wall-clock time, in seconds, at which the filer removes it; 0: never. It is not written.
    """

    @property
    def size_bytes(self) -> int:
        """The length of the file."""
        if not self.chunks:
            return len(self.content)
        last = self.chunks[-1]
        return last.position + last.size_bytes


class Expiry(NamedTuple):
    """The time at which a volume deletes its chunks."""

    ttl_s: int = 0
    """Each chunk is deleted this long after it was stored."""
    at_s: int = 0
    """The whole volume is deleted at this wall-clock time: the case if it is erasure coded."""

    def of(self, stored_ns: int) -> int:
        """Return the wall-clock second at which a chunk stored at `stored_ns` is deleted."""
        return self.at_s or stored_ns // 10**9 + self.ttl_s


class Filer(ABC):
    """A filer and the volume servers behind it.

    A call may be given a deadline, by the monotonic clock; it covers the call with its retries and
    fall-backs. Without one the filer's own time-out counts. Each call raises FilerError when
    nothing was certainly done, OutcomeUnknownError when a change may have been made.
    """

    version: str = ""
    """The version that the filer reports once it is open; "" if it reports none."""

    write_stop: str | None = None
    """Why nothing may be written at present, set by the watch over SeaweedFS; None if writing is
    allowed. Chains obey it: they refuse new requests, and the requests on their way wait. The filer
    itself refuses nothing: the lease, `topic.conf`, rows of topics, mirrors and snapshots are
    written all the same, as no acknowledged record depends on them."""

    @abstractmethod
    async def open(self) -> None:
        """Connect. Raises DataDirectoryError when the address does not answer like a filer."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every connection. Idempotent."""

    @abstractmethod
    async def filers(self, *, deadline_s: float | None = None) -> list[str]:
        """Return the addresses of all running filers of the cluster, this one included."""

    @property
    def encrypts(self) -> bool:
        """Whether chunks are encrypted before they are stored, as the filer demands."""
        return False

    @property
    def problems(self) -> Sequence[Problem]:
        """The faults of volumes and their servers that calls have shown."""
        return ()

    async def look(self) -> None:  # noqa: B027 - most find out by themselves
        """Check whether the `problems` are over. Raises nothing."""

    async def refresh(self) -> None:  # noqa: B027 - most have nothing to ask
        """Ask the filer again for its settings for chunks.

        Raises FilerError; DataDirectoryError if kgw cannot store chunks in that way.
        """

    def forget_places(self) -> None:  # noqa: B027 - most ask for a place with each upload
        """Stop uploading to file ids that were assigned before: the rules may have changed."""

    async def rules(self) -> tuple[PathRule, ...]:
        """Return the filer's rules by path, from `fs.configure` and from remote mounts.

        Raises FilerError, CorruptionError.
        """
        return ()

    async def expiries(self) -> Mapping[int, Expiry | None]:
        """Return when each volume known to the masters deletes its chunks; None: never.

        Raises FilerError.
        """
        return {}

    @abstractmethod
    async def look_up(
        self, directory: str, name: str, *, deadline_s: float | None = None
    ) -> FilerEntry | None:
        """Return an entry with all its chunks, None when there is none."""

    @abstractmethod
    def list_entries(
        self, directory: str, *, prefix: str = "", after: str = "", chunks: bool = True
    ) -> AsyncIterator[FilerEntry]:
        """Yield the entries of a directory by name, however many; none when it does not exist."""

    @abstractmethod
    async def create(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        """Make an entry, and the directories above it. Raises EntryExistsError."""

    @abstractmethod
    async def put(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        """Make an entry or replace any other one: for mirrors, which no other data depends on."""

    @abstractmethod
    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        """Replace an entry whose extended attributes have the expected values, all of them.

        The filer removes chunks that the entry no longer names. Expected values must not be empty:
        SeaweedFS takes an absent attribute for an empty one. The call never repeats the request by
        itself: a repetition might arrive after a later change. Raises ConditionFailedError,
        EntryMissingError.
        """

    @abstractmethod
    async def delete(
        self,
        directory: str,
        name: str,
        *,
        is_recursive: bool = False,
        deadline_s: float | None = None,
    ) -> None:
        """Remove an entry with its chunks; a missing entry is no error."""

    @abstractmethod
    async def upload(self, pieces: Sequence[Buffer], *, deadline_s: float | None = None) -> Chunk:
        """Store bytes as a chunk that belongs to no entry yet; its position is 0.

        On return all copies are stored that the replication asks for. An upload that failed
        half-way is repeated on another volume, under another id, until the deadline. Raises
        ChunkTooLargeError.
        """

    @abstractmethod
    async def read_chunk(
        self, chunk: Chunk, start: int, size_bytes: int, *, deadline_s: float | None = None
    ) -> bytes:
        """Return bytes of a chunk, from `start` on. Raises ChunkMissingError.

        An encrypted chunk is fetched and decrypted whole, even for a few bytes.
        """

    @abstractmethod
    async def delete_chunks(self, chunks: Iterable[Chunk]) -> None:
        """Remove chunks that no entry names or will name; chunks that are gone are no error."""
