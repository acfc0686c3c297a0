from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from bench.loads.frames import batch_of, produce_frame
from bench.loads.sockets import Request, drive, percentile, produce, produce_errors
from kgw.protocol.framing import response_frame
from kgw.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.loads.frames import Address

    Answer = Callable[[int, int], bytes]

SIZE = struct.Struct(">i")
CORRELATION_ID = struct.Struct(">i")


@contextmanager
def server(answer: Answer, connections: int = 1) -> Iterator[Address]:
    """Answers the n-th request of a connection, with its correlation id, by `answer(n, id)`."""

    def serve(connection: socket.socket) -> None:
        # A client that refuses an answer leaves others unread.
        with suppress(ConnectionError), connection, connection.makefile("rb") as stream:
            number = 0
            while size := stream.read(SIZE.size):
                frame = stream.read(SIZE.unpack(size)[0])
                connection.sendall(answer(number, CORRELATION_ID.unpack_from(frame, 4)[0]))
                number += 1

    def accept() -> None:
        threads = []
        for _ in range(connections):
            threads.append(threading.Thread(target=serve, args=(listener.accept()[0],)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()
        thread.join()


def produced(
    correlation_id: int, base_offset: int, error_code: int = 0, log_start_offset: int = 0
) -> bytes:
    """The answer to a Produce of topic `bench`."""
    partition = PartitionProduceResponse(
        index=0, error_code=error_code, base_offset=base_offset, log_start_offset=log_start_offset
    )
    topic = TopicProduceResponse(name="bench", partition_responses=[partition])
    return b"".join(response_frame(ProduceResponse(responses=[topic]), 9, correlation_id))


def one_record() -> Request:
    """What the load sends."""
    return produce(produce_frame("bench", {0: batch_of(1, 10)}), "bench")


def test_so_many_are_answered_as_were_sent() -> None:
    """Each connection asks once before the clock starts, and base offsets may be any."""
    asked = []

    def answer(number: int, correlation_id: int) -> bytes:
        asked.append(number)
        return produced(correlation_id, base_offset=number)

    with server(answer, connections=2) as address:
        driven = drive(address, [one_record(), one_record()], 3, 60.0, most=20)
    assert len(asked) - 2 == driven.answers == len(driven.latencies_s)
    assert 20 <= driven.answers <= 20 + 2 * 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda correlation_id: produced(correlation_id + 1, base_offset=9),
        lambda correlation_id: produced(correlation_id, base_offset=9, error_code=6),
        lambda correlation_id: produced(correlation_id, base_offset=9, log_start_offset=1),
    ],
    ids=["correlation id", "error code", "anything else"],
)
def test_an_answer_that_is_not_the_one_expected_is_refused(wrong: Callable[[int], bytes]) -> None:
    """All but the base offset is as in the first answer, and answers come in order."""

    def answer(number: int, correlation_id: int) -> bytes:
        return wrong(correlation_id) if number == 7 else produced(correlation_id, number)

    with server(answer) as address, pytest.raises(AssertionError, match="expected"):
        drive(address, [one_record()], 2, 60.0, most=100)


def test_a_connection_waits_until_its_partition_is_led() -> None:
    """A broker may say that it leads before it does; only then is an answer learned."""

    def answer(number: int, correlation_id: int) -> bytes:
        return produced(correlation_id, number, error_code=6 if number < 2 else 0)

    with server(answer) as address:
        assert drive(address, [one_record()], 1, 60.0, most=3).answers >= 3


def test_errors_of_a_produce_are_named() -> None:
    """Success is none."""
    assert set() == produce_errors(bytearray(produced(1, 0)[4:]))
    assert {6} == produce_errors(bytearray(produced(1, 0, error_code=6)[4:]))


def test_a_percentile_is_one_of_the_values() -> None:
    """The largest, where there are few."""
    assert [2, 3, 3] == [percentile([3, 1, 2], share) for share in (0.5, 0.99, 1.0)]
