"""The seam to SeaweedFS: entries of a filer, changed under a condition, and chunks that hold bytes.

`kgw.testing.filer` has one in memory, and the suite that says when something is one.
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
    """The filer or a volume server did not do what it was asked for, and never will."""


class OutcomeUnknownError(FilerError):
    """Nobody knows whether a change was made, or will be: its answer did not come."""


class ConditionFailedError(FilerError):
    """An attribute of an entry is not what was expected. Nothing was changed."""


class EntryExistsError(FilerError):
    """Another has made the entry first. Nothing was changed."""


class EntryMissingError(FilerError):
    """There is no such entry. Nothing was changed."""


class ChunkMissingError(CorruptionError):
    """A chunk that an entry names is gone, shorter than the entry says, or cannot be decrypted."""


class ChunkTooLargeError(FilerError):
    """A chunk is larger than volume servers take: it will never be stored."""


class Chunk(NamedTuple):
    """A piece of a file, written once, on a volume server."""

    file_id: str
    position: int
    """Where it begins in the file."""
    size_bytes: int
    modified_ns: int = 0
    """When it was uploaded."""
    cipher_key: bytes = b""
    """What it is encrypted with on its volume server; b"" for a chunk in the clear."""
    is_compressed: bool = False
    """Whether it was compressed before it was encrypted, as some clients of SeaweedFS do."""


class Entry(NamedTuple):
    """What a directory has under a name: a file, with its chunks or inline, or a directory."""

    name: str
    chunks: tuple[Chunk, ...] = ()
    content: bytes = b""
    """What is kept inline, of a small file without chunks."""
    extended: Mapping[str, bytes] = {}
    is_directory: bool = False
    modified_s: int = 0
    expires_s: int = 0
    """When the filer removes it by itself, by the wall clock; 0: never. It is not written."""

    @property
    def size_bytes(self) -> int:
        """How long the file is."""
        if not self.chunks:
            return len(self.content)
        last = self.chunks[-1]
        return last.position + last.size_bytes


class Expiry(NamedTuple):
    """When a volume deletes what it holds."""

    ttl_s: int = 0
    """So long after it was stored, each chunk."""
    at_s: int = 0
    """All of it at this time by the wall clock: so it is with a volume that is erasure coded."""

    def of(self, stored_ns: int) -> int:
        """Return when a chunk is deleted that was stored then, in seconds of the wall clock."""
        return self.at_s or stored_ns // 10**9 + self.ttl_s


class Filer(ABC):
    """A filer and the volume servers behind it.

    A call may be given a deadline, by the monotonic clock; it covers the call with its retries and
    fall-backs. Without one the filer's own time-out counts. Each raises FilerError when it knows
    that nothing was done, OutcomeUnknownError when a change may have been.
    """

    version: str = ""
    """What the filer says of its version once it is open; "" where it says nothing."""

    write_stop: str | None = None
    """Why nothing may be written at present, set by whoever watches SeaweedFS; None: nothing is
    against it. Chains obey it: what they are asked for they refuse, and what is on its way waits.
    The filer itself refuses nothing: the lease, `topic.conf`, rows of topics, mirrors and snapshots
    are written all the same, as no acknowledged record rests on them.
    """

    @abstractmethod
    async def open(self) -> None:
        """Connect. Raises DataDirectoryError when nothing answers that can be a filer."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of every connection. Closing twice is harmless."""

    @abstractmethod
    async def filers(self, *, deadline_s: float | None = None) -> list[str]:
        """Return the addresses of the cluster's filers that are there, this one among them."""

    @property
    def encrypts(self) -> bool:
        """Whether chunks are encrypted before they are stored, as the filer wants it."""
        return False

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong with the volumes and their servers, as far as calls have shown it."""
        return ()

    async def look(self) -> None:  # noqa: B027 - most find out by themselves
        """See whether what `problems` tells of is over. Raises nothing."""

    async def refresh(self) -> None:  # noqa: B027 - most have nothing to ask
        """Ask again how the filer wants chunks stored.

        Raises FilerError; DataDirectoryError where they cannot be stored so.
        """

    def forget_places(self) -> None:  # noqa: B027 - most ask for a place with each upload
        """Upload nothing more to places that were asked for before: rules may say others now."""

    async def rules(self) -> tuple[PathRule, ...]:
        """Return the filer's rules by path: of `fs.configure`, and remote mounts.

        Raises FilerError, CorruptionError.
        """
        return ()

    async def expiries(self) -> Mapping[int, Expiry | None]:
        """Return when each volume that the masters know deletes what it holds; None: never.

        Raises FilerError.
        """
        return {}

    @abstractmethod
    async def look_up(
        self, directory: str, name: str, *, deadline_s: float | None = None
    ) -> Entry | None:
        """Return an entry with all its chunks, None when there is none."""

    @abstractmethod
    def list_entries(
        self, directory: str, *, prefix: str = "", after: str = "", chunks: bool = True
    ) -> AsyncIterator[Entry]:
        """Yield the entries of a directory by name, however many; none when it does not exist."""

    @abstractmethod
    async def create(
        self, directory: str, entry: Entry, *, deadline_s: float | None = None
    ) -> None:
        """Make an entry, and the directories above it. Raises EntryExistsError."""

    @abstractmethod
    async def put(self, directory: str, entry: Entry, *, deadline_s: float | None = None) -> None:
        """Make an entry or replace it, whatever it is: for mirrors, which nobody relies on."""

    @abstractmethod
    async def update(
        self,
        directory: str,
        entry: Entry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        """Replace an entry whose extended attributes have the expected values, all of them.

        Chunks that it no longer names are removed by the filer. Values expected must not be empty:
        one that is absent would pass for it. It is never sent again by itself: a repetition may
        arrive after something that followed. Raises ConditionFailedError, EntryMissingError.
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
        """Remove an entry with its chunks; one that is not there is no error."""

    @abstractmethod
    async def upload(self, pieces: Sequence[Buffer], *, deadline_s: float | None = None) -> Chunk:
        """Store bytes as a chunk that belongs to no entry yet; its position is 0.

        On return it is as safe as the replication asked for makes it. What failed half-way is
        tried again elsewhere, under another id, while there is time. Raises ChunkTooLargeError.
        """

    @abstractmethod
    async def read_chunk(
        self, chunk: Chunk, start: int, size_bytes: int, *, deadline_s: float | None = None
    ) -> bytes:
        """Return bytes of a chunk, from a place within it. Raises ChunkMissingError.

        An encrypted chunk is fetched and decrypted whole, however little of it is wanted.
        """

    @abstractmethod
    async def delete_chunks(
        self, chunks: Iterable[Chunk], *, deadline_s: float | None = None
    ) -> None:
        """Remove chunks that no entry names, and none will; those that are gone are no error."""
