"""WireClient: blocking calls for the asyncio client of `kgw.client`, which runs on its own thread.

Spark calls tasks in plain threads, which cannot await. This module adds the blocking calls, the
sizes of reads, and the errors for unreadable ranges.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from kgw.client import (
    AsyncClient,
    ClientDelay,
    Delays,
    ServerRefusedError,
    TopicReplacedError,
)
from kgw.client.records import end_of_damage, whole_batches
from kgw.client.values import REQUEST_TIMEOUT_S
from kgw.clock import SystemClock
from kgw.config.listeners import parse_peer
from kgw.errors import ErrorCode
from kgw.pipeline.arrow.columns import ALL_COLUMNS
from kgw.pipeline.arrow.damage import BatchError, damage_end
from kgw.pipeline.arrow.decode import decode_batches
from kgw.pipeline.errors import (
    DamagedRecordsError,
    DataLossError,
    OptionError,
    PipelineError,
    TopicChangedError,
)
from kgw.pipeline.ranges import find_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
    from concurrent.futures import Future

    from kgw.client import ClientSecurity, FetchedPartition, TopicDescription
    from kgw.clock import Clock
    from kgw.offsets.ranges import OffsetBounds
    from kgw.offsets.reader import FoundRecord
    from kgw.pipeline.arrow.decode import Decoded
    from kgw.pipeline.ranges import OffsetRange

ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)

MAX_FETCH_BYTES: Final = 64 << 20
"""The bytes of stored batches that one fetch asks for. A task holds two responses, one of them
decompressed."""
_LARGEST_FETCH_BYTES: Final = 240 << 20
"""Slightly less than the largest frame that the client accepts."""
_LEAST_FETCH_BYTES: Final = 64 << 10
_WAIT_MS: Final = 500
_PROBES: Final = 1 << 16
"""How many offsets are tried to find the end of damage in a server's log."""
_TOLD: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE})


class Reading(NamedTuple):
    """How to read ranges."""

    read_committed: bool = False
    max_fetch_bytes: int = MAX_FETCH_BYTES
    max_bytes_per_s: int | None = None
    """The limit for each reader, in bytes of stored batches."""
    fail_on_data_loss: bool = True
    """Whether missing offsets raise DataLossError; otherwise they are logged and skipped."""
    check_crcs: bool = True
    most_bytes: int | None = None
    """End a range after about this many stored bytes, even before its last offset."""
    patience_s: float = REQUEST_TIMEOUT_S
    """How long to wait for a server that returns no records at an offset below the end."""


class FetchedBatches(NamedTuple):
    """Adjacent complete batches of a partition, and the next offset to fetch."""

    first_offset: int
    """The offset that was fetched; the first batch may begin at a lower offset."""
    data: memoryview
    aborted: tuple[tuple[int, int], ...]
    next_offset: int

    def bytes_before(self, offset: int) -> int:
        """Return the size of the batches that begin before an offset."""
        return whole_batches(self.data, end_offset=offset)[0]


class FetchRateLimit:
    """A rate limit: computes when more bytes may be fetched. Pure."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0

    def take(self, size_bytes: int, now_s: float) -> float:
        """Count fetched bytes, and return when to fetch again, by the clock of `now_s`."""
        if self._bytes_per_s is None:
            return now_s
        self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s
        return self._free_s


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Parse addresses of the form `host:port,host:port`. Raises OptionError."""
    try:
        addresses = [parse_peer(one.strip()) for one in text.split(",") if one.strip()]
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers: {error}") from None
    if not addresses:
        raise OptionError("kafka.bootstrap.servers names no server")
    return addresses


def _log_delay(delay: ClientDelay) -> None:
    _log.warning("%s", delay)


class WireClient:
    """A client of one cluster, with blocking calls. Every method raises ClientError.

    Use it from one thread at a time.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "kgw-pipeline",
        retry_s: float = 30.0,
        security: ClientSecurity | None = None,
        clock: Clock | None = None,
        tell: Callable[[ClientDelay], object] = _log_delay,
    ) -> None:
        """`bootstrap` is `host:port,host:port`. The client connects when the first call needs it.

        Without `security` it connects in plain text, without a login.

        `tell` is called, on the client's thread, for each delay of a call, e.g. a retry.
        """
        self.client = AsyncClient(
            parse_bootstrap(bootstrap),
            client_id=client_id,
            retry_s=retry_s,
            delays=Delays(tell),
            security=security,
        )
        """The asyncio client: pass its coroutines to `call`."""
        self._clock = clock or SystemClock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kgw-wire", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and end the thread. Further calls fail."""
        if self._loop.is_closed():
            return
        self.call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self.client.aclose()

    def call(self, asked: Coroutine[object, object, ResultT]) -> ResultT:
        """Run a coroutine on the client's thread, and return its result."""
        waiting = self.start(asked)
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def start(self, asked: Coroutine[object, object, ResultT]) -> Future[ResultT]:
        """Start a coroutine on the client's thread, and return its future."""
        return asyncio.run_coroutine_threadsafe(asked, self._loop)

    # Topics and offsets

    def topics(self) -> list[TopicDescription]:
        """Return every topic, by name."""
        return self.call(self.client.topics())

    def find_topic(self, name: str) -> TopicDescription | None:
        """Return one topic; None if there is none of this name."""
        # Retry, because a gateway may be restarting.
        return self.call(self.client.retrying(lambda: self.client.find_topic(name)))

    def bounds(
        self, topic: str, partitions: Collection[int], *, read_committed: bool = False
    ) -> dict[int, OffsetBounds]:
        """Return the first and end offsets of partitions."""
        return self.call(self.client.bounds(topic, partitions, read_committed=read_committed))

    def list_offsets(
        self, topic: str, timestamps_ms: Mapping[int, int], *, read_committed: bool = False
    ) -> dict[int, FoundRecord]:
        """Return each partition's first offset of this time or later; -1 if there is none."""
        return self.call(
            self.client.list_offsets(topic, timestamps_ms, read_committed=read_committed)
        )

    # Records

    def decoded(
        self,
        wanted: OffsetRange,
        *,
        columns: Collection[str] = ALL_COLUMNS,
        reading: Reading = Reading(),  # noqa: B008 - immutable
    ) -> Iterator[Decoded]:
        """Yield the records of a range in order, as Arrow columns.

        Raises the errors of `pieces`, and DamagedRecordsError for batches that cannot be read.
        """
        for piece in self.pieces(wanted, reading):
            position, is_partial = piece.first_offset, True
            while is_partial:
                try:
                    decoded = decode_batches(
                        piece.data,
                        first_offset=position,
                        end_offset=wanted.end,
                        columns=columns,
                        aborted=piece.aborted,
                        check_crcs=reading.check_crcs,
                    )
                except BatchError as error:
                    # Ignore the part of the batch before the range.
                    first = max(error.base_offset, position)
                    end = damage_end(piece.data, error.base_offset)
                    text = f"{wanted.key}: {error}"
                    raise DamagedRecordsError(text, first, end) from error
                yield decoded
                position, is_partial = decoded.next_offset, decoded.is_partial

    def damage_end(self, wanted: OffsetRange, first: int) -> int:
        """Return the first offset, from `first` on, that the server does not report as damaged.

        Returns `first` if more than `_PROBES` offsets are damaged.
        """
        end = self.call(
            end_of_damage(self.client, wanted.topic, wanted.partition, first, probes=_PROBES)
        )
        return first if end is None else end

    def first_piece(self, wanted: OffsetRange, reading: Reading) -> FetchedBatches | None:
        """Return the first batches that `pieces` would yield, and fetch no others."""
        return self.call(_RangeReader(self.client, self._clock, wanted, reading).next())

    def pieces(self, wanted: OffsetRange, reading: Reading) -> Iterator[FetchedBatches]:
        """Yield a range's batches as they are stored.

        While the caller handles some batches, the next ones are fetched.

        Batches that are partly outside of the range are yielded whole.

        Raises:
            DataLossError: offsets of the range are gone, or the partition ends before it.
            TopicChangedError: the topic was deleted and created again.
            DamagedRecordsError: the server reports damage in the log.
            PipelineError: the server returns no whole batch for longer than `patience_s`.
        """
        reader = _RangeReader(self.client, self._clock, wanted, reading)
        ahead = asyncio.run_coroutine_threadsafe(reader.next(), self._loop)
        try:
            while (piece := ahead.result()) is not None:
                ahead = asyncio.run_coroutine_threadsafe(reader.next(), self._loop)
                yield piece
        finally:
            ahead.cancel()


class _RangeReader:
    """Fetches one range in several fetches."""

    def __init__(
        self, client: AsyncClient, clock: Clock, wanted: OffsetRange, reading: Reading
    ) -> None:
        self._client = client
        self._clock = clock
        self._wanted = wanted
        self._reading = reading
        self._position = wanted.first
        self._pace = FetchRateLimit(reading.max_bytes_per_s)
        self._next_s = 0.0
        self._read_bytes = 0
        self._fetch_bytes = reading.max_fetch_bytes
        if reading.max_bytes_per_s is not None:
            # Fetch at most the bytes of one second at once, so that a low rate is even.
            self._fetch_bytes = max(
                _LEAST_FETCH_BYTES, min(self._fetch_bytes, reading.max_bytes_per_s)
            )

    async def next(self) -> FetchedBatches | None:
        """Return the next batches; None at the end of the range or once `most_bytes` were read."""
        patience_ends_s = None
        most_bytes = self._reading.most_bytes
        while self._position < self._wanted.end and (
            most_bytes is None or self._read_bytes < most_bytes
        ):
            if self._reading.max_bytes_per_s is not None:
                await self._clock.sleep_until(self._next_s)
            position = self._position
            fetched = await self._fetch()
            if fetched is not None:
                self._next_s = self._pace.take(len(fetched.records), self._clock.monotonic_s())
                whole_bytes, next_offset = whole_batches(fetched.records)
                if next_offset > position:
                    self._position = next_offset
                    self._read_bytes += whole_bytes
                    data = fetched.records[:whole_bytes]
                    return FetchedBatches(position, data, fetched.aborted, next_offset)
                if len(fetched.records) and self._fetch_bytes < _LARGEST_FETCH_BYTES:
                    # The response was too small for the first batch: fetch more bytes.
                    self._fetch_bytes = min(_LARGEST_FETCH_BYTES, self._fetch_bytes * 2)
                    continue
            elif self._position > position:
                continue
            now_s = self._clock.monotonic_s()
            if patience_ends_s is None:
                patience_ends_s = now_s + self._reading.patience_s
            elif now_s >= patience_ends_s:
                raise PipelineError(
                    f"{self._wanted.key}: the server answers with no whole batch at offset "
                    f"{position}, for {self._reading.patience_s:g} s, though the range goes to "
                    f"{self._wanted.end - 1}"
                )
        return None

    async def _fetch(self) -> FetchedPartition | None:
        """Return a response with records; None if it has none, or missing offsets were skipped."""
        wanted, position = self._wanted, self._position
        try:
            answers = await self._client.fetch(
                wanted.topic,
                {wanted.partition: position},
                max_wait_ms=_WAIT_MS,
                max_bytes=self._fetch_bytes,
                partition_max_bytes=self._fetch_bytes,
                told=_TOLD,
                read_committed=self._reading.read_committed,
                topic_id=wanted.topic_id,
            )
        except TopicReplacedError as error:
            raise TopicChangedError(
                f"{wanted}: {error} since the range was planned; its offsets mean other records now"
            ) from None
        except ServerRefusedError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._skip(
                DataLossError(*wanted.key, position, wanted.end, "there is no such partition now"),
                wanted.end,
            )
            return None
        # A server may leave a partition without new records out of its response.
        fetched = answers[0] if answers else None
        if fetched is not None and fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
            raise DamagedRecordsError(
                f"{wanted.key}: what is stored at offset {position} is damaged, says the server",
                position,
                None,
            )
        if fetched is not None and fetched.records:
            return fetched
        await self._look_for_loss()
        return None

    async def _look_for_loss(self) -> None:
        wanted, position = self._wanted, self._position
        found = await self._client.bounds(wanted.topic, [wanted.partition])
        bounds = found[wanted.partition]
        loss = find_loss(wanted.key, position, wanted.end, bounds)
        if loss is None:
            return
        if position < bounds.earliest:
            self._skip(loss, bounds.earliest)
        elif position >= bounds.latest or self._reading.fail_on_data_loss:
            self._skip(loss, wanted.end)
        # Otherwise the records before the lost offsets come in another response.

    def _skip(self, loss: DataLossError, offset: int) -> None:
        if self._reading.fail_on_data_loss:
            raise loss
        _log.warning("%s", loss)
        self._position = min(offset, self._wanted.end)
