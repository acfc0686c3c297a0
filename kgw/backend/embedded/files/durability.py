"""Syncs that distinguish a failed sync from one that was not attempted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.embedded.failures import SyncFailedError, is_out_of_space
from kgw.problems import is_out_of_descriptors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kgw.backend.embedded.files.fs import File, FileSystem


def sync_file(file: File) -> None:
    """Sync a file. Raises SyncFailedError, after which the sync must not be retried."""
    try:
        file.fdatasync()
    except OSError as error:
        raise SyncFailedError(f"{file.path}: {error}") from error


def sync_directory(fs: FileSystem, path: str) -> None:
    """Sync the names in a directory.

    Raises SyncFailedError; OSError if too many files are open, so that no sync was attempted.
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
    """Sync the names in directories; return the error that `sync_directory` has for each."""
    return [
        error
        if error is None or is_out_of_descriptors(error)
        else SyncFailedError(f"{path}: {error}")
        for path, error in zip(paths, fs.sync_all((), paths), strict=True)
    ]


def replace_durably(fs: FileSystem, path: str, content: bytes) -> None:
    """Replace a small file as a whole. Raises the errors of `replace_all_durably`."""
    replace_all_durably(fs, {path: content})


def replace_all_durably(fs: FileSystem, contents: Mapping[str, bytes]) -> None:
    """Replace small files of one directory, each as a whole.

    Raises OSError if the disk is full or too many files are open. For other errors it raises
    SyncFailedError, because the sync may be the step that failed.
    """
    try:
        fs.replace_all_durably(contents)
    except OSError as error:
        if is_out_of_space(error) or is_out_of_descriptors(error):
            raise
        raise SyncFailedError(f"{', '.join(contents)}: {error}") from error
