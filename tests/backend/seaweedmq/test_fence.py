from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.fence import check_fence, check_filers
from kgw.errors import DataDirectoryError
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, MemoryFiler
from tests.backend.seaweedmq.old_filers import WithoutConditions, WithoutExclusion

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.filer import Entry


class _WithoutAttributes(MemoryFiler):
    async def look_up(
        self, directory: str, name: str, *, deadline_s: float | None = None
    ) -> Entry | None:
        found = await super().look_up(directory, name)
        return found and found._replace(extended={})


async def test_a_filer_that_refuses_is_relied_on() -> None:
    """And nothing is left of the test."""
    filer = MemoryFiler()
    await filer.open()
    await check_fence(filer, "/topics/.kgw/kafka", "fence-1")
    assert {} == filer.store.directories["/topics/.kgw/kafka"]
    assert 6 == filer.count()


@pytest.mark.parametrize(
    ("filer", "complaint"),
    [
        (WithoutConditions(), "under a condition that was false"),
        (WithoutExclusion(), "exclusively both times"),
        (_WithoutAttributes(), "has not kept the attributes"),
    ],
)
async def test_one_that_does_not_is_refused(filer: MemoryFiler, complaint: str) -> None:
    """The message says what it did, and what is needed."""
    await filer.open()
    with pytest.raises(DataDirectoryError, match=complaint):
        await check_fence(filer, "/topics/.kgw/kafka", "fence-1")


@pytest.mark.parametrize("kind", [CallKind.CREATE, CallKind.UPDATE, CallKind.LOOK_UP])
async def test_one_that_does_not_answer_is_refused(kind: CallKind) -> None:
    """Nobody knows what it would do."""
    filer = MemoryFiler()
    await filer.open()
    filer.lose_answer(kind)
    with pytest.raises(DataDirectoryError, match="cannot be tested"):
        await check_fence(filer, "/topics/.kgw/kafka", "fence-1")


async def test_a_cluster_with_other_filers_is_refused() -> None:
    """Before anything is written; the message names them, and what to do."""
    filer = MemoryFiler()
    filer.addresses = ["b:8888", "a:8888"]
    backend = SeaweedMqBackend(filer, "kafka", MemoryStateStore(), clock=ManualClock())
    with pytest.raises(DataDirectoryError, match=r"a:8888, b:8888.*-filerGroup"):
        await backend.open()
    assert 0 == filer.count()


async def test_masters_that_cannot_be_asked_keep_nobody_from_starting() -> None:
    """A gateway needs them for nothing else."""
    filer = MemoryFiler()
    await filer.open()
    filer.is_away = True
    await check_filers(filer, 0.0)
