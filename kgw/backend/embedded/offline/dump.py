"""Lists the batches in a segment file, for `kgw log dump`."""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.log.side import ENTRY_BYTES, decode_entry
from kgw.backend.embedded.recover.scan import find_batches
from kgw.records.batch import HEADER_BYTES, PREFIX_BYTES, RecordBatch, read_batch, read_header
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.backend.embedded.files.fs import File, FileSystem


class DumpedBatch(NamedTuple):
    """A batch in a file. `kgw.records.reader.read_records(batch)` reads its records."""

    position: int
    batch: RecordBatch
    crc_matches: bool
    header_matches: bool | None
    """Whether the header matches its checksum in the side file; None without an entry for the
    batch."""


class DumpedDamage(NamedTuple):
    """A range of a file in which no batch can be read."""

    position: int
    size_bytes: int
    detail: str


def dump_segment(
    path: str, fs: FileSystem | None = None, *, skip_damaged: bool = False
) -> Iterator[DumpedBatch | DumpedDamage]:
    """Yield the batches of a `.log` file.

    Positions are calculated from the lengths in the headers. If there is no batch at a position, a
    DumpedDamage is yielded. After it the dump ends, or with `skip_damaged` continues at the next
    intact batch. Raises OSError; ValueError for a file that is no segment.
    """
    fs = fs or RealFs()
    name = path.rpartition("/")[2]
    if layout.parse_stem(name, layout.LOG_SUFFIX) is None:
        raise ValueError(f"{path} is not a segment: a name of 20 digits and .log is expected")
    crcs = _header_crcs(fs, path.removesuffix(layout.LOG_SUFFIX) + layout.SIDE_SUFFIX)
    with closing(fs.open(path)) as file:
        yield from _batches(file, crcs, skip_damaged=skip_damaged)


def _batches(
    file: File, crcs: dict[int, int], *, skip_damaged: bool
) -> Iterator[DumpedBatch | DumpedDamage]:
    from kgw.records.crc import crc32c

    size_bytes = file.size()
    position = 0
    while position < size_bytes:
        try:
            header = file.pread(HEADER_BYTES, position)
            length = read_header(header).batch_length + PREFIX_BYTES
            batch = read_batch(file.pread(min(length, size_bytes - position), position))
        except RecordError as error:
            resumed = _next_batch(file, position + 1, crcs) if skip_damaged else None
            end = size_bytes if resumed is None else resumed
            yield DumpedDamage(position, end - position, str(error))
            position = end
            continue
        known = crcs.get(position)
        header_matches = None if known is None else crc32c(header) == known
        yield DumpedBatch(position, batch, batch.crc_matches(), header_matches)
        position += batch.size_bytes


def _next_batch(file: File, position: int, crcs: dict[int, int]) -> int | None:
    """Return the position of the next intact batch at or after `position`, or None.

    Tries the batch positions in the side file first, then searches the bytes.
    """
    known = sorted(one for one in crcs if one >= position)
    return next(
        (one for one in chain(known, find_batches(file, position)) if _is_batch(file, one)), None
    )


def _is_batch(file: File, position: int) -> bool:
    """Return whether there is an intact batch at the position, by its CRC."""
    try:
        length = read_header(file.pread(HEADER_BYTES, position)).batch_length + PREFIX_BYTES
        if length > file.size() - position:
            return False
        return read_batch(file.pread(length, position)).crc_matches()
    except RecordError:
        return False


def _header_crcs(fs: FileSystem, path: str) -> dict[int, int]:
    """Return the header checksums in a side file, by position."""
    if not fs.exists(path):
        return {}
    data = fs.read_bytes(path)
    entries = (decode_entry(data, place) for place in range(0, len(data), ENTRY_BYTES))
    return {entry.position: entry.header_crc for entry in entries if entry is not None}


def segment_paths(data_dir: str, fs: FileSystem | None = None) -> list[str]:
    """Return the segment files of a data directory, by partition and offset."""
    fs = fs or RealFs()
    root = f"{data_dir}/{layout.PARTITIONS_DIRECTORY}"
    paths: list[str] = []
    for key in layout.partition_keys(fs.listdir(root)):
        paths += [
            f"{root}/{key}/{layout.segment_stem(base_offset)}{layout.LOG_SUFFIX}"
            for base_offset in layout.segment_bases(fs.listdir(f"{root}/{key}"))
        ]
    return paths
