"""Packed arrays: what they say is what decoding one element after the other says."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import DecodeError
from kgw.protocol.codec import codec
from kgw.protocol.decoding import FEWEST_PACKED, compile_decoder
from kgw.protocol.messages.join_group import JoinGroupRequestProtocol
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kgw.protocol.packed import PackedItems, PackedReader

VERSIONS = range(OffsetCommitRequest.valid_versions[1] + 1)
texts = st.none() | st.text(max_size=4) | st.sampled_from(["m" * 100, "m" * 101, "m" * 130])


@cache
def _plain(version: int) -> Any:
    """Return a decoder that packs nothing."""
    flexible = codec(OffsetCommitRequest, version).flexible
    return compile_decoder(OffsetCommitRequest, version, flexible=flexible, fewest_packed=1 << 31)


def request(numbers: list[tuple[int, int, int]], texts_of: list[str | None], version: int) -> bytes:
    """Return a commit of these partitions, offsets and leader epochs."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=texts_of[number % len(texts_of)],
        )
        for number, (partition, offset, leader_epoch) in enumerate(numbers)
    ]
    topic = OffsetCommitRequestTopic(name="topic", partitions=partitions)
    message = OffsetCommitRequest(group_id="group", topics=[topic])
    return codec(OffsetCommitRequest, version).encode(message)


int32 = st.integers(-(2**31), 2**31 - 1)
numbers = st.lists(
    st.tuples(int32, st.integers(-(2**63), 2**63 - 1), int32), min_size=10, max_size=40
)


@given(numbers, st.lists(texts, min_size=1, max_size=2), st.sampled_from(VERSIONS))
def test_a_packed_array_says_what_its_elements_say(
    numbers: list[tuple[int, int, int]],
    texts_of: list[str | None],
    version: int,
) -> None:
    """Whether elements are alike or not, in every version."""
    data = request(numbers, texts_of, version)

    read = codec(OffsetCommitRequest, version).decode(data)

    assert (read, len(data)) == _plain(version)(data, 0, 1 << 30)
    items: Any = read.topics[0].partitions
    is_alike = len(set(texts_of)) == 1 and len((texts_of[0] or "").encode()) <= 100
    assert (is_alike and len(numbers) >= FEWEST_PACKED) == isinstance(items, PackedItems)
    assert list(items) == [items[index] for index in range(len(items))]


@given(
    st.sampled_from(VERSIONS),
    st.sampled_from([None, "", "note"]),
    st.data(),
)
def test_broken_bytes_are_read_alike(
    version: int,
    text: str | None,
    data: st.DataObject,
) -> None:
    """Bytes that were changed or cut are refused or read as without packing."""
    broken = bytearray(request([(index, index, 1) for index in range(20)], [text], version))
    for _ in range(data.draw(st.integers(0, 2))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    del broken[data.draw(st.integers(0, len(broken)) | st.just(len(broken))) :]

    def outcome(decode: Any, *budget: int) -> object:
        try:
            message, stop = decode(bytes(broken), 0, *budget)
        except (DecodeError, IndexError, struct.error):
            return "refused"
        return message, stop

    packing = codec(OffsetCommitRequest, version).decode_prefix
    assert outcome(_plain(version), 1 << 30) == outcome(packing)


def test_other_structures_cannot_be_packed() -> None:
    """Who declares such an array hears it when its decoder is made."""
    with pytest.raises(ValueError, match="not numbers and a text"):
        PackedReader(JoinGroupRequestProtocol, 0, flexible=False)
