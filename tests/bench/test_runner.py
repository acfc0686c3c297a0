from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.harness.runner import FIRST_WARM_SCALE, WARM_SCALE, Plan, ServerRun
from bench.harness.scenario import Bar, Figure, Scale, Scenario
from bench.harness.servers import Server
from kgw.testing.process import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.harness.scenario import Durability, Stage


class _Jvm(Server):
    """Nothing runs; it only needs warming up."""

    warm_share = 1.0
    is_started = False

    @property
    def pid(self) -> int:
        raise RuntimeError

    @property
    def running(self) -> bool:
        return self.is_started

    def start(self) -> None:
        self.is_started = True

    def stop(self) -> None:
        self.is_started = False

    def kill(self) -> None:
        self.is_started = False

    def log(self) -> str:
        return ""

    def usage(self) -> Usage:
        return Usage(0, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class _Noted(Scenario):
    figures: tuple[Figure, ...] = ()
    noted: list[tuple[str, Scale]]

    def measure(self, stage: Stage) -> dict[str, float]:
        self.noted.append((self.name, stage.scale))
        return {}


def test_warming_up_is_short_at_first(tmp_path: Path) -> None:
    """Once each in small, those that are measured in every run first; then for longer."""
    noted: list[tuple[str, Scale]] = []
    first = _Noted(name="first", title="", what="", limited_by="", noted=noted)
    bars: Mapping[Durability, tuple[Bar, ...]] = {"strict": (Bar(figure="mb_per_s", at_least=1.0),)}
    second = replace(first, name="second", bars=bars)
    scale = Scale(seconds=1.0)
    plan = Plan(
        output=tmp_path / "results.jsonl",
        directory=tmp_path,
        revision="abc",
        scale=scale,
        warm_s=0.1,
        say=lambda _: None,
    )
    run = ServerRun(plan, "kafka", lambda data_dir: _Jvm("kafka", data_dir), 1)
    run.measure_all([first, second])
    assert [("second", FIRST_WARM_SCALE), ("first", FIRST_WARM_SCALE)] == noted[:2]
    assert ("second", WARM_SCALE) == noted[2]
    assert [("first", scale), ("second", scale)] == noted[-2:]
