"""The manifest of a backup, which lists each file with its length and checksum. No I/O.

The manifest is JSON, followed by a line with the SHA-256 of the JSON. Files have SHA-256 checksums,
too, as `sha256sum` prints them. The manifest is written last: a directory without a manifest is no
finished backup.

A segment is stored in parts. Each backup adds a part with the bytes that were appended since the
backup before. A part's file has the segment's name, followed by the part's position unless that is
0. A file of a backup is never changed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, NamedTuple

from kgw.backend.embedded import layout
from kgw.errors import KgwError
from kgw.types import PartitionKey, TopicName, parse_partition_key

MANIFEST_NAME: Final = "manifest.json"
FORMAT: Final = 1
_CHECK: Final = b"\nsha256 "


class ManifestError(KgwError):
    """A manifest cannot be read: it is damaged, or written by a newer kgw."""


class FileIdentity(NamedTuple):
    """Identity of a copied file in the data directory, which changes if the file is replaced."""

    # Stored as a list: moving or removing a field changes the stored form.
    inode: int
    mtime_ns: int


class StoredFile(NamedTuple):
    """A file of a backup."""

    # Stored as a list: moving or removing a field changes the stored form.
    size_bytes: int
    sha256: str
    source: FileIdentity | None = None
    """None for a file that is copied in every backup."""


class SegmentPart(NamedTuple):
    """A part of a segment, in a separate file."""

    # Stored as a list: moving or removing a field changes the stored form.
    position: int
    size_bytes: int
    sha256: str

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


class StoredSegment(NamedTuple):
    """A segment and its side file."""

    # The field names are stored: renaming a field changes the stored form.
    base_offset: int
    is_sealed: bool
    source: FileIdentity
    pieces: tuple[SegmentPart, ...]
    side: StoredFile | None

    @property
    def size_bytes(self) -> int:
        return self.pieces[-1].end_position if self.pieces else 0


class StoredLog(NamedTuple):
    """A partition."""

    # The field names are stored: renaming a field changes the stored form.
    key: PartitionKey
    topic: TopicName
    end_offset: int
    state: layout.LogState
    segments: tuple[StoredSegment, ...]
    snapshots: dict[int, StoredFile]
    """By their offsets."""


class Manifest(NamedTuple):
    """A backup."""

    # The field names are stored: renaming a field changes the stored form.
    name: str
    created_ms: int
    """Wall time at which the backup began. It contains everything that was acknowledged before."""
    kgw_version: str
    cluster_id: str
    parent: str | None
    """The backup with which this one has files in common; None for a full backup."""
    state: StoredFile
    logs: tuple[StoredLog, ...]

    def files(self) -> dict[str, StoredFile | SegmentPart]:
        """Return every file by its path below the backup's directory."""
        found: dict[str, StoredFile | SegmentPart] = {layout.STATE_NAME: self.state}
        for parts in self.log_files().values():
            found |= parts
        return found

    def log_files(self) -> dict[str, dict[str, StoredFile | SegmentPart]]:
        """Return, for each file of a log, the backup's files that contain its parts, in order.

        The outer keys are paths below the data directory, the inner keys paths below the backup's
        directory.
        """
        found: dict[str, dict[str, StoredFile | SegmentPart]] = {}
        for log in self.logs:
            for segment in log.segments:
                base_offset = segment.base_offset
                found[piece_path(log.key, base_offset, 0)] = {
                    piece_path(log.key, base_offset, one.position): one for one in segment.pieces
                }
                if segment.side is not None:
                    path = side_path(log.key, base_offset)
                    found[path] = {path: segment.side}
            for offset, snapshot in log.snapshots.items():
                path = snapshot_path(log.key, offset)
                found[path] = {path: snapshot}
        return found

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(one.size_bytes for one in self.files().values())


def log_directory(key: PartitionKey) -> str:
    """Return the relative path of a log's directory, in a backup and in a data directory."""
    return f"{layout.PARTITIONS_DIRECTORY}/{key}"


def piece_path(key: PartitionKey, base_offset: int, position: int) -> str:
    """Return the path of a part of a segment."""
    suffix = f".{position}" if position else ""
    return f"{log_directory(key)}/{layout.segment_stem(base_offset)}{layout.LOG_SUFFIX}{suffix}"


def side_path(key: PartitionKey, base_offset: int) -> str:
    """Return the path of a side file."""
    return f"{log_directory(key)}/{layout.segment_stem(base_offset)}{layout.SIDE_SUFFIX}"


def snapshot_path(key: PartitionKey, offset: int) -> str:
    """Return the path of a snapshot."""
    return f"{log_directory(key)}/{layout.segment_stem(offset)}{layout.SNAPSHOT_SUFFIX}"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of `MANIFEST_NAME`."""
    fields = {
        "format": FORMAT,
        **manifest._asdict(),
        "logs": [
            {
                **log._asdict(),
                "key": str(log.key),
                "state": layout.encode_log_state(log.state).decode(),
                "segments": [segment._asdict() for segment in log.segments],
            }
            for log in manifest.logs
        ],
    }
    body = json.dumps(fields, indent=1).encode()
    return body + _CHECK + hashlib.sha256(body).hexdigest().encode() + b"\n"


def decode_manifest(content: bytes) -> Manifest:
    """Return the backup that a manifest describes. Raises ManifestError."""
    body, _, check = content.rpartition(_CHECK)
    if check != hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise ManifestError("the manifest fails its checksum")
    try:
        fields = json.loads(body)
        if fields.pop("format") != FORMAT:
            raise ManifestError("the manifest is of a newer kgw")
        logs = tuple(map(_decode_log, fields.pop("logs")))
        state = _decode_file(fields.pop("state"))
        return Manifest(**fields, state=state, logs=logs)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ManifestError(f"the manifest lacks or mistypes {error}") from error


def _decode_log(fields: dict[str, Any]) -> StoredLog:
    return StoredLog(
        parse_partition_key(fields["key"]),
        TopicName(fields["topic"]),
        fields["end_offset"],
        layout.decode_log_state(fields["state"].encode()),
        tuple(
            StoredSegment(
                one["base_offset"],
                one["is_sealed"],
                FileIdentity(*one["source"]),
                tuple(SegmentPart(*piece) for piece in one["pieces"]),
                None if one["side"] is None else _decode_file(one["side"]),
            )
            for one in fields["segments"]
        ),
        {int(offset): _decode_file(one) for offset, one in fields["snapshots"].items()},
    )


def _decode_file(fields: list[Any]) -> StoredFile:
    size_bytes, sha256, source = fields
    return StoredFile(size_bytes, sha256, None if source is None else FileIdentity(*source))
