from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.client import NewRecord
from kgw.migrate.plan import read_plan
from tests.migrate.old_scheme import old_topic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.serving import ServedTopics

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("spark")
def test_a_plan_that_spark_made_is_applied(served: ServedTopics, tmp_path: Path) -> None:
    """It is the plan of `kgw migrate offsets`, which applies it; the scratch directory is gone."""
    topic = old_topic("spark-orders")
    served.create(topic.name, 2)
    served.produce(
        topic.name,
        {
            partition: [NewRecord(None, value, time_ms) for time_ms, value in records]
            for partition, records in topic.records.items()
        },
    )
    ledger, positions = topic.write(tmp_path / "filer")
    kept = tmp_path / "plans"
    kept.mkdir()
    sources = ("--ledger", str(ledger), "--positions", str(positions), "-b", served.address)

    def kgw(*arguments: str) -> str:
        result = CliRunner().invoke(main, arguments, prog_name="kgw")
        assert (0, "") == (result.exit_code, result.stderr if result.exit_code else "")
        return result.stdout

    kgw("migrate", "offsets", "--plan", str(kept / "one"), *sources)
    told = json.loads(kgw("pipeline", "migrate", "--plan", str(kept / "parts"), *sources, "--json"))
    assert 2 == len(told["partitions"])
    assert ["one", "parts"] == sorted(path.name for path in kept.iterdir())
    one, parts = (read_plan(kept / name) for name in ("one", "parts"))
    assert one == {**parts, "created_ms": one["created_ms"]}

    apply = ("migrate", "offsets", "--apply", str(kept / "parts"), "-b", served.address)
    kgw(*apply, "--execute")
    verify = ("migrate", "offsets", "--verify", str(kept / "parts"), "-b", served.address)
    assert [] == json.loads(kgw(*verify, "--json"))["differences"]


def test_a_plan_needs_a_ledger_and_a_place(tmp_path: Path) -> None:
    """Both are asked for before Spark is started."""
    plan = ("pipeline", "migrate", "--plan", str(tmp_path / "plan"))
    result = CliRunner().invoke(main, plan, prog_name="kgw")
    assert (2, True) == (result.exit_code, "say where the ledger is" in result.stderr)
    (tmp_path / "plan").touch()
    result = CliRunner().invoke(main, [*plan, "--ledger", str(tmp_path)], prog_name="kgw")
    assert (1, f"error: {tmp_path / 'plan'} exists\n") == (result.exit_code, result.stderr)
