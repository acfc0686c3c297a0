"""The interface to SeaweedFS: a filer's entries with conditional updates, and chunks of bytes.

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
    """The filer or a volume server has not processed the request, and never will."""


class OutcomeUnknownError(FilerError):
    """A change was not answered, so it may have been made, or may be made later."""


class ConditionFailedError(FilerError):
    """An attribute of an entry does not have the expected value. Nothing was changed."""


class EntryExistsError(FilerError):
    """Another client has made the entry first. Nothing was changed."""


class EntryMissingError(FilerError):
    """There is no such entry. Nothing was changed."""


class ChunkMissingError(CorruptionError):
    """A chunk of an entry is missing, too short, or cannot be decrypted."""


class ChunkTooLargeError(FilerError):
    """A chunk is larger than volume servers accept, so it can never be stored."""


class Chunk(NamedTuple):
    """A range of a file's bytes, written once, on a volume server."""

    file_id: str
    position: int
    """The position in the file of its first byte."""
    size_bytes: int
    modified_ns: int = 0
    """The time of the upload."""
    cipher_key: bytes = b""
    """The key with which the stored chunk is encrypted; b"" if it is not encrypted."""
    is_compressed: bool = False
    """Whether the chunk was compressed before its encryption, as some clients of SeaweedFS do."""


class FilerEntry(NamedTuple):
    """A file with its chunks or inline content, or a directory."""

    name: str
    chunks: tuple[Chunk, ...] = ()
    content: bytes = b""
    """The inline bytes of a small file without chunks."""
    extended: Mapping[str, bytes] = {}
    is_directory: bool = False
    modified_s: int = 0
    expires_s: int = 0
    """The wall-clock second at which the filer removes the entry; 0 for never. Read only."""

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
    """The whole volume is deleted at this wall-clock second, if it is erasure coded."""

    def of(self, stored_ns: int) -> int:
        """Return the wall-clock second at which a chunk stored at `stored_ns` is deleted."""
        return self.at_s or stored_ns // 10**9 + self.ttl_s


class Filer(ABC):
    """A filer and the volume servers behind it.

    `deadline_s` is a monotonic time; it covers a call with all its retries. Without a deadline, the
    filer's own time-out applies. Each call raises FilerError if nothing was done, and
    OutcomeUnknownError if a change may have been made.
    """

    version: str = ""
    """The version that the filer reported when it was opened, or ""."""

    write_stop: str | None = None
    """Why nothing may be written at present, or None. Set by the `FilerWatch`. While it is set,
    chains send no new requests and repeat none. The filer itself refuses nothing: the lease,
    `topic.conf`, rows of topics, mirrors and snapshots are still written, because no acknowledged
    record depends on them."""

    @abstractmethod
    async def open(self) -> None:
        """Connect. Raises DataDirectoryError if no filer answers at the address."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every connection. Idempotent."""

    @abstractmethod
    async def filers(self, *, deadline_s: float | None = None) -> list[str]:
        """Return the addresses of all running filers of the cluster, this one included."""

    @property
    def encrypts(self) -> bool:
        """Whether the filer requires chunks to be encrypted."""
        return False

    @property
    def problems(self) -> Sequence[Problem]:
        """The problems of volumes and their servers that calls have met."""
        return ()

    async def look(self) -> None:  # noqa: B027 - most find out by themselves
        """Check whether the `problems` still exist. Raises nothing."""

    async def refresh(self) -> None:  # noqa: B027 - most have nothing to ask
        """Ask the filer for its present settings for chunks.

        Raises FilerError; DataDirectoryError if kgw cannot store chunks with these settings.
        """

    def forget_places(self) -> None:  # noqa: B027 - most ask for a place with each upload
        """Drop unused file ids, because the rules may have changed."""

    async def rules(self) -> tuple[PathRule, ...]:
        """Return the filer's rules by path, from `fs.configure` and from remote mounts.

        Raises FilerError, CorruptionError.
        """
        return ()

    async def expiries(self) -> Mapping[int, Expiry | None]:
        """Return when each volume deletes its chunks; None for a volume that never does.

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
        """Yield all entries of a directory by name; nothing if the directory does not exist."""

    @abstractmethod
    async def create(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        """Make an entry, and the directories above it. Raises EntryExistsError."""

    @abstractmethod
    async def put(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        """Make or replace an entry without a condition, for data such as mirrors."""

    @abstractmethod
    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        """Replace an entry if all of its extended attributes in `expected` have these values.

        The filer removes chunks that the entry no longer names. Expected values must not be empty,
        because SeaweedFS treats a missing attribute like an empty one. The request is not repeated,
        because a repetition might arrive after a later change. Raises ConditionFailedError,
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
        """Store bytes as a chunk at position 0, which belongs to no entry yet.

        On return, all copies of the replication are stored. A failed upload is repeated with
        another id, on another volume, until the deadline. Raises ChunkTooLargeError.
        """

    @abstractmethod
    async def read_chunk(
        self, chunk: Chunk, start: int, size_bytes: int, *, deadline_s: float | None = None
    ) -> bytes:
        """Return bytes of a chunk, from `start` on. Raises ChunkMissingError.

        An encrypted chunk is always fetched and decrypted as a whole.
        """

    @abstractmethod
    async def delete_chunks(self, chunks: Iterable[Chunk]) -> None:
        """Remove chunks that are in no entry, now or later; missing chunks are no error."""
