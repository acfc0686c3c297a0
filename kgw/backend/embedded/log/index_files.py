"""Appends new entries to the index files of a segment."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.log.indexes import IndexBuilder
from kgw.records.batch import HEADER_BYTES, read_header
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.indexes import GatheredIndex
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.side import SideEntry

_GATHERED_BYTES: Final = 64 << 10
"""The most bytes of index entries in memory. With index.interval.bytes=0, the indexes have an entry
for every batch."""
_CHUNK_ENTRIES: Final = 128
"""Number of side entries between two calls of `rest`. They take 0.2 ms, during which the event loop
does not get the interpreter."""


def write_indexes(
    fs: FileSystem,
    segment: Segment,
    interval_bytes: int,
    *,
    is_final: bool,
    rest: Callable[[], None] | None = None,
) -> None:
    """Bring a segment's index files up to date with its side file.

    Unless `is_final`, the newest batch is left out, because its last offset is not known before the
    next batch. `rest` is called between two reads of side entries. Raises OSError,
    SideFileDamagedError.
    """
    builder = segment.index_builder
    is_new = builder is None
    if builder is None:
        builder = segment.index_builder = IndexBuilder(segment.base_offset)
    before: SideEntry | None = None
    index = builder.done
    while True:
        entries = segment.read_entries(index, _CHUNK_ENTRIES)
        for entry in entries:
            if before is not None:
                builder.add(before, entry.base_offset - 1, interval_bytes)
            before = entry
        index += len(entries)
        if len(builder.offsets.entries) + len(builder.times.entries) > _GATHERED_BYTES:
            _write_gathered(fs, segment, builder, is_new=is_new)
            is_new = False
        if len(entries) < _CHUNK_ENTRIES:
            break
        if rest is not None:
            rest()
    if is_final:
        if before is not None:
            last_offset = _last_offset(segment, before)
            if last_offset is not None:
                builder.add(before, last_offset, interval_bytes)
        builder.add_time()
    _write_gathered(fs, segment, builder, is_new=is_new)


def _write_gathered(
    fs: FileSystem, segment: Segment, builder: IndexBuilder, *, is_new: bool
) -> None:
    for suffix, index in (
        (layout.OFFSET_INDEX_SUFFIX, builder.offsets),
        (layout.TIME_INDEX_SUFFIX, builder.times),
    ):
        if index.entries or is_new:
            _append(fs, segment.stem_path + suffix, index)


def _last_offset(segment: Segment, entry: SideEntry) -> int | None:
    try:
        return read_header(segment.read_bytes(entry.position, HEADER_BYTES)).last_offset
    except RecordError:
        return None


def _append(fs: FileSystem, path: str, index: GatheredIndex) -> None:
    """Append the gathered entries to an index file."""
    with closing(fs.open(path, create=True)) as file:
        if file.size() != index.written_bytes:
            file.truncate(index.written_bytes)
        if index.entries:
            file.pwrite((bytes(index.entries),), index.written_bytes)
    index.written_bytes += len(index.entries)
    index.entries.clear()
