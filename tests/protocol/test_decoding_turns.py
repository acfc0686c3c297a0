"""Large requests are decoded some elements at a time, with what decoding at once would give."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kgw.errors import DecodeError
from kgw.protocol.codec import codec
from kgw.protocol.decoding import ELEMENTS_PER_TURN
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kgw.protocol.schema import Request
from tests.protocol.random_messages import all_versions, random_message


def decode(ours: Any, data: bytes) -> tuple[Any, int]:
    """Return what comes of all turns, and how many there were."""
    turns = ours.decode_in_turns(data)
    for count in range(1, 1 << 20):
        try:
            next(turns)
        except StopIteration as end:
            return end.value, count
    raise AssertionError


def outcome(function: Any) -> Any:
    """Return what a function returns, or the error that says why it does not."""
    try:
        return function()
    except DecodeError as error:
        return str(error)


def test_the_same_message_or_the_same_error() -> None:
    """Whole, cut and damaged, every request in every version is decoded as at once."""
    random = Random(8)
    for message, version in all_versions():
        if not issubclass(message, Request):
            continue
        ours = codec(message, version)
        data = ours.encode(random_message(message, version, random))
        cut = data[: random.randrange(len(data) + 1)]
        damaged = bytearray(data or b"\0")
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        for one in (data, cut, bytes(damaged)):
            at_once = outcome(lambda one=one, ours=ours: ours.decode_prefix(one)[0])
            assert at_once == outcome(lambda one=one, ours=ours: decode(ours, one)[0])


@pytest.mark.parametrize(("topics", "partitions"), [(1, 5000), (5000, 1), (500, 10)])
def test_a_turn_ends_after_so_many_elements(topics: int, partitions: int) -> None:
    """Those of arrays in arrays count as well."""
    request = FetchRequest(
        topics=[
            FetchTopic(
                topic=str(number),
                partitions=[FetchPartition(partition=one) for one in range(partitions)],
            )
            for number in range(topics)
        ]
    )
    ours = codec(FetchRequest, 12)
    decoded, turns = decode(ours, ours.encode(request))
    assert request == decoded
    assert turns == 1 + (topics + topics * partitions) // ELEMENTS_PER_TURN
