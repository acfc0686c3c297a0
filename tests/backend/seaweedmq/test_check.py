"""`kgw log check` of a namespace: each kind of damage, alone, is named; what is sound is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from kgw.backend.seaweedmq import (
    detail,
    entries,
    layouts,
    record_entries,
    snapshots,
    state_store,
)
from kgw.backend.seaweedmq.chain import leader, marks
from kgw.backend.seaweedmq.layouts import Layout
from kgw.backend.seaweedmq.offline import check, views
from kgw.backend.seaweedmq.state import items
from kgw.backend.seaweedmq.state import snapshots as state_snapshots
from tests.backend.seaweedmq.damages import KINDS, Damaged, Kind
from tests.messages import messages_of, unsaid

if TYPE_CHECKING:
    from types import ModuleType

SAID_BY: Final = (
    (check, ("Problem",)),
    (views, ("CorruptionError", "DamagedStateError")),
    (leader, ("CorruptionError",)),
    (marks, ("CorruptionError",)),
    (detail, ("CorruptionError",)),
    (snapshots, ("CorruptionError",)),
    (layouts, ("EntryError", "_damaged_at", "end", "_note_damage")),
    (record_entries, ("EntryError",)),
    (entries, ("EntryError",)),
    (items, ("ItemError",)),
    (state_snapshots, ("DamagedStateError",)),
    (state_store, ("DamagedStateError",)),
)
"""Where words of a check come from."""
ELSEWHERE: Final = (
    # Said by who writes a snapshot.
    "was not stored",
    # Said by who becomes a chain's writer.
    "is made and removed by others",
    # Where a damaged commit is, and which: what is wrong with it follows.
    "at position {}: {}",
    "{}/{}: {}",
)


@pytest.mark.parametrize("layout", Layout)
async def test_a_sound_namespace_has_no_problems(layout: Layout) -> None:
    """In either layout, with files, snapshots and a state that has some, too."""
    sound = Damaged()
    await sound.begin(layout)
    assert [] == await sound.problems()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_each_kind_of_damage_is_named(kind: Kind) -> None:
    """Once, by what is damaged and how; nothing else is named for it."""
    damaged = Damaged()
    await damaged.plant(kind)
    problems = await damaged.problems()
    assert [True] == [kind.says in one for one in problems], problems
    path = problems[0].partition(": ")[0]
    assert path.endswith({"file": ".kgw"}.get(kind.where, kind.where))


@pytest.mark.parametrize(("module", "callees"), SAID_BY)
def test_each_message_of_a_check_is_tried(module: ModuleType, callees: tuple[str, ...]) -> None:
    """A message that nothing plants would be one that nobody has seen."""
    messages = messages_of(module, *callees)
    assert messages
    known = [kind.says for kind in KINDS.values()]
    assert [] == unsaid(messages, [*known, *ELSEWHERE])
