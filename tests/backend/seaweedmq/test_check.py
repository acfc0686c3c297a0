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
from tests.findings import findings_of, pattern_of, unplanted

if TYPE_CHECKING:
    from types import ModuleType

SAID_BY: Final = (
    (check, ("Problem",)),
    (views, ("CorruptionError",)),
    (leader, ("CorruptionError",)),
    (marks, ("CorruptionError",)),
    (detail, ("CorruptionError",)),
    (snapshots, ("CorruptionError",)),
    (layouts, ("EntryError", "end", "_note_damage")),
    (record_entries, ("EntryError",)),
    (entries, ("EntryError",)),
    (items, ("ItemError",)),
    (state_snapshots, ("DamagedStateError",)),
    (state_store, ("DamagedStateError",)),
)
"""Where what a check says comes from."""
ELSEWHERE: Final = ("chunk … was not stored as it was sent", "…/… was not stored")
"""Said by who writes a snapshot."""


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
    (problem,) = await damaged.problems()
    path, _, said = problem.partition(": ")
    assert pattern_of(kind.says).fullmatch(said), said
    assert path.endswith({"file": ".kgw"}.get(kind.where, kind.where))


@pytest.mark.parametrize(("module", "callees"), SAID_BY)
def test_each_message_of_a_check_is_tried(module: ModuleType, callees: tuple[str, ...]) -> None:
    """A message that nothing plants would be one that nobody has seen."""
    planted = [f"{kind.where}: {kind.says}" for kind in KINDS.values()]
    assert findings_of(module, makers=callees)
    assert [] == unplanted([module], [*planted, *ELSEWHERE], makers=callees)
