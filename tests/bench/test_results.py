from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from bench import run as bench_run
from bench.harness.machine import CpuTimes, Meanwhile, Moment, parse_cpu_times
from bench.harness.results import (
    Measurement,
    Results,
    Spread,
    append,
    append_measurement,
    load,
)
from bench.harness.runner import derived, pending, time_limit
from bench.harness.scenario import COMPARED
from bench.harness.verdicts import MEMORY_BAR, verdicts
from bench.run import UsageError, chosen_scenarios, chosen_servers, parse
from bench.scenarios.registry import all_scenarios

if TYPE_CHECKING:
    from pathlib import Path


def _measurement(
    value: float, *, server: str = "kafka", run: int = 1, stolen_share: float = 0.0
) -> Measurement:
    return Measurement(
        scenario="produce/1kb-16kb-4p",
        server=server,
        run=run,
        revision="abc",
        at="2026-01-01T00:00:00+00:00",
        scale_seconds=2.5,
        scale_share=1.0,
        figures={"mb_per_s": value, "stolen_share": stolen_share},
    )


def test_what_hangs_is_ended() -> None:
    """A server that answers nobody costs its own row alone."""
    with pytest.raises(TimeoutError, match="longer than 0 s"), time_limit(0.01):
        signal.pause()
    assert (0.0, 0.0) == signal.getitimer(signal.ITIMER_REAL)


def test_measurements_are_appended_and_read_again(tmp_path: Path) -> None:
    """One line each, so that a run cut short keeps what it has."""
    path = tmp_path / "results.jsonl"
    append(path, "machine", {"cores": 2})
    for value in (1.0, 2.0):
        append_measurement(path, _measurement(value))
    append(path, "machine", {"cores": 2})
    results = load([path])
    assert ({"cores": 2},) == results.machines
    assert (_measurement(1.0), _measurement(2.0)) == results.measurements


def test_runs_of_another_file_are_other_runs(tmp_path: Path) -> None:
    """Each file counts from 1, server by server."""
    paths = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for path in paths:
        append_measurement(path, _measurement(1.0))
        append_measurement(path, _measurement(1.0, run=2))
    append_measurement(paths[1], _measurement(1.0, server="kafka-synced"))
    results = load(paths)
    assert [1, 2, 3, 4, 1] == [one.run for one in results.measurements]
    assert 4 == results.runs_begun("produce/1kb-16kb-4p", "kafka")


def test_a_line_that_is_no_measurement_is_named(tmp_path: Path) -> None:
    """A file that was cut in the middle of a line says where."""
    path = tmp_path / "results.jsonl"
    append_measurement(path, _measurement(1.0))
    path.write_text(path.read_text() + json.dumps({"measurement": {}})[:-3])
    with pytest.raises(ValueError, match=r"results\.jsonl:2 is no measurement"):
        load([path])


def test_a_spread_is_of_those_runs_that_count(tmp_path: Path) -> None:
    """Runs with stolen cores are counted, and left out of the median."""
    path = tmp_path / "results.jsonl"
    for value, stolen_share in ((10.0, 0.0), (1.0, 0.02), (30.0, 0.005), (20.0, 0.0)):
        append_measurement(path, _measurement(value, stolen_share=stolen_share))
    results = load([path])
    assert {"kafka": 1} == results.dropped
    assert (20.0, 10.0, 30.0, 3) == results.spread("produce/1kb-16kb-4p", "kafka", "mb_per_s")
    assert results.spread("produce/1kb-16kb-4p", "kafka", "other") is None
    assert results.spread("produce/1kb-16kb-4p", "kgw-strict", "mb_per_s") is None


def test_the_kernels_counters_are_busy_and_stolen_seconds() -> None:
    """Waiting for the disk is not busy; stolen time is not either."""
    line = "cpu  100 200 300 4000 50 6 7 80 0 0"
    assert CpuTimes(6.13, 0.8) == parse_cpu_times(line, 100)


def test_what_others_used_is_what_is_left_of_the_cores() -> None:
    """Neither the server's time nor the load generator's."""
    before = Moment(10.0, CpuTimes(100.0, 1.0), 5.0, 7.0)
    after = Moment(12.0, CpuTimes(103.5, 1.04), 6.0, 9.0)
    meanwhile = Meanwhile.between(before, after, cores=2)
    assert Meanwhile(2.0, 2.0, 1.0, pytest.approx(0.01), 0.25) == meanwhile  # type: ignore[arg-type]


def test_processor_time_is_given_by_what_was_moved() -> None:
    """Per gigabyte where the scenario counts bytes, per million requests where it counts those."""
    meanwhile = Meanwhile(2.0, 1.5, 1.0, 0.0, 0.25)
    added = derived({"bytes": 5e8, "requests": 3_000.0, "measured_s": 9.0}, meanwhile)
    assert (3.0, 500.0) == (added["cpu_s_per_gb"], added["cpu_s_per_million_requests"])
    assert "measured_s" not in added
    assert "cpu_s_per_gb" not in derived({}, meanwhile)


def test_a_run_goes_on_where_it_was_cut() -> None:
    """What the file has of that server and run is not measured again; stolen ones are."""
    first, *others = all_scenarios()
    done = [_measurement(1.0), _measurement(1.0, server="kafka-synced", stolen_share=0.5)]
    assert "produce/1kb-16kb-4p" == first.name
    assert others == pending(all_scenarios(), done, "kafka", 1)
    for server, run in (("kafka", 2), ("kafka-synced", 1)):
        assert first in pending(all_scenarios(), done, server, run)


def test_a_run_takes_no_results_of_another_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is started, and both are named."""
    path = tmp_path / "results.jsonl"
    append_measurement(path, _measurement(1.0))
    monkeypatch.setattr(bench_run, "revision", lambda _: "abc")
    both = r"holds results of abc \(2\.5 s\), and this is abc \(2 s\)"
    with pytest.raises(UsageError, match=both):
        bench_run.run(parse(["--output", str(path), "--seconds", "2"]))


def test_what_has_no_value_has_a_reason() -> None:
    """Not tried, tried and dropped, tried and failed, or without that figure."""
    failure = {"scenario": "produce/1kb-16kb-4p", "server": "kgw-relaxed", "run": 2, "said": "no"}
    measurements = (
        _measurement(1.0, stolen_share=0.5),
        _measurement(1.0, run=2, stolen_share=0.5),
        _measurement(1.0, server="kgw-strict"),
        _measurement(1.0, server="kgw-relaxed", stolen_share=0.5),
    )
    results = Results(measurements, (), (failure,))
    expected = {
        "kafka": ("dropped", 2),
        "kgw-strict": ("not measured", 1),
        "kgw-relaxed": ("failed", 2),
        "kafka-synced": ("not run", 0),
    }
    name = "produce/1kb-16kb-4p"
    assert expected == {
        server: (results.missing(name, server), results.runs_begun(name, server))
        for server in expected
    }


def test_two_runs_may_be_too_far_apart_for_a_median() -> None:
    """More than half as much again; with a third run the middle one decides."""
    assert Spread(13.0, 10.0, 16.0, 2).apart
    assert not Spread(12.5, 10.0, 15.0, 2).apart
    assert not Spread(12.0, 10.0, 30.0, 3).apart


def test_bars_are_measured_and_can_be_explained() -> None:
    """A row has the servers that its bars compare, and says what would lift one that is lost."""
    for scenario in all_scenarios():
        bars = list(verdicts(Results((), ()), scenario))
        assert {"strict"} <= {one.durability for one in bars if one.bar is MEMORY_BAR}
        for one in bars:
            assert set(COMPARED[one.durability]) <= set(scenario.servers), scenario.name
        assert ("synced" in scenario.bars) == ("kafka-synced" in scenario.servers), scenario.name
        assert scenario.would_lift or not scenario.bars, scenario.name


def test_scenarios_are_chosen_by_family_name_and_pattern() -> None:
    """In the registry's order, each once."""
    assert all_scenarios() == chosen_scenarios([])
    names = [one.name for one in chosen_scenarios(["produce/*", "produce/1kb-16kb-4p"])]
    assert names
    assert all(name.startswith("produce/") for name in names)
    assert len(set(names)) == len(names)
    assert set(names) < {one.name for one in chosen_scenarios(["throughput"])}


def test_a_mistyped_scenario_is_answered_with_what_was_meant() -> None:
    """The message names the nearest ones, and where all of them are."""
    with pytest.raises(UsageError, match=r"'troughput'.*Did you mean throughput.*--list"):
        chosen_scenarios(["troughput"])


def test_peers_are_measured_only_when_there_is_the_means() -> None:
    """Without a folder for its jars Kafka is not started; asking for it says what is missing."""
    assert ("kgw-strict", "kgw-relaxed") == chosen_servers(None, kafka=False)
    assert "kafka-synced" in chosen_servers(None, kafka=True)
    assert ("kafka",) == chosen_servers("kafka", kafka=True)
    with pytest.raises(UsageError, match="kafka needs --kafka CACHE_DIR"):
        chosen_servers("kgw-strict,kafka", kafka=False)
    with pytest.raises(UsageError, match="no server 'redpanda'"):
        chosen_servers("redpanda", kafka=True)


def test_scenarios_have_names_of_their_own() -> None:
    """Results are kept under them."""
    names = [one.name for one in all_scenarios()]
    assert len(set(names)) == len(names)
    for one in all_scenarios():
        figures = {figure.name for figure in one.figures}
        for bars in one.bars.values():
            assert {bar.figure for bar in bars} <= figures, one.name
