from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.harness.page import performance_page
from bench.harness.report import markdown, significant
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


def test_a_bar_says_how_many_runs_it_rests_on() -> None:
    """Those of the side with fewer, where they are not three; an absolute bar has one side."""
    text = markdown(
        _results({"kgw-strict": (1, 2, 3), "kgw-relaxed": (150, 150, 150), "kafka": (100, 100)}),
        FAMILIES,
    )
    assert "| **0.0200 (≥ 1): lost, 2 runs** | 1.50 (≥ 1.3 and ≤ 2): met, 2 runs |" in text
    assert "| 2.00 (≤ 300): met |" in text
    assert "| 0.100 (≤ 0.2): met, 2 runs | 0.100 (≤ 0.2): met, 2 runs |" in text


def test_a_bar_that_was_not_run_is_shown() -> None:
    """Whichever side is missing, and where nothing was measured of a row; it is not lost."""
    without_peer = _results({"kgw-strict": (400, 400, 400)})
    expected = "| (≥ 1): not run | (≥ 1.3 and ≤ 2): not run | "
    only_peer = _results({"kafka": (100, 100, 100)})
    for results, absolute in (
        (without_peer, "**400 (≤ 300): lost**"),
        (only_peer, "(≤ 300): not run"),
    ):
        text = markdown(results, FAMILIES)
        assert expected in text
        assert f"| {absolute} |" in text
    memory = "| `produce/small` | 100 + 20 | not run | not run | not run |"
    assert memory + " (≤ 0.2): not run | (≤ 0.2): not run |" in markdown(without_peer, FAMILIES)
    other = replace(SCENARIO, name="produce/other")
    page = performance_page(without_peer, {"throughput": (SCENARIO, other)})
    assert "| `produce/other` | rate | (≥ 1): not run |" in page
    assert "What would lift it" not in performance_page(only_peer, FAMILIES)


def test_the_page_says_where_when_and_what_limits() -> None:
    """The machine, the revision, how quiet it was, and a sentence for each scenario."""
    page = performance_page(MEASURED, FAMILIES)
    assert "| MB/s written in synced pieces of 1 MB | 900 to 1,500 |" in page
    assert "Measured on 2026-01-02, revision abc." in page
    assert "7 measurements count; 0 were dropped" in page
    assert "- Written at full speed.\n    - `produce/small`, Small\n" in page
    assert "100 + 20" in page
    assert "- `produce/small`: The interpreter. *What would lift it*: Another one." in page
    met = performance_page(_results({"kgw-strict": (100,), "kafka": (90,)}), FAMILIES)
    assert "Another one." not in met
    assert "No results are kept" in performance_page(Results((), ()), FAMILIES)


def _stolen(results: Results, server: str, runs: tuple[int, ...]) -> Results:
    """The same, but these runs of a server do not count."""
    measurements = tuple(
        replace(one, figures=one.figures | {"stolen_share": 0.5})
        if one.server == server and one.run in runs
        else one
        for one in results.measurements
    )
    return replace(results, measurements=measurements)


def test_what_was_dropped_is_told_from_what_was_not_run() -> None:
    """In bars, figures and memory, with how many of each server there were."""
    results = _stolen(MEASURED, "kafka", (1, 2, 3))
    page = performance_page(results, FAMILIES)
    assert "| `produce/small` | rate | (≥ 1): dropped | (≥ 1.3 and ≤ 2): dropped |" in page
    assert "| 95.0 (90.0 to 300.0) | 130.0 | dropped |  |  |  |  |" in page
    assert "| 100 + 20 | 100 + 20 | dropped | not run | (≤ 0.2): dropped |" in page
    assert "4 measurements count; 3 were dropped" in page
    assert "0 of kgw-strict, 0 of kgw-relaxed, 3 of kafka, 0 of kafka-synced" in page
    assert "Of 3 bars, those that rest on 3 runs of either side: 1;" in page
    assert "without a value: 2 (2 dropped).\n" in page


def test_a_bar_says_why_it_rests_on_fewer_runs() -> None:
    """Because others were dropped, or because no more were begun."""
    page = performance_page(_stolen(MEASURED, "kgw-strict", (2, 3)), FAMILIES)
    assert "**0.900 (≥ 1): lost, 1 of 3 runs**" in page
    assert "1.30 (≥ 1.3 and ≤ 2): met, 1 run |" in page
    assert "3 runs of either side: 0; on fewer because others were dropped or failed: 2;" in page
    assert "on fewer because no more were begun: 1.\n" in page


def test_a_ratio_near_its_bar_does_not_contradict_its_verdict() -> None:
    """Three digits that count, and more where they would not do."""
    assert ["0.0735", "0.561", "1.30", "17.4", "1,234", "1.00", "0.00"] == [
        significant(one) for one in (0.07351, 0.561, 1.3, 17.36, 1234.4, 0.9996, 0.0)
    ]
    results = _results({"kgw-strict": (99.97,) * 3, "kafka": (100.0,) * 3})
    assert "**0.9997 (≥ 1): lost**" in markdown(results, FAMILIES)
    third = replace(
        SCENARIO, bars={"strict": (Bar(figure="mb_per_s", at_most=1 / 1.5, at_least=0.07),)}
    )
    assert "(≥ 0.07 and ≤ 0.67): lost" in markdown(results, {"throughput": (third,)})
