"""A gateway in the test's own loop, over a memory backend, with a clock that stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.testing.gateway import InProcessGateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def backend() -> MemoryBackend:
    """The backend under `gateway`: it can hold commits back, crash and be opened again."""
    return MemoryBackend()


@pytest.fixture
async def gateway(backend: MemoryBackend) -> AsyncIterator[InProcessGateway]:
    """A gateway without topics. A bug met on the way fails the test."""
    async with InProcessGateway(backend=backend) as running:
        yield running
        assert {} == running.gateway.internal_errors
