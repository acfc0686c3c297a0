"""Ratios between servers and whether they keep their bars. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench.harness.scenario import Bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.harness.results import Results
    from bench.harness.scenario import Durability, Scenario

COMPARED: Mapping[Durability, tuple[str, str]] = {
    "strict": ("kgw-strict", "kafka"),
    "relaxed": ("kgw-relaxed", "kafka"),
    "synced": ("kgw-strict", "kafka-synced"),
}
"""Which two servers a bar is about."""

MEMORY_BAR = Bar(figure="rss_anonymous_mb", at_most=0.2)
"""Of strict and relaxed, in every scenario that the peer runs, too."""


class Verdict(NamedTuple):
    """One bar: kgw's value by the peer's, or kgw's own where the bar is absolute.

    `value` is None where a measurement is missing; `runs` are those of the side with fewer.
    """

    scenario: str
    durability: Durability
    bar: Bar
    value: float | None
    runs: int

    @property
    def kept(self) -> bool:
        """Whether there is a value on the right side; exactly on the bar is right."""
        if self.value is None:
            return False
        low, high = self.bar.at_least, self.bar.at_most
        return (low is None or self.value >= low) and (high is None or self.value <= high)


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
        yield _verdict(results, scenario.name, durability, MEMORY_BAR)


def _verdict(results: Results, scenario: str, durability: Durability, bar: Bar) -> Verdict:
    servers = COMPARED[durability][:1] if bar.absolute else COMPARED[durability]
    spreads = [results.spread(scenario, server, bar.figure) for server in servers]
    runs = min(0 if spread is None else spread.runs for spread in spreads)
    value = ratio(results, scenario, durability, bar.figure)
    if bar.absolute:
        value = None if spreads[0] is None else spreads[0].median
    return Verdict(scenario, durability, bar, value, runs)
