"""Partitions that a request names more than once."""

from __future__ import annotations

import pytest

from kgw.handlers.places import count_places
from kgw.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from kgw.turns import Share


def test_places_are_counted_in_turns() -> None:
    """Each partition takes part of a turn, and so does each topic."""
    places = [ListOffsetsPartition(partition_index=index) for index in (0, 1, 0)]
    topics = [ListOffsetsTopic(name=name, partitions=places) for name in ("a", "b", "a")]
    topics += [ListOffsetsTopic(name="none", partitions=[])] * 4
    counting = count_places(topics, Share(4))
    for _ in range(4):
        next(counting)
    with pytest.raises(StopIteration) as end:
        next(counting)
    assert {("a", 0): 4, ("a", 1): 2, ("b", 0): 2, ("b", 1): 1} == end.value.value
