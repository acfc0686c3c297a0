"""Ranges: nothing is planned twice or left out, whatever is cut or admitted."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.offsets.ranges import OffsetBounds
from kgw.pipeline.errors import OptionError, PipelineError, TopicChangedError
from kgw.pipeline.ranges import (
    OffsetRange,
    StreamPosition,
    TopicPartition,
    admit,
    check_complete,
    check_same_topics,
    cut_ranges,
    find_loss,
)
from kgw.types import ZERO_TOPIC_ID, TopicId

KEY = TopicPartition("t", 0)
ID, OTHER_ID = TopicId(b"a" * 16), TopicId(b"b" * 16)

spans = st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(0, 100_000)), max_size=8)


@given(
    spans=spans,
    pieces=st.integers(1, 64),
    least=st.integers(1, 1000),
    most=st.none() | st.integers(1000, 50_000),
)
def test_pieces_are_the_ranges(
    spans: list[tuple[int, int]], pieces: int, least: int, most: int | None
) -> None:
    """Pieces follow each other without a gap, are as many as asked for, and none is too long."""
    ranges = [
        OffsetRange("t", index, first, first + count, ID)
        for index, (first, count) in enumerate(spans)
    ]
    cut = cut_ranges(ranges, pieces=pieces, least=least, most=most)
    for one in ranges:
        mine = [piece for piece in cut if piece.partition == one.partition]
        if not one.length:
            assert not mine
            continue
        assert (one.first, one.end) == (mine[0].first, mine[-1].end)
        assert all(left.end == right.first for left, right in itertools.pairwise(mine))
        assert all(piece.length > 0 and piece.topic_id == ID for piece in mine)
        if most is not None:
            assert all(piece.length <= most for piece in mine)
    total = sum(one.length for one in ranges)
    if total >= pieces * 1000 and least == 1:
        assert len(cut) >= pieces


def test_small_ranges_stay_whole() -> None:
    """A range of little more than the least length is not worth two tasks."""
    whole = [OffsetRange("t", 0, 0, 15_000)]
    assert cut_ranges(whole, pieces=8, least=10_000) == whole
    assert [one.length for one in cut_ranges(whole, pieces=4)] == [3750] * 4


@given(
    parts=st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=8),
    limit=st.integers(1, 1 << 40),
)
def test_admission_keeps_the_limit_and_goes_on(parts: list[tuple[int, int]], limit: int) -> None:
    """Ends lie between start and end; the limit is kept, but for one offset a partition."""
    keys = [TopicPartition("t", index) for index in range(len(parts))]
    start = {key: first for key, (first, _) in zip(keys, parts, strict=True)}
    end = {key: first + count for key, (first, count) in zip(keys, parts, strict=True)}
    admitted = admit(start, end, limit)
    assert admitted.keys() == end.keys()
    taken = 0
    for key in keys:
        assert start[key] <= admitted[key] <= end[key]
        if start[key] < end[key]:
            assert admitted[key] > start[key]
        taken += max(0, admitted[key] - start[key] - 1)
    assert taken <= limit * (1 + 1e-9)


def test_all_is_admitted_below_the_limit() -> None:
    """A limit that is not met changes nothing."""
    assert admit({KEY: 5}, {KEY: 15}, 10) == {KEY: 15}


@pytest.mark.parametrize(
    ("first", "end", "lost"),
    [
        (10, 20, None),
        (15, 15, None),
        (20, 20, None),
        (5, 20, "offsets 5 to 9"),
        (5, 8, "offsets 5 to 7"),
        (5, 5, None),
        (10, 25, "offsets 20 to 24"),
        (22, 22, "offsets 20 to 21"),
    ],
)
def test_loss_is_named(first: int, end: int, lost: str | None) -> None:
    """What a partition of 10 to 20 cannot give is said with its offsets."""
    loss = find_loss(KEY, first, end, OffsetBounds(10, 20))
    assert (loss is None) == (lost is None)
    if lost:
        assert f"topic t partition 0: {lost} cannot be read" in str(loss)


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.dictionaries(st.integers(0, 1000), st.integers(0, 1 << 62), max_size=4),
        max_size=4,
    )
)
def test_positions_survive_a_checkpoint(topics: dict[str, dict[int, int]]) -> None:
    """What comes back is what was kept, and equal positions are equal text."""
    position = StreamPosition(
        dict.fromkeys(topics, ID),
        {
            TopicPartition(topic, one): at
            for topic, all_ in topics.items()
            for one, at in all_.items()
        },
    )
    kept = json.dumps(position.to_json())
    read = StreamPosition.from_json(json.loads(kept))
    assert read == position
    turned = StreamPosition(
        dict(reversed(list(position.topic_ids.items()))),
        dict(reversed(list(read.offsets.items()))),
    )
    assert json.dumps(turned.to_json()) == kept


@pytest.mark.parametrize("kept", [None, 3, {"t": {"0": 5}}, {"t": {"id": "x", "offsets": {}}}])
def test_a_foreign_checkpoint_is_refused(kept: object) -> None:
    """The `kafka` source's offsets have no topic ids, so that they are not taken for ours."""
    with pytest.raises(PipelineError, match="was it written by another source"):
        StreamPosition.from_json(kept)


def test_a_topic_made_anew_is_noticed() -> None:
    """Another id is another topic; a server without ids says nothing."""
    check_same_topics({"t": ID}, {"t": ID, "u": OTHER_ID})
    check_same_topics({"t": ID}, {"t": ZERO_TOPIC_ID})
    with pytest.raises(TopicChangedError, match="topic t has been deleted and created again"):
        check_same_topics({"t": ID}, {"t": OTHER_ID})
    with pytest.raises(TopicChangedError, match="topic t has been deleted, or is not subscribed"):
        check_same_topics({"t": ID}, {})


def test_offsets_name_each_partition() -> None:
    """Neither a partition without an offset nor an offset without a partition is passed over."""
    other = TopicPartition("t", 1)
    check_complete("startingOffsets", [KEY, other], [other, KEY])
    with pytest.raises(OptionError, match="startingOffsets says nothing of t partition 1"):
        check_complete("startingOffsets", [KEY], [KEY, other])
    with pytest.raises(OptionError, match="startingOffsets names t partition 1, not read from"):
        check_complete("startingOffsets", [KEY, other], [KEY])
