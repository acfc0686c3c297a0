"""Determines the contents of a backup: the length of each log at one instant, links to files."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded import layout
from kgw.errors import StorageError
from kgw.types import PartitionKey, TopicId, TopicName, parse_partition_key, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.store import Store
    from kgw.state.base import Row

CUT_NAME: Final = "cut.json"
"""File in a stage with the result of `encode_cut`."""


class SegmentCut(NamedTuple):
    """A segment as it was at the instant of a backup."""

    base_offset: int
    size_bytes: int
    side_count: int | None = None
    """Number of its side entries; None for the entries of all batches within `size_bytes`."""
    side_tail: bytes = b""
    """Side entries that were in memory and not yet in the file."""


class LogCut(NamedTuple):
    """A log as it was at the instant of a backup."""

    key: PartitionKey
    topic: TopicName
    end_offset: int
    state: layout.LogState
    segments: tuple[SegmentCut, ...]


class Cut(NamedTuple):
    """A data directory as it was at the instant of a backup."""

    logs: tuple[LogCut, ...]
    unopened: frozenset[PartitionKey] = frozenset()
    """Partitions on disk that were not open: they have no topic, or were not recovered yet."""
    reserve_bytes: int = 0
    """Bytes that the server leaves free on its file system."""


def take_cut(store: Store) -> Cut:
    """Return the length of each open log. Runs in the flusher, between two groups of appends.

    The lengths include all acknowledged batches.
    """
    logs = tuple(_cut_log(log) for log in list(store.logs.values()))
    unopened = frozenset(store.on_disk - store.logs.keys())
    return Cut(logs, unopened, store.directory.options.min_free_bytes)


def _cut_log(log: SegmentedLog) -> LogCut:
    segments = []
    for segment in log.segments:
        side = segment.side
        count, tail = (None, b"") if side is None else side
        segments.append(SegmentCut(segment.base_offset, segment.size_bytes, count, tail))
    # Clients may already see the stored log start.
    state = log.state_from(max(log.offsets.log_start_offset, log.noted_log_start))
    return LogCut(log.key, log.topic, log.written_end, state, tuple(segments))


def count_partitions(rows: Mapping[str, Row]) -> dict[TopicId, int]:
    """Return how many partitions each topic has, by the rows of kind `topic`."""
    return {
        TopicId(parse_uuid(key)): int(json.loads(row.value)["partitions"])
        for key, row in rows.items()
    }


def encode_cut(cut: Cut) -> bytes:
    """Return the content of `CUT_NAME`."""
    logs = [
        {
            "key": str(log.key),
            "topic": log.topic,
            "end_offset": log.end_offset,
            "state": layout.encode_log_state(log.state).decode(),
            "segments": [
                (one.base_offset, one.size_bytes, one.side_count, b64encode(one.side_tail).decode())
                for one in log.segments
            ],
        }
        for log in cut.logs
    ]
    return json.dumps(
        {
            "logs": logs,
            "unopened": [str(key) for key in cut.unopened],
            "reserve_bytes": cut.reserve_bytes,
        }
    ).encode()


def decode_cut(content: bytes) -> Cut:
    """Return the cut that `encode_cut` encoded."""
    fields = json.loads(content)
    logs = [
        LogCut(
            parse_partition_key(log["key"]),
            TopicName(log["topic"]),
            log["end_offset"],
            layout.decode_log_state(log["state"].encode()),
            tuple(
                SegmentCut(base_offset, size_bytes, side_count, b64decode(tail))
                for base_offset, size_bytes, side_count, tail in log["segments"]
            ),
        )
        for log in fields["logs"]
    ]
    unopened = frozenset(map(parse_partition_key, fields["unopened"]))
    return Cut(tuple(logs), unopened, fields["reserve_bytes"])


def write_stage(fs: FileSystem, root: str, stage: str, cut: Cut) -> None:
    """Write the cut into a stage, and create hard links to the files. Raises StorageError."""
    _link_files(fs, root, stage, cut.logs)
    try:
        (Path(stage) / CUT_NAME).write_bytes(encode_cut(cut))
    except OSError as error:
        raise StorageError(f"{stage}: {error.strerror or error}") from error


def _link_files(fs: FileSystem, root: str, stage: str, logs: Iterable[LogCut]) -> None:
    """Create hard links to all files of the logs below `stage`.

    A sealed segment must not change any more, because the backup only has a link to it. If a crash
    lost the newer segments' names, a start would append to a sealed segment. So these names are
    synced first. Segments must not be removed or replaced meanwhile. Raises StorageError.
    """
    partitions = Path(stage) / layout.PARTITIONS_DIRECTORY
    try:
        partitions.mkdir(mode=0o700)
        for log in logs:
            target = partitions / str(log.key)
            target.mkdir(mode=0o700)
            _link_log(fs, f"{root}/{layout.PARTITIONS_DIRECTORY}/{log.key}", target, log)
    except OSError as error:
        raise StorageError(
            f"cannot link files of {root} into {stage}: {error.strerror or error}"
        ) from error


def _link_log(fs: FileSystem, path: str, target: Path, log: LogCut) -> None:
    # If the topic is being deleted, its directories may have been renamed already.
    places = (path, path + layout.DELETED_SUFFIX, path)
    for segment in log.segments:
        stem = layout.segment_stem(segment.base_offset)
        _link(places, target, stem + layout.LOG_SUFFIX)
        # The side file does not exist before its first entry is written, and can be rebuilt.
        with suppress(FileNotFoundError):
            _link(places, target, stem + layout.SIDE_SUFFIX)
    for name in _names(places):
        offset = layout.parse_stem(name, layout.SNAPSHOT_SUFFIX)
        if offset is not None and offset <= log.end_offset:
            # The snapshot may have been removed meanwhile, because only the newest two are kept.
            with suppress(FileNotFoundError):
                _link(places, target, name)
    if len(log.segments) > 1:
        with suppress(FileNotFoundError):
            fs.sync_directory(path)


def _link(places: tuple[str, ...], target: Path, name: str) -> None:
    for place in places:
        try:
            (target / name).hardlink_to(f"{place}/{name}")
        except FileNotFoundError as error:
            missing = error
        else:
            return
    raise missing


def _names(places: tuple[str, ...]) -> Iterator[str]:
    for place in places:
        try:
            names = [path.name for path in Path(place).iterdir()]
        except FileNotFoundError:
            continue
        yield from sorted(names)
        return
