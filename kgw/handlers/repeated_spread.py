"""Produce requests that write to several partitions of one topic, as an earlier one did.

A producer that has records for many partitions sends the same bytes in front of them: header, acks,
timeout, topic. Which partitions follow, and in what order, differs from request to request. The
bytes in front are decoded once; then the topic is known by them, and all of its answer but five
numbers a partition. With four batches of 16 KB a request that is a seventh of what the request
takes.

As in `repeated_produce`, only the usual case is here, and whatever differs from it is left to
`produce` before anything has happened. What is refused later is answered in its words.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import DecodeError, KafkaError
from kgw.handlers.context import AfterAppends
from kgw.handlers.known_heads import CLIENT_ID_POSITION, KnownHeads
from kgw.handlers.produce import Pending, finish, refuse_append
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
from kgw.protocol.primitives import read_unsigned_varint, write_unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.append import Append
    from kgw.gateway import Gateway
    from kgw.handlers.context import Session
    from kgw.partitions.appended import Appended
    from kgw.partitions.partition import Partition
    from kgw.partitions.topic import Topic
    from kgw.types import Buffer

FIRST_VERSION: Final = 9
"""Flexible versions. Clients that write to several partitions at a time speak them."""
MAX_HEAD_BYTES: Final = 512
"""The longest topic name takes half of it."""

_NO_TAGS: Final = 0
_FEWEST: Final = 2
"""Partitions of a request. Those to one are known by more than their topic: `repeated_produce`."""
MOST_PARTITIONS: Final = 350
"""More are submitted and answered some at a time, by `produce`. A batch takes 8 to 11 us here where
its producer has an id: 3 to 4 ms for as many, without a break."""
_INT32: Final = Struct(">i")
_SIZE_AND_ID: Final = Struct(">ii")
_PARTITION: Final = Struct(">ihqqq")
"""Index, error code, base offset, log append time, log start offset."""
_MARK: Final = bytes((*range(0xE0, 0xE4), 0, 0, *range(0xE4, 0xFC)))
"""Stands for what changes when an answer is encoded to be remembered; without an error code."""
_MARKED_RECORDS: Final = b"records"
_ANSWERED: Final = frozenset({-1, 1})


class _Part(NamedTuple):
    """What became of one partition's batch."""

    partition: Partition
    appended: Appended
    log_start_offset: int


class KnownTopic:
    """A topic that requests with the same head write to, and how they are answered."""

    __slots__ = ("_after", "_before", "_gateway", "_marked", "_pack", "_rest", "_version", "topic")

    def __init__(
        self, gateway: Gateway, topic: Topic, marked: TopicProduceData, version: int
    ) -> None:
        self.topic = topic
        self._gateway = gateway
        self._marked = marked
        self._version = version
        index, _, *numbers = _PARTITION.unpack(_MARK)
        answer = PartitionProduceResponse(index=index)
        answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = numbers
        one, two = (b"".join(self._encode([answer] * count, 0)) for count in (1, 2))
        start = one.index(_MARK)
        end = start + len(two) - len(one)
        # Without size, correlation id and the one byte that is the number of partitions.
        self._before = one[_SIZE_AND_ID.size : start - 1]
        self._rest = one[start + len(_MARK) : end]
        self._after = one[end:]
        self._pack = Struct(f"{_PARTITION.format}{len(self._rest)}s").pack

    def append(
        self, parts: Sequence[tuple[Partition, memoryview]], correlation_id: int
    ) -> list[Buffer] | SpreadAnswer:
        """Submit batches and return what will say, or says, where they are."""
        submitted: list[_Part | PartitionProduceResponse] = []
        for partition, records in parts:
            try:
                appended = partition.append(records)
            except KafkaError as error:
                index = partition.index
                refused = PartitionProduceResponse(index=index)
                refuse_append(refused, PartitionProduceData(index=index, records=records), error)
                submitted.append(refused)
            else:
                submitted.append(_Part(partition, appended, partition.log.log_start_offset))
        answer = SpreadAnswer(self, submitted, correlation_id)
        return answer.result() if answer.done() else answer

    def frame(
        self, submitted: Sequence[_Part | PartitionProduceResponse], correlation_id: int
    ) -> list[Buffer]:
        """Return the frame that says where batches are, or why they are not."""
        count = bytearray()
        write_unsigned_varint(count, len(submitted) + 1)
        parts: list[Buffer] = [b"", self._before, count]
        pack, rest = self._pack, self._rest
        for part in submitted:
            if isinstance(part, PartitionProduceResponse):
                return self._refusing_frame(submitted, correlation_id)
            partition, (result, base_offset, append_time_ms, _), log_start_offset = part
            if result is not None:
                if result.error is not None:
                    return self._refusing_frame(submitted, correlation_id)
                base_offset = result.result.base_offset
            parts.append(
                pack(partition.index, 0, base_offset, append_time_ms, log_start_offset, rest)
            )
        parts.append(self._after)
        body = b"".join(parts)
        return [_SIZE_AND_ID.pack(len(body) + _INT32.size, correlation_id) + body]

    def _refusing_frame(
        self, submitted: Sequence[_Part | PartitionProduceResponse], correlation_id: int
    ) -> list[Buffer]:
        answers: list[PartitionProduceResponse] = []
        for part in submitted:
            if isinstance(part, PartitionProduceResponse):
                answers.append(part)
                continue
            answer = PartitionProduceResponse(index=part.partition.index)
            answer.log_append_time_ms = part.appended.log_append_time_ms
            answer.log_start_offset = part.log_start_offset
            answer.base_offset = part.appended.base_offset
            result = part.appended.result
            if result is not None:
                finish(Pending(answer, part.partition, result, False), self._gateway)
            answers.append(answer)
        return self._encode(answers, correlation_id)

    def _encode(self, answers: list[PartitionProduceResponse], correlation_id: int) -> list[Buffer]:
        topic = TopicProduceResponse(
            name=self._marked.name, topic_id=self._marked.topic_id, partition_responses=answers
        )
        return response_frame(ProduceResponse(responses=[topic]), self._version, correlation_id)


class SpreadAnswer(AfterAppends):
    """The answer to batches that have been submitted to partitions of a known topic."""

    __slots__ = ("_correlation_id", "_submitted", "_topic")

    def __init__(
        self,
        topic: KnownTopic,
        submitted: list[_Part | PartitionProduceResponse],
        correlation_id: int,
    ) -> None:
        appends: list[Append] = []
        for part in submitted:
            if isinstance(part, _Part):
                result = part.appended.result
                if result is not None and not result.is_done:
                    appends.append(result)
        super().__init__(appends)
        self._topic = topic
        self._submitted = submitted
        self._correlation_id = correlation_id

    def result(self) -> list[Buffer]:
        return self._topic.frame(self._submitted, self._correlation_id)


class KnownTopics(KnownHeads[KnownTopic]):
    """The topics of one gateway, by version and head: the bytes from the client id to the topic.

    No rights are checked here: whoever adds some must make them part of what is looked up.
    """

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway

    def start(
        self, frame: memoryview, version: int, correlation_id: int, session: Session
    ) -> list[Buffer] | SpreadAnswer | None:
        """Begin a request if it repeats an earlier one; None leaves it to `produce`."""
        head_end = session.spread_head_end
        place = self.find(frame, version, head_end)
        if place is None or place.topic.is_deleted:
            return None
        parts = _parts(frame, head_end, place.topic)
        return None if parts is None else place.append(parts, correlation_id)

    def note(
        self, frame: memoryview, version: int, request: ProduceRequest, session: Session
    ) -> None:
        """Remember the head of a request that `start` left to `produce`, if it is usual."""
        if (
            version < FIRST_VERSION
            or len(request.topic_data) != 1
            or not _FEWEST <= len(request.topic_data[0].partition_data) <= MOST_PARTITIONS
            or request.acks not in _ANSWERED
            or request.transactional_id is not None
        ):
            return
        data = request.topic_data[0]
        catalog = self._gateway.catalog
        topic = catalog.by_id(data.topic_id) if version >= 13 else catalog.get(data.name)
        if topic is None or not self.has_room():
            return
        # Of its own, not of the request: that would keep its records in memory.
        marked = TopicProduceData(
            name=data.name,
            topic_id=data.topic_id,
            partition_data=[PartitionProduceData(index=0, records=_MARKED_RECORDS)],
        )
        before, _, _ = (
            codec(ProduceRequest, version)
            .encode(
                ProduceRequest(
                    acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[marked]
                )
            )
            .partition(_MARKED_RECORDS)
        )
        # Without the number of partitions, an index and a length.
        head = session.header.tail + before[: -2 - _INT32.size]
        head_end = CLIENT_ID_POSITION + len(head)
        # A client may have put it otherwise: tagged fields, longer integers.
        if len(head) <= MAX_HEAD_BYTES and frame[CLIENT_ID_POSITION:head_end] == head:
            self.remember(version, head, KnownTopic(self._gateway, topic, marked, version))
            session.spread_head_end = head_end


def _parts(
    frame: memoryview, position: int, topic: Topic
) -> list[tuple[Partition, memoryview]] | None:
    """Return partition and records of each part behind a head.

    None unless there is all of it, they and no tagged fields fill the frame, there are such
    partitions, and no more of them than one turn of the loop takes.
    """
    parts: list[tuple[Partition, memoryview]] = []
    try:
        count, position = read_unsigned_varint(frame, position)
        if not _FEWEST < count <= MOST_PARTITIONS + 1:
            return None
        for _ in range(count - 1):
            (index,) = _INT32.unpack_from(frame, position)
            size, start = read_unsigned_varint(frame, position + _INT32.size)
            position = start + size - 1
            partition = topic.partition(index)
            if partition is None or size < 2 or frame[position] != _NO_TAGS:
                return None
            parts.append((partition, frame[start:position]))
            position += 1
        if frame[position] != _NO_TAGS or frame[position + 1] != _NO_TAGS:
            return None
    except (DecodeError, IndexError, struct.error):
        return None
    return parts if position + 2 == len(frame) else None
