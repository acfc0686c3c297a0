"""Blobs, with the version that precedes them."""

from __future__ import annotations

import pytest

from kgw.errors import DecodeError
from kgw.protocol.blobs import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_blob,
    decode_subscribed_topics,
    encode_blob,
)


@pytest.mark.parametrize("version", range(4))
def test_subscriptions(version: int) -> None:
    """The version of a subscription is in its first two bytes."""
    blob = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"u")
    encoded = encode_blob(blob, version)
    assert version.to_bytes(2) == encoded[:2]
    assert (blob, version) == decode_blob(ConsumerProtocolSubscription, memoryview(encoded))


def test_assignment_bytes() -> None:
    """An assignment as librdkafka sends it."""
    blob = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolTopicPartition(topic="t", partitions=[0, 1])],
        user_data=b"",
    )
    expected = bytes.fromhex("00000000000100017400000002000000000000000100000000")
    assert expected == encode_blob(blob, 0)
    assert (blob, 0) == decode_blob(ConsumerProtocolAssignment, expected)


def test_newer_blobs_are_read_as_the_newest_known() -> None:
    """Versions only append fields, so that what is known can be read from any later one."""
    encoded = encode_blob(ConsumerProtocolSubscription(topics=["a"], rack_id="r"), 3)
    newer = b"\x00\x09" + encoded[2:] + b"more"
    blob, version = decode_blob(ConsumerProtocolSubscription, newer)
    assert (9, "r", ["a"]) == (version, blob.rack_id, blob.topics)


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\xff\xff\0\0\0\0\0\0\0\0", b"\0\0", b"\0\0\0\0\0\1"]
)
def test_malformed_blobs(data: bytes) -> None:
    """No version, a negative one, or a body cut off."""
    with pytest.raises(DecodeError):
        decode_blob(ConsumerProtocolSubscription, data)
    with pytest.raises(DecodeError):
        decode_subscribed_topics(data)


@pytest.mark.parametrize("version", range(4))
def test_topics_of_a_subscription(version: int) -> None:
    """Topics are told by any version, also where what the version adds was left out (kafka-go)."""
    blob = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"u")
    assert ["a", "b"] == decode_subscribed_topics(encode_blob(blob, version))
    cut = version.to_bytes(2, "big") + encode_blob(blob, 0)[2:]
    assert ["a", "b"] == decode_subscribed_topics(cut)
