"""Produce requests that repeat an earlier one but for their records: nearly all that there are.

A producer that writes to one partition at a time, as librdkafka does, sends the same bytes in front
of each batch: header, acks, timeout, topic, index. They are decoded once; then the partition is
known by them, and all of its answer but three numbers. Decoding, looking up and encoding are half
of what a request of one record takes without that.

Here is only the usual case. Whatever differs from it, a refusal included, is left to `produce`
before anything has happened, so that both ways give the same answers.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kgw.errors import KafkaError
from kgw.handlers.context import DueAnswer
from kgw.handlers.produce import Pending, finish
from kgw.protocol.codec import codec
from kgw.protocol.framing import response_frame
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kgw.protocol.primitives import read_unsigned_varint
from kgw.records.batch import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.append import Append
    from kgw.gateway import Gateway
    from kgw.handlers.context import Session
    from kgw.partitions.partition import Partition
    from kgw.types import Buffer

FIRST_VERSION: Final = 5
"""Answers before it lack the log start offset; no client of this decade sends such requests."""
MAX_HEAD_BYTES: Final = 256
MAX_KNOWN: Final = 4096
"""How many heads are remembered, for all connections together: some 4 MB at most."""
CLIENT_ID_POSITION: Final = 8
"""Where a request begins to repeat: behind API key, version and correlation id."""
_FULL_SHARE: Final = 16
"""Once there are so many, one of so many new ones is remembered: remembering takes as long as
answering, and with more heads than that in use most of it would be in vain."""

_INT32: Final = Struct(">i")
_MARK: Final = bytes(range(0xE0, 0xF8))
"""Stands for what changes when a head or an answer is encoded to be remembered."""
_MARKS: Final = Struct(">qqq").unpack(_MARK)
_ANSWERED: Final = frozenset({-1, 1})


class KnownPlace:
    """A partition that requests with the same head write to, and how they are answered."""

    __slots__ = (
        "_after",
        "_before",
        "_gateway",
        "_pack",
        "_size",
        "_topic",
        "_version",
        "partition",
        "trailer",
        "zstd_allowed",
    )

    def __init__(
        self,
        gateway: Gateway,
        partition: Partition,
        topic: TopicProduceData,
        version: int,
        trailer: bytes,
    ) -> None:
        self.partition = partition
        self.trailer = trailer
        """What follows the records: empty sections of tagged fields."""
        self.zstd_allowed = version >= 7
        self._gateway = gateway
        self._topic = topic
        self._version = version
        answer = PartitionProduceResponse(index=partition.index)
        answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = _MARKS
        frame = b"".join(self._encode(answer, 0))
        before, _, self._after = frame.partition(_MARK)
        self._size, self._before = before[:4], before[8:]
        self._pack = Struct(f">4si{len(self._before)}sqqq{len(self._after)}s").pack

    def frame(
        self, correlation_id: int, base_offset: int, append_time_ms: int, log_start_offset: int
    ) -> list[Buffer]:
        """Return the frame that says where a batch is."""
        return [
            self._pack(
                self._size,
                correlation_id,
                self._before,
                base_offset,
                append_time_ms,
                log_start_offset,
                self._after,
            )
        ]

    def failure_frame(self, append: Append, correlation_id: int) -> list[Buffer]:
        """Return the frame that says why a batch that was submitted is not stored."""
        answer = PartitionProduceResponse(index=self.partition.index)
        finish(Pending(answer, self.partition, append, is_undecided=False), self._gateway)
        return self._encode(answer, correlation_id)

    def _encode(self, answer: PartitionProduceResponse, correlation_id: int) -> list[Buffer]:
        topic = TopicProduceResponse(
            name=self._topic.name, topic_id=self._topic.topic_id, partition_responses=[answer]
        )
        return response_frame(ProduceResponse(responses=[topic]), self._version, correlation_id)


class PlaceAnswer(DueAnswer):
    """The answer to a batch that has been submitted to a known place."""

    __slots__ = ("_append", "_append_time_ms", "_correlation_id", "_log_start_offset", "_place")

    def __init__(
        self, place: KnownPlace, append: Append, append_time_ms: int, correlation_id: int
    ) -> None:
        self._place = place
        self._append = append
        self._append_time_ms = append_time_ms
        self._log_start_offset = place.partition.log.log_start_offset
        self._correlation_id = correlation_id

    def done(self) -> bool:
        return self._append.is_done

    def when_done(self, callback: Callable[[object], object]) -> None:
        self._append.when_done(callback)

    def result(self) -> list[Buffer]:
        append = self._append
        if append.error is not None:
            return self._place.failure_frame(append, self._correlation_id)
        return self._place.frame(
            self._correlation_id,
            append.result.base_offset,
            self._append_time_ms,
            self._log_start_offset,
        )


class KnownPlaces:
    """The places of one gateway, by version and head: the bytes from the client id to the records.

    No rights are checked here: whoever adds some must make them part of what is looked up.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._by_version: dict[int, dict[bytes, KnownPlace]] = {}
        self._left_out = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_version.values()))

    def forget(self, _: object = None) -> None:
        """Forget all of them: a topic has been deleted, and must not be kept in memory."""
        self._by_version.clear()

    def start(
        self, frame: memoryview, version: int, correlation_id: int, session: Session
    ) -> list[Buffer] | PlaceAnswer | None:
        """Begin a request if it repeats an earlier one; None leaves it to `produce`."""
        head_end = session.produce_head_end
        known = self._by_version.get(version)
        if known is None:
            return None
        place = known.get(bytes(frame[CLIENT_ID_POSITION:head_end]))
        if place is None:
            return None
        span = _records_span(frame, head_end, len(frame), place.trailer)
        if span is None or place.partition.topic.is_deleted:
            return None
        records = frame[span[0] : span[1]]
        return _append(place, records, correlation_id)

    def note(
        self, frame: memoryview, version: int, request: ProduceRequest, session: Session
    ) -> None:
        """Remember the head of a request that `start` left to `produce`, if it is usual."""
        if (
            version < FIRST_VERSION
            or len(request.topic_data) != 1
            or len(request.topic_data[0].partition_data) != 1
            or request.acks not in _ANSWERED
            or request.transactional_id is not None
        ):
            return
        topic = request.topic_data[0]
        index = topic.partition_data[0].index
        partition, _ = self._gateway.catalog.find(
            topic.topic_id if version >= 13 else topic.name, index
        )
        if partition is None or not self._has_room():
            return
        marked = TopicProduceData(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_data=[PartitionProduceData(index=index, records=_MARK)],
        )
        encoder = codec(ProduceRequest, version)
        before, _, trailer = encoder.encode(
            ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[marked])
        ).partition(_MARK)
        # The length of the mark takes one byte, or four.
        head = session.header.tail + before[: -1 if encoder.flexible else -_INT32.size]
        head_end = CLIENT_ID_POSITION + len(head)
        # A client may have put it otherwise: tagged fields, longer integers.
        if len(head) <= MAX_HEAD_BYTES and frame[CLIENT_ID_POSITION:head_end] == head:
            # Of `marked`, not of the request: that would keep its records in memory.
            place = KnownPlace(self._gateway, partition, marked, version, trailer)
            self._by_version.setdefault(version, {})[head] = place
            session.produce_head_end = head_end

    def _has_room(self) -> bool:
        """Whether another one may be remembered, after an old one has gone if need be."""
        if len(self) < MAX_KNOWN:
            return True
        self._left_out += 1
        if self._left_out % _FULL_SHARE:
            return False
        largest = max(self._by_version.values(), key=len)
        del largest[next(iter(largest))]
        return True


def _append(
    place: KnownPlace, records: memoryview, correlation_id: int
) -> list[Buffer] | PlaceAnswer | None:
    """Submit the batch of one request; None leaves it to `produce`."""
    try:
        result, base_offset, append_time_ms, _ = place.partition.append(
            records, zstd_allowed=place.zstd_allowed
        )
    except KafkaError:
        # Nothing has happened yet.
        return None
    if result is None:
        log_start_offset = place.partition.log.log_start_offset
        return place.frame(correlation_id, base_offset, append_time_ms, log_start_offset)
    answer = PlaceAnswer(place, result, append_time_ms, correlation_id)
    return answer.result() if result.is_done else answer


def _records_span(
    data: memoryview, position: int, end: int, trailer: bytes
) -> tuple[int, int] | None:
    """Return where the records behind a head lie; None unless they and the trailer fill the frame.

    The frame ends at `end`. Raises DecodeError.
    """
    records_end = end - len(trailer)
    if records_end - position < HEADER_BYTES:
        return None
    if trailer:
        size, position = read_unsigned_varint(data, position)
        size -= 1
        if data[records_end:end] != trailer:
            return None
    else:
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
    return (position, records_end) if position + size == records_end else None
