"""Compressed batches of a stranger: refused before they become what they want to be."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kgw.records.batch import Compression
from kgw.records.compression import decompress
from kgw.records.limits import DecompressionLimits
from tests.records.bombs import zstd_runs

MEMORY_BAR_BYTES = 64 << 20
"""As much as may come out of an honest batch."""
REFUSALS = ("CORRUPT_MESSAGE", "MESSAGE_TOO_LARGE", "INVALID_RECORD")
TIME_BAR_S = 1.0
"""For one bomb, judged in full size only; a reader of a stranger's batch runs off the loop."""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "time_bar_s",
    [
        pytest.param(None, id="short", marks=pytest.mark.campaign),
        pytest.param(TIME_BAR_S, id="full", marks=pytest.mark.full),
    ],
)
def test_bombs_are_refused_within_bounds(time_bar_s: float | None) -> None:
    """Every bomb ends in an error with a code; memory and, in full size, time stay in bounds."""
    printed = subprocess.run(
        [sys.executable, "-m", "tests.records.bombs"], capture_output=True, text=True, check=True
    ).stdout
    results = [json.loads(line) for line in printed.splitlines()]

    assert len(results) >= 100
    for result in results:
        assert result["code"] in REFUSALS, result
        assert time_bar_s is None or result["s"] < time_bar_s, result
        assert result["bytes"] < MEMORY_BAR_BYTES, result


def test_the_control_is_a_bomb() -> None:
    """Without the ratio the same bytes do become what they claim: the test can fail."""
    loose = DecompressionLimits(max_bytes=1 << 30, max_ratio=1_000_000)

    assert len(decompress(Compression.ZSTD, zstd_runs(16), loose)) == 16 * (128 << 10)
