"""A directory that another program keeps its records in: recognised, and never written to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded.layout import FORMAT_NAME
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
"""What Apache Kafka has in a log directory: meta.properties since 0.8.2, the checkpoints always."""
_PARTITION: Final = re.compile(r".+-[0-9]+")
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log")
_CLUSTER_ID: Final = re.compile(r"^cluster\.id\s*[=:]\s*(\S+)", re.MULTILINE)


def refuse_foreign(fs: FileSystem, root: str) -> None:
    """Raise DataDirectoryError for a directory of Apache Kafka. One of kgw is none, nor is none."""
    if fs.exists(f"{root}/{FORMAT_NAME}") or not fs.is_directory(root):
        return
    names = fs.listdir(root)
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


def _cluster_of(fs: FileSystem, root: str) -> str:
    """The cluster that a directory says it belongs to, in brackets; nothing where it does not."""
    if not fs.exists(f"{root}/{_META}"):
        return ""
    found = _CLUSTER_ID.search(fs.read_bytes(f"{root}/{_META}").decode("utf-8", "replace"))
    return "" if found is None else f" (cluster {found[1]})"
