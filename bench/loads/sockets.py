"""Requests over bare sockets, closed loop: so many in flight on each connection, for some seconds.

One thread, one epoll, frames made before the clock starts, and no decoding: an answer is compared
with the first of its connection, which was decoded. So the generator costs little of the cores
that it shares with the server, and says what it cost.
"""

from __future__ import annotations

import gc
import math
import select
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from bench.loads.frames import (
    COMMIT_VERSION,
    CORRELATION_ID_AT,
    FETCH_VERSION,
    METADATA_VERSION,
    PRODUCE_VERSION,
    Address,
    connect,
    exchange,
)
from kgw.protocol.framing import decode_response
from kgw.protocol.messages.fetch import FetchRequest, FetchResponse
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kgw.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kgw.protocol.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RECEIVE_BYTES = 1 << 18
FIRST_ANSWER_LIMIT_S = 10.0
STUCK_S = 60.0

_INT32 = struct.Struct(">i")


class Request(NamedTuple):
    """One request as it is sent again and again on a connection, and how its answers are told.

    Answers to the same request differ in nothing but the correlation id and what `varying` spans:
    the base offset of a Produce to one partition. `errors` says what is wrong with the first one.
    """

    frame: bytearray
    errors: Callable[[bytearray], set[int]]
    varying: slice = slice(0, 0)


class Driven(NamedTuple):
    """What came of a load."""

    answers: int
    elapsed_s: float
    latencies_s: list[float]
    generator_cpu_s: float

    @property
    def per_s(self) -> float:
        """Answers a second."""
        return self.answers / self.elapsed_s

    def figures(self) -> dict[str, float]:
        """Rate, median and 99th percentile, and the generator's own processor time."""
        return {
            "requests": self.answers,
            "requests_per_s": self.per_s,
            "p50_ms": percentile(self.latencies_s, 0.5) * 1e3,
            "p99_ms": percentile(self.latencies_s, 0.99) * 1e3,
            "generator_cpu_us": self.generator_cpu_s / self.answers * 1e6,
        }


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class _Lane:
    """One connection: what it sends, what it awaits and what it holds of an answer."""

    def __init__(self, address: Address, request: Request, depth: int) -> None:
        self.connection = connect(address)
        first = self._first_answer(request)
        self.frame_bytes = len(request.frame)
        self.answer_bytes = _INT32.size + len(first)
        start, stop, _ = request.varying.indices(len(first))
        # Size, correlation id, what is alike, what varies, what is alike.
        self.layout = struct.Struct(
            f">ii{max(0, start - 4)}s{stop - start}x{len(first) - max(4, stop)}s"
        )
        self.alike = (
            len(first),
            bytes(first[4 : max(4, start)]),
            bytes(first[max(4, stop) :]),
        )
        self.burst = request.frame * depth
        self.view = memoryview(self.burst)
        self.held = bytearray()
        self.sent = self.answered = 0
        self.sent_at: deque[float] = deque()

    def _first_answer(self, request: Request) -> bytearray:
        # A broker may not lead yet what it has just said that it leads: clients ask again.
        deadline = time.monotonic() + FIRST_ANSWER_LIMIT_S
        while True:
            answer = exchange(self.connection, request.frame)
            errors = request.errors(answer)
            if not errors:
                return answer
            if time.monotonic() > deadline:
                raise RuntimeError(f"the first request was answered with {errors}")
            time.sleep(0.02)

    def send(self, count: int, now_s: float) -> None:
        position = CORRELATION_ID_AT
        for correlation_id in range(self.sent, self.sent + count):
            _INT32.pack_into(self.burst, position, correlation_id)
            position += self.frame_bytes
            self.sent_at.append(now_s)
        self.sent += count
        self.connection.sendall(self.view[: count * self.frame_bytes])

    def receive(self) -> int:
        """Read what has come; return how many answers were completed by it.

        Raises AssertionError for an answer that is not the one expected.
        """
        chunk: bytes | bytearray = self.connection.recv(RECEIVE_BYTES)
        if not chunk:
            raise ConnectionError("the server closed a connection")
        if self.held or len(chunk) % self.answer_bytes:
            self.held += chunk
            whole = len(self.held) // self.answer_bytes * self.answer_bytes
            chunk = self.held[:whole]
            del self.held[:whole]
        size, before, after = self.alike
        correlation_id = self.answered
        for found in self.layout.iter_unpack(chunk):
            expected = (size, correlation_id, before, after)
            assert found == expected, f"answered with {found}, expected {expected}"
            correlation_id += 1
        count = correlation_id - self.answered
        self.answered = correlation_id
        return count


def drive(
    address: Address,
    requests: Sequence[Request],
    depth: int,
    seconds: float,
    *,
    most: float = math.inf,
) -> Driven:
    """Keep `depth` requests in flight on a connection for each of `requests`, for some seconds.

    It ends before when `most` requests have been answered, or a few more: those in flight.

    Each connection sends its request once before, to learn what its answers look like.

    Raises:
        RuntimeError: a connection's first answer carries an error.
        AssertionError: a later one carries an error, another correlation id, or differs otherwise.
        TimeoutError: the server answers no more.
    """
    lanes = [_Lane(address, request, depth) for request in requests]
    by_descriptor = {lane.connection.fileno(): lane for lane in lanes}
    epoll = select.epoll()
    for descriptor in by_descriptor:
        epoll.register(descriptor, select.EPOLLIN)
    latencies: list[float] = []
    clock = time.perf_counter
    gc.collect()
    gc.disable()
    try:
        cpu_s = time.process_time()
        began_s = clock()
        end_s = began_s + seconds
        for lane in lanes:
            lane.send(depth, clock())
        in_flight = depth * len(lanes)
        while in_flight:
            ready = epoll.poll(STUCK_S)
            if not ready:
                raise TimeoutError("the server answers no more")
            for descriptor, _ in ready:
                lane = by_descriptor[descriptor]
                count = lane.receive()
                now_s = clock()
                latencies += [now_s - lane.sent_at.popleft() for _ in range(count)]
                if now_s < end_s and len(latencies) < most:
                    if count:
                        lane.send(count, now_s)
                else:
                    in_flight -= count
        elapsed_s = clock() - began_s
        cpu_s = time.process_time() - cpu_s
    finally:
        gc.enable()
        epoll.close()
        for lane in lanes:
            lane.connection.close()
    return Driven(len(latencies), elapsed_s, latencies, cpu_s)


# --- the requests ---------------------------------------------------------------------------------


def produce(frame: bytearray, topic: str) -> Request:
    """A Produce to one partition, of which the base offset varies from answer to answer."""
    # Correlation id, no tags, one topic, its name, one partition, its index and error code.
    base_offset_at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4 + 2
    return Request(frame, produce_errors, slice(base_offset_at, base_offset_at + 8))


def produce_errors(answer: bytearray) -> set[int]:
    """The error codes of a Produce that was not accepted for every partition."""
    response = decode_response(answer, ProduceRequest.api_key, PRODUCE_VERSION)[1]
    assert isinstance(response, ProduceResponse)
    return {one.error_code for of in response.responses for one in of.partition_responses} - {0}


def fetch(frame: bytearray) -> Request:
    """A Fetch of records that are there, and to which none are added."""

    def errors(answer: bytearray) -> set[int]:
        response = decode_response(answer, FetchRequest.api_key, FETCH_VERSION)[1]
        assert isinstance(response, FetchResponse)
        partitions = [one for topic in response.responses for one in topic.partitions]
        assert all(one.records for one in partitions), "a Fetch without records"
        return {response.error_code, *(one.error_code for one in partitions)} - {0}

    return Request(frame, errors)


def offset_commit(frame: bytearray) -> Request:
    """An OffsetCommit."""

    def errors(answer: bytearray) -> set[int]:
        response = decode_response(answer, OffsetCommitRequest.api_key, COMMIT_VERSION)[1]
        assert isinstance(response, OffsetCommitResponse)
        return {one.error_code for topic in response.topics for one in topic.partitions} - {0}

    return Request(frame, errors)


def metadata(frame: bytearray, partitions: int) -> Request:
    """A Metadata request whose answer has so many partitions."""

    def errors(answer: bytearray) -> set[int]:
        response = decode_response(answer, MetadataRequest.api_key, METADATA_VERSION)[1]
        assert isinstance(response, MetadataResponse)
        found = sum(len(topic.partitions) for topic in response.topics)
        assert found == partitions, f"Metadata of {found} partitions, not of {partitions}"
        return {topic.error_code for topic in response.topics} - {0}

    return Request(frame, errors)
