"""A directory of backups: lists, finds, locks and removes them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.backup.manifest import MANIFEST_NAME, ManifestError, decode_manifest
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.files.lock import DirectoryLock
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from kgw.backend.embedded.backup.manifest import Manifest

MARKER_NAME: Final = "kgw-backups.json"
LOCK_NAME: Final = "kgw-backups.lock"
UNFINISHED_SUFFIX: Final = ".unfinished"
REMOVED_SUFFIX: Final = ".removed"


def parse_name(name: str) -> tuple[str, int]:
    """Return the time in a backup's name, and its number among the backups of that second.

    The newest backup has the greatest values.
    """
    time, _, number = name.partition("-")
    return time, int(number) if number.isdecimal() else 1


class BackupEntry(NamedTuple):
    """A backup in the directory, or the remains of one."""

    name: str
    manifest: Manifest | None
    problem: str | None = None
    """Why the backup has no readable manifest."""


class BackupDirectory:
    """A directory with backups of one cluster."""

    def __init__(self, path: str) -> None:
        self.path = path

    def backup_path(self, name: str) -> str:
        """Return the directory of a backup."""
        return f"{self.path}/{name}"

    def cluster_id(self) -> str:
        """Return the id of the cluster whose backups these are. Raises DataDirectoryError."""
        path = f"{self.path}/{MARKER_NAME}"
        try:
            return str(layout.decode_small(Path(path).read_bytes())["cluster_id"])
        except (FileNotFoundError, NotADirectoryError):
            raise DataDirectoryError(
                f"{self.path} is no place of backups: no {MARKER_NAME}"
            ) from None
        except (layout.SmallFileError, KeyError) as error:
            raise DataDirectoryError(f"{path} is damaged: {error}") from error
        except OSError as error:
            raise DataDirectoryError(f"{path}: {error.strerror or error}") from error

    def begin(self, cluster_id: str) -> None:
        """Reserve an empty directory for a cluster's backups, or check that it is reserved.

        Raises DataDirectoryError.
        """
        if self.is_new():
            RealFs().replace_durably(
                f"{self.path}/{MARKER_NAME}", layout.encode_small({"cluster_id": cluster_id})
            )
            return
        found = self.cluster_id()
        if found != cluster_id:
            raise DataDirectoryError(
                f"{self.path} has backups of cluster {found}, not of {cluster_id}: "
                "give each cluster a place of its own"
            )

    def is_new(self) -> bool:
        """Return whether the directory is empty. Raises DataDirectoryError for other files."""
        names = set(os.listdir(self.path))  # noqa: PTH208 - as in files/fs
        if MARKER_NAME in names:
            return False
        others = names - {LOCK_NAME, f"{MARKER_NAME}.tmp", "lost+found"}
        if others:
            raise DataDirectoryError(
                f"{self.path} is not empty, and no place of backups: it has {min(others)}"
            )
        return True

    def entries(self) -> list[BackupEntry]:
        """Return all backups, the oldest first. Raises DataDirectoryError."""
        self.cluster_id()
        found = [self._entry(name) for name in self._names()]
        return sorted(
            found, key=lambda one: (one.manifest.created_ms if one.manifest else 0, one.name)
        )

    def _names(self) -> list[str]:
        return [
            path.name
            for path in Path(self.path).iterdir()
            if path.is_dir()
            and not path.name.endswith(REMOVED_SUFFIX)
            and path.name != "lost+found"
        ]

    def _entry(self, name: str) -> BackupEntry:
        if name.endswith(UNFINISHED_SUFFIX):
            return BackupEntry(name, None, "it was not finished")
        path = Path(self.path) / name / MANIFEST_NAME
        try:
            manifest = decode_manifest(path.read_bytes())
        except FileNotFoundError:
            return BackupEntry(name, None, f"it has no {MANIFEST_NAME}")
        except ManifestError as error:
            return BackupEntry(name, None, str(error))
        except OSError as error:
            return BackupEntry(name, None, error.strerror or str(error))
        if manifest.name != name:
            return BackupEntry(name, None, f"its manifest is that of {manifest.name}")
        return BackupEntry(name, manifest)

    def newest(self) -> Manifest | None:
        """Return the newest finished backup, without reading the long manifests of older backups.

        Raises DataDirectoryError if this is no directory of backups.
        """
        self.cluster_id()
        for name in sorted(self._names(), key=parse_name, reverse=True):
            manifest = self._entry(name).manifest
            if manifest is not None:
                return manifest
        return None

    def find(self, name: str | None) -> Manifest:
        """Return the named backup, or the newest for None. Raises DataDirectoryError."""
        if name is None:
            newest = self.newest()
            if newest is None:
                raise DataDirectoryError(f"{self.path} has no finished backup")
            return newest
        self.cluster_id()
        if "/" in name or not Path(self.backup_path(name)).is_dir():
            raise DataDirectoryError(f"{self.path} has no backup {name}")
        entry = self._entry(name)
        if entry.manifest is None:
            raise DataDirectoryError(f"backup {name} of {self.path}: {entry.problem}")
        return entry.manifest

    def locked(self) -> DirectoryLock:
        """Return a context manager for the lock, without which no process may change the directory.

        Acquiring it raises DataDirectoryError.
        """
        return DirectoryLock(RealFs(), self.path, LOCK_NAME, "another backup")

    def clean_up(self) -> list[str]:
        """Remove the remains of interrupted backups and removals; return their names.

        The caller holds the lock.
        """
        removed = []
        for path in sorted(Path(self.path).iterdir()):
            if path.name.endswith((UNFINISHED_SUFFIX, REMOVED_SUFFIX)) and path.is_dir():
                shutil.rmtree(path)
                if path.name.endswith(UNFINISHED_SUFFIX):
                    removed.append(path.name)
        return removed

    def prune(self, keep: int, spared: str | None = None) -> list[str]:
        """Remove all but the newest `keep` finished backups; return the names of removed backups.

        The caller holds the lock. The backup `spared` is never removed. Each backup has its own
        hard links to shared files, so the other backups stay complete.
        """
        finished = [one.name for one in self.entries() if one.manifest is not None]
        gone = [name for name in finished[:-keep] if name != spared]
        for name in gone:
            # Rename the backup first, which is atomic, so that a partly removed backup does not
            # look complete.
            Path(self.backup_path(name)).rename(self.backup_path(name + REMOVED_SUFFIX))
        if gone:
            RealFs().sync_directory(self.path)
        for name in gone:
            shutil.rmtree(self.backup_path(name + REMOVED_SUFFIX))
        return gone
