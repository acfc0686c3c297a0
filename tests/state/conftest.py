"""The stores that everything about state is tried with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.state.memory import MemoryStateStore
from kgw.state.sql.sqlite import SqliteStateStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.state.base import StateStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StateStore]:
    """Return each kind of store, open and empty."""
    opened: StateStore = MemoryStateStore()
    if request.param == "sqlite":
        opened = SqliteStateStore(tmp_path / "meta.sqlite", quick_check=True)
    await opened.open()
    yield opened
    await opened.aclose()
