"""The backend by itself: what it refuses while it is not open, and what it tells when it is."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.chain.marks import CHANGES, EPOCH, WRITER
from kgw.errors import CorruptionError, StorageError
from kgw.state.memory import MemoryStateStore
from kgw.testing.backend_harness import KEY, SETTINGS, TOPIC
from kgw.testing.clock import ManualClock
from kgw.testing.filer import MemoryFiler
from tests.backend.seaweedmq.damages import Damaged, without_last_chunk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.backend.seaweedmq.filer import FilerEntry

ASKED: dict[str, Callable[[SeaweedMqBackend], Awaitable[object]]] = {
    "create": lambda backend: backend.create_partition(KEY, TOPIC, SETTINGS),
    "open": lambda backend: backend.open_partition(KEY, TOPIC, SETTINGS),
    "delete": lambda backend: backend.delete_partition(KEY),
    "look for topics": lambda backend: backend.forget_others(),
    "checkpoint": lambda backend: backend.checkpoint(),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
async def test_a_backend_that_is_not_open_refuses(
    ask: Callable[[SeaweedMqBackend], Awaitable[object]],
) -> None:
    """Before it is opened and after it was closed: nothing is asked of the filer any more."""
    clock = ManualClock()
    filer = MemoryFiler(clock=clock)
    backend = SeaweedMqBackend(filer, "kafka", MemoryStateStore(), clock=clock)
    with pytest.raises(StorageError, match="the backend is not open"):
        await ask(backend)
    await backend.open()
    await backend.aclose()
    filer.calls.clear()
    with pytest.raises(StorageError, match="the backend is not open"):
        await ask(backend)
    assert [] == filer.calls


@pytest.mark.parametrize("is_shorter", [True, False])
async def test_a_log_that_has_lost_its_end_is_not_opened(*, is_shorter: bool) -> None:
    """In the words of a check; it is once the files are back, and what is sound is at once."""
    stored = Damaged()
    await stored.begin()
    name = stored.files[-1]
    whole = stored.entry(name)
    if is_shorter:
        without_last_chunk(stored)
    expected = await stored.problems()
    assert [True] * is_shorter == ["where the state has it end" in one for one in expected]
    backend = stored.backend()
    await backend.open()
    async with aclosing(backend):
        for _ in range(2 if is_shorter else 0):
            with pytest.raises(CorruptionError) as refused:
                await backend.open_partition(KEY, TOPIC, SETTINGS)
            assert str(refused.value).startswith(expected[0])
            assert "kgw log accept-loss" in str(refused.value)
        # The take-overs have left their epoch on it.
        stored.put(whole._replace(extended={**whole.extended, **_epoch_of(stored.entry(name))}))
        log = await backend.open_partition(KEY, TOPIC, SETTINGS)
        assert 33 == log.high_watermark
        assert () == backend.health.problems


def _epoch_of(entry: FilerEntry) -> dict[str, bytes]:
    """Return what says who writes a file, and how often it was changed."""
    return {
        name: value for name, value in entry.extended.items() if name in {EPOCH, CHANGES, WRITER}
    }
