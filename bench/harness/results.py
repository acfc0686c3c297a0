"""Measurements as they are kept: one JSON object a line, appended as they are made."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bench.harness.machine import STOLEN_SHARE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Missing = Literal["dropped", "failed", "not measured", "not run"]

# Single runs of one thing differ by less on shared cores, as a rule.
FAR_APART = 1.5


class Origin(NamedTuple):
    """What a measurement is of: those that differ in it are not put together."""

    revision: str
    seconds: float
    share: float

    def __str__(self) -> str:
        share = f", {self.share:g} of what is counted" if self.share != 1 else ""
        return f"{self.revision} ({self.seconds:g} s{share})"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One scenario on one server, once. `figures` are the scenario's own and the harness's."""

    scenario: str
    server: str
    run: int
    revision: str
    at: str
    scale_seconds: float
    scale_share: float
    figures: dict[str, float]

    @property
    def origin(self) -> Origin:
        """What it was measured of, and how much was done."""
        return Origin(self.revision, self.scale_seconds, self.scale_share)

    @property
    def stolen(self) -> bool:
        """Whether the hypervisor took so much of the cores that it does not count."""
        return self.figures["stolen_share"] > STOLEN_SHARE_LIMIT


@dataclass(frozen=True)
class Results:
    """What files hold: measurements, the machines they were made on, and what was not measured.

    A failure has the scenario, the server, the run, and what was said.
    """

    measurements: tuple[Measurement, ...]
    machines: tuple[dict[str, Any], ...]
    failures: tuple[dict[str, Any], ...] = ()

    @property
    def mixed(self) -> dict[str, set[Origin]]:
        """The scenarios whose measurements have no median together, and what they are of."""
        origins: dict[str, set[Origin]] = {}
        for one in self.measurements:
            origins.setdefault(one.scenario, set()).add(one.origin)
        return {name: several for name, several in origins.items() if len(several) > 1}

    @property
    def by_revision(self) -> dict[str, list[str]]:
        """The scenarios that were measured at each revision, the one with most of them first."""
        found: dict[str, dict[str, None]] = {}
        for one in self.measurements:
            found.setdefault(one.revision, {})[one.scenario] = None
        return {name: [*found[name]] for name in sorted(found, key=lambda one: -len(found[one]))}

    @property
    def dropped(self) -> Counter[str]:
        """How many measurements of each server do not count."""
        return Counter(one.server for one in self.measurements if one.stolen)

    def of(self, scenario: str, server: str) -> list[Measurement]:
        """Those that count."""
        return [
            one
            for one in self.measurements
            if (one.scenario, one.server) == (scenario, server) and not one.stolen
        ]

    def spread(self, scenario: str, server: str, figure: str) -> Spread | None:
        """Median and range of a figure; None where it was not measured."""
        values = [one.figures[figure] for one in self.of(scenario, server) if figure in one.figures]
        if not values:
            return None
        return Spread(statistics.median(values), min(values), max(values), len(values))

    def runs_begun(self, scenario: str, server: str) -> int:
        """How many runs have tried it, whatever came of that."""
        key = (scenario, server)
        measured = {one.run for one in self.measurements if (one.scenario, one.server) == key}
        failed = {one["run"] for one in self.failures if (one["scenario"], one["server"]) == key}
        return len(measured | failed)

    def missing(self, scenario: str, server: str) -> Missing:
        """Why a figure of it has no value."""
        if self.of(scenario, server):
            return "not measured"
        if not self.runs_begun(scenario, server):
            return "not run"
        key = (scenario, server)
        failed = any((one["scenario"], one["server"]) == key for one in self.failures)
        return "failed" if failed else "dropped"


class Spread(NamedTuple):
    """A figure over several runs."""

    median: float
    lowest: float
    highest: float
    runs: int

    @property
    def apart(self) -> bool:
        """Whether it is the middle of two runs that say different things."""
        return self.runs == 2 and self.highest > FAR_APART * self.lowest


def append(path: Path, kind: str, content: dict[str, Any]) -> None:
    """One more line; `kind` is `machine`, `measurement` or `failure`."""
    with path.open("a") as file:
        file.write(json.dumps({kind: content}) + "\n")


def append_measurement(path: Path, measurement: Measurement) -> None:
    """One more measurement, its figures to six significant digits."""
    content = asdict(measurement)
    content["figures"] = {
        name: float(f"{value:.6g}") for name, value in sorted(measurement.figures.items())
    }
    append(path, "measurement", content)


def load(paths: Iterable[Path]) -> Results:
    """All that the files hold, in their order; ValueError names a line that is wrong.

    Each file counts its runs from 1: those in a later file come behind those in earlier ones.
    """
    measurements: list[Measurement] = []
    machines: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    runs: Counter[str] = Counter()
    for path in paths:
        before = runs.copy()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                ((kind, content),) = json.loads(line).items()
                if kind == "machine":
                    if content not in machines:
                        machines.append(content)
                else:
                    server = content["server"]
                    content["run"] += before[server]
                    runs[server] = max(runs[server], content["run"])
                    if kind == "failure":
                        failures.append(content)
                    else:
                        measurements.append(Measurement(**content))
            except (KeyError, TypeError, ValueError) as error:
                message = f"{path}:{number} is no measurement: {error}"
                raise ValueError(message) from None
    return Results(tuple(measurements), tuple(machines), tuple(failures))
