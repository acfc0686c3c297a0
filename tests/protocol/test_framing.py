"""Frames cut anywhere, and whole frames made of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import DecodeError, FrameTooLargeError, ProtocolError
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec
from kgw.protocol.framing import FrameBuffer, decode_response, request_frame, response_frame
from kgw.protocol.headers import decode_request_header
from kgw.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kgw.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kgw.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from kgw.protocol.primitives import Buffer


@given(frames=st.lists(st.binary(max_size=60), max_size=8), cuts=st.lists(st.integers(0, 500)))
def test_frames_come_out_the_same_however_the_bytes_are_cut(
    frames: list[bytes], cuts: list[int]
) -> None:
    """What goes in as frames comes out as frames, and nothing is held when all have ended."""
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in frames)
    buffer = FrameBuffer(max_frame_bytes=60)
    found = []
    start = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(stream)), len(stream)]:
        found += buffer.feed(memoryview(stream)[start:cut])
        start = cut
    assert frames == found
    assert 0 == len(buffer)


def test_bytes_one_at_a_time() -> None:
    """A frame is complete with its last byte, not before."""
    buffer = FrameBuffer(max_frame_bytes=10)
    stream = b"\0\0\0\3abc\0\0\0\0"
    assert [[]] * 6 == [buffer.feed(stream[at : at + 1]) for at in range(6)]
    assert 6 == len(buffer)
    assert [b"abc"] == buffer.feed(b"c")
    assert [b""] == buffer.feed(b"\0\0\0\0")


def test_too_large_frames_are_refused_when_their_length_is_known() -> None:
    """The length is judged before any of the frame has come."""
    buffer = FrameBuffer(max_frame_bytes=10)
    assert [b"0123456789"] == buffer.feed(b"\0\0\0\x0a0123456789")
    with pytest.raises(FrameTooLargeError, match="11 bytes: at most 10"):
        buffer.feed(b"\0\0\0\x0b")


def test_negative_lengths_are_refused() -> None:
    """HTTP and TLS on the port often look like this, or like huge frames."""
    with pytest.raises(ProtocolError, match="a frame of -1 bytes"):
        FrameBuffer(max_frame_bytes=10).feed(b"\xff\xff\xff\xff")


def _body(parts: list[Buffer]) -> bytes:
    stream = b"".join(parts)
    assert len(stream) - 4 == int.from_bytes(stream[:4])
    return stream[4:]


@pytest.mark.parametrize("version", range(14))
def test_request_frames(version: int) -> None:
    """Length, header in the version that goes with the message, body."""
    request = MetadataRequest()
    frame = _body(request_frame(request, version, 77, "client"))
    header, position = decode_request_header(frame)
    assert (ApiKey.METADATA, version) == (header.request_api_key, header.request_api_version)
    assert (77, "client") == (header.correlation_id, header.client_id)
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
