"""What a batch of writes comes to: tables and rows say what the writes said, in short turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.groups.writer import FINISHED_PER_TURN, OFFSETS_PER_WRITE, GroupWriter
from kgw.groups.writes import (
    BlocksWrite,
    GroupDeletion,
    OffsetsWrite,
    TopicsDrop,
    Write,
    changes_of,
)
from kgw.offsets.block import OffsetBlock
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset, OffsetChanges
from kgw.offsets.table import OffsetTable
from kgw.state.kinds import CLASSIC_GROUP, GROUP_OFFSETS, OFFSET_BLOCK
from kgw.state.memory import MemoryStateStore
from kgw.turns import at_once
from kgw.types import TopicId
from tests.offsets.blocks import GROUP, NOW_S, WALL_MS, block_of, loaded, places
from tests.turns import counted, most_in_a_turn

if TYPE_CHECKING:
    from kgw.groups.rows import GroupRow

TOPICS = [TopicId(bytes([number]) * 16) for number in (1, 2)]
COMMITTED = CommittedOffset(7, 1, "", WALL_MS, NO_EXPIRY_MS, NOW_S)

Step: TypeAlias = "OffsetChanges | list[tuple[TopicId, OffsetBlock]] | frozenset[TopicId] | None"
"""A commit of single offsets, one of blocks, topics that go, or the group's deletion."""


class Stored:
    """A group, as far as the writer knows it."""

    def __init__(self, group_id: str = GROUP) -> None:
        self.group_id = group_id
        self.offsets = OffsetTable()
        self.unwritten = 0

    def row_written(self, row: GroupRow | None) -> None:
        """Do nothing: there is no machine."""

    def row_failed(self) -> None:
        raise NotImplementedError


def with_block(count: int, topic_id: TopicId = TOPICS[0]) -> Stored:
    """Return a group that has committed so many partitions at once."""
    group = Stored()
    group.offsets.apply_block(topic_id, block_of(dict.fromkeys(range(count), COMMITTED)))
    return group


offsets = st.builds(
    COMMITTED._replace, offset=st.integers(0, 2**63 - 1), leader_epoch=st.integers(-1, 3)
)
topics = st.sampled_from(TOPICS)
partitions = st.integers(0, 40)
single = st.dictionaries(st.tuples(topics, partitions), st.none() | offsets, max_size=5)
blocks = st.lists(
    st.tuples(topics, st.dictionaries(partitions, offsets, min_size=1, max_size=8).map(block_of)),
    min_size=1,
    max_size=2,
    unique_by=lambda one: one[0],
)
drops = st.frozensets(topics, min_size=1)


def write_of(group: Stored, step: Step) -> Write:
    """Return what is submitted for a step."""
    if step is None:
        return GroupDeletion(group)
    if isinstance(step, frozenset):
        return TopicsDrop(group, step)
    if isinstance(step, list):
        return BlocksWrite(group, dict(step))
    return OffsetsWrite(group, step)


def take_step(plain: OffsetChanges, step: Step) -> None:
    """Do the same to single offsets."""
    if step is None:
        plain.clear()
    elif isinstance(step, frozenset):
        for place in [one for one in plain if one[0] in step]:
            del plain[place]
    elif isinstance(step, list):
        for topic_id, block in step:
            plain.update({(topic_id, one): found for one, found in block.entries().items()})
    else:
        plain.update(step)


@pytest.mark.slow
@given(st.lists(st.lists(single | blocks | drops | st.none(), max_size=5), max_size=6))
def test_what_is_stored_together_is_what_would_be_stored_singly(batches: list[list[Step]]) -> None:
    """Whatever is committed, dropped and committed again in a batch, and between batches."""
    group = Stored()
    rows: dict[tuple[str, str], bytes | None] = {}
    plain: OffsetChanges = {}
    for batch in batches:
        changes, merged = at_once(changes_of([write_of(group, step) for step in batch]))
        rows.update(((one.kind, one.key), one.value) for one in changes)
        for one in merged:
            one.apply()
        for step in batch:
            take_step(plain, step)
        expected = {place: found for place, found in plain.items() if found is not None}
        for table in (group.offsets, loaded(rows)):
            assert expected == {place: table.get(*place) for place in places(table)}


def test_topics_that_go_cost_their_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No offset is looked at by itself, and nothing of the topics that stay."""
    group = with_block(1000)
    group.offsets.apply({(TOPICS[0], 2000 + number): COMMITTED for number in range(17)})
    group.offsets.apply_block(TOPICS[1], block_of({0: COMMITTED, 1: COMMITTED}))
    monkeypatch.setattr(OffsetBlock, "entries", None)
    monkeypatch.setattr(OffsetTable, "rows_after", None)
    real = OffsetTable.rows_of
    asked: list[TopicId] = []

    def rows_of(
        table: OffsetTable, group_id: str, topic_id: TopicId
    ) -> list[tuple[str, str, bytes | None]]:
        asked.append(topic_id)
        return real(table, group_id, topic_id)

    monkeypatch.setattr(OffsetTable, "rows_of", rows_of)
    drop = TopicsDrop(group, {TOPICS[0], TopicId(bytes(16))})

    changes, (merged,) = at_once(changes_of([drop]))

    assert 1017 == merged.apply()
    assert [GROUP_OFFSETS, GROUP_OFFSETS, OFFSET_BLOCK] == [one.kind for one in changes]
    assert {None} == {one.value for one in changes}
    assert [TOPICS[0]] == asked
    assert [TOPICS[1]] == group.offsets.topic_ids()


@pytest.mark.parametrize("as_block", [False, True])
def test_who_commits_behind_a_drop_has_that_alone(*, as_block: bool) -> None:
    """In the same batch: a row that is written does not bring back what was beside it."""
    group = Stored()
    group.offsets.apply({(TOPICS[0], number): COMMITTED for number in range(20)})
    again: Write = OffsetsWrite(group, {(TOPICS[0], 3): COMMITTED})
    if as_block:
        again = BlocksWrite(group, {TOPICS[0]: block_of({3: COMMITTED})})

    changes, (merged,) = at_once(changes_of([TopicsDrop(group, {TOPICS[0]}), again]))

    merged.apply()
    rows = {(one.kind, one.key): one.value for one in changes}
    assert [(TOPICS[0], 3)] == places(group.offsets) == places(loaded(rows))
    assert 2 == len(rows)


def test_a_group_that_goes_takes_its_rows_along() -> None:
    """Its own and those of all its topics, in one set."""
    group = with_block(3)
    group.offsets.apply({(TOPICS[1], 0): COMMITTED})

    changes, (merged,) = at_once(changes_of([GroupDeletion(group)]))

    merged.apply()
    assert {CLASSIC_GROUP, GROUP_OFFSETS, OFFSET_BLOCK} == {one.kind for one in changes}
    assert {None} == {one.value for one in changes}
    assert group.offsets.is_empty


@pytest.mark.parametrize("commits_first", [False, True])
def test_many_offsets_of_a_batch_take_many_turns(*, commits_first: bool) -> None:
    """Rows of topics that go count by what their blocks hold; so do blocks that are broken up."""
    groups = [with_block(1000) for _ in range(20)]
    batch: list[Write] = []
    for group in groups:
        if commits_first:
            batch.append(BlocksWrite(group, {TOPICS[1]: _block(1000)}))
            batch.append(OffsetsWrite(group, {(TOPICS[0], 5000): COMMITTED}))
        else:
            batch.append(TopicsDrop(group, {TOPICS[0]}))
    turns, _ = counted(changes_of(batch))
    # Six for taking 20,000 offsets out of blocks, and as many for 1,280 rows of theirs.
    assert (13 if commits_first else 3) == turns


def _block(count: int) -> OffsetBlock:
    return block_of(dict.fromkeys(range(count), COMMITTED))


async def test_what_is_stored_is_taken_over_in_turns() -> None:
    """Offsets count, not groups alone: a group may have a thousand of them."""
    groups = [Stored(f"group-{number}") for number in range(30)]
    for group in groups:
        group.offsets.apply({(TOPICS[0], number): COMMITTED for number in range(400)})
    bugs: list[BaseException] = []
    writer = GroupWriter(MemoryStateStore(), {one.group_id: one for one in groups}, bugs.append)
    for group in groups:
        writer.submit(TopicsDrop(group, {TOPICS[0]}))

    def gone() -> int:
        return sum(400 - len(one.offsets) for one in groups)

    most = await most_in_a_turn(writer.aclose(), gone)

    assert 400 < most <= FINISHED_PER_TURN * OFFSETS_PER_WRITE + 400
    assert 30 * 400 == gone()
    assert [] == bugs
