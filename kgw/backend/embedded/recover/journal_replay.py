"""Writes the journal's entries to their segments again, before any log is recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.durability import sync_directory, sync_file
from kgw.backend.embedded.log.log_state import read_log_state
from kgw.backend.embedded.log.segment import Segment
from kgw.records.batch import split_batches
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.backend.embedded.files.fs import File, FileSystem
    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.backend.embedded.log.journal import Redo
    from kgw.types import PartitionKey


def replay_journal(directory: DataDirectory, redos: Iterable[Redo]) -> dict[PartitionKey, int]:
    """Write the journal's entries to their segments again, durably.

    Returns, for each partition, the end offset that its entries prove to have been durable. Raises
    OSError, SyncFailedError.
    """
    fs = directory.fs
    proven: dict[PartitionKey, int] = {}
    last_segments: dict[str, int] = {}
    files: dict[str, File] = {}
    paths: set[str] = set()
    try:
        for redo in redos:
            path = directory.partition_path(redo.key)
            if path not in last_segments:
                last_segments[path] = _last_segment(fs, path)
            if redo.segment_base_offset < last_segments[path]:
                # The roll to the next segment has synced this segment. It may have been compacted
                # or removed since then, so do not write these bytes.
                continue
            if not fs.is_directory(path):
                continue
            segment = Segment(path, redo.segment_base_offset, directory.pool)
            file = files.get(segment.log_path)
            if file is None:
                if not fs.exists(segment.log_path):
                    if _is_below_log_start(directory, path, redo.segment_base_offset):
                        continue
                    directory.report(f"{segment.log_path} was gone; restored from the journal")
                if len(files) >= directory.options.open_files:
                    # A journal may have entries for thousands of segments.
                    _sync_and_close(files)
                file = files[segment.log_path] = fs.open(segment.log_path, create=True)
                paths.add(path)
            file.pwrite(redo.buffers, redo.position)
            end_offset = _end_of(redo)
            proven[redo.key] = max(proven.get(redo.key, 0), end_offset)
        _sync_and_close(files)
        for path in paths:
            sync_directory(fs, path)
    finally:
        for file in files.values():
            file.close()
    return proven


def _last_segment(fs: FileSystem, path: str) -> int:
    """Return the base offset of a partition's last segment, -1 if it has no segments."""
    names = fs.listdir(path) if fs.is_directory(path) else []
    return max(layout.segment_bases(names), default=-1)


def _sync_and_close(files: dict[str, File]) -> None:
    for file in files.values():
        sync_file(file)
        file.close()
    files.clear()


def _end_of(redo: Redo) -> int:
    try:
        return split_batches(redo.buffers[0])[-1].next_offset
    except (RecordError, IndexError):
        return 0


def _is_below_log_start(directory: DataDirectory, path: str, base_offset: int) -> bool:
    """Return whether a missing segment was removed because it lies below the log start."""
    state = read_log_state(directory.fs, path).state
    if state is None:
        return max(layout.segment_bases(directory.fs.listdir(path)), default=-1) > base_offset
    return base_offset < state.log_start_offset
