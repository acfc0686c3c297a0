"""How the disk can fail, as far as the code must tell the ways apart (durability.md 4.3)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from kgw.errors import DiskFullError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.backend.embedded.fs import File, FileSystem
    from kgw.backend.embedded.segment import Segment

_OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class SyncFailedError(Exception):
    """A sync did not succeed: what is on the disk is unknown, and no later sync will tell."""


class SyncNotTriedError(OSError):
    """A sync was asked for and not begun: nothing has happened to the file, another may try."""


class NoThreadError(StorageError):
    """The system has no thread left for what was to be done: nothing of it is, now or later."""


class SideFileDamagedError(Exception):
    """A side file does not say what a lookup needs; it must be rebuilt from its segment.

    Or the segment was removed while it was read: then there is nothing to rebuild, and whoever
    looks again finds what has come in its place. Or somebody was changing the file just then.
    """

    def __init__(self, segment: Segment, index: int = 0, count: int = 0) -> None:
        """Entries from `index` on are wrong; without a `count`, where the file ends."""
        super().__init__(segment.side_path)
        self.segment = segment
        self.index = index
        self.count = count


def is_out_of_space(error: OSError) -> bool:
    """Whether the call failed for want of room, so that it may work again later."""
    return error.errno in _OUT_OF_SPACE


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether a file could not be opened because too many are: nothing has happened to any."""
    return error.errno in _OUT_OF_DESCRIPTORS


def sync_file(file: File) -> None:
    """Sync a file. Raises SyncFailedError, never to be answered by trying again."""
    try:
        file.fdatasync()
    except OSError as error:
        raise SyncFailedError(f"{file.path}: {error}") from error


def sync_directory(fs: FileSystem, path: str) -> None:
    """Sync the names in a directory.

    Raises SyncFailedError, and OSError for want of a descriptor, when no sync was tried.
    """
    try:
        fs.sync_directory(path)
    except OSError as error:
        if is_out_of_descriptors(error):
            raise
        raise SyncFailedError(f"{path}: {error}") from error


def replace_durably(fs: FileSystem, path: str, content: bytes) -> None:
    """Put a small file in place. Raises as `replace_all_durably`."""
    replace_all_durably(fs, {path: content})


def replace_all_durably(fs: FileSystem, contents: Mapping[str, bytes]) -> None:
    """Put small files of one directory in place, each whole.

    Raises OSError when there was no room or no descriptor, else SyncFailedError: which step failed
    is not known.
    """
    try:
        fs.replace_all_durably(contents)
    except OSError as error:
        if is_out_of_space(error) or is_out_of_descriptors(error):
            raise
        raise SyncFailedError(f"{', '.join(contents)}: {error}") from error


def storage_error(error: OSError, what: str) -> StorageError:
    """Return the error to raise for a failed call: a full disk is told apart."""
    if is_out_of_space(error):
        return DiskFullError(f"{what}: {error}")
    return StorageError(f"{what}: {error}")
