"""Putting a compacted segment in the place of those that it was made from, crash-safe.

The new files lie, durable, in the partition's `compaction` directory. A note beside them, written
durably, is the point of no return: with it, recovery finishes the exchange; without it, recovery
removes the directory. Every step may be interrupted and repeated. What the directory still holds
has not been exchanged yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import (
    SyncFailedError,
    replace_durably,
    storage_error,
    sync_directory,
)
from kgw.backend.embedded.segment import Segment
from kgw.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.fs import FileSystem
    from kgw.backend.embedded.log import DataDirectory, SegmentedLog
    from kgw.backend.embedded.store import Store


class CleanedSegment(NamedTuple):
    """A segment in the `compaction` directory, complete and durable."""

    base_offset: int
    replaced: tuple[int, ...]
    """Base offsets of the segments that it stands for; the first one's is its own."""
    size_bytes: int
    entry_count: int
    largest_timestamp_ms: int


def swap_segment(store: Store, log: SegmentedLog, cleaned: CleanedSegment) -> list[str]:
    """Put a cleaned segment in its place: the flusher's work, beside no checkpoint or rebuilding.

    Returns the old files, to be removed after the log's `delete_delay_ms`; nothing happens when
    some of the old segments have been dropped meanwhile. The stored checkpoint must name a later
    segment. Raises StorageError.
    """
    store.check_writable()
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    if log.is_deleted or cleaned.base_offset not in bases:
        return []
    start = bases.index(cleaned.base_offset)
    end = start + len(cleaned.replaced)
    if bases[start:end] != list(cleaned.replaced) or end >= len(segments):
        return []
    fs = store.fs
    note_path = _note_path(log.path, cleaned.base_offset)
    try:
        # First the new files' names: the note must not outlive them.
        sync_directory(fs, _directory(log.path))
        note = layout.encode_small({"replaced": cleaned.replaced})
        replace_durably(fs, note_path, note)
    except OSError as error:
        raise storage_error(error, f"cannot compact partition {log.key}") from error
    except SyncFailedError as error:
        store.fail(error)
        raise StorageError(str(error)) from error
    aside: list[str] = []
    try:
        for segment in segments[start:end]:
            aside += segment.set_aside(fs)
        _bring_in(fs, log.path, cleaned.base_offset)
        new = Segment(log.path, cleaned.base_offset, store.pool)
        new.size_bytes = cleaned.size_bytes
        new.side = (cleaned.entry_count, b"")
        new.largest_timestamp_ms = cleaned.largest_timestamp_ms
        new.begun_ms = segments[start].begun_ms
        store.forget_segments(log, segments[start:end])
        log.segments = (*segments[:start], new, *segments[end:])
        sync_directory(fs, log.path)
        fs.unlink(note_path)
    except (OSError, SyncFailedError) as error:
        # The next start finishes it.
        store.fail(error)
        raise StorageError(str(error)) from error
    return aside


def finish_swaps(directory: DataDirectory, path: str) -> None:
    """Finish what a crash has interrupted in a partition's directory, or take it back.

    Raises OSError, SyncFailedError.
    """
    fs = directory.fs
    if not fs.is_directory(_directory(path)):
        return
    for base_offset, replaced in read_notes(fs, path, directory.report):
        for other in replaced:
            if other != base_offset:
                Segment(path, other, directory.pool).unlink(fs)
        _bring_in(fs, path, base_offset)
    sync_directory(fs, path)
    remove_directory(fs, path)


def read_notes(
    fs: FileSystem, path: str, report: Callable[[str], None]
) -> list[tuple[int, list[int]]]:
    """Return base offset and replaced segments of each exchange that was begun."""
    notes: list[tuple[int, list[int]]] = []
    for name in fs.listdir(_directory(path)):
        base_offset = layout.parse_stem(name, layout.SWAP_SUFFIX)
        if base_offset is None:
            continue
        try:
            fields = layout.decode_small(fs.read_bytes(f"{_directory(path)}/{name}"))
            notes.append((base_offset, [int(one) for one in fields["replaced"]]))
        except (layout.SmallFileError, KeyError, TypeError, ValueError) as error:
            report(f"{_directory(path)}/{name}: {error}; taken back")
    return notes


def begin_directory(fs: FileSystem, path: str) -> str:
    """Make the empty directory for a partition's new segments and return its path.

    Raises OSError.
    """
    remove_directory(fs, path)
    # What an earlier run has left must not come back beside the files of this one.
    fs.sync_directory(path)
    fs.make_directory_durably(_directory(path))
    return _directory(path)


def remove_directory(fs: FileSystem, path: str) -> None:
    """Remove what is left of a run of compaction. Raises OSError."""
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


def _note_path(path: str, base_offset: int) -> str:
    return f"{_directory(path)}/{layout.segment_stem(base_offset)}{layout.SWAP_SUFFIX}"
