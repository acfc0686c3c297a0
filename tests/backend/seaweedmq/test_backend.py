"""The backend by itself: what it refuses while it is not open, and what it tells when it is."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.errors import StorageError
from kgw.state.memory import MemoryStateStore
from kgw.testing.backend_harness import KEY, SETTINGS, TOPIC
from kgw.testing.clock import ManualClock
from kgw.testing.filer import MemoryFiler
from tests.backend.seaweedmq.damages import Damaged, without_last_chunk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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
async def test_a_log_that_has_lost_its_end_is_told_when_it_is_opened(
    caplog: pytest.LogCaptureFixture, *, is_shorter: bool
) -> None:
    """In the words of a check, in the log and among the problems; what is sound is not."""
    stored = Damaged()
    await stored.begin()
    if is_shorter:
        without_last_chunk(stored)
    expected = await stored.problems()
    assert [True] * is_shorter == ["where it ended at an orderly stop" in one for one in expected]
    caplog.clear()
    backend = stored.backend()
    await backend.open()
    async with aclosing(backend):
        log = await backend.open_partition(KEY, TOPIC, SETTINGS)
        assert expected == [one for one in backend.health.problems if "ends at" in one]
        # Readers may have seen other records under the epoch before.
        assert is_shorter == (log.epoch_at(log.end_offset) > log.epoch_at(0))
        assert log.leader_epoch == log.epoch_at(log.end_offset)
    told = [record.__dict__.get("kgw_fields", {}).get("problem") for record in caplog.records]
    assert expected == [one for one in told if one and "ends at" in one]
