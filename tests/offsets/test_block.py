"""Blocks of committed offsets: a table with blocks says what single offsets would say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.offsets.block import OffsetBlock, damaged_block, decode_block
from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset, OffsetChanges
from kgw.offsets.table import OffsetTable
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK
from kgw.types import TopicId
from tests.offsets.blocks import GROUP, NOW_S, WALL_MS, block_of, loaded, places

TOPICS = [TopicId(bytes([number]) * 16) for number in (1, 2)]

offsets = st.builds(
    CommittedOffset,
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.just("note"),
    commit_ms=st.just(WALL_MS),
    retention_ms=st.just(NO_EXPIRY_MS),
    committed_s=st.just(NOW_S),
)
topics = st.sampled_from(TOPICS)
partitions = st.integers(0, 40)
single = st.dictionaries(st.tuples(topics, partitions), st.none() | offsets, max_size=5)
blocks = st.tuples(
    topics, st.dictionaries(partitions, offsets, min_size=1, max_size=8).map(block_of)
)


@pytest.mark.slow
@given(st.lists(single | blocks, max_size=12))
def test_a_table_with_blocks_says_what_single_offsets_say(
    steps: list[OffsetChanges | tuple[TopicId, OffsetBlock]],
) -> None:
    """After any mixture of both, table and rows hold what a plain dictionary holds."""
    table = OffsetTable()
    rows: dict[tuple[str, str], bytes | None] = {}
    plain: OffsetChanges = {}
    for step in steps:
        if isinstance(step, dict):
            changed = table.rows_after(GROUP, step)
            rows.update(((kind, key), value) for kind, key, value in changed)
            table.apply(step)
            plain.update(step)
        else:
            topic_id, block = step
            changed = table.rows_after_block(GROUP, topic_id, block)
            rows.update(((kind, key), value) for kind, key, value in changed)
            table.apply_block(topic_id, block)
            plain.update({(topic_id, one): found for one, found in block.entries().items()})
    expected = {place: found for place, found in plain.items() if found is not None}
    for one in (table, loaded(rows)):
        assert expected == {place: one.get(*place) for place in places(one)}
        assert expected == {
            (topic_id, index): found
            for topic_id, of_topic in one.topics().items()
            for index, found in of_topic.items()
        }
        assert len(expected) == len(one)
        assert (not expected) == one.is_empty
        assert {topic_id for topic_id, _ in expected} == set(one.topic_ids())
        assert all(one.has_topic(topic_id) for topic_id in one.topic_ids())


def test_the_same_partitions_again_are_one_row() -> None:
    """A client that commits the same thousand partitions rewrites one row."""
    table = OffsetTable()
    committed = CommittedOffset(7, 1, "", WALL_MS, NO_EXPIRY_MS, NOW_S)
    first = block_of(dict.fromkeys(range(1000), committed))
    table.apply_block(TOPICS[0], first)

    again = block_of(dict.fromkeys(range(1000), committed._replace(offset=8)))
    [(kind, _, value)] = table.rows_after_block(GROUP, TOPICS[0], again)

    assert OFFSET_BLOCK == kind
    assert value is not None
    assert len(value) < 17 * 1000


def test_a_block_expires_as_single_offsets_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The retention time counts from the commit; no offset is looked at by itself."""
    monkeypatch.setattr(OffsetBlock, "entries", None)
    table = OffsetTable()
    committed = CommittedOffset(7, 1, "", WALL_MS, NO_EXPIRY_MS, NOW_S)
    table.apply_block(TOPICS[0], block_of({3: committed, 5: committed}))

    assert [] == table.expired(NOW_S + 9, float("-inf"), 10)
    assert [(TOPICS[0], 3), (TOPICS[0], 5)] == table.expired(NOW_S + 10, float("-inf"), 10)


def test_a_block_of_which_nothing_stays_is_not_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its offsets are deleted, or committed again as single ones: what it said does not matter."""
    table = OffsetTable()
    committed = CommittedOffset(7, 1, "", WALL_MS, NO_EXPIRY_MS, NOW_S)
    table.apply_block(TOPICS[0], block_of({3: committed, 5: committed}))
    changes: OffsetChanges = {(TOPICS[0], 3): committed, (TOPICS[0], 5): None}
    monkeypatch.setattr(OffsetBlock, "entries", None)

    rows = table.rows_after(GROUP, changes)

    assert 2 == table.apply(changes)
    assert {OFFSET_BLOCK: None, GROUP_OFFSETS: True} == {
        kind: value and bool(value) for kind, _, value in rows
    }
    assert [(TOPICS[0], 3)] == places(table)


@pytest.mark.parametrize("change", ["", "\0", "short", "long"])
def test_what_is_no_block_is_refused(change: str) -> None:
    """A row of another format or length is an error, never offsets."""
    committed = CommittedOffset(7, 1, "", WALL_MS, NO_EXPIRY_MS, NOW_S)
    value = block_of({3: committed}).encode()
    broken = {"": b"", "\0": b"\0" + value[1:], "short": value[:-1], "long": value + b"\0"}[change]

    with pytest.raises(ValueError, match="not a block of committed offsets"):
        decode_block(broken, WALL_MS, NOW_S)


def test_a_damaged_block_stands_for_all_that_it_may_have_held() -> None:
    """Its key says between which partitions it was."""
    committed = CommittedOffset(7, 1, "", WALL_MS, NO_EXPIRY_MS, NOW_S)
    key = block_of({5: committed, 3: committed}).row_key(GROUP, TOPICS[0])

    damaged = damaged_block(key, WALL_MS, NOW_S)

    assert [(TOPICS[0], index) for index in (3, 4, 5)] == list(damaged)
    assert {DAMAGED_OFFSET} == {one.offset for one in damaged.values()}
