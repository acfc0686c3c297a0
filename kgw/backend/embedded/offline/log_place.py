"""The logs of a data directory that no server uses, as `kgw log copy` reads and writes them.

Segments and side files are written in the server's format. Batches without a side entry are not
part of the log yet: an interrupted copy continues before them.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.log.log_state import read_log_state, write_log_state
from kgw.backend.embedded.log.side import ENTRY_BYTES, decode_entry, encode_batches
from kgw.backend.embedded.log.snapshots import read_snapshot, write_snapshot
from kgw.backend.embedded.offline.dump import DumpedBatch, DumpedDamage, dump_segment
from kgw.backend.embedded.offline.opening import locked_target, opened_state
from kgw.backend.log_copy import LogFacts, LogPlace
from kgw.errors import CorruptionError, DataDirectoryError, StorageError
from kgw.state.kinds import TOPIC
from kgw.types import NO_TIMESTAMP_MS, format_uuid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from kgw.backend.base import Snapshot
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.records.batch import RecordBatch
    from kgw.types import PartitionKey

_SEGMENT_BYTES: Final = 1 << 30
_GROUP_BYTES: Final = 4 << 20


@asynccontextmanager
async def opened_source(data_dir: str) -> AsyncIterator[DirectoryLogs]:
    """Lock a directory that was stopped orderly, or that no server has used yet.

    Raises DataDirectoryError.
    """
    async with opened_state(data_dir) as state:
        fs = RealFs()
        markers = (layout.CLEAN_NAME, layout.COPIED_NAME)
        if not any(fs.exists(f"{data_dir}/{name}") for name in markers):
            raise DataDirectoryError(
                f"the server of {data_dir} was not stopped in order: start and stop it once first"
            )
        yield DirectoryLogs(fs, data_dir, frozenset(await state.load(TOPIC)))


@asynccontextmanager
async def opened_target(data_dir: str) -> AsyncIterator[DirectoryLogs]:
    """Lock a directory, which is created if it is missing. Raises DataDirectoryError."""
    fs = RealFs()
    async with locked_target(fs, data_dir):
        partitions = f"{data_dir}/{layout.PARTITIONS_DIRECTORY}"
        await asyncio.to_thread(fs.make_directory_durably, partitions)
        await asyncio.to_thread(_remove_markers, fs, data_dir)
        yield DirectoryLogs(fs, data_dir, frozenset())
        if not fs.exists(f"{data_dir}/{layout.JOURNAL_DIRECTORY}"):
            # No server has used the directory yet: it only has copied records, which are durable.
            copied = layout.encode_small({"format": layout.FORMAT_VERSION})
            await asyncio.to_thread(fs.replace_durably, f"{data_dir}/{layout.COPIED_NAME}", copied)


def _remove_markers(fs: FileSystem, data_dir: str) -> None:
    """Remove the markers of a complete directory, because records will be written now."""
    for name in (layout.CLEAN_NAME, layout.COPIED_NAME):
        if fs.exists(f"{data_dir}/{name}"):
            fs.unlink(f"{data_dir}/{name}")
            fs.sync_directory(data_dir)


class DirectoryLogs(LogPlace):
    """The logs of one directory, which the caller has locked."""

    def __init__(self, fs: FileSystem, data_dir: str, known: frozenset[str]) -> None:
        """`known` are the ids of the topics that the directory's state has."""
        self._fs = fs
        self._partitions = f"{data_dir}/{layout.PARTITIONS_DIRECTORY}"
        self._known = known

    async def logs(self) -> list[LogFacts]:
        return await asyncio.to_thread(lambda: list(self._logs()))

    async def batches(self, key: PartitionKey, from_offset: int) -> AsyncIterator[RecordBatch]:
        found = self._batches(key, from_offset)
        while True:
            group = await asyncio.to_thread(_take, found)
            if not group:
                return
            for batch in group:
                yield batch

    async def begin(self, facts: LogFacts) -> int | None:
        return await asyncio.to_thread(self._begin, facts)

    async def append(self, key: PartitionKey, batches: Sequence[RecordBatch]) -> None:
        await asyncio.to_thread(self._append, key, batches)

    async def finish(self, facts: LogFacts) -> None:
        await asyncio.to_thread(self._finish, facts)

    # --- reading ---------------------------------------------------------------------------------

    def _path(self, key: PartitionKey) -> str:
        return f"{self._partitions}/{key}"

    def _logs(self) -> Iterator[LogFacts]:
        fs = self._fs
        for key in layout.partition_keys(fs.listdir(self._partitions)):
            if format_uuid(key.topic_id) not in self._known:
                continue
            path = self._path(key)
            identity = self._identity(key)
            found = read_log_state(fs, path)
            if found.state is None:
                raise DataDirectoryError(f"{path}: its state is lost; see `kgw log check`")
            state = found.state
            names = fs.listdir(path)
            bases = layout.segment_bases(names)
            size_bytes = sum(
                fs.file_size(self._segment(key, base_offset, layout.LOG_SUFFIX))
                for base_offset in bases
            )
            end_offset = state.log_start_offset
            if bases:
                end_offset = max(end_offset, bases[-1], self._last_end(key, bases[-1]))
            yield LogFacts(
                identity.topic,
                key,
                state.log_start_offset,
                end_offset,
                size_bytes,
                state.epochs,
                state.compacted_end,
                state.recompressed,
                self._snapshot(path, names, end_offset),
                tuple((gap.start_offset, gap.end_offset) for gap in state.gaps),
            )

    def _identity(self, key: PartitionKey) -> layout.PartitionIdentity:
        """Return the identity in a partition's directory.

        Raises CorruptionError if the identity is missing, damaged or another partition's.
        """
        path = f"{self._path(key)}/{layout.PARTITION_NAME}"
        try:
            identity = layout.decode_partition(self._fs.read_bytes(path))
        except FileNotFoundError:
            raise CorruptionError(f"{path}: is missing") from None
        except layout.SmallFileError as error:
            raise CorruptionError(f"{path}: {error}") from error
        if identity.key != key:
            raise CorruptionError(
                f"{self._path(key)}: its files are not those of partition {key}, but of "
                f"partition {identity.key}"
            )
        return identity

    def _snapshot(self, path: str, names: list[str], end_offset: int) -> Snapshot | None:
        offsets = (layout.parse_stem(name, layout.SNAPSHOT_SUFFIX) for name in names)
        for offset in sorted((one for one in offsets if one is not None), reverse=True):
            found = read_snapshot(self._fs, path, offset)
            if found is not None and offset <= end_offset:
                return found
        return None

    def _segment(self, key: PartitionKey, base_offset: int, suffix: str) -> str:
        return f"{self._path(key)}/{layout.segment_stem(base_offset)}{suffix}"

    def _last_end(self, key: PartitionKey, base_offset: int) -> int:
        """Return the offset after a segment's last intact batch."""
        end_offset = base_offset
        for one in dump_segment(self._segment(key, base_offset, layout.LOG_SUFFIX), self._fs):
            if not isinstance(one, DumpedDamage) and _is_intact(one):
                end_offset = one.batch.next_offset
        return end_offset

    def _batches(self, key: PartitionKey, from_offset: int) -> Iterator[RecordBatch]:
        bases = layout.segment_bases(self._fs.listdir(self._path(key)))
        for number, base_offset in enumerate(bases):
            if number + 1 < len(bases) and bases[number + 1] <= from_offset:
                continue
            path = self._segment(key, base_offset, layout.LOG_SUFFIX)
            for one in dump_segment(path, self._fs):
                if isinstance(one, DumpedDamage):
                    raise CorruptionError(f"{path}: position {one.position}: {one.detail}")
                if not _is_intact(one):
                    raise CorruptionError(
                        f"{path}: the batch at position {one.position} is damaged"
                    )
                if one.batch.next_offset > from_offset:
                    yield one.batch

    # --- writing ---------------------------------------------------------------------------------

    def _begin(self, facts: LogFacts) -> int | None:
        fs, path = self._fs, self._path(facts.key)
        fs.make_directory_durably(path)
        if fs.exists(f"{path}/{layout.PARTITION_NAME}"):
            self._identity(facts.key)
        identity = layout.PartitionIdentity(facts.topic, facts.key)
        fs.replace_durably(f"{path}/{layout.PARTITION_NAME}", layout.encode_partition(identity))
        bases = layout.segment_bases(fs.listdir(path))
        while bases:
            entry = self._cut(facts.key, bases[-1])
            if entry is not None:
                return entry
            for suffix in layout.SEGMENT_SUFFIXES:
                name = self._segment(facts.key, bases[-1], suffix)
                if fs.exists(name):
                    fs.unlink(name)
            bases.pop()
        return None

    def _cut(self, key: PartitionKey, base_offset: int) -> int | None:
        """Cut off batches without a side entry; return the end offset, None if none is left."""
        side_path = self._segment(key, base_offset, layout.SIDE_SUFFIX)
        if not self._fs.exists(side_path):
            return None
        side = self._fs.read_bytes(side_path)
        count = len(side) // ENTRY_BYTES
        entry = None
        while count and entry is None:
            count -= 1
            entry = decode_entry(side, count * ENTRY_BYTES)
        if entry is None:
            return None
        _truncate(self._fs, side_path, (count + 1) * ENTRY_BYTES)
        log_path = self._segment(key, base_offset, layout.LOG_SUFFIX)
        _truncate(self._fs, log_path, entry.end_position)
        return self._last_end(key, base_offset)

    def _append(self, key: PartitionKey, batches: Sequence[RecordBatch]) -> None:
        fs, path = self._fs, self._path(key)
        size_bytes = sum(batch.size_bytes for batch in batches)
        bases = layout.segment_bases(fs.listdir(path))
        position, largest_timestamp_ms = 0, NO_TIMESTAMP_MS
        base_offset = batches[0].base_offset
        if bases:
            side = fs.read_bytes(self._segment(key, bases[-1], layout.SIDE_SUFFIX))
            last = decode_entry(side, len(side) - ENTRY_BYTES)
            if last is None:
                raise StorageError(f"{path}: the side file of its last segment is damaged")
            if last.end_position + size_bytes <= _SEGMENT_BYTES:
                position, largest_timestamp_ms = last.end_position, last.largest_timestamp_ms
                base_offset = bases[-1]
        entries, _ = encode_batches(batches, position, largest_timestamp_ms)
        _write(
            fs,
            self._segment(key, base_offset, layout.LOG_SUFFIX),
            position,
            [batch.buffer for batch in batches],
        )
        side_path = self._segment(key, base_offset, layout.SIDE_SUFFIX)
        side_position = fs.file_size(side_path) if position else 0
        _write(fs, side_path, side_position, [entries])
        fs.sync_directory(path)

    def _finish(self, facts: LogFacts) -> None:
        path = self._path(facts.key)
        state = layout.LogState(
            facts.log_start_offset,
            facts.epochs,
            compacted_end=facts.compacted_end,
            recompressed=facts.recompressed,
        )
        write_log_state(
            self._fs, path, state, {layout.EPOCHS_NAME: layout.encode_epochs(facts.epochs)}
        )
        if facts.snapshot is not None:
            write_snapshot(self._fs, path, facts.snapshot)


def _take(batches: Iterator[RecordBatch]) -> list[RecordBatch]:
    taken: list[RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        taken.append(batch)
        size_bytes += batch.size_bytes
        if size_bytes >= _GROUP_BYTES:
            break
    return taken


def _is_intact(one: DumpedBatch) -> bool:
    return one.crc_matches and one.header_matches is not False


def _write(fs: FileSystem, path: str, position: int, buffers: Sequence[memoryview | bytes]) -> None:
    with closing(fs.open(path, create=True)) as file:
        file.truncate(position)
        file.pwrite(buffers, position)
        file.fdatasync()


def _truncate(fs: FileSystem, path: str, size_bytes: int) -> None:
    with closing(fs.open(path)) as file:
        if file.size() > size_bytes:
            file.truncate(size_bytes)
            file.fdatasync()
