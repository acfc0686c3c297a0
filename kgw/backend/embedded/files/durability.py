"""Syncs whose failure says what is known of the disk: nothing, or that none was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.embedded.failures import (
    SyncFailedError,
    is_out_of_descriptors,
    is_out_of_space,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kgw.backend.embedded.files.fs import File, FileSystem


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


def sync_directories(
    fs: FileSystem, paths: Sequence[str]
) -> list[OSError | SyncFailedError | None]:
    """Sync the names in directories; return what went wrong with each, as `sync_directory`."""
    return [
        error
        if error is None or is_out_of_descriptors(error)
        else SyncFailedError(f"{path}: {error}")
        for path, error in zip(paths, fs.sync_all((), paths), strict=True)
    ]


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
