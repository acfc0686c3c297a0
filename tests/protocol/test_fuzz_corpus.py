"""Replays what fuzzing has found worth keeping."""

from __future__ import annotations

import pytest

from fuzz.fuzz_decode import CHOICES, CORPUS, FRAMES, HEADERS, check


@pytest.mark.slow
def test_corpus() -> None:
    """Every kept input still gives a message or a refusal; every decoder has one."""
    inputs = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    for data in inputs:
        check(data)
    chosen = {int.from_bytes(data[:2]) % CHOICES for data in inputs}
    assert set(range(CHOICES)) == chosen
    assert {HEADERS, FRAMES} <= chosen


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\xff\xff", b"\xff\xff" * 400])
def test_degenerate_inputs(data: bytes) -> None:
    """The harness itself accepts inputs that are too short to choose anything."""
    check(data)
