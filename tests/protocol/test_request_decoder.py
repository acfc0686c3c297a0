"""What the decoder of a connection remembers changes no request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import DecodeError
from kgw.protocol.codec import codec
from kgw.protocol.framing import request_frame
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kgw.protocol.messages.heartbeat import HeartbeatRequest
from kgw.protocol.request_decoder import RepeatBudget, RequestDecoder

if TYPE_CHECKING:
    from kgw.protocol.schema import Request


def frame_of(
    request: Request, version: int, correlation_id: int = 1, client_id: str | None = "client"
) -> memoryview:
    """Return a request's frame without its length."""
    parts = request_frame(request, version, correlation_id, client_id)
    return memoryview(bytearray(b"".join(parts)))[4:]


def fetch(partitions: int = 1, offset: int = 0) -> FetchRequest:
    """Return a request that names so many partitions."""
    asked = [FetchPartition(partition=one, fetch_offset=offset) for one in range(partitions)]
    return FetchRequest(topics=[FetchTopic(topic="orders", partitions=asked)])


def decode(decoder: RequestDecoder, frame: memoryview, version: int) -> Request:
    """Decode a Fetch."""
    return decoder.decode(frame, codec(FetchRequest, version))


def test_the_same_fetch_is_the_same_object() -> None:
    """Whatever its correlation id; another one, or another version, is another."""
    decoder = RequestDecoder()
    first = decode(decoder, frame_of(fetch(), 11, 1), 11)
    assert fetch() == first
    assert decoder.remembers(first)
    assert first is decode(decoder, frame_of(fetch(), 11, 2), 11)
    for request, version, client_id in [
        (fetch(offset=1), 11, "client"),
        (fetch(), 10, "client"),
        (fetch(), 11, "another"),
    ]:
        other = decode(decoder, frame_of(request, version, 3, client_id), version)
        assert request == other
        assert first is not other
        assert not decoder.remembers(first)
        assert client_id == decoder.client_id
        first = decode(decoder, frame_of(fetch(), 11), 11)


def test_other_requests_are_decoded_each_time_and_leave_the_fetch_alone() -> None:
    """Consumers send heartbeats in between."""
    decoder = RequestDecoder()
    first = decode(decoder, frame_of(fetch(), 11), 11)
    beat = frame_of(HeartbeatRequest(group_id="group"), 3)
    beats = [decoder.decode(beat, codec(HeartbeatRequest, 3)) for _ in range(2)]
    assert beats[0] == beats[1]
    assert beats[0] is not beats[1]
    assert first is decode(decoder, frame_of(fetch(), 11), 11)


def test_a_fetch_that_is_known_says_whose_it_is() -> None:
    """Also behind a request in which the client has called itself something else."""
    decoder = RequestDecoder()
    first = decode(decoder, frame_of(fetch(), 11), 11)
    beat = frame_of(HeartbeatRequest(group_id="group"), 3, client_id="another")
    decoder.decode(beat, codec(HeartbeatRequest, 3))
    assert "another" == decoder.client_id
    assert first is decode(decoder, frame_of(fetch(), 11), 11)
    assert "client" == decoder.client_id


def test_a_large_fetch_is_remembered_within_a_budget() -> None:
    """Also where it is decoded in turns; `forget` gives its bytes back."""
    budget = RepeatBudget()
    frame = frame_of(fetch(10_000), 11)
    decoders = [RequestDecoder(budget) for _ in range(5)]
    remembered = []
    for decoder in decoders:
        turns = decoder.decode_in_turns(frame, codec(FetchRequest, 11))
        while True:
            try:
                next(turns)
            except StopIteration as end:
                remembered.append(decoder.remembers(end.value))
                break
    assert [True] * 3 + [False] * 2 == remembered
    assert 3 * len(frame) == budget.used_bytes
    with pytest.raises(StopIteration):
        next(decoders[0].decode_in_turns(frame, codec(FetchRequest, 11)))
    for decoder in decoders:
        decoder.forget()
    assert 0 == budget.used_bytes


@pytest.mark.parametrize("client_id", [None, "", "x" * 300])
def test_headers_of_any_length(client_id: str | None) -> None:
    """One that is too long is decoded each time, and one that was cut is refused each time."""
    decoder = RequestDecoder()
    for version in (11, 12, 12, 11):
        frame = frame_of(fetch(), version, client_id=client_id)
        assert fetch() == decode(decoder, frame, version)
        assert client_id == decoder.client_id
        with pytest.raises(DecodeError):
            decode(decoder, frame[:9], version)
