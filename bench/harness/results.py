"""Measurements as they are kept: one JSON object a line, appended as they are made."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.harness.machine import STOLEN_SHARE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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
    def dropped(self) -> int:
        """How many measurements do not count."""
        return sum(one.stolen for one in self.measurements)

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


class Spread(NamedTuple):
    """A figure over several runs."""

    median: float
    lowest: float
    highest: float
    runs: int


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
    """All that the files hold, in the order of the files; ValueError names a line that is wrong."""
    measurements: list[Measurement] = []
    machines: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                ((kind, content),) = json.loads(line).items()
                if kind == "machine":
                    if content not in machines:
                        machines.append(content)
                elif kind == "failure":
                    failures.append(content)
                else:
                    measurements.append(Measurement(**content))
            except (ValueError, TypeError) as error:
                message = f"{path}:{number} is no measurement: {error}"
                raise ValueError(message) from None
    return Results(tuple(measurements), tuple(machines), tuple(failures))
