"""The backend by itself: what it refuses while it is not open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.errors import StorageError
from kgw.state.memory import MemoryStateStore
from kgw.testing.backend_harness import KEY, SETTINGS, TOPIC
from kgw.testing.clock import ManualClock
from kgw.testing.filer import MemoryFiler

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
