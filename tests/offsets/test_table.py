"""Committed offsets: what a table holds is what its rows say, whatever was committed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset, OffsetChanges
from kgw.offsets.table import PARTITIONS_PER_ROW, OffsetTable, decode_row, parse_row_key
from kgw.types import TopicId
from tests.offsets.blocks import places

NOW_S = 1000.0
WALL_MS = 1_763_740_000_000
TOPICS = [TopicId(bytes([number]) * 16) for number in (1, 2)]

offsets = st.builds(
    CommittedOffset,
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=20),
    commit_ms=st.just(WALL_MS),
    retention_ms=st.sampled_from([NO_EXPIRY_MS, 0, 60_000]),
    committed_s=st.just(NOW_S),
)
changes = st.dictionaries(
    st.tuples(st.sampled_from(TOPICS), st.integers(0, 3 * PARTITIONS_PER_ROW)),
    st.none() | offsets,
    max_size=40,
)


@pytest.mark.slow
@given(st.lists(changes, max_size=6))
def test_rows_that_are_written_hold_what_the_table_holds(steps: list[OffsetChanges]) -> None:
    """After any changes, deletions among them, the rows read back as exactly the table."""
    table = OffsetTable()
    stored: dict[str, bytes | None] = {}
    for step in steps:
        stored.update((key, value) for _, key, value in table.rows_after("a/group", step))
        table.apply(step)
    read: OffsetChanges = {}
    for key, value in stored.items():
        group_id, topic_id = parse_row_key(key)
        assert group_id == "a/group"
        if value is not None:
            read.update(decode_row(topic_id, value, WALL_MS, NOW_S))
    assert read == {place: table.get(*place) for place in places(table)}


@given(offsets)
def test_a_row_is_the_text_that_the_json_module_writes(committed: CommittedOffset) -> None:
    """Rows are formatted by hand, and are the JSON that they always were."""
    offset, leader_epoch, metadata, commit_ms, retention_ms, _ = committed
    entry = [7, offset, leader_epoch, commit_ms, retention_ms, metadata]
    [(_, _, value)] = OffsetTable().rows_after("group", {(TOPICS[0], 7): committed})
    assert value == json.dumps([entry], separators=(",", ":")).encode()
