"""What a batch of writes comes to: tables and rows say what the writes said, in short turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.coordinator.entry import Write
from kgw.groups.group import Group
from kgw.groups.machine import OffsetWrite
from kgw.groups.writes import offset_changes
from kgw.offsets.block import OffsetBlock
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset, Place
from kgw.offsets.pending import PendingCommit, TransactionEnd
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK
from kgw.turns import at_once
from kgw.types import TopicId
from tests.offsets.blocks import (
    GROUP,
    NOW_S,
    WALL_MS,
    block_of,
    held,
    loaded,
    loaded_pending,
    take_step,
)
from tests.turns import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.offsets.pending import PendingTable
    from kgw.state.base import Change

TOPICS = [TopicId(bytes([number]) * 16) for number in (1, 2)]
COMMITTED = CommittedOffset(7, 1, "", WALL_MS, NO_EXPIRY_MS, NOW_S)

offsets = st.builds(
    COMMITTED._replace, offset=st.integers(0, 2**63 - 1), leader_epoch=st.integers(-1, 3)
)
partitions = st.integers(0, 40)
single = st.dictionaries(partitions, st.none() | offsets, max_size=5)
blocks = st.dictionaries(partitions, offsets, min_size=1, max_size=8).map(block_of)
topic_change = single | blocks | st.none()
commits = st.dictionaries(st.sampled_from(TOPICS), topic_change, min_size=1)
wanted = commits.map(lambda changes: OffsetWrite(offsets=changes)) | st.just(
    OffsetWrite(drops_all=True)
)


def stored(group: Group, *batch: OffsetWrite) -> list[Change]:
    """Store a batch in a group, and return the rows."""
    changes, merged = at_once(offset_changes([Write(group, {}, one, 0, []) for one in batch]))
    for each in merged:
        each.apply()
    return changes


@pytest.mark.slow
@given(st.lists(st.lists(wanted, max_size=5), max_size=6))
def test_what_is_stored_together_is_what_would_be_stored_singly(
    batches: list[list[OffsetWrite]],
) -> None:
    """Whatever is committed, dropped and committed again in a batch, and between batches."""
    group = Group(GROUP)
    rows: dict[tuple[str, str], bytes | None] = {}
    plain: dict[Place, CommittedOffset] = {}
    for batch in batches:
        rows.update(((one.kind, one.key), one.value) for one in stored(group, *batch))
        for step in batch:
            if step.drops_all:
                plain.clear()
            for topic_id, change in step.offsets.items():
                take_step(plain, topic_id, change)
        assert plain == held(group.offsets) == held(loaded(rows))


class PlainLog:
    """Committed and pending offsets by Kafka's rule: what lies later in one log counts."""

    def __init__(self) -> None:
        self.end = 0
        self.offsets: dict[Place, tuple[int, CommittedOffset]] = {}
        self.pending: dict[int, tuple[int, dict[Place, tuple[int, CommittedOffset]]]] = {}

    def take(self, step: OffsetWrite) -> None:
        self.end += 1
        if isinstance(step.pending, PendingCommit):
            self.commit_in_transaction(*step.pending)
        elif step.pending is not None:
            self.end_transaction(*step.pending)
        gone = [*self.places()] if step.drops_all else []
        plain: dict[Place, CommittedOffset] = {}
        for topic_id, change in step.offsets.items():
            if change is None:
                gone += [place for place in self.places() if place[0] == topic_id]
                continue
            entries = change.entries() if isinstance(change, OffsetBlock) else change
            gone += [(topic_id, index) for index, one in entries.items() if one is None]
            plain |= {(topic_id, index): one for index, one in entries.items() if one is not None}
        for place in gone:
            self.offsets.pop(place, None)
            for _, pending in self.pending.values():
                pending.pop(place, None)
        # A producer that nothing is pending of is not known any more.
        self.pending = {producer: one for producer, one in self.pending.items() if one[1]}
        self.offsets |= {place: (self.end, one) for place, one in plain.items()}

    def commit_in_transaction(
        self,
        producer: int,
        epoch: int,
        offsets: Mapping[TopicId, Mapping[int, CommittedOffset]],
    ) -> None:
        newest, pending = self.pending.get(producer, (epoch, {}))
        if epoch < newest:
            return
        for topic_id, of_topic in offsets.items():
            added = {(topic_id, index): (self.end, one) for index, one in of_topic.items()}
            pending = (pending if epoch == newest else {}) | added
            newest = epoch
        self.pending[producer] = newest, pending

    def end_transaction(self, producer: int, epoch: int, is_commit: bool) -> None:
        newest, pending = self.pending.get(producer, (0, {}))
        if newest > epoch:
            return
        self.pending.pop(producer, None)
        for place, entry in pending.items() if is_commit else ():
            if place not in self.offsets or self.offsets[place][0] < entry[0]:
                self.offsets[place] = entry

    def places(self) -> set[Place]:
        return {*self.offsets}.union(*(places for _, places in self.pending.values()))

    def unstable(self) -> dict[int, set[Place]]:
        return {producer: set(places) for producer, (_, places) in self.pending.items()}


def unstable(table: PendingTable) -> dict[int, set[Place]]:
    """Return the places that each producer holds open."""
    return {
        producer: {(topic_id, index) for topic_id, one in of.topics.items() for index in one}
        for producer, of in table.items()
    }


producers, epochs = st.integers(1, 3), st.integers(0, 2)
of_topics = st.dictionaries(
    st.sampled_from(TOPICS),
    st.dictionaries(partitions, offsets, min_size=1, max_size=4),
    min_size=1,
)
in_transactions = st.builds(PendingCommit, producers, epochs, of_topics) | st.builds(
    TransactionEnd, producers, epochs, st.booleans()
)
anything = wanted | in_transactions.map(lambda change: OffsetWrite(pending=change))


@pytest.mark.slow
@given(st.lists(st.lists(anything, max_size=6), max_size=6), st.booleans())
def test_transactions_come_to_what_kafkas_log_would(
    batches: list[list[OffsetWrite]], restarts: bool
) -> None:
    """Whatever ends when, is committed in between, and waits together; over restarts, too."""
    group = Group(GROUP)
    rows: dict[tuple[str, str], bytes | None] = {}
    log = PlainLog()
    for batch in batches:
        rows.update(((one.kind, one.key), one.value) for one in stored(group, *batch))
        for step in batch:
            log.take(step)
        stands = {place: one for place, (_, one) in log.offsets.items()}
        assert stands == held(group.offsets) == held(loaded(rows))
        assert log.unstable() == unstable(group.pending) == unstable(loaded_pending(rows))
        if restarts:
            group = Group(GROUP)
            group.offsets, group.pending = loaded(rows), loaded_pending(rows)


def test_topics_that_go_cost_their_rows_alone() -> None:
    """However many offsets they have, and nothing of the topics that stay."""
    group = Group(GROUP)
    group.offsets.apply({TOPICS[0]: block_of(dict.fromkeys(range(1000), COMMITTED))})
    group.offsets.apply({TOPICS[0]: {2000 + number: COMMITTED for number in range(17)}})
    group.offsets.apply({TOPICS[1]: block_of({0: COMMITTED, 1: COMMITTED})})

    changes = stored(group, OffsetWrite(offsets={TOPICS[0]: None, TopicId(bytes(16)): None}))

    assert [OFFSET_BLOCK, GROUP_OFFSETS, GROUP_OFFSETS] == [one.kind for one in changes]
    assert {None} == {one.value for one in changes}
    assert [TOPICS[1]] == group.offsets.topic_ids()


@pytest.mark.parametrize("commits_first", [False, True])
def test_many_offsets_of_a_batch_take_many_turns(*, commits_first: bool) -> None:
    """Rows count, and blocks by their length."""
    groups = [Group(f"group-{number}") for number in range(20)]
    block = block_of(dict.fromkeys(range(1000), COMMITTED))
    batch = []
    for group in groups:
        group.offsets.apply({TOPICS[0]: block})
        changes = {TOPICS[0]: {5: COMMITTED}} if commits_first else {TOPICS[1]: block}
        batch.append(Write(group, {}, OffsetWrite(offsets=changes), 0, []))
    turns, _ = counted(offset_changes(batch))
    # 1,280 rows that are found to change and then made; 20 rows of 15 KB.
    assert (12 if commits_first else 3) == turns
