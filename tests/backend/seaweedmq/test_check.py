"""`kgw log check` of a namespace: each kind of damage, alone, is named; what is sound is not."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import pytest

from kgw.backend.seaweedmq.chain import leader, marks
from kgw.backend.seaweedmq.entries import layouts, record_entries
from kgw.backend.seaweedmq.entries import log_entries as entries
from kgw.backend.seaweedmq.entries.layouts import Layout
from kgw.backend.seaweedmq.log import detail, snapshots
from kgw.backend.seaweedmq.offline import check
from kgw.backend.seaweedmq.state import items
from kgw.backend.seaweedmq.state import snapshots as state_snapshots
from kgw.backend.seaweedmq.state import store as state_store
from kgw.testing.backend_harness import KEY
from kgw.testing.filer import CallKind, MemoryFiler
from tests.backend.seaweedmq.damages import KINDS, Damaged, Kind
from tests.backend.seaweedmq.namespaces import Filers, fill
from tests.findings import findings_of, pattern_of, unplanted

if TYPE_CHECKING:
    from types import ModuleType

SAID_BY: Final = (
    (check, ("StorageProblem",)),
    (leader, ("CorruptionError",)),
    (marks, ("CorruptionError",)),
    (detail, ("CorruptionError",)),
    (snapshots, ("CorruptionError",)),
    (layouts, ("EntryError", "note_damage")),
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


async def test_a_volume_that_is_away_hides_nothing_else() -> None:
    """What is in it is named, and so is what is wrong elsewhere; it is asked for once."""
    filers = Filers()
    await fill(filers.backend())
    (entry,) = (
        one for one in filers.store.directories[filers.partition].values() if len(one.chunks) > 1
    )
    volumes = [chunk.file_id.partition(",")[0] for chunk in entry.chunks]
    away = next(one for one in volumes if volumes.count(one) > 1)
    gone = next(number for number, one in enumerate(volumes) if one != away)
    filers.store.away.add(away)
    del filers.store.chunks[entry.chunks[gone].file_id]
    namespace = filers.namespace()
    filer = namespace.filer
    assert isinstance(filer, MemoryFiler)
    await filer.open()
    async with aclosing(filer):
        found = [str(one) async for one in check.check_namespace(namespace)]
        path = f"{filers.partition}/{entry.name}"
        expected = [
            f"{path}: offsets {3 * number} to {3 * number + 2} cannot be read: "
            + (
                f"no volume server has volume {away}"
                if one == away
                else f"chunk {entry.chunks[number].file_id} is gone"
            )
            for number, one in enumerate(volumes)
            if one == away or number == gone
        ]
        assert expected == [problem for problem in found if problem.startswith(path)]
        asked = [call.name for call in filer.calls if call.kind is CallKind.READ_CHUNK]
        assert 1 == sum(one.partition(",")[0] == away for one in asked)
        known = {away: "as before"}
        again = [
            str(one)
            async for one in check.check_partition(filer, filers.partition, KEY, away=known)
        ]
        assert volumes.count(away) == sum(
            one.endswith("cannot be read: as before") for one in again
        )


@pytest.mark.parametrize(("module", "callees"), SAID_BY)
def test_each_message_of_a_check_is_tried(module: ModuleType, callees: tuple[str, ...]) -> None:
    """A message that nothing plants would be one that nobody has seen."""
    planted = [f"{kind.where}: {kind.says}" for kind in KINDS.values()]
    assert findings_of(module, makers=callees)
    assert [] == unplanted([module], [*planted, *ELSEWHERE], makers=callees)
