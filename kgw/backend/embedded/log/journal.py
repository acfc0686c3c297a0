"""The redo journal: one sync makes small appends to many partitions durable.

It has two files, which are filled with zeros once and then reused, so that a sync writes no file
metadata. A group of appends is one frame, which begins at a page boundary. A frame has a table with
the target segment and position of each entry, followed by the bytes of the entries. The same bytes
are already in the segments, but not synced. When the segments of a journal file have been synced,
the file gets a new generation. Then its old frames are void, and the file is reused.

Frame header, 40 bytes: magic 4s, entry count u32, generation u64, number in the generation u64,
payload bytes u64, CRC-32C of the payload u32, CRC-32C of the 36 bytes before it u32. A file begins
with a page that has such a header without a payload. Frames of the file are valid only if they have
the generation in this header. Entry, 48 bytes: topic id 16s, partition i32, kind u32, segment's
base offset i64, position u64, size u64 (kind 0: bytes to write; kind 1: the partition was deleted,
so ignore its earlier entries).
"""

from __future__ import annotations

import errno
from operator import itemgetter
from os import urandom
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded.files.durability import sync_file
from kgw.records.crc import KEEP_GIL, crc32c
from kgw.types import PartitionKey, TopicId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kgw.backend.embedded.files.fs import File, FileSystem
    from kgw.types import Buffer

PAGE_BYTES: Final = 4096
FILE_NAMES: Final = ("0.journal", "1.journal")
_FRAME_MAGIC: Final = b"kgwF"
_FILE_MAGIC: Final = b"kgwJ"
_HEADER: Final = Struct(">4sIQQQI")
_CRC: Final = Struct(">I")
_HEADER_BYTES: Final = _HEADER.size + _CRC.size
_ENTRY: Final = Struct(">16siIqQQ")
_KIND_WRITE: Final = 0
_KIND_DELETED: Final = 1
_ZERO_PAGE: Final = bytes(PAGE_BYTES)
_PREWRITE_BYTES: Final = 1 << 20


class Redo(NamedTuple):
    """An entry: bytes, and their position in a segment."""

    key: PartitionKey
    segment_base_offset: int
    position: int
    buffers: Sequence[Buffer]
    size_bytes: int


class JournalFindings(NamedTuple):
    """The content of the journal after an unclean stop."""

    redos: Iterable[Redo]
    """Entries in the order in which they were written, without deleted partitions. They are read
    frame by frame, because two files of 16 MB can hold 290,000 entries."""
    problems: list[str]


class _Frame(NamedTuple):
    """An intact frame and its position."""

    path: str
    position: int
    header: _Header
    deleted: list[tuple[int, PartitionKey]]
    """Deleted partitions in the frame, each with the number of its entry."""

    @property
    def order(self) -> tuple[int, int]:
        return self.header.generation, self.header.number


class _Header(NamedTuple):
    magic: bytes
    entry_count: int
    generation: int
    number: int
    payload_bytes: int
    payload_crc: int


class Journal:
    """Frames in two alternating files. One thread appends; another may retire the other file."""

    def __init__(self, fs: FileSystem, directory: str, file_bytes: int) -> None:
        self._fs = fs
        self._directory = directory
        self._file_bytes = -(-file_bytes // PAGE_BYTES) * PAGE_BYTES
        self._files: list[File] = []
        self._free = [False, False]
        self._active = 0
        self._has_ended = False
        self._generation = 0
        self._number = 0
        self._position = 0

    @property
    def is_ready(self) -> bool:
        """Whether frames can be appended: the files are prepared and no sync has failed."""
        return bool(self._files) and not self._has_ended

    @property
    def has_free_file(self) -> bool:
        """Whether `switch` can be called now."""
        return self.is_ready and self._free[1 - self._active]

    def end(self) -> None:
        """Accept no more frames until the next start, because a sync has failed.

        Otherwise the next start could find a broken frame before later frames, and report damage.
        """
        self._has_ended = True

    def recover(self) -> JournalFindings:
        """Read every frame that is not void. Raises OSError."""
        problems: list[str] = []
        frames: list[_Frame] = []
        for name in FILE_NAMES:
            path = f"{self._directory}/{name}"
            if not self._fs.exists(path):
                continue
            frames += _read_frames(self._fs.read_bytes(path), path, name, problems)
        frames.sort(key=lambda frame: frame.order)
        # The last deletion of each partition.
        deleted = {key: (*frame.order, number) for frame in frames for number, key in frame.deleted}
        return JournalFindings(_read_redos(self._fs, frames, deleted), problems)

    def void(self) -> None:
        """Make every frame void, durably. The caller has synced all segments. Raises OSError.

        The older file is made void first, because the newer file may record the deletion of a
        partition that has entries in the older file.
        """
        opened: list[tuple[int, File]] = []
        try:
            for name in FILE_NAMES:
                path = f"{self._directory}/{name}"
                if self._fs.exists(path):
                    file = self._fs.open(path)
                    opened.append((_read_generation(file), file))
            generation = _new_generation()
            for _, file in sorted(opened, key=itemgetter(0)):
                self._write_file_header(file, generation)
                generation += 1
        finally:
            for _, file in opened:
                file.close()

    def prepare(self) -> None:
        """Create missing files and start to use the journal. Raises OSError."""
        files: list[File] = []
        generation = _new_generation()
        try:
            for number, name in enumerate(FILE_NAMES):
                file = self._fs.open(f"{self._directory}/{name}", create=True)
                files.append(file)
                if file.size() != self._file_bytes:
                    self._write_zeros(file)
                self._write_file_header(file, generation + number)
            # Sync even if the files exist, because the start that created them may have ended
            # before its sync.
            self._fs.sync_directory(self._directory)
        except OSError:
            for file in files:
                file.close()
            raise
        self._generation = generation
        self._active = 0
        self._free = [False, True]
        self._number = 0
        self._position = PAGE_BYTES
        self._files = files

    def _write_zeros(self, file: File) -> None:
        """Allocate every block on the disk, so that a later sync has no metadata to write."""
        file.truncate(0)
        zeros = bytes(_PREWRITE_BYTES)
        for position in range(0, self._file_bytes, _PREWRITE_BYTES):
            file.pwrite((zeros[: self._file_bytes - position],), position)
        file.fdatasync()

    def _write_file_header(self, file: File, generation: int) -> None:
        _write_page(file, generation)
        file.fdatasync()

    def has_room(self, entry_count: int, size_bytes: int) -> bool:
        """Return whether a frame with this many entries and bytes fits into the active file."""
        frame_bytes = _HEADER_BYTES + entry_count * _ENTRY.size + size_bytes
        return self._position + frame_bytes <= self._file_bytes

    def switch(self) -> int:
        """Continue in the other file; return the number of the file that must be retired."""
        full = self._active
        self._active = 1 - full
        self._free[self._active] = False
        self._generation += 1
        self._number = 0
        self._position = PAGE_BYTES
        return full

    def retire(self, number: int) -> None:
        """Make the inactive file usable again. The caller has synced its segments.

        The new generation is durable before any new frame is written, so that old frames never look
        valid. Raises OSError if the generation could not be written, after which the caller may
        retry, and SyncFailedError if the content of the disk is unknown.
        """
        # `_generation` is that of the active file, so this file gets the next one.
        file = self._files[number]
        _write_page(file, self._generation + 1)
        sync_file(file)
        self._free[number] = True

    def append(self, redos: Sequence[Redo]) -> None:
        """Write a frame, without a sync. Raises OSError if the frame was not written."""
        table: list[bytes] = []
        buffers: list[Buffer] = []
        for (topic_id, partition), base_offset, position, data, size_bytes in redos:
            table.append(
                _ENTRY.pack(topic_id, partition, _KIND_WRITE, base_offset, position, size_bytes)
            )
            buffers += data
        self._write_frame(table, buffers)

    def append_deletion(self, key: PartitionKey) -> None:
        """Record the deletion of a partition, without a sync. Raises OSError."""
        self._write_frame([_ENTRY.pack(key.topic_id, key.partition, _KIND_DELETED, 0, 0, 0)], [])

    def _write_frame(self, table: list[bytes], buffers: list[Buffer]) -> None:
        entries = b"".join(table)
        payload_crc = crc32c(entries)
        payload_bytes = len(entries)
        for buffer in buffers:
            payload_crc = crc32c(buffer, payload_crc, KEEP_GIL)
            payload_bytes += len(buffer)
        header = _encode_header(
            _FRAME_MAGIC, len(table), self._generation, self._number, payload_bytes, payload_crc
        )
        padding = -(_HEADER_BYTES + payload_bytes) % PAGE_BYTES
        self._files[self._active].pwrite(
            [header + entries, *buffers, _ZERO_PAGE[:padding]], self._position
        )
        self._position += _HEADER_BYTES + payload_bytes + padding
        self._number += 1

    def sync(self) -> None:
        """Make the frames written so far durable. Raises OSError."""
        self._files[self._active].fdatasync()

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
        self._files = []


def _read_redos(
    fs: FileSystem,
    frames: Sequence[_Frame],
    deleted: Mapping[PartitionKey, tuple[int, int, int]],
) -> Iterator[Redo]:
    """Read the frames again; yield all entries that are not followed by their partition's deletion.

    `deleted` has the last deletion of each partition: generation, frame number, entry number.
    """
    files: dict[str, File] = {}
    try:
        for frame in frames:
            path, header = frame.path, frame.header
            if path not in files:
                files[path] = fs.open(path)
            payload = files[path].pread(header.payload_bytes, frame.position + _HEADER_BYTES)
            if crc32c(payload) != header.payload_crc:
                raise OSError(errno.EIO, "a frame is not what it was", path)
            for number, redo in _read_entries(header, memoryview(payload)):
                deletion = deleted.get(redo.key)
                if deletion is None or deletion < (*frame.order, number):
                    yield redo
    finally:
        for file in files.values():
            file.close()


def _write_page(file: File, generation: int) -> None:
    """Write the first page of a file, without a sync."""
    page = _encode_header(_FILE_MAGIC, 0, generation, 0, 0, 0).ljust(PAGE_BYTES, b"\0")
    file.pwrite((page,), 0)


def _read_generation(file: File) -> int:
    """Return the generation in a file's first page, -1 if the page cannot be read."""
    header = _decode_header(memoryview(file.pread(PAGE_BYTES, 0)), 0)
    return -1 if header is None else header.generation


def _new_generation() -> int:
    """Return a number that no frame has and no client can guess.

    Pages after the last frame contain old bytes that clients sent. A client that cannot guess the
    generation cannot send bytes that pass for a frame.
    """
    return int.from_bytes(urandom(7), "big") + 1


def _encode_header(
    magic: bytes, entry_count: int, generation: int, number: int, size_bytes: int, crc: int
) -> bytes:
    header = _HEADER.pack(magic, entry_count, generation, number, size_bytes, crc)
    return header + _CRC.pack(crc32c(header))


def _decode_header(data: memoryview, position: int) -> _Header | None:
    if len(data) - position < _HEADER_BYTES:
        return None
    raw = data[position : position + _HEADER.size]
    if crc32c(raw) != _CRC.unpack_from(data, position + _HEADER.size)[0]:
        return None
    return _Header(*_HEADER.unpack(raw))


def _read_frames(content: bytes, path: str, name: str, problems: list[str]) -> list[_Frame]:
    """Return the valid frames of a file.

    If the last frame is broken, its group was never acknowledged. A broken frame before an intact
    one is damage, because the sync of the later frame made both durable.
    """
    data = memoryview(content)
    file_header = _decode_header(data, 0)
    frames: list[_Frame] = []
    generation: int | None = None
    if file_header is None or file_header.magic != _FILE_MAGIC:
        # Without the first page, the valid generation is unknown. Use the generation of the first
        # frame: frames of an older generation only repeat bytes that the segments already have.
        if any(data[:PAGE_BYTES]):
            problems.append(f"journal/{name}: the first page is damaged")
    else:
        generation = file_header.generation
    expected = 0
    position = PAGE_BYTES
    while position < len(data):
        header = _decode_header(data, position)
        start = position
        position += PAGE_BYTES
        if header is None or header.magic != _FRAME_MAGIC or header.number < expected:
            continue
        if generation is None:
            generation = header.generation
        elif header.generation != generation:
            continue
        payload_start = start + _HEADER_BYTES
        payload = data[payload_start : payload_start + header.payload_bytes]
        whole = len(payload) == header.payload_bytes and crc32c(payload) == header.payload_crc
        if not whole:
            continue
        if header.number > expected:
            problems.append(f"journal/{name}: frames {expected} to {header.number - 1} are damaged")
        frames.append(_Frame(path, start, header, _read_deletions(header, payload)))
        expected = header.number + 1
        position = start + -(-(_HEADER_BYTES + header.payload_bytes) // PAGE_BYTES) * PAGE_BYTES
    return frames


def _read_deletions(header: _Header, payload: memoryview) -> list[tuple[int, PartitionKey]]:
    table = _ENTRY.iter_unpack(payload[: header.entry_count * _ENTRY.size])
    return [
        (number, PartitionKey(TopicId(topic_id), partition))
        for number, (topic_id, partition, kind, *_) in enumerate(table)
        if kind == _KIND_DELETED
    ]


def _read_entries(header: _Header, payload: memoryview) -> Iterator[tuple[int, Redo]]:
    """Yield the entries with bytes, each with its number in the frame."""
    data_position = header.entry_count * _ENTRY.size
    table = _ENTRY.iter_unpack(payload[:data_position])
    for number, (topic_id, partition, kind, base_offset, position, size_bytes) in enumerate(table):
        if kind == _KIND_DELETED:
            continue
        key = PartitionKey(TopicId(topic_id), partition)
        data = payload[data_position : data_position + size_bytes]
        yield number, Redo(key, base_offset, position, [data], size_bytes)
        data_position += size_bytes
