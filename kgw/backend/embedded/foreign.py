"""Recognises directories of other programs, so that kgw never writes to them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.layout import FORMAT_NAME, RESTORING_NAME
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from kgw.backend.embedded.files.fs import FileSystem

_META: Final = "meta.properties"
_CLUSTER_METADATA: Final = "__cluster_metadata-0"
_KAFKAS: Final = frozenset(
    {
        _META,
        _CLUSTER_METADATA,
        "bootstrap.checkpoint",
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
)
"""Files in a log directory of Apache Kafka. meta.properties exists since Kafka 0.8.2, the
checkpoints in all versions."""
_BACKUPS: Final = frozenset({"kgw-backups.json", "manifest.json"})
"""Files in a directory of several backups, and in a single backup."""
_PARTITION: Final = re.compile(r".+-[0-9]+")
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log")
_OWN: Final = (
    layout.CLEAN_NAME,
    layout.COMPACTION_DIRECTORY,
    # Marks copied records that no server has been started with yet.
    layout.COPIED_NAME,
    layout.FORMAT_NAME,
    layout.JOURNAL_DIRECTORY,
    layout.LOCK_NAME,
    layout.PARTITIONS_DIRECTORY,
    layout.QUARANTINE_DIRECTORY,
    # The prefix also matches SQLite's own files beside the database.
    layout.STATE_NAME,
    layout.STATE_PLACE_NAME,
)
"""Prefixes of the names of files that an interrupted first start may leave."""
_OF_FILE_SYSTEMS: Final = frozenset({"lost+found", ".snapshot", ".zfs", ".DS_Store"})
_NAMED: Final = 3
SHARED: Final = "kgw.data.dir.shared"
_CLUSTER_ID: Final = re.compile(r"^cluster\.id\s*[=:]\s*(\S+)", re.MULTILINE)


def refuse_foreign(fs: FileSystem, root: str) -> None:
    """Raise DataDirectoryError for a directory of Apache Kafka, or one with backups.

    A data directory of kgw and a missing directory are accepted.
    """
    if fs.exists(f"{root}/{FORMAT_NAME}") or not fs.is_directory(root):
        return
    names = fs.listdir(root)
    _refuse_backups(root, names)
    partitions = [
        name
        for name in names
        if _PARTITION.fullmatch(name)
        and fs.is_directory(f"{root}/{name}")
        and any(map(_SEGMENT.fullmatch, fs.listdir(f"{root}/{name}")))
    ]
    if partitions or not _KAFKAS.isdisjoint(names):
        what = f"a data directory of Apache Kafka{_cluster_of(fs, root)}"
        topics = [name for name in partitions if name != _CLUSTER_METADATA]
        if topics:
            what += f" with {len(topics)} partition{'s' * (len(topics) != 1)}"
    elif any(map(_SEGMENT.fullmatch, names)):
        what = "a partition of Apache Kafka"
    else:
        return
    raise DataDirectoryError(
        f"{root} is {what}, which kgw does not open: serve another directory, start Kafka with "
        "this one, and copy the records with `kgw consume --json` and `kgw produce --format json` "
        "(docs/migration.md, From Apache Kafka)"
    )


def refuse_no_directory(fs: FileSystem, root: str, name: str) -> None:
    """Raise DataDirectoryError if `root`, which the user named `name`, is no data directory.

    The message says if it is a directory of another program or a directory of backups.
    """
    if not fs.exists(f"{root}/{FORMAT_NAME}"):
        refuse_foreign(fs, root)
        raise DataDirectoryError(f"{name} is not a data directory: no {FORMAT_NAME}")


def refuse_others(fs: FileSystem, root: str, *, is_served: bool = True) -> None:
    """Raise DataDirectoryError if a directory without data of kgw contains other files.

    Data directories of kgw are accepted, and so are files of an interrupted first start. If a
    server is being started (`is_served`), the message names the setting that allows other files.
    """
    if fs.exists(f"{root}/{FORMAT_NAME}") or not fs.is_directory(root):
        return
    others = sorted(
        name
        for name in fs.listdir(root)
        if name not in _OF_FILE_SYSTEMS and not name.startswith(_OWN)
    )
    if not others:
        return
    what = ", ".join(others[:_NAMED])
    if len(others) > _NAMED:
        what += f" and {len(others) - _NAMED} more"
    anyway = f", or set {SHARED}=true to keep records beside these" if is_served else ""
    raise DataDirectoryError(
        f"{root} is no data directory of kgw, and not empty: it has {what}; name an empty "
        f"directory, or one that is not there yet{anyway}"
    )


def _refuse_backups(root: str, names: list[str]) -> None:
    if RESTORING_NAME in names:
        raise DataDirectoryError(
            f"{root} is half restored from a backup: remove it, and run `kgw restore` again"
        )
    if not _BACKUPS.isdisjoint(names):
        raise DataDirectoryError(
            f"{root} has backups, which are not served: make a data directory of one with "
            "`kgw restore` (docs/backup.md)"
        )


def _cluster_of(fs: FileSystem, root: str) -> str:
    """Return the directory's cluster id in brackets; "" if the directory does not name one."""
    if not fs.exists(f"{root}/{_META}"):
        return ""
    found = _CLUSTER_ID.search(fs.read_bytes(f"{root}/{_META}").decode("utf-8", "replace"))
    return "" if found is None else f" (cluster {found[1]})"
