"""Makes a data directory from a backup.

Records that clients saw after the backup are missing. So each partition gets a leader epoch that
the old directory never reached, which lets consumers detect that the log was truncated (KIP-320).
Producer ids continue in a range that was never used.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import EpochStart
from kgw.backend.embedded import layout
from kgw.backend.embedded.backup.copying import Copier, Part
from kgw.backend.embedded.backup.manifest import log_directory
from kgw.backend.embedded.backup.view import small_files
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.files.lock import DirectoryLock
from kgw.errors import CorruptionError, DataDirectoryError, DiskFullError
from kgw.state.base import Change
from kgw.state.kinds import TOPIC_CREATION
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.types import format_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.backend.embedded.backup.backup_directory import BackupDirectory
    from kgw.backend.embedded.backup.manifest import Manifest, SegmentPart, StoredFile, StoredLog
    from kgw.backend.embedded.backup.taking import Tools

EPOCHS_SKIPPED: Final = 1 << 16
"""Number of leader epochs to skip. The old directory has used fewer since its backup, because it
uses one at each start after a crash. A directory can be restored, backed up and restored again
30,000 times."""

_PRODUCER_IDS: Final = ("producer-ids", "next")
"""The row with the next producer id. Without the row, producer ids continue at a random number."""


class Restored(NamedTuple):
    """The result of a restore."""

    name: str
    size_bytes: int
    partitions: int
    created_ms: int


def restore_backup(
    backups: BackupDirectory, manifest: Manifest, target: str, rate: int, tools: Tools
) -> Restored:
    """Restore a backup into a new or empty directory, and verify every byte of it.

    A file in the directory prevents servers from using it until the restore is complete. Raises
    DataDirectoryError, CorruptionError for a damaged backup, DiskFullError, OSError.
    """
    root = os.path.realpath(target)
    if f"{root}/".startswith(f"{backups.path}/"):
        raise DataDirectoryError(f"{target} is within {backups.path}, where the backups are")
    fs = RealFs()
    if fs.exists(root) and not fs.is_directory(root):
        raise DataDirectoryError(f"{target} is no directory")
    names = [] if not fs.exists(root) else sorted(set(fs.listdir(root)) - {"lost+found"})
    if layout.RESTORING_NAME in names:
        raise DataDirectoryError(
            f"{target} is half restored: remove it, and restore into a new directory"
        )
    if names:
        raise DataDirectoryError(f"{target} is not empty: it has {names[0]}")
    fs.make_directories_durably(root)
    _check_room(fs, root, target, manifest)
    fs.replace_durably(
        f"{root}/{layout.RESTORING_NAME}",
        layout.encode_small({"place": backups.path, "backup": manifest.name}),
    )
    with DirectoryLock(fs, root):
        _fill(backups.backup_path(manifest.name), manifest, root, rate, tools)
        fs.replace_durably(
            f"{root}/{layout.FORMAT_NAME}", layout.encode_small({"format": layout.FORMAT_VERSION})
        )
        fs.unlink(f"{root}/{layout.RESTORING_NAME}")
        fs.sync_directory(root)
    return Restored(manifest.name, manifest.size_bytes, len(manifest.logs), manifest.created_ms)


def _check_room(fs: RealFs, root: str, target: str, manifest: Manifest) -> None:
    free, wanted = fs.free_bytes(root), manifest.size_bytes
    if wanted > free:
        raise DiskFullError(f"{target} has room for {free} bytes, and the backup has {wanted}")


def _fill(path: str, manifest: Manifest, root: str, rate: int, tools: Tools) -> None:
    with tools.show(manifest.size_bytes) as advance:
        copier = Copier(advance, rate, tools.monotonic_s, tools.sleep)
        partitions = f"{root}/{layout.PARTITIONS_DIRECTORY}"
        Path(partitions).mkdir(mode=0o700)
        for directory in (root, partitions):
            copier.note_directory(directory)
        for log in manifest.logs:
            directory = f"{root}/{log_directory(log.key)}"
            Path(directory).mkdir(mode=0o700)
            copier.note_directory(directory)
            for name, content in small_files(_with_epoch(log)).items():
                copier.write(content, f"{directory}/{name}")
        # Copy the state first, so that errors in its rows are reported before terabytes are copied.
        _copy_verified(path, layout.STATE_NAME, {layout.STATE_NAME: manifest.state}, root, copier)
        asyncio.run(finish_state(f"{root}/{layout.STATE_NAME}", manifest))
        for name, files in manifest.log_files().items():
            _copy_verified(path, name, files, root, copier)
        copier.sync()
    RealFs().sync_directory(root)


def _with_epoch(log: StoredLog) -> StoredLog:
    """Return a log with a leader epoch that the backed-up log never reached."""
    newest = log.state.epochs[-1].leader_epoch + EPOCHS_SKIPPED
    kept = [one for one in log.state.epochs if one.start_offset < log.end_offset]
    epochs = (*kept, EpochStart(newest, log.end_offset))
    return log._replace(state=log.state._replace(epochs=epochs))


def _copy_verified(
    path: str, name: str, files: Mapping[str, StoredFile | SegmentPart], root: str, copier: Copier
) -> None:
    """Join the backup's files with the parts of a file into that file of the data directory."""
    parts = [Part(f"{path}/{one}", 0, file.size_bytes) for one, file in files.items()]
    for part in parts:
        found = os.stat(part.path).st_size  # noqa: PTH116 - as in files/fs
        if found != part.size_bytes:
            raise CorruptionError(f"{part.path} has {found} bytes, and had {part.size_bytes}")
    found_sums = copier.copy_all(parts, f"{root}/{name}")
    for part, file, found_sum in zip(parts, files.values(), found_sums, strict=True):
        if file.sha256 != found_sum:
            raise CorruptionError(
                f"{part.path} fails its checksum: restore another backup "
                "(`kgw backup verify` says which are whole)"
            )


async def finish_state(path: str, manifest: Manifest) -> None:
    """Adapt a copied state to the new directory. Raises DataDirectoryError, StorageError."""
    topic_ids = {format_uuid(log.key.topic_id) for log in manifest.logs}
    async with SqliteStateStore(path, quick_check=True) as store:
        changes = [Change(*_PRODUCER_IDS, None)]
        # A topic that was being created may have no log in the backup, so there is nothing for a
        # start to remove.
        changes += [
            Change(TOPIC_CREATION, key, None)
            for key in await store.load(TOPIC_CREATION)
            if key not in topic_ids
        ]
        await store.apply(changes)
