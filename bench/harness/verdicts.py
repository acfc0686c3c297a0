"""Ratios between servers and whether they keep their bars. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench.harness.scenario import COMPARED, Bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness.results import Missing, Results
    from bench.harness.scenario import Durability, Scenario

MEMORY_BAR = Bar(figure="rss_anonymous_mb", at_most=0.2)
"""Of strict and relaxed, in every scenario that both sides run."""


class Verdict(NamedTuple):
    """One bar: kgw's value by the peer's, or kgw's own where the bar is absolute.

    `value` is None where a measurement is missing, and `missing` says why; `runs` are those of the
    side with fewer, and `of_runs` how many were begun there; `apart` says that a side's two differ.
    """

    scenario: str
    durability: Durability
    bar: Bar
    value: float | None
    runs: int
    of_runs: int
    apart: bool = False
    missing: Missing | None = None

    @property
    def kept(self) -> bool:
        """Whether there is a value on the right side; exactly on the bar is right."""
        return self.value is not None and self.bar.allows(self.value)


def ratio(results: Results, scenario: str, durability: Durability, figure: str) -> float | None:
    """Kgw's median by the peer's; None where either is missing or there is nothing to divide by."""
    ours, peers = (results.spread(scenario, name, figure) for name in COMPARED[durability])
    if ours is None or peers is None or not peers.median:
        return None
    return ours.median / peers.median


def verdicts(results: Results, scenario: Scenario) -> Iterator[Verdict]:
    """All bars of a scenario, measured or not, memory last."""
    for durability, bars in scenario.bars.items():
        for bar in bars:
            yield _verdict(results, scenario.name, durability, bar)
    memory: tuple[Durability, ...] = ("strict", "relaxed")
    for durability in memory:
        if set(COMPARED[durability]) <= set(scenario.servers):
            yield _verdict(results, scenario.name, durability, MEMORY_BAR)


def _verdict(results: Results, scenario: str, durability: Durability, bar: Bar) -> Verdict:
    servers = COMPARED[durability][:1] if bar.absolute else COMPARED[durability]
    spreads = {server: results.spread(scenario, server, bar.figure) for server in servers}
    counts = {server: 0 if one is None else one.runs for server, one in spreads.items()}
    fewest = [server for server in servers if counts[server] == min(counts.values())]
    value = ratio(results, scenario, durability, bar.figure)
    if bar.absolute:
        of_it = spreads[servers[0]]
        value = None if of_it is None else of_it.median
    # What one side was never asked for cannot be had from the other.
    why = {results.missing(scenario, server): None for server in fewest}
    return Verdict(
        scenario,
        durability,
        bar,
        value,
        runs=min(counts.values()),
        of_runs=min(results.runs_begun(scenario, server) for server in fewest),
        apart=any(one is not None and one.apart for one in spreads.values()),
        missing=None if value is not None else "not run" if "not run" in why else next(iter(why)),
    )
