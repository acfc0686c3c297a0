"""Reading as clients do, in every way that there is, and what each way was asked for.

A partition is read through `PartitionLog.read_hot` and `read`, which choose: what was answered a
moment ago is in memory, what was read ahead is, what is in the page cache is read in the event
loop, and everything else by a thread, past the page cache where that is worth while. Threads are
functions that are called at once, and the loop's time stands still, so that a seed is one order of
events.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import Future
from contextlib import contextmanager
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from kgw.backend.embedded.files.read_buffers import ReadBuffers
from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
from kgw.backend.embedded.read import reading
from kgw.backend.embedded.read.read_ahead import ReadAhead
from kgw.backend.embedded.read.reading import Reader
from kgw.backend.embedded.read.source import Files
from kgw.backend.hot_cache import CachedTail, HotCache
from kgw.partitions.view import read_on
from kgw.records.batch import HEADER_BYTES, PREFIX_BYTES
from kgw.records.crc import crc32c
from tests.campaigns.simulated_loop import SimulatedLoop
from tests.campaigns.support import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from kgw.backend.base import PartitionLog, ReadResult
    from kgw.backend.embedded.backend import EmbeddedBackend
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.store import Store
    from kgw.backend.embedded.write.flusher import Flusher
    from kgw.backend.embedded.write.write_path import DiskAppend
    from kgw.types import Buffer
    from tests.campaigns.support import Report
    from tests.simulated_fs import SimulatedFs

_Result = TypeVar("_Result")

HOT = "hot"
AHEAD = "ahead"
CACHED = "cached"
DISK = "disk"
DIRECT = "direct"
WAYS = (HOT, AHEAD, CACHED, DISK, DIRECT)
"""From memory; read ahead; from the page cache; by a thread, through the page cache and past it."""
LEAST_DIRECT_BYTES = 150
"""What is worth a read past the page cache here, where a partition has a few kilobytes."""
CACHE_BYTES = 64 << 10
_RANGES_AHEAD = 4
_RANGE_BYTES = 3_000
_BUFFERS = 8
# Of a header: base offset, length, last offset delta.
_FIELDS = Struct(">qi11xi")


class Batch(NamedTuple):
    """A batch that was served."""

    base_offset: int
    next_offset: int
    content: bytes

    @property
    def has_records(self) -> bool:
        return len(self.content) > HEADER_BYTES


def batches_of(result: ReadResult) -> list[Batch]:
    """Return the batches of an answer."""
    found: list[Batch] = []
    for buffer in result.buffers:
        content = bytes(buffer)
        at = 0
        while at < len(content):
            base_offset, length, last_delta = _FIELDS.unpack_from(content, at)
            end = at + PREFIX_BYTES + length
            found.append(Batch(base_offset, base_offset + last_delta + 1, content[at:end]))
            at = end
    return found


class Clients:
    """What the readers of all stores of a campaign share: time, and what is counted."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.ways: Counter[str] = Counter()
        """How many answers with records came which way."""

    def of(self, store: Store, cache_bytes: int = CACHE_BYTES) -> ClientReads:
        """Return the readers of a store."""
        return ClientReads(self, store, cache_bytes)

    def run(self, work: Coroutine[object, object, _Result]) -> _Result:
        """Run something in the loop, to its end: a state may be taken inside another loop."""
        # asyncio documents these two for whoever implements an event loop, as here.
        outer = asyncio._get_running_loop()  # noqa: SLF001
        asyncio._set_running_loop(None)  # noqa: SLF001
        try:
            return self.loop.run_until_complete(work)
        finally:
            asyncio._set_running_loop(outer)  # noqa: SLF001

    def tell(self, report: Report) -> None:
        """Add the counts to those of a report."""
        for way, number in self.ways.items():
            report.count(f"reads_{way}", number)


def require_ways(report: Report, least: int, ways: tuple[str, ...] = WAYS) -> None:
    """Fail the campaign when one of the ways was hardly taken."""
    for way in ways:
        report.require(f"reads_{way}", least)


class _Tail(CachedTail):
    """A cached tail that tells when it was the one that answered."""

    __slots__ = ("note",)

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self.note = note

    def read(self, *arguments: Any) -> ReadResult | None:
        result = super().read(*arguments)
        if result is not None:
            self.note(HOT)
        return result


class _Ahead(ReadAhead):
    """Read-ahead that tells when it had the bytes."""

    __slots__ = ("note",)

    note: Callable[[str], None]

    def take(
        self, segment: Segment, position: int, size_bytes: int, *, may_wait: bool
    ) -> memoryview | None:
        view = super().take(segment, position, size_bytes, may_wait=may_wait)
        if view is not None:
            self.note(AHEAD)
        return view


class ClientReads:
    """The partitions of one store as clients read them: what a backend is to its partitions."""

    def __init__(self, clients: Clients, store: Store, cache_bytes: int) -> None:
        self._clients = clients
        self._store = store
        self._partitions: dict[SegmentedLog, EmbeddedPartitionLog] = {}
        self._cache = HotCache(cache_bytes)
        # Of its own: which buffers are free must not depend on when garbage is collected.
        self.read_buffers = ReadBuffers(_BUFFERS)
        ahead = _Ahead(
            Files(self.read_buffers, least_direct_bytes=LEAST_DIRECT_BYTES),
            _RANGES_AHEAD,
            _done_at_once,
            clients.loop.time,
            range_bytes=_RANGE_BYTES,
            least_direct_bytes=LEAST_DIRECT_BYTES,
        )
        ahead.note = self._note
        self.reader = Reader(ahead, 64)
        self.threads = self
        self.flusher: Flusher | None = None
        """Nobody appends through these partitions."""
        self.way = ""
        """By which way the last answer came."""

    def _note(self, way: str) -> None:
        self.way = way

    def partition(self, log: SegmentedLog) -> PartitionLog:
        """Return a log as the rest of the gateway knows it."""
        return self._partition(log)

    def _partition(self, log: SegmentedLog) -> EmbeddedPartitionLog:
        partition = self._partitions.get(log)
        if partition is None:
            backend = cast("EmbeddedBackend", self)
            partition = EmbeddedPartitionLog(log, backend, self._store)
            partition.tail = _Tail(self._note)
            self._partitions[log] = partition
        return partition

    # --- what readers do ---------------------------------------------------------------------

    def fetch(
        self, log: SegmentedLog, offset: int, max_bytes: int, upper_bound: int
    ) -> list[Batch]:
        """Read one partition as a Fetch does. Raises StorageError."""
        self.way = ""
        result = self._partition(log).read_hot(offset, max_bytes, upper_bound)
        if result is None:
            result = self._clients.run(
                read_on(self._partition(log), offset, max_bytes, upper_bound, at_least_one=True)
            )
        elif not self.way:
            self.way = CACHED
        found = batches_of(result)
        if found:
            self._clients.ways[self.way] += 1
        return found

    def walk(
        self, log: SegmentedLog, offset: int, max_bytes: int, upper_bound: int
    ) -> Iterator[Batch]:
        """Yield what a consumer gets that reads on and on. Raises StorageError, AssertionError."""
        while offset < upper_bound:
            found = self.fetch(log, offset, max_bytes, upper_bound)
            if not found:
                return
            yield from found
            before, offset = offset, found[-1].next_offset
            if offset <= before or offset > upper_bound:
                raise AssertionError(
                    f"a read by {self.way} of {before} to {upper_bound} goes on at {offset}"
                )

    # --- what happens to the store -----------------------------------------------------------

    def answered(self, append: DiskAppend) -> None:
        """Take what was answered into memory, as the backend does."""
        tail = self._partition(append.log).tail
        self._cache.add([(tail, batch) for batch in append.batches])

    def forget_cached(self, log: SegmentedLog, offset: int) -> None:
        """Read what lies below from the disk: it has been compacted."""
        self._partition(log).tail.forget_below(offset)

    def forget_log(self, log: SegmentedLog) -> None:
        """Let go of a log that is deleted."""
        self._partitions.pop(log, None)

    # --- what a partition asks of its backend ------------------------------------------------

    async def run_in_io(self, function: Callable[[], _Result]) -> _Result:
        """Run what waits for the disk and is no read."""
        return function()

    async def read(self, function: Callable[[], _Result]) -> _Result:
        """Run a read of the disk; what it was for is noted."""
        fs = cast("SimulatedFs", self._store.fs)
        direct_reads = fs.direct_reads
        self.way = ""
        result = function()
        if not self.way:
            self.way = DIRECT if fs.direct_reads > direct_reads else DISK
        return result

    async def run_in_flusher(self, function: Callable[[], _Result]) -> _Result:
        """Run something between two groups: nobody writes while somebody reads here."""
        return function()

    async def maintain(self, function: Callable[[], _Result]) -> _Result:
        """Run something that rewrites files of sealed segments."""
        return function()


def _done_at_once(function: Callable[[], _Result]) -> Future[_Result]:
    """Do what a thread would."""
    future: Future[_Result] = Future()
    future.set_result(function())
    return future


class _Anything(int):
    """A checksum that is whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


@contextmanager
def unverified_pages() -> Iterator[None]:
    """Serve what is in a file, or was read ahead, as it is: what a control does."""
    with replaced(reading, "crc32c", lambda *_: _Anything()):
        yield


@contextmanager
def unverified_headers() -> Iterator[None]:
    """Serve batches whatever the side file says of their headers: what a control does."""

    def compare(data: Buffer, *rest: int) -> int:
        return _Anything() if len(data) == HEADER_BYTES else crc32c(data, *rest)

    with replaced(reading, "crc32c", compare):
        yield
