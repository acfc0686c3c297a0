"""A coordinator that has been started, with what it lives on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.transactions.driver import Driver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    """Nothing is stored. A bug met on the way fails the test."""
    driver = await Driver().start()
    yield driver
    await driver.coordinator.aclose()
    assert [] == driver.bugs
