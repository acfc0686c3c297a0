"""Snapshots of derived state beside a log: `<offset>.state`, verified when loaded.

A file is written as a whole: magic 8s, offset i64, length of the data u64, CRC-32C of the data and
of the 24 bytes before it u32, the data.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import TYPE_CHECKING, Final

from kgw.backend.base import Snapshot
from kgw.backend.embedded import layout
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segmented_log import SegmentedLog

_MAGIC: Final = b"kgwstat1"
_HEADER: Final = Struct(">8sqQ")
_CRC: Final = Struct(">I")
_KEPT: Final = 2
"""Number of snapshots to keep: the newest, and an older one in case the newest cannot be read."""


def save_snapshot(log: SegmentedLog, snapshot: Snapshot) -> None:
    """Write a snapshot durably and remove all but the newest two. Raises OSError."""
    fs = log.directory.fs
    write_snapshot(fs, log.path, snapshot)
    for offset in _offsets(log)[:-_KEPT]:
        fs.unlink(_path(log.path, offset))


def write_snapshot(fs: FileSystem, path: str, snapshot: Snapshot) -> None:
    """Write a snapshot durably into a partition's directory. Raises OSError."""
    header = _HEADER.pack(_MAGIC, snapshot.offset, len(snapshot.data))
    crc = _CRC.pack(crc32c(snapshot.data, crc32c(header)))
    fs.replace_durably(_path(path, snapshot.offset), header + crc + snapshot.data)


def load_snapshot(log: SegmentedLog, upper_bound: int) -> Snapshot | None:
    """Return the newest intact snapshot at or below `upper_bound`, or None. Raises OSError."""
    for offset in reversed(_offsets(log)):
        if offset > upper_bound:
            continue
        found = read_snapshot(log.directory.fs, log.path, offset)
        if found is not None:
            return found
        log.directory.report(f"{_path(log.path, offset)} is damaged; it is not used")
    return None


def read_snapshot(fs: FileSystem, path: str, offset: int) -> Snapshot | None:
    """Return the snapshot at `offset` in a partition's directory, None if it is damaged.

    Raises OSError.
    """
    data = _decode(fs.read_bytes(_path(path, offset)), offset)
    return None if data is None else Snapshot(offset, data)


def _path(path: str, offset: int) -> str:
    return f"{path}/{layout.segment_stem(offset)}{layout.SNAPSHOT_SUFFIX}"


def _offsets(log: SegmentedLog) -> list[int]:
    stems = (
        layout.parse_stem(name, layout.SNAPSHOT_SUFFIX)
        for name in log.directory.fs.listdir(log.path)
    )
    return sorted(stem for stem in stems if stem is not None)


def _decode(content: bytes, offset: int) -> bytes | None:
    try:
        header = _HEADER.unpack_from(content)
        (crc,) = _CRC.unpack_from(content, _HEADER.size)
    except struct.error:
        return None
    data = content[_HEADER.size + _CRC.size :]
    if header != (_MAGIC, offset, len(data)):
        return None
    return data if crc32c(data, crc32c(content[: _HEADER.size])) == crc else None
