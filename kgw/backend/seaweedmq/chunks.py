"""Fetches, verifies and caches chunks of log files, for reads of older records.

A chunk never changes, and its file id is never used again. So it is fetched and verified once for
all readers that need it at the same time, and cached decoded. The least recently used chunk is
dropped first. Few chunks are fetched at a time. A slow fetch gives its slot and its memory budget
to other fetches, so a volume server that hangs delays only its own chunks.
"""

from __future__ import annotations

from asyncio import CancelledError, ensure_future, shield
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from kgw.backend.seaweedmq.byte_budget import ByteBudget
from kgw.backend.seaweedmq.entries.layouts import decode

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Callable, Sequence

    from kgw.backend.seaweedmq.entries.layouts import DecodedChunk
    from kgw.backend.seaweedmq.filer import Chunk
    from kgw.backend.seaweedmq.options import SeaweedMqOptions
    from kgw.clock import Clock, Timer

STALLED_S: Final = 0.05
"""A fetch that takes longer counts as stalled and frees its slot for another fetch."""
_MORE_WHILE_STALLED: Final = 4


class ChunkSource(Protocol):
    """Reads the chunks of one partition's files."""

    async def load(self, file: Any) -> None:
        """Load a file's list of chunks. Raises CorruptionError, StorageError."""

    async def read(self, file: Any, chunk: int) -> bytes:
        """Return the bytes of a chunk. Raises CorruptionError, FilerError."""


class ChunkPlace(NamedTuple):
    """A chunk of a file, and the range of its offsets."""

    file: Any
    number: int
    chunk: Chunk
    base_offset: int
    end_offset: int
    largest_timestamp_ms: int
    decode: Callable[[bytes, int, int], DecodedChunk] = decode
    """Decodes the chunk's bytes to batches, given the first offset and the end offset."""


class ChunkReader:
    """The chunks of all partitions. Used in the event loop alone."""

    def __init__(
        self,
        options: SeaweedMqOptions,
        run: Callable[[Callable[[], DecodedChunk]], Awaitable[DecodedChunk]],
        clock: Clock,
    ) -> None:
        """`run` calls a function in a thread."""
        self._options = options
        self._run = run
        self._kept: dict[str, DecodedChunk] = {}
        self._loading: dict[str, Future[DecodedChunk]] = {}
        self._clock = clock
        self._slots = ByteBudget(options.chunk_loads)
        self._room = ByteBudget(options.chunk_load_bytes)
        self._stalled = ByteBudget(options.stalled_chunks)
        self._stalled_room = ByteBudget(options.stalled_chunk_bytes)
        self._ahead_bytes = 0
        self.size_bytes = 0
        """The size of the cached chunks."""

    @property
    def used(self) -> set[int]:
        """The used amounts of the four budgets, as a set; {0} if nothing is being fetched."""
        rooms = (self._slots, self._room, self._stalled, self._stalled_room)
        return {room.used_bytes for room in rooms}

    async def get(self, source: ChunkSource, place: ChunkPlace) -> DecodedChunk:
        """Return a chunk. Raises CorruptionError if the chunk is missing, FilerError."""
        file_id = place.chunk.file_id
        kept = self._kept.pop(file_id, None)
        if kept is not None:
            # Dictionaries keep their order of insertion, so the last item was used last.
            self._kept[file_id] = kept
            return kept
        # A cancelled caller must not cancel the fetch, because other callers wait for it.
        return await shield(self._load(source, place))

    def want(self, source: ChunkSource, place: ChunkPlace) -> bool:
        """Start fetching a chunk; return False if too many chunks are being fetched."""
        if place.chunk.file_id in self._kept or place.chunk.file_id in self._loading:
            return True
        size_bytes = place.chunk.size_bytes
        if self._ahead_bytes + size_bytes > self._options.chunk_cache_bytes // 2:
            return False
        self._ahead_bytes += size_bytes
        self._load(source, place).add_done_callback(partial(self._came, size_bytes))
        return True

    async def aclose(self) -> None:
        """Cancel all fetches."""
        loading = list(self._loading.values())
        for one in loading:
            one.cancel()
        for one in loading:
            try:
                await one
            except (CancelledError, Exception):  # noqa: BLE001, S112 - nobody waits for it any more
                continue
        self._kept.clear()
        self.size_bytes = 0

    def _came(self, size_bytes: int, loaded: Future[DecodedChunk]) -> None:
        self._ahead_bytes -= size_bytes
        if not loaded.cancelled():
            # The next reader of the chunk gets the error.
            loaded.exception()

    def _load(self, source: ChunkSource, place: ChunkPlace) -> Future[DecodedChunk]:
        file_id = place.chunk.file_id
        loading = self._loading.get(file_id)
        if loading is None:
            loading = ensure_future(self._fetch(source, place))
            self._loading[file_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(file_id, None))
        return loading

    async def _fetch(self, source: ChunkSource, place: ChunkPlace) -> DecodedChunk:
        size_bytes = place.chunk.size_bytes
        places = _Reservation(
            ((self._slots, self._stalled, 1), (self._room, self._stalled_room, size_bytes))
        )
        if not self._stalled.used_bytes:
            self._slots.limit_bytes = self._options.chunk_loads
        async with places:
            self._watch(places)
            try:
                file_id = place.chunk.file_id
                # The file's list of chunks may have been dropped during the wait.
                await source.load(place.file)
                data = await source.read(place.file, place.number)
            finally:
                places.timer.cancel()
            work = partial(place.decode, data, place.base_offset, place.end_offset)
            is_small = len(data) <= self._options.decoded_on_loop_bytes
            decoded = work() if is_small else await self._run(work)
            self._keep(file_id, decoded)
            return decoded

    def _watch(self, places: _Reservation) -> None:
        """Free the slot of a fetch once it stalls and the budget for stalled fetches allows it."""
        stalls_s = self._clock.monotonic_s() + STALLED_S
        places.timer = self._clock.call_at(stalls_s, partial(self._stall, places))

    def _stall(self, places: _Reservation) -> None:
        """Free the slot of a stalled fetch for other fetches.

        The next fetches may hang at the same server.
        """
        if places.leave():
            self._slots.limit_bytes = _MORE_WHILE_STALLED * self._options.chunk_loads
            self._slots.give_back(0)
        else:
            self._watch(places)

    def _keep(self, file_id: str, decoded: DecodedChunk) -> None:
        limit_bytes = self._options.chunk_cache_bytes
        if decoded.damages or decoded.size_bytes > limit_bytes:
            # Do not cache a damaged chunk, because the damage may have happened in transit.
            return
        self._kept[file_id] = decoded
        self.size_bytes += decoded.size_bytes
        while self.size_bytes > limit_bytes:
            oldest = next(iter(self._kept))
            self.size_bytes -= self._kept.pop(oldest).size_bytes


class _Reservation:
    """The amounts that a fetch takes from several budgets until it is done.

    For each budget there is another one for stalled fetches. A stalled fetch takes the same amount
    from that budget, and then gives back the amount of the first budget.
    """

    timer: Timer
    """Fires when the fetch counts as stalled."""

    def __init__(self, rooms: Sequence[tuple[ByteBudget, ByteBudget, int]]) -> None:
        self._rooms = rooms
        self._taken: list[tuple[ByteBudget, int]] = []

    async def __aenter__(self) -> Self:
        try:
            for room, _, size in self._rooms:
                await room.take_later(size)
                self._taken.append((room, size))
        except BaseException:
            self._give_back()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._give_back()

    def leave(self) -> bool:
        """Move to the budgets for stalled fetches; return False if these are used up."""
        beside: list[tuple[ByteBudget, int]] = []
        for _, room, size in self._rooms:
            if not room.take(size):
                for taken, taken_size in beside:
                    taken.give_back(taken_size)
                return False
            beside.append((room, size))
        self._give_back()
        self._taken = beside
        return True

    def _give_back(self) -> None:
        taken, self._taken = self._taken, []
        for room, size in taken:
            room.give_back(size)
