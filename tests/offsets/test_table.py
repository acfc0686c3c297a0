"""Committed offsets: what a table holds is what its rows say, whatever was committed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset, Place
from kgw.offsets.rows import decode_row, encode_row, row_key
from kgw.offsets.table import OffsetTable
from kgw.offsets.topic_offsets import TopicChange, TopicOffsets
from kgw.state.kinds import OFFSET_BLOCK
from kgw.types import TopicId
from tests.offsets.blocks import GROUP, NOW_S, WALL_MS, block_of, held, loaded, take_step

TOPICS = [TopicId(bytes([number]) * 16) for number in (1, 2)]
TOPIC = TOPICS[0]
COMMITTED = CommittedOffset(7, 1, "", WALL_MS, NO_EXPIRY_MS, NOW_S)

offsets = st.builds(
    CommittedOffset,
    offset=st.integers(0, 2**63 - 1) | st.integers(-(2**63) - 1, -1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=20),
    commit_ms=st.just(WALL_MS),
    retention_ms=st.sampled_from([NO_EXPIRY_MS, 0, 60_000]),
    committed_s=st.just(NOW_S),
)
alike = offsets.map(
    lambda one: one._replace(
        offset=abs(one.offset) // 2, metadata="note", retention_ms=NO_EXPIRY_MS
    )
)
partitions = st.integers(0, 40)
single = st.dictionaries(partitions, st.none() | offsets, max_size=40)
blocks = st.dictionaries(partitions, alike, min_size=1, max_size=8).map(block_of)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(TOPICS), single | blocks | st.none()), max_size=12))
def test_rows_that_are_written_hold_what_the_table_holds(
    steps: list[tuple[TopicId, TopicChange]],
) -> None:
    """After any mixture of changes, table and rows hold what a plain dictionary holds."""
    table = OffsetTable()
    rows: dict[tuple[str, str], bytes | None] = {}
    plain: dict[Place, CommittedOffset] = {}
    for topic_id, change in steps:
        after = table.topic(topic_id).copy()
        for place in after.change(change):
            rows[place[0], row_key(GROUP, topic_id, place)] = after.row(place)
        table.replace(topic_id, after)
        take_step(plain, topic_id, change)
    for one in (table, loaded(rows)):
        assert plain == held(one) == {place: one.get(*place) for place in held(one)}
        assert (len(plain), bool(plain)) == (len(one), bool(one))
        assert {topic_id for topic_id, _ in plain} == set(one.topic_ids())
        for topic_id in TOPICS:
            found = {index for other, index in plain if other == topic_id}
            assert found == set(one.topic(topic_id).partitions())


def test_a_row_is_stored_as_it_always_was() -> None:
    """Directories that older versions wrote are read, and the other way round."""
    committed = CommittedOffset(5, -1, 'not"é', 1_763_740_000_000, NO_EXPIRY_MS, 0.0)
    expected = b'[[7,5,-1,1763740000000,-1,"not\\"\\u00e9"]]'
    assert expected == encode_row({7: committed})


def test_damage_is_stored_as_it_always_was() -> None:
    """As -2, which older versions wrote; what a client has committed below -1 is one lower."""
    row = {
        index: COMMITTED._replace(offset=offset)
        for index, offset in enumerate((DAMAGED_OFFSET, -1, -2, -(2**63)))
    }
    encoded = encode_row(row)
    assert encoded is not None
    assert [-2, -1, -3, -(2**63) - 1] == [one[1] for one in json.loads(encoded)]
    assert row == decode_row(encoded, WALL_MS, NOW_S)


def test_the_same_partitions_again_are_one_row() -> None:
    """A client that commits the same thousand partitions rewrites one row."""
    topic = TopicOffsets()
    topic.change(block_of(dict.fromkeys(range(1000), COMMITTED)))

    again = block_of(dict.fromkeys(range(1000), COMMITTED._replace(offset=8)))
    [place] = topic.change(again)

    assert OFFSET_BLOCK == place[0]
    assert len(topic.row(place) or b"") < 17 * 1000


@pytest.mark.parametrize("as_block", [False, True])
def test_offsets_expire_by_the_time_of_their_commit(*, as_block: bool) -> None:
    """Each by itself, a block as one, and a topic whose offsets all go is dropped whole."""
    table = OffsetTable()
    first = {3: COMMITTED, 5: COMMITTED}
    table.apply({TOPIC: block_of(first) if as_block else first})
    table.apply({TOPIC: {8: COMMITTED._replace(committed_s=NOW_S + 1)}})

    assert {} == table.expired(NOW_S + 9, float("-inf"), 10)
    assert {TOPIC: {3: None, 5: None}} == table.expired(NOW_S + 10, float("-inf"), 10)
    assert {TOPIC: None} == table.expired(NOW_S + 11, float("-inf"), 10)
    assert {} == table.expired(NOW_S + 11, NOW_S + 5, 10)
