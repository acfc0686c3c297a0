"""Replaces old segments by a compacted one, in a way that survives crashes.

First, the new files are durable in the partition's `compaction` directory. Then a swap file is
durably created beside them. If a start finds a swap file, recovery completes the replacement;
otherwise it removes the new segments. The swap file is empty and its name has all information, so a
flipped bit in its content is harmless. This is important because, once the old segments are
removed, only the swap file shows that the new ones are valid. Each step may be interrupted and
repeated.

A run replaces segments in the order of their offsets, and ends at the first segment that cannot be
replaced. A tombstone's retention time begins when its segment is replaced. If a later segment were
replaced first, a tombstone in it could be removed before older records of its key.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.files.durability import replace_durably, sync_directory
from kgw.backend.embedded.log.segment import Segment
from kgw.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.backend.embedded.log.segmented_log import SegmentedLog


class CompactedSegment(NamedTuple):
    """A complete, durable segment in the `compaction` directory."""

    base_offset: int
    replaced: tuple[int, ...]
    """Base offsets of the segments that it replaces; the first is its own base offset."""
    size_bytes: int
    entry_count: int
    largest_timestamp_ms: int


def swap_segment(
    directory: DataDirectory,
    log: SegmentedLog,
    compacted: CompactedSegment,
    forget: Callable[[Segment], None],
) -> list[str]:
    """Replace segments by a compacted one. Runs in the flusher.

    No checkpoint may be made and no side file rebuilt meanwhile. The stored checkpoint must name a
    later segment. `forget` is called with each old segment. Returns the old files, which the caller
    removes after the log's `delete_delay_ms`. Does nothing if all old segments were removed
    meanwhile. Raises StorageError, also if only some of them were removed; the run must end then.
    """
    directory.check_writable()
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    if log.is_deleted or compacted.replaced[-1] < bases[0]:
        return []
    start = bisect_left(bases, compacted.base_offset)
    end = start + len(compacted.replaced)
    if bases[start:end] != list(compacted.replaced) or end >= len(segments):
        raise StorageError(
            f"segments of partition {log.key} that were being compacted have been dropped"
        )
    fs = directory.fs
    note_path = _note_path(log.path, compacted)
    with directory.attempt(f"compact partition {log.key}"):
        # Sync the new files' names first, because a swap file without the new files would be wrong.
        sync_directory(fs, _directory(log.path))
        replace_durably(fs, note_path, b"")
    aside: list[str] = []
    try:
        for segment in segments[start:end]:
            aside += segment.set_aside(fs)
        _bring_in(fs, log.path, compacted.base_offset)
        new = Segment(log.path, compacted.base_offset, directory.pool)
        new.size_bytes = compacted.size_bytes
        new.side = (compacted.entry_count, b"")
        new.largest_timestamp_ms = compacted.largest_timestamp_ms
        new.begun_ms = segments[start].begun_ms
        for segment in segments[start:end]:
            forget(segment)
            log.unindexed.pop(segment, None)
        log.segments = (*segments[:start], new, *segments[end:])
        sync_directory(fs, log.path)
        fs.unlink(note_path)
    except (OSError, SyncFailedError) as error:
        # The next start completes the replacement.
        directory.fail(error)
        raise StorageError(str(error)) from error
    return aside


def finish_swaps(directory: DataDirectory, path: str) -> None:
    """Complete the replacements that a crash interrupted in a partition's directory.

    New segments without a swap file are discarded. Raises OSError, SyncFailedError.
    """
    fs = directory.fs
    if not fs.is_directory(_directory(path)):
        return
    for first, last in read_notes(fs, path):
        for name in fs.listdir(path):
            other = layout.parse_stem(name, layout.LOG_SUFFIX)
            if other is not None and first < other <= last:
                Segment(path, other, directory.pool).unlink(fs)
        _bring_in(fs, path, first)
    sync_directory(fs, path)
    remove_directory(fs, path)


def read_notes(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """Return the first and last replaced base offset in each swap file.

    Raises OSError.
    """
    directory = _directory(path)
    notes: list[tuple[int, int]] = []
    for name in fs.listdir(directory):
        note = layout.parse_swap_name(name)
        if note is None and layout.parse_stem(name, layout.SWAP_SUFFIX) is not None:
            note = _read_old_note(fs, f"{directory}/{name}")
        if note is not None:
            notes.append(note)
    return notes


def _read_old_note(fs: FileSystem, note_path: str) -> tuple[int, int]:
    """Return the offsets in a swap file of an older version, which stored them in its content.

    Raises OSError for a damaged swap file, because the old segments may be removed while the new
    segments are not in use yet.
    """
    try:
        replaced = layout.decode_small(fs.read_bytes(note_path))["replaced"]
        return int(replaced[0]), int(replaced[-1])
    except (layout.SmallFileError, KeyError, TypeError, ValueError, IndexError) as error:
        raise OSError(
            errno.EIO,
            f"the note of an exchange is damaged: {error}; move its directory out of the data "
            "directory and run `kgw log check`: start without it if nothing is wrong with the "
            "partition then, else it holds segments that the partition lacks",
            note_path,
        ) from error


def begin_directory(fs: FileSystem, path: str) -> str:
    """Make the empty directory for a partition's new segments and return its path.

    Raises OSError.
    """
    remove_directory(fs, path)
    # Files of an earlier run must not reappear beside those of this one.
    fs.sync_directory(path)
    fs.make_directory_durably(_directory(path))
    return _directory(path)


def remove_directory(fs: FileSystem, path: str) -> None:
    """Remove the files that a compaction run has left. Raises OSError."""
    if fs.is_directory(_directory(path)):
        fs.remove_tree(_directory(path))


def _bring_in(fs: FileSystem, path: str, base_offset: int) -> None:
    stem = layout.segment_stem(base_offset)
    for suffix in layout.SEGMENT_SUFFIXES:
        new_path = f"{_directory(path)}/{stem}{suffix}"
        if fs.exists(new_path):
            fs.rename(new_path, f"{path}/{stem}{suffix}")


def _directory(path: str) -> str:
    return f"{path}/{layout.COMPACTION_DIRECTORY}"


def _note_path(path: str, compacted: CompactedSegment) -> str:
    name = layout.swap_name(compacted.base_offset, compacted.replaced[-1])
    return f"{_directory(path)}/{name}"
