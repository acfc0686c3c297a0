"""Frames that were made to exhaust memory: limits on counts, objects and tags."""

from __future__ import annotations

import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import DecodeError
from kgw.protocol.codec import codec
from kgw.protocol.framing import FrameReader, decode_request_header
from kgw.protocol.layout import TEXT_COST, item_memory_cost, minimum_item_size
from kgw.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kgw.protocol.messages.produce import ProduceRequest
from kgw.protocol.primitives import unsigned_varint
from kgw.protocol.schema import IMPLICIT_DEFAULTS, Request
from tests.protocol.frames import feed
from tests.protocol.random_messages import all_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.protocol.schema import Message

MEGABYTE = 1_000_000


def _peak_bytes(decode: Callable[[], object]) -> tuple[int, bool]:
    """Return the most memory that was held while decoding, and whether it was refused."""
    tracemalloc.start()
    try:
        try:
            message = decode()
            refused = False
        except DecodeError:
            message, refused = None, True
        peak = tracemalloc.get_traced_memory()[1]
        del message
    finally:
        tracemalloc.stop()
    return peak, refused


def _bombs(message: Any, version: int, size: int) -> Iterator[tuple[str, bytes]]:
    """Yield (what, frame) for each top-level array: as many of the smallest elements as fit.

    Elements are zero bytes, which are valid for most and the densest; and, where the elements hold
    strings, the shortest string that costs an object.
    """
    ours = codec(message, version)
    default = ours.encode(message())
    for name, field in message.field_table.items():
        if not field.present(version) or field.tag is not None or field.kind != "array":
            continue
        one = [IMPLICIT_DEFAULTS[field.item] if isinstance(field.item, str) else field.item()]
        # The count of elements differs first, in its only byte or the last of four.
        pairs = zip(default, ours.encode(message(**{name: one})), strict=False)
        place = next(number for number, (before, after) in enumerate(pairs) if before != after)
        prefix = default[: place if ours.flexible else place - 3]
        item_bytes = minimum_item_size(field.item, version, flexible=ours.flexible)
        for filler in (b"\0", b"\1", b"\2", b"\2ab"):
            content = (filler * (size // len(filler) + 1))[: size // item_bytes * item_bytes]
            count = len(content) // item_bytes
            length = unsigned_varint(count + 1) if ours.flexible else count.to_bytes(4, "big")
            yield f"{name} of {filler!r}", prefix + length + content


def _request_versions() -> Iterator[tuple[type[Message], int]]:
    """Each request in its last version before and after flexible encoding."""
    for message, version in all_versions():
        if issubclass(message, Request):
            first, last = message.valid_versions
            since = message.flexible_since
            if version == last or (since is not None and version == since - 1 >= first):
                yield message, version


# tracemalloc looks up the line of each allocation, which takes long in long generated functions.
@pytest.mark.timeout(60)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "version"),
    list(_request_versions()),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_memory_stays_within_sixteen_times_the_frame(message: Any, version: int) -> None:
    """However dense a request is, decoding it takes at most 16 times its size and a megabyte."""
    ours = codec(message, version)
    ours.decode(ours.encode(message()))  # compiles the decoder
    size = 30_000
    for what, frame in _bombs(message, version, size):
        peak, _ = _peak_bytes(partial(ours.decode_prefix, memoryview(frame)))
        assert peak <= 16 * len(frame) + MEGABYTE, what


def test_count_of_a_large_array_in_a_small_frame() -> None:
    """A count that the remaining bytes cannot hold is refused before anything is allocated."""
    for version, frame in ((1, b"\x7f\xff\xff\xff"), (9, b"\xff\xff\xff\xff\x07")):
        ours = codec(MetadataRequest, version)
        ours.decode(ours.encode(MetadataRequest()))  # compiles the decoder
        peak, refused = _peak_bytes(partial(ours.decode, frame))
        assert refused
        assert peak < 10_000


def test_dense_elements_are_refused_before_they_are_made() -> None:
    """A million empty partitions in six megabytes are refused by the budget, without 48 times."""
    count = 1_000_000
    frame = b"\0\0\1\0\0\0\0\2\2t" + unsigned_varint(count + 1) + b"\0\0\0\0\1\0" * count + b"\0\0"
    with pytest.raises(DecodeError, match="partition_data: too many elements"):
        codec(ProduceRequest, 9).decode(frame)
    count = 2_000
    frame = b"\0\0\1\0\0\0\0\2\2t" + unsigned_varint(count + 1) + b"\0\0\0\0\1\0" * count + b"\0\0"
    assert count == len(codec(ProduceRequest, 9).decode(frame).topic_data[0].partition_data)


def test_ordinary_large_requests_are_far_from_the_budget() -> None:
    """A request for 20,000 topics with names of 20 bytes, or 30,000 commits, is decoded."""
    topics = [MetadataRequestTopic(name=f"topic-{number:014}") for number in range(20_000)]
    metadata = MetadataRequest(topics=topics)
    ours = codec(MetadataRequest, 12)
    assert metadata == ours.decode(ours.encode(metadata))
    partitions = [OffsetCommitRequestPartition(partition_index=number) for number in range(10)]
    commit = OffsetCommitRequest(
        group_id="group",
        topics=[
            OffsetCommitRequestTopic(name=f"topic-{number:014}", partitions=partitions)
            for number in range(3_000)
        ],
    )
    assert commit == codec(OffsetCommitRequest, 8).decode(
        codec(OffsetCommitRequest, 8).encode(commit)
    )


def test_no_request_takes_more_than_some_megabytes() -> None:
    """Beyond some size a request does not get more memory for being larger; a response does."""
    element = b"\0" * 16 + b"\x15" + b"t" * 20 + b"\0"
    for count, refused in ((20_000, False), (80_000, True)):
        frame = unsigned_varint(count + 1) + element * count + b"\0\0\0"
        assert refused == _peak_bytes(partial(codec(MetadataRequest, 12).decode, frame))[1]
    topics = [MetadataResponseTopic(name=f"topic-{number:014}") for number in range(40_000)]
    response = MetadataResponse(topics=topics)
    ours = codec(MetadataResponse, 12)
    assert response == ours.decode(ours.encode(response))


def test_tags_in_a_header_before_authentication() -> None:
    """Millions of unknown tags before authentication are refused at once (CVE-2026-111115)."""
    tags = unsigned_varint(10_000_000) + b"\0\0" * 1_000_000
    frame = b"\0\x12\0\3\0\0\0\1\xff\xff" + tags
    peak, refused = _peak_bytes(lambda: decode_request_header(frame))
    assert refused
    assert peak < 10_000


def test_announced_frame_length_allocates_nothing() -> None:
    """A FrameReader holds the bytes that came, not those that were announced."""
    tracemalloc.start()
    try:
        reader = FrameReader(max_frame_bytes=100_000_000)
        assert [] == feed(reader, b"\x05\xf5\xe0\xff" + b"x" * 1000, 2000)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_cost_of_an_element_is_not_underestimated() -> None:
    """The estimated cost of elements is at least what CPython allocates for the largest values."""
    count = 20_000
    partition = (2**30).to_bytes(4) + (2**62).to_bytes(8) + (2**30).to_bytes(4) + b"\3ab\0"
    frame = b"\2g\0\0\0\0\1\0\2" + b"\2t" + unsigned_varint(count + 1) + partition * count + b"\0\0"
    peak, refused = _peak_bytes(lambda: codec(OffsetCommitRequest, 8).decode(frame))
    assert not refused
    cost = item_memory_cost(OffsetCommitRequestPartition, 8) + TEXT_COST
    assert peak <= count * cost + 20_000
