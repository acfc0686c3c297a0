from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.pipeline.errors import PipelineError
from kgw.pipeline.jobs.running import JobError, SparkRunner

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.serving import ServedTopics

pytestmark = pytest.mark.slow


def kgw(served: ServedTopics, *arguments: str) -> str:
    """Run a command of the pipeline that must succeed, and return what it prints."""
    given = ("pipeline", *arguments, "-b", served.address)
    result = CliRunner().invoke(main, given, prog_name="kgw")
    assert (0, "") == (result.exit_code, result.stderr if result.exit_code else "")
    return result.stdout


@pytest.mark.usefixtures("spark")
def test_a_topic_is_archived_audited_and_its_lag_is_none(
    served: ServedTopics, tmp_path: Path
) -> None:
    """By the commands; a second run finds nothing to do, a third what has come since."""
    served.create("archived", 2)
    served.number("archived", {0: 30_000, 1: 7})
    out = ("-t", "archived", "--out", str(tmp_path))

    planned = json.loads(kgw(served, "archive", *out, "--dry-run", "--json"))
    assert [30_000, 7] == [one["offsets"] for one in planned["ranges"]]
    (first,) = json.loads(kgw(served, "archive", *out, "--json"))
    (second,) = json.loads(kgw(served, "archive", *out, "--json"))
    served.number("archived", {1: 3})
    (third,) = json.loads(kgw(served, "archive", *out, "--json"))
    assert [30_007, 0, 3] == [one["records"] for one in (first, second, third)]

    told = json.loads(kgw(served, "audit", "--archive", str(tmp_path), "--level", "3", "--json"))
    assert ([], 30_010) == (told["findings"], told["topics"][0]["records"])
    lag = json.loads(kgw(served, "lag", "--archive", str(tmp_path), "--json"))
    assert {"read_lag": 0, "commit_lag": 0} == lag["totals"]


@pytest.mark.usefixtures("spark")
def test_an_altered_file_is_found(served: ServedTopics, tmp_path: Path) -> None:
    """The audit ends with 1 and names the file."""
    served.create("altered")
    served.number("altered", {0: 100})
    kgw(served, "archive", "-t", "altered", "--out", str(tmp_path))
    (file,) = tmp_path.rglob("*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)

    result = CliRunner().invoke(main, ["pipeline", "audit", "--archive", str(tmp_path), "--json"])
    told = json.loads(result.stdout)
    assert 1 == result.exit_code
    # By its checksum, or earlier where the byte makes it unreadable.
    assert told["findings"][0]["finding"] in {"altered file", "damaged file"}
    assert file.name in told["findings"][0]["detail"]


@pytest.mark.usefixtures("spark")
def test_an_archive_is_written_to_another_topic(served: ServedTopics, tmp_path: Path) -> None:
    """By the command; a second run has nothing to write, and mistakes are told in a line."""
    served.create("original", 2)
    served.create("original-again", 2)
    served.number("original", {0: 2000, 1: 7})
    kgw(served, "archive", "-t", "original", "--out", str(tmp_path))
    of = ("--archive", str(tmp_path), "-t", "original", "--to", "original-again", "--json")

    planned = json.loads(kgw(served, "backfill", *of, "--dry-run"))
    assert [(0, 2000), (0, 7)] == [(one["position"], one["end"]) for one in planned]
    first = json.loads(kgw(served, "backfill", *of, "--compression", "zstd"))
    again = json.loads(kgw(served, "backfill", *of))
    assert [2000, 7] == [one["records"] for one in first["partitions"]]
    assert [] == again["partitions"]

    wrong = ("--archive", str(tmp_path), "-t", "absent", "--to", "original-again")
    result = CliRunner().invoke(main, ["pipeline", "backfill", *wrong], prog_name="kgw")
    told = f"error: {tmp_path} has no archive of absent\n"
    assert (1, told) == (result.exit_code, result.stderr)


@pytest.mark.usefixtures("spark")
def test_an_archive_is_restored_and_handed_over(served: ServedTopics, tmp_path: Path) -> None:
    """By the command; others wait until it is run with --hand-over."""
    served.create("kept", 2)
    served.create("kept-again", 2)
    served.number("kept", {0: 2000, 1: 7})
    served.wire.call(served.admin.delete_records("kept", {0: 10}))
    kgw(served, "archive", "-t", "kept", "--out", str(tmp_path))
    of = ("--archive", str(tmp_path), "-t", "kept", "--to", "kept-again", "--restore")

    planned = json.loads(kgw(served, "backfill", *of, "--json", "--dry-run"))
    assert [(10, 0, 2000), (0, 0, 7)] == [
        (one["start"], one["position"], one["end"]) for one in planned
    ]
    first = json.loads(kgw(served, "backfill", *of, "--json"))
    assert ([1990, 7], []) == (
        [one["records"] for one in first["partitions"]],
        first["hand_off"],
    )
    again = json.loads(kgw(served, "backfill", *of, "--json", "--hand-over"))
    assert [{"partition": 0, "offset": 2000}, {"partition": 1, "offset": 7}] == again["hand_off"]
    assert [] == again["partitions"]
    expected = served.wire.bounds("kept", [0, 1])
    assert expected == served.wire.bounds("kept-again", [0, 1])
    assert {"topic": "kept-again", "abandoned": False} == json.loads(
        kgw(served, "backfill", *of, "--json", "--abandon")
    )

    for wrong, told in (
        (of, "error: topic kept-again is not empty: partition 0 ends at offset 2000"),
        ((*of, "--job", "a"), "a restore has no --job: the archive names it"),
        ((*of, "--abandon", "--dry-run"), "--abandon writes nothing"),
    ):
        given = ["pipeline", "backfill", *wrong, "-b", served.address]
        result = CliRunner().invoke(main, given, prog_name="kgw")
        assert (True, True) == (result.exit_code > 0, told in result.stderr)


def test_a_task_that_fails_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    """Each unit fails twice, and each is told of once."""

    def work(unit: int) -> int:
        (tmp_path / f"{unit}-{len(list(tmp_path.glob(f'{unit}-*')))}").touch()
        if len(list(tmp_path.glob(f"{unit}-*"))) < 3:
            raise OSError(f"unit {unit} fails")
        return unit * unit

    found = sorted(SparkRunner(spark, "test").run(range(5), work))
    assert [(unit, unit * unit) for unit in range(5)] == found


def test_what_cannot_be_done_is_told_in_one_line(spark: SparkSession) -> None:
    """An error of the pipeline as it is, at once; another one with its unit, after all attempts."""

    def refuse(unit: int) -> int:
        raise PipelineError(f"no {unit}")

    def fail(unit: int) -> int:
        raise KeyError(f"of {unit}")

    with pytest.raises(JobError, match=r"^no 7$"):
        list(SparkRunner(spark, "test").run([7], refuse))
    with pytest.raises(JobError, match=r"^7: KeyError: 'of 7'$"):
        list(SparkRunner(spark, "test").run([7], fail))
