from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.compare import checkout, comparison, paired_ratios
from bench.harness.results import Measurement, Results
from bench.run import UsageError, say_failures
from bench.scenarios.registry import all_scenarios

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = all_scenarios()[0]


def _one(server: str, run: int, cpu_s_per_gb: float) -> Measurement:
    return Measurement(
        scenario=SCENARIO.name,
        server=server,
        run=run,
        revision="abc",
        at="2026-01-01T00:00:00+00:00",
        scale_seconds=1.0,
        scale_share=0.1,
        figures={"cpu_s_per_gb": cpu_s_per_gb, "stolen_share": 0.0},
    )


RESULTS = Results(
    (
        _one("base", 1, 4.0),
        _one("this", 1, 3.0),
        _one("this", 2, 8.0),
        _one("base", 2, 8.0),
        _one("base", 3, 5.0),
    ),
    (),
)


def test_rounds_are_compared_with_themselves() -> None:
    """A round that was slow for both says as much as a quick one; one without its pair nothing."""
    assert [0.75, 1.0] == paired_ratios(RESULTS, SCENARIO.name, "cpu_s_per_gb")
    assert [] == paired_ratios(RESULTS, SCENARIO.name, "mb_per_s")


def test_the_table_has_both_sides_and_the_ratio() -> None:
    """Medians, then the median of the rounds' ratios and their range."""
    assert f"| `{SCENARIO.name}` | server CPU | 5.00 | 5.50 | 0.875 | 0.75 to 1.00 |" in comparison(
        RESULTS, [SCENARIO]
    )


def test_a_base_that_is_no_commit_is_named(tmp_path: Path) -> None:
    """Before anything is started."""
    with pytest.raises(UsageError, match="no commit 'nowhere'"):
        checkout("nowhere", tmp_path / "base")


def test_what_failed_is_said_and_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of what is left must not pass for a comparison of everything."""
    failure = {"scenario": SCENARIO.name, "server": "this", "run": 2, "said": "no answer"}
    assert 1 == say_failures(Results(RESULTS.measurements, (), (failure,)))
    assert f"failed, run 2: {SCENARIO.name} on this: no answer" in capsys.readouterr().err
    assert 0 == say_failures(RESULTS)
