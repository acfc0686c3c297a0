"""The example of real input, with fewer rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples.nycflights import pipeline
from examples.nycflights import run as example

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.parametrize("kill", [False, True])
def test_flights_are_equal_row_by_row(tmp_path: Path, *, kill: bool) -> None:
    """Rows sent by confluent-kafka are read by aiokafka as they were, at dense offsets."""
    example.run(example.load_rows(20_000), tmp_path / "data", kill=kill)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_flights_go_through_the_pipeline(tmp_path: Path) -> None:
    """Archived by Spark, audited, queried, written back: the second topic is the first."""
    pipeline.run(example.load_rows(5_000), tmp_path / "flights")
