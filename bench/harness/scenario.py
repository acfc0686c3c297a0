"""What a scenario is: something measured in the same way on every server.

A family is a module in bench/scenarios with `SCENARIOS`, a tuple of instances of subclasses; it is
listed in bench/scenarios/registry.py. A scenario holds no state between calls: whatever it needs
it derives from its fields and from the `Stage`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from bench.harness.servers import ALL_SERVERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.harness.servers import Server

Durability = Literal["strict", "relaxed", "synced"]

COMPARED: Mapping[Durability, tuple[str, str]] = {
    "strict": ("kgw-strict", "kafka"),
    "relaxed": ("kgw-relaxed", "kafka"),
    "synced": ("kgw-strict", "kafka-synced"),
}
"""Which two servers a bar is about."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bound on kgw's figure, relative to the peer's or, with `absolute`, by itself.

    `strict` and `relaxed` bars compare kgw-strict and kgw-relaxed with `kafka`; `synced` ones
    compare kgw-strict with `kafka-synced`.
    """

    figure: str
    at_least: float | None = None
    at_most: float | None = None
    absolute: bool = False

    def allows(self, value: float) -> bool:
        """Whether a value is on the right side; exactly on the bar is right."""
        low, high = self.at_least, self.at_most
        return (low is None or value >= low) and (high is None or value <= high)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number that a scenario gives: its key in `measure`'s answer, and how to show it."""

    name: str
    title: str
    unit: str
    better: Literal["higher", "lower"] = "higher"
    decimals: int = 1


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of a scenario to do.

    `seconds` is for what goes on until it is stopped; `share` (of the full number, 1.0 is all) for
    what is counted: members, topics, partitions of a big topic. Figures of different shares must
    not be compared; those of different seconds may be.
    """

    seconds: float
    share: float = 1.0

    def count(self, full: int, at_least: int = 1) -> int:
        """That share of a full number."""
        return max(at_least, round(full * self.share))


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Where one measurement happens.

    `name` is new for every measurement: topics and groups begin with it. `directory` is an empty
    one on the disk under test for whatever the load generator needs.
    """

    server: Server
    directory: Path
    scale: Scale
    name: str


@dataclass(frozen=True, kw_only=True)
class Scenario(ABC):
    """Measured as `prepare`, `measure`, `finish`, with nothing in between.

    `start` says which server it gets: `shared` with the scenarios of the same run, which are
    measured one after the other; its `own`, started over an empty directory for this measurement;
    or an `unstarted` one, which it starts and stops itself.
    """

    name: str
    title: str
    what: str
    limited_by: str
    figures: tuple[Figure, ...]
    bars: Mapping[Durability, tuple[Bar, ...]] = field(default_factory=dict)
    servers: tuple[str, ...] = ALL_SERVERS
    start: Literal["shared", "own", "unstarted"] = "shared"
    warm_rounds: int | None = None
    """How often it may warm up a server of its own, where the topics that it leaves would count."""
    dear: tuple[str, ...] = ()
    """Servers that take a minute or more for it: measured in the first run alone, bar or not."""
    would_lift: str = ""
    """What it would take to keep a bar that is lost; shown where one is."""
    rest_s: float = 0.0
    """How long free memory settles before the clock starts: `harness.free_memory` says why."""
    only_writes: bool = False
    """Whether its `bytes` are all written: what the disk takes is then shown by them."""

    @property
    def once(self) -> tuple[str, ...]:
        """Servers measured in the first run alone: those that no bar compares, and dear ones.

        The bar on memory, which every row has, asks for no more runs.
        """
        compared = {server for durability in self.bars for server in COMPARED[durability]}
        return tuple(one for one in self.servers if one in self.dear or one not in compared)

    def prepare(self, stage: Stage) -> None:  # noqa: B027 - nothing to prepare is the usual case
        """What must be there before the clock starts: topics, data to read. Not measured."""

    @abstractmethod
    def measure(self, stage: Stage) -> dict[str, float]:
        """The figures by name.

        `bytes` and `requests`, where given, are what the server took or gave; the harness makes
        `cpu_s_per_gb` and `cpu_s_per_million_requests` of them, with the server's processor time
        over the whole call. An error is raised, never measured.
        """

    def finish(self, stage: Stage) -> None:  # noqa: B027 - little is left behind as a rule
        """Takes away what would burden the scenarios after it: big topics. Not measured."""
