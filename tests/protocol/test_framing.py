"""Frames cut anywhere, and whole frames made of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import DecodeError, FrameTooLargeError, ProtocolError
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec
from kgw.protocol.framing import (
    FrameReader,
    decode_request_header,
    decode_response,
    peek_request_header,
    request_frame,
    response_frame,
)
from kgw.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kgw.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kgw.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.protocol.frames import feed

if TYPE_CHECKING:
    from kgw.protocol.primitives import Buffer


@given(
    frames=st.lists(st.binary(max_size=60), max_size=8),
    cuts=st.lists(st.integers(0, 500)),
    read_bytes=st.integers(4, 100),
)
def test_frames_come_out_the_same_however_the_bytes_are_cut(
    frames: list[bytes], cuts: list[int], read_bytes: int
) -> None:
    """What goes in as frames comes out as frames, and nothing is held when all have ended."""
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in frames)
    reader = FrameReader(max_frame_bytes=60)
    found = []
    start = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(stream)), len(stream)]:
        found += feed(reader, memoryview(stream)[start:cut], read_bytes)
        start = cut
    assert frames == found
    assert (0, False) == (reader.held_bytes, reader.is_within_frame)


def test_bytes_one_at_a_time() -> None:
    """A frame is complete with its last byte, not before."""
    reader = FrameReader(max_frame_bytes=10)
    stream = b"\0\0\0\3abc\0\0\0\0"
    assert [[]] * 6 == [feed(reader, stream[at : at + 1]) for at in range(6)]
    assert reader.is_within_frame
    assert "2 of 3 bytes" == reader.progress
    assert [b"abc"] == feed(reader, b"c")
    assert [b""] == feed(reader, b"\0\0\0\0")


def test_so_many_frames_at_a_time() -> None:
    """The rest is kept as it is, whatever is read elsewhere into the same buffer, and cut later."""
    reader = FrameReader(max_frame_bytes=10)
    stream = b"\0\0\0\1a\0\0\0\1b\0\0\0\1c\0\0"
    shared = memoryview(bytearray(stream))
    assert [b"a"] == reader.take(shared, len(stream), 1)
    shared[:] = bytes(len(shared))
    assert (True, 12) == (reader.has_rest, reader.held_bytes)
    assert [[b"b"], [b"c"], []] == [reader.take_rest(1) for _ in range(3)]
    assert (False, True) == (reader.has_rest, reader.is_within_frame)
    assert [b"d"] == feed(reader, b"\0\1d")


def test_what_no_frame_can_be_is_refused_when_it_is_known() -> None:
    """A length above the limit or below the least, or a key that is none: before more has come."""
    assert [b"01234567"] == feed(FrameReader(10, 8, {3}), b"\0\0\0\x0801234567")
    for start, problem in [
        (b"\0\0\0\x0b", "a frame of 11 bytes: at most 10"),
        (b"\0\0\0\7", "a frame of 7 bytes"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\0\0\0\x09\0\4", "API key 4 does not exist"),
    ]:
        with pytest.raises(ProtocolError, match=problem):
            feed(FrameReader(10, 8, {3}), start)


def test_frames_before_a_refused_one_come_first() -> None:
    """What was sent before it has to be answered."""
    reader = FrameReader(max_frame_bytes=10)
    stream = memoryview(bytearray(b"\0\0\0\1a\x0f\0\0\0"))
    assert [b"a"] == reader.take(stream, len(stream))
    with pytest.raises(FrameTooLargeError):
        reader.take_rest()


def _body(parts: list[Buffer]) -> bytes:
    stream = b"".join(parts)
    assert len(stream) - 4 == int.from_bytes(stream[:4])
    return stream[4:]


@pytest.mark.parametrize("version", range(14))
def test_request_frames(version: int) -> None:
    """Length, header in the version that goes with the message, body."""
    request = MetadataRequest()
    frame = _body(request_frame(request, version, 77, "client"))
    client_id, position = decode_request_header(frame)
    assert (ApiKey.METADATA, version, 77) == peek_request_header(frame)
    assert "client" == client_id
    assert request == codec(MetadataRequest, version).decode(frame, position)


@pytest.mark.parametrize("version", range(14))
def test_response_frames(version: int) -> None:
    """Length, correlation id, tagged fields where the version is flexible, body."""
    response = MetadataResponse(controller_id=-1)
    frame = _body(response_frame(response, version, 78))
    assert (78, response) == decode_response(memoryview(frame), ApiKey.METADATA, version)


def test_api_versions_responses_have_the_oldest_header() -> None:
    """A client that speaks a newer ApiVersions than the broker must be able to read the answer."""
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    frame = _body(response_frame(response, 3, 5))
    assert codec(ApiVersionsResponse, 3).encode(response) == frame[4:]
    assert (5, response) == decode_response(frame, ApiKey.API_VERSIONS, 3)
    request = _body(request_frame(ApiVersionsRequest(), 3, 5, None))
    assert b"\0\x12\0\3\0\0\0\5\xff\xff\0" == request[:11]


def test_large_parts_are_not_copied() -> None:
    """Records go from the message into the gather write as they are."""
    records = bytes(100_000)
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    parts = request_frame(request, 9, 1, None)
    assert records is parts[1]
    assert 3 == len(parts)
    _body(parts)
    topics = [FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])]
    assert any(records is part for part in response_frame(FetchResponse(responses=topics), 11, 1))


def test_a_long_body_gets_a_part_of_its_own() -> None:
    """A header is not joined to a body of megabytes."""
    cluster_id = "x" * 30_000
    parts = response_frame(MetadataResponse(cluster_id=cluster_id), 2, 1)
    assert 2 == len(parts)
    expected = MetadataResponse(cluster_id=cluster_id)
    assert (1, expected) == decode_response(_body(parts), ApiKey.METADATA, 2)


def test_truncated_responses() -> None:
    """A response without a whole header, or with half a body, is a DecodeError."""
    frame = _body(response_frame(MetadataResponse(), 9, 1))
    for size in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_response(frame[:size], ApiKey.METADATA, 9)
