from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.watch.fence import check_fence, check_filers, wait_for_fence
from kgw.errors import DataDirectoryError
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, MemoryFiler
from tests.backend.seaweedmq.old_filers import WithoutConditions, WithoutExclusion
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.filer import FilerEntry


class _WithoutAttributes(MemoryFiler):
    async def look_up(
        self, directory: str, name: str, *, deadline_s: float | None = None
    ) -> FilerEntry | None:
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


@pytest.mark.parametrize("kind", [CallKind.CREATE, CallKind.UPDATE])
async def test_one_that_answers_late_is_waited_for(kind: CallKind) -> None:
    """As one does whose neighbour has gone; nothing is left of any of the tries."""
    filer, clock = MemoryFiler(), ManualClock()
    await filer.open()
    filer.lose_answer(kind, times=3)
    start = asyncio.ensure_future(wait_for_fence(filer, "/topics/.kgw/kafka", clock))
    for _ in range(3):
        await turns()
        assert not start.done()
        clock.advance(0.5)
    await start
    assert {} == filer.store.directories["/topics/.kgw/kafka"]


async def test_one_that_never_answers_is_refused_in_the_end() -> None:
    """After 16 s: 33 tries."""
    filer, clock = MemoryFiler(), ManualClock()
    await filer.open()
    filer.lose_request(CallKind.CREATE, times=33)
    start = asyncio.ensure_future(wait_for_fence(filer, "/topics/.kgw/kafka", clock))
    for _ in range(32):
        await turns()
        assert not start.done()
        clock.advance(0.5)
    with pytest.raises(DataDirectoryError, match="cannot be tested"):
        await start


async def test_one_that_cannot_be_relied_on_is_refused_at_once() -> None:
    """Time does not make it better."""
    filer = WithoutConditions()
    await filer.open()
    with pytest.raises(DataDirectoryError, match="under a condition that was false"):
        await wait_for_fence(filer, "/topics/.kgw/kafka", ManualClock())


async def test_one_that_refuses_is_not_asked_again() -> None:
    """As one that takes no names of 64 characters: the name that is tried has as many."""
    filer = MemoryFiler()
    await filer.open()
    filer.fail_next(CallKind.CREATE)
    with pytest.raises(DataDirectoryError, match=r"cannot be tested: .*fence-[0-9a-f]{32}-{26}: "):
        await wait_for_fence(filer, "/topics/.kgw/kafka", ManualClock())


async def test_a_cluster_with_other_filers_is_refused() -> None:
    """Before anything is written; the message names them, and what to do."""
    filer = MemoryFiler()
    filer.addresses = ["b:8888", "a:8888"]
    backend = SeaweedMqBackend(filer, "kafka", MemoryStateStore(), clock=ManualClock())
    with pytest.raises(DataDirectoryError, match=r"a:8888, b:8888.*-filerGroup"):
        await backend.open()
    assert 0 == filer.count()


@pytest.mark.parametrize(
    "version", ["8000GB 4.40 pypi", "30GB 3.99 abc", "30GB 4.04 abc", "30GB 0.76"]
)
async def test_a_filer_without_a_lock_is_refused(version: str) -> None:
    """By a gateway, before anything is written; the fence's own test would not see it."""
    filer = MemoryFiler()
    filer.version = version
    backend = SeaweedMqBackend(filer, "kafka", MemoryStateStore(), clock=ManualClock())
    with pytest.raises(DataDirectoryError, match=rf"{version}: before 4\.41 .* install 4\.48"):
        await backend.open()
    assert 0 == filer.count()


@pytest.mark.parametrize(
    ("version", "warning"),
    [
        ("8000GB 4.41 pypi", "4.44 was seen to hang"),
        ("8000GB 4.47 pypi", "4.44 was seen to hang"),
        ("8000GB 4.48 pypi", ""),
        ("30GB 5.00", ""),
        ("30GB 10.01", ""),
        ("", "says '' of its version"),
        ("ours-main", "says 'ours-main' of its version"),
    ],
)
async def test_what_kgw_is_not_tried_with_is_warned_of(
    version: str, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A filer that says nothing that can be understood is somebody's own: it is not refused."""
    filer = MemoryFiler()
    filer.version = version
    backend = SeaweedMqBackend(filer, "kafka", MemoryStateStore(), clock=ManualClock())
    with caplog.at_level("WARNING"):
        await backend.open()
    await backend.aclose()
    told = [record.__dict__["kgw_fields"]["detail"] for record in caplog.records]
    assert [True] * bool(warning) == [warning in detail for detail in told]


async def test_masters_that_cannot_be_asked_keep_nobody_from_starting() -> None:
    """A gateway needs them for nothing else."""
    filer = MemoryFiler()
    await filer.open()
    filer.is_away = True
    await check_filers(filer, 0.0)
