"""SIGTERM while clients are busy: campaign K2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from kgw.testing.process import GatewayProcess
from tests.hostile.drains import DRAIN_S, stop_under_load

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow]


@pytest.mark.parametrize(
    ("stops", "longest_s"),
    [
        pytest.param(
            2, math.inf, id="short", marks=[pytest.mark.campaign, pytest.mark.timeout(60)]
        ),
        pytest.param(50, DRAIN_S, id="full", marks=[pytest.mark.full, pytest.mark.timeout(1800)]),
    ],
)
async def test_sigterm_under_load(tmp_path: Path, stops: int, longest_s: float) -> None:
    """K2: exit 0, in full size within ten seconds, nobody's connection open, nothing lost."""
    drains = await stop_under_load(GatewayProcess(tmp_path / "data"), stops)
    print(f"{drains.acknowledged} records acknowledged, {drains.longest_s:.2f} s, the longest stop")
    assert drains.longest_s <= longest_s
