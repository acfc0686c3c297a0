"""Reads one partition's files: finds the chunks for an offset or a time."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import HOT_BATCHES, ReadResult
from kgw.backend.seaweedmq.chunks import ChunkPlace
from kgw.backend.seaweedmq.entries.layouts import decode
from kgw.backend.seaweedmq.filer import FilerError
from kgw.backend.seaweedmq.state.in_order import in_order
from kgw.errors import CorruptionError, StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from kgw.backend.base import BatchLook, FoundT
    from kgw.backend.seaweedmq.chain import Chain, ChainFile
    from kgw.backend.seaweedmq.entries.layouts import DecodedChunk
    from kgw.backend.seaweedmq.shell import Shell
    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer, PartitionKey

_JOIN_ABOVE: Final = 16
"""A response with more buffers than this is sent faster if they are first copied into one."""
_ATTEMPTS: Final = 8
"""Number of attempts of a read; it starts again if files were removed or rewritten meanwhile."""
_CHUNKS_OF_A_READ: Final = 128
"""The most chunks of one read. If each chunk is a small append, a read of `max_bytes` would take
seconds."""
_READS_AT_ONCE: Final = 4
"""The number of chunks that are read at a time for a run that rewrites files."""


class VerifiedChunk(NamedTuple):
    """An undamaged chunk of a sealed file."""

    place: ChunkPlace
    data: bytes
    decoded: DecodedChunk


class FilesChangedError(Exception):
    """Files cannot be replaced, because they were dropped meanwhile or a run holds them.

    Nothing was changed.
    """


class LogReader:
    """Reads the files of one chain."""

    def __init__(self, key: PartitionKey, chain: Chain, shell: Shell) -> None:
        self._key = key
        self._chain = chain
        self._shell = shell
        self._read_end = -1
        """The end offset of the last uncached read. A read that begins there is sequential, so more
        reads will probably follow."""

    async def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool
    ) -> ReadResult:
        """Read as `PartitionLog.read`; the result is empty beyond the end of the log."""
        buffers: list[Buffer] = []
        size_bytes = 0
        next_offset = offset
        is_cut = False
        goes_on = offset == self._read_end
        chunks_left = _CHUNKS_OF_A_READ
        asked_end = offset
        while next_offset < upper_bound and chunks_left:
            place = None
            try:
                place = await self._find(next_offset)
                if place is None or place.base_offset > next_offset:
                    break
                asked_end = await self._fetch_ahead(
                    place,
                    max_bytes - size_bytes,
                    upper_bound,
                    chunks_left,
                    asked_end,
                    goes_on=goes_on,
                )
                decoded = await self._get(place)
                chunks_left -= 1
            except StorageError:
                if buffers:
                    break
                if place is not None and self._number_of(place.file) is None:
                    continue
                raise
            batches = decoded.batches
            is_full = False
            for number in range(decoded.place_of(next_offset), len(batches)):
                batch = batches[number]
                if batch.base_offset > next_offset >= place.base_offset:
                    break  # the offsets before it are damaged
                if batch.next_offset > upper_bound:
                    is_full = True
                    break
                if size_bytes + len(batch.buffer) > max_bytes and (buffers or not at_least_one):
                    is_full = True
                    break
                if len(buffers) >= HOT_BATCHES:
                    is_full = is_cut = True
                    break
                buffers.append(batch.buffer)
                size_bytes += len(batch.buffer)
                next_offset = batch.next_offset
            if is_full or (buffers and size_bytes >= max_bytes):
                break
            if next_offset < place.end_offset and next_offset < upper_bound:
                if not buffers:
                    raise self._damaged(place, decoded, next_offset)
                break
        self._read_end = next_offset
        is_cut = is_cut or (not chunks_left and next_offset < upper_bound)
        count = len(buffers)
        if count > _JOIN_ABOVE:
            buffers = [b"".join(buffers)]
        return ReadResult(buffers, size_bytes, next_offset, count, is_cut)

    async def replay(
        self, from_offset: int, upper_bound: int, timestamp_ms: int | None = None
    ) -> AsyncGenerator[RecordBatch]:
        """Yield every whole batch between two offsets, or only of chunks that reach a time.

        Raises CorruptionError, FilerError.
        """
        next_offset = from_offset
        while next_offset < upper_bound:
            place = await self._find(next_offset, timestamp_ms)
            if place is None or place.base_offset >= upper_bound:
                return
            if timestamp_ms is None:
                # A search by time usually ends in the first chunk.
                await self._fetch_ahead(place, 0, upper_bound, 1, 0, goes_on=True)
            decoded = await self._get_again(place)
            if decoded is None:
                continue
            damage = decoded.damage_from(next_offset)
            for batch in decoded.batches[decoded.place_of(next_offset) :]:
                if damage is not None and batch.base_offset >= damage.end_offset:
                    break
                if batch.base_offset >= upper_bound:
                    return
                yield batch
            if damage is not None and damage.start_offset < upper_bound:
                raise self._damaged(place, decoded, damage.start_offset)
            next_offset = place.end_offset

    async def find_by_time(
        self, timestamp_ms: int, lower_bound: int, upper_bound: int, look: BatchLook[FoundT]
    ) -> FoundT | None:
        """Search as `PartitionLog.find_by_time`."""
        async with aclosing(self.replay(lower_bound, upper_bound, timestamp_ms)) as batches:
            async for batch in batches:
                if batch.next_offset > upper_bound:
                    return None
                if batch.max_timestamp_ms >= timestamp_ms:
                    found = await self._shell.run(partial(look, batch))
                    if found is not None:
                        return found
        return None

    async def find_max_timestamp(self, lower_bound: int, upper_bound: int) -> RecordBatch | None:
        """Search as `PartitionLog.find_max_timestamp`, by the times of files and chunks."""
        best: RecordBatch | None = None
        chain = self._chain
        # Sorted by greatest time, then by offset, so that few files are loaded.
        files = sorted(
            (file for file in chain.files if file.base_offset < upper_bound),
            key=lambda file: (-file.largest_timestamp_ms, file.base_offset),
        )
        for file in files:
            if best is not None and not _may_beat(
                file.largest_timestamp_ms, file.base_offset, best
            ):
                break
            places = await self._places(file)
            if places is None:
                return await self.find_max_timestamp(lower_bound, upper_bound)
            for place in sorted(places, key=lambda one: (-one.largest_timestamp_ms, one.number)):
                if place.end_offset <= lower_bound or place.base_offset >= upper_bound:
                    continue
                time_ms = place.largest_timestamp_ms
                if best is not None and not _may_beat(time_ms, place.base_offset, best):
                    break
                decoded = await self._get_again(place)
                if decoded is None:
                    # The file was rewritten or removed meanwhile.
                    return await self.find_max_timestamp(lower_bound, upper_bound)
                if decoded.damages:
                    damaged_at = decoded.damages[0].start_offset
                    if damaged_at < upper_bound:
                        raise self._damaged(place, decoded, damaged_at)
                for batch in decoded.batches:
                    if (
                        batch.next_offset > lower_bound
                        and batch.next_offset <= upper_bound
                        and (
                            best is None
                            or _may_beat(batch.max_timestamp_ms, batch.base_offset, best)
                        )
                    ):
                        best = batch
        return best

    async def chunks_of(self, file: ChainFile) -> AsyncGenerator[VerifiedChunk]:
        """Yield the chunks of a sealed file, without the cache.

        Raises FilesChangedError if the file was removed or rewritten meanwhile, CorruptionError,
        StorageError.
        """
        places = await self._places(file)
        if places is None:
            raise FilesChangedError
        calls = (self._verified(place) for place in places)
        async with aclosing(in_order(calls, _READS_AT_ONCE)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _verified(self, place: ChunkPlace) -> VerifiedChunk:
        try:
            with self._explained(place):
                await self._chain.load(place.file)
                data = await self._chain.read(place.file, place.number)
        except StorageError:
            if self._number_of(place.file) is None:
                raise FilesChangedError from None
            raise
        work = partial(decode, data, place.base_offset, place.end_offset)
        is_small = len(data) <= self._shell.options.decoded_on_loop_bytes
        decoded = work() if is_small else await self._shell.run(work)
        if decoded.damages:
            raise self._damaged(place, decoded, decoded.damages[0].start_offset)
        return VerifiedChunk(place, data, decoded)

    async def last_chunk(self) -> DecodedChunk | None:
        """Return the last chunk of the log; None when there is none. Raises as `read`."""
        for file in reversed(self._chain.files):
            await self._shell.load(self._chain, file)
            if file.chunks:
                place = self._place(file, len(file.chunks) - 1)
                decoded = await self._get(place)
                if decoded.damages:
                    raise self._damaged(place, decoded, decoded.damages[0].start_offset)
                return decoded
        return None

    # --- finding chunks --------------------------------------------------------------------------

    async def _find(self, offset: int, timestamp_ms: int | None = None) -> ChunkPlace | None:
        """Return the first chunk that ends above an offset, and reaches a time if one is given.

        Returns None if there is no such chunk. Loads only files that may have it.
        """
        chain = self._chain
        for _ in range(_ATTEMPTS):
            files = chain.files
            number = max(bisect_right(files, offset, key=lambda one: one.base_offset) - 1, 0)
            for file in files[number:]:
                if timestamp_ms is not None and file.largest_timestamp_ms < timestamp_ms:
                    continue
                try:
                    await self._shell.load(chain, file)
                except StorageError:
                    if self._number_of(file) is not None:
                        raise
                if self._number_of(file) is None:
                    break  # begin again: the file was removed or rewritten meanwhile
                place = self._find_in(file, offset, timestamp_ms)
                if place is not None:
                    return place
            else:
                return None
        raise StorageError(f"partition {self._key}: files are removed faster than they are read")

    def _find_in(self, file: ChainFile, offset: int, timestamp_ms: int | None) -> ChunkPlace | None:
        notes = file.notes
        number = max(bisect_right(notes, offset, key=lambda note: note.base_offset) - 1, 0)
        for at in range(number, len(notes)):
            if timestamp_ms is None or notes[at].largest_timestamp_ms >= timestamp_ms:
                place = self._place(file, at)
                if place.end_offset > offset:
                    return place
        return None

    def _place(self, file: ChainFile, number: int) -> ChunkPlace:
        notes = file.notes
        if number + 1 < len(notes):
            end_offset = notes[number + 1].base_offset
        else:
            following = self._behind(file)
            end_offset = self._chain.end_offset if following is None else following.base_offset
        base_offset, largest_timestamp_ms = notes[number][:2]
        chunk = file.chunks[number]
        return ChunkPlace(file, number, chunk, base_offset, end_offset, largest_timestamp_ms)

    def _number_of(self, file: ChainFile) -> int | None:
        """Return the index of a file in the chain; None when it was removed or rewritten."""
        files = self._chain.files
        number = bisect_right(files, file.base_offset, key=lambda one: one.base_offset) - 1
        return number if number >= 0 and files[number] is file else None

    def _behind(self, file: ChainFile) -> ChainFile | None:
        number = self._number_of(file)
        files = self._chain.files
        return files[number + 1] if number is not None and number + 1 < len(files) else None

    async def _places(self, file: ChainFile) -> list[ChunkPlace] | None:
        """Return all chunks of a file; None when it has been removed or rewritten meanwhile.

        Raises as `Chain.load`.
        """
        try:
            await self._shell.load(self._chain, file)
        except StorageError:
            if self._number_of(file) is not None:
                raise
        if self._number_of(file) is None:
            return None
        return [self._place(file, number) for number in range(len(file.chunks))]

    async def _fetch_ahead(
        self,
        place: ChunkPlace,
        max_bytes: int,
        upper_bound: int,
        most_chunks: int,
        asked_end: int,
        *,
        goes_on: bool,
    ) -> int:
        """Start fetching the chunks that this read, and probably the next read, will need.

        Return the offset after the last of these chunks. Do nothing if the chunk ends at or below
        `asked_end`, which an earlier call for the same read returned.
        """
        if place.end_offset <= asked_end:
            return asked_end
        chain, chunks = self._chain, self._shell.chunks
        file, number = place.file, place.number
        needed_bytes = max_bytes - place.chunk.size_bytes
        needed = most_chunks - 1
        ahead = self._shell.options.read_ahead_chunks if goes_on else 0
        end_offset = place.end_offset
        while (needed_bytes > 0 and needed > 0) or ahead > 0:
            number += 1
            if number >= len(file.chunks):
                following = self._behind(file)
                if following is None:
                    return end_offset
                file, number = following, 0
                try:
                    await self._shell.load(chain, file)
                except StorageError:
                    # A later read of that file gets the error; the chunks before it are readable.
                    return end_offset
                if not file.chunks or self._number_of(file) is None:
                    return end_offset
            following_place = self._place(file, number)
            if following_place.base_offset >= upper_bound:
                return end_offset
            if not chunks.want(chain, following_place):
                return end_offset
            end_offset = following_place.end_offset
            if needed_bytes > 0 and needed > 0:
                needed_bytes -= following_place.chunk.size_bytes
                needed -= 1
            else:
                ahead -= 1
        return end_offset

    # --- errors ----------------------------------------------------------------------------------

    async def _get(self, place: ChunkPlace) -> DecodedChunk:
        with self._explained(place):
            return await self._shell.chunks.get(self._chain, place)

    @contextmanager
    def _explained(self, place: ChunkPlace) -> Iterator[None]:
        """Add the records' offsets and the file to errors that the block raises."""
        try:
            yield
        except CorruptionError as error:
            raise CorruptionError(
                f"partition {self._key}: offsets {place.base_offset} to {place.end_offset - 1} "
                f"cannot be read: {error}",
                place.end_offset,
            ) from error
        except FilerError as error:
            raise StorageError(f"cannot read partition {self._key}: {error}") from error

    async def _get_again(self, place: ChunkPlace) -> DecodedChunk | None:
        """Return a chunk; None when its file has been removed or rewritten meanwhile."""
        try:
            return await self._get(place)
        except StorageError:
            if self._number_of(place.file) is not None:
                raise
            return None

    def _damaged(self, place: ChunkPlace, decoded: DecodedChunk, offset: int) -> CorruptionError:
        damage = decoded.damage_from(offset)
        if damage is None:
            return CorruptionError(
                f"partition {self._key}: offset {offset} is missing in "
                f"{self._chain.directory}/{place.file.name}, chunk {place.chunk.file_id}",
                place.end_offset,
            )
        position = place.chunk.position + damage.position
        return CorruptionError(
            f"partition {self._key}: offsets {damage.start_offset} to {damage.end_offset - 1} are "
            f"damaged ({self._chain.directory}/{place.file.name}, position {position}): "
            f"{damage.reason}",
            damage.end_offset,
        )


def _may_beat(timestamp_ms: int, base_offset: int, best: RecordBatch) -> bool:
    """Return whether a record from an offset on, with this time, could be better than `best`."""
    return timestamp_ms > best.max_timestamp_ms or (
        timestamp_ms == best.max_timestamp_ms and base_offset < best.base_offset
    )
