from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.harness.report import markdown, performance_page
from bench.harness.results import Measurement, Results
from bench.harness.scenario import Bar, Figure, Scenario
from bench.harness.verdicts import MEMORY_BAR, ratio, verdicts

if TYPE_CHECKING:
    from bench.harness.scenario import Stage


class _Shown(Scenario):
    def measure(self, stage: Stage) -> dict[str, float]:
        raise NotImplementedError


SCENARIO = _Shown(
    name="produce/small",
    title="Small",
    what="Written at full speed.",
    limited_by="The interpreter.",
    would_lift="Another one.",
    figures=(Figure(name="mb_per_s", title="rate", unit="MB/s"),),
    bars={
        "strict": (Bar(figure="mb_per_s", at_least=1.0),),
        "relaxed": (Bar(figure="mb_per_s", at_least=1.3, at_most=2.0),),
        "synced": (Bar(figure="mb_per_s", at_most=300.0, absolute=True),),
    },
)
FAMILIES = {"throughput": (SCENARIO,)}


def _results(
    rates: dict[str, tuple[float, ...]], failures: tuple[dict[str, object], ...] = ()
) -> Results:
    """Runs of the scenario by server; Kafka has ten times the memory."""
    return Results(
        tuple(
            Measurement(
                scenario=SCENARIO.name,
                server=server,
                run=run,
                revision="abc",
                at="2026-01-02T00:00:00+00:00",
                scale_seconds=1.5,
                scale_share=1.0,
                figures={
                    "mb_per_s": rate,
                    "stolen_share": 0.0,
                    "cores_busy_elsewhere": 0.25,
                    "cpu_s_per_gb": 3.0,
                    "rss_anonymous_mb": 1_000.0 if server == "kafka" else 100.0,
                    "rss_file_mb": 20.0,
                },
            )
            for server, of_server in rates.items()
            for run, rate in enumerate(of_server, 1)
        ),
        ({"cores": 2, "disk_mb_per_s": 1500}, {"cores": 2, "disk_mb_per_s": 900}),
        failures,
    )


MEASURED = _results({"kgw-strict": (90, 95, 300), "kgw-relaxed": (130,), "kafka": (100, 99, 101)})


def test_a_ratio_is_of_medians() -> None:
    """One run that got away does not decide."""
    assert 0.95 == ratio(MEASURED, SCENARIO.name, "strict", "mb_per_s")
    assert ratio(MEASURED, SCENARIO.name, "synced", "mb_per_s") is None
    assert (
        ratio(_results({"kgw-strict": (1,), "kafka": (0,)}), SCENARIO.name, "strict", "mb_per_s")
        is None
    )


def test_a_bar_is_kept_up_to_itself() -> None:
    """Exactly the bar is met, on either side; an absolute one needs no peer."""
    found = {(one.durability, one.bar is MEMORY_BAR): one for one in verdicts(MEASURED, SCENARIO)}
    assert {
        ("strict", False): (0.95, False),
        ("relaxed", False): (1.3, True),
        ("synced", False): (95.0, True),
        ("strict", True): (0.1, True),
        ("relaxed", True): (0.1, True),
    } == {key: (one.value, one.kept) for key, one in found.items()}


def test_a_run_prints_bars_figures_and_costs() -> None:
    """Lost bars stand out; medians come with their range where there is more than one run."""
    text = markdown(MEASURED, FAMILIES)
    assert (
        "| `produce/small` | rate | **0.95 (≥ 1): lost** | 1.30 (≥ 1.3 and ≤ 2): met, 1 run |"
        in text
    )
    assert "95.0 (90.0 to 300.0)" in text
    assert "| `produce/small` | CPU s a GB | 3.00 | 3.00 | 3.00 |" in text
    assert "Nothing was measured.\n" == markdown(Results((), ()), FAMILIES)


def test_a_bar_says_how_many_runs_it_rests_on() -> None:
    """Those of the side with fewer, where they are not three; an absolute bar has one side."""
    text = markdown(
        _results({"kgw-strict": (1, 2, 3), "kgw-relaxed": (150, 150, 150), "kafka": (100, 100)}),
        FAMILIES,
    )
    assert "| **0.02 (≥ 1): lost, 2 runs** | 1.50 (≥ 1.3 and ≤ 2): met, 2 runs |" in text
    assert "| 2.00 (≤ 300): met |" in text
    assert "| 0.10 (≤ 0.2): met, 2 runs | 0.10 (≤ 0.2): met, 2 runs |" in text


def test_a_bar_that_was_not_measured_is_shown() -> None:
    """Whichever side is missing, and where nothing was measured of a row; it is not lost."""
    without_peer = _results({"kgw-strict": (400, 400, 400)})
    expected = "| (≥ 1): not measured | (≥ 1.3 and ≤ 2): not measured | "
    only_peer = _results({"kafka": (100, 100, 100)})
    for results, absolute in (
        (without_peer, "**400.00 (≤ 300): lost**"),
        (only_peer, "(≤ 300): not measured"),
    ):
        text = markdown(results, FAMILIES)
        assert expected in text
        assert f"| {absolute} |" in text
    memory = "| `produce/small` | 100 + 20 | not measured | not measured | not measured |"
    assert memory + " (≤ 0.2): not measured | (≤ 0.2): not measured |" in markdown(
        without_peer, FAMILIES
    )
    other = replace(SCENARIO, name="produce/other")
    page = performance_page(without_peer, {"throughput": (SCENARIO, other)})
    assert "| `produce/other` | rate | (≥ 1): not measured |" in page
    assert "What would lift it" not in performance_page(only_peer, FAMILIES)


def test_the_page_says_where_when_and_what_limits() -> None:
    """The machine, the revision, how quiet it was, and a sentence for each scenario."""
    page = performance_page(MEASURED, FAMILIES)
    assert "| MB/s written in synced pieces of 1 MB | 900 to 1,500 |" in page
    assert "Measured on 2026-01-02, revision abc." in page
    assert "7 measurements count; 0 were dropped" in page
    assert "- `produce/small`, Small: Written at full speed. The interpreter." in page
    assert "100 + 20" in page
    assert "The interpreter. *What would lift it:* Another one." in page
    met = performance_page(_results({"kgw-strict": (100,), "kafka": (90,)}), FAMILIES)
    assert "Another one." not in met
    assert "No results are kept" in performance_page(Results((), ()), FAMILIES)


def test_the_page_says_what_could_not_be_measured() -> None:
    """A row that is missing has a reason."""
    failure = {"scenario": SCENARIO.name, "server": "kafka", "run": 2, "said": "no"}
    page = performance_page(_results({"kgw-strict": (1,)}, (failure,)), FAMILIES)
    assert "Not measured: `produce/small` on kafka, run 2." in page
