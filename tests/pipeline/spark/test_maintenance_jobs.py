"""merge, compact and retain by their commands: files go, and the audit finds nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.client import NewRecord

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.serving import ServedTopics

pytestmark = pytest.mark.slow


def kgw(*arguments: str, code: int = 0) -> str:
    """Run a command of the pipeline that ends with this code, and return what it prints."""
    result = CliRunner().invoke(main, ["pipeline", *arguments], prog_name="kgw")
    assert code == result.exit_code, result.stderr
    return result.stdout


def told(*arguments: str, code: int = 0) -> Any:
    """Run a command of the pipeline, and return its JSON."""
    return json.loads(kgw(*arguments, "--json", code=code))


@pytest.mark.usefixtures("spark")
def test_an_archive_is_merged_compacted_and_shortened(served: ServedTopics, tmp_path: Path) -> None:
    """Each job is planned first, done, and has nothing to do again; the audit agrees with each."""
    server, of = ("-b", served.address), ("--archive", str(tmp_path))
    served.create("tended", 2)
    for first in (0, 100):
        # Ten keys, each twenty times.
        served.number(
            "tended",
            {0: 100, 1: 10},
            first=first,
            record=lambda partition, at: NewRecord(b"%d" % (at % 10), b"%d" % partition, at),
        )
        kgw("archive", "-t", "tended", "--out", str(tmp_path), *server)

    def audited() -> int:
        found = told("audit", *of, "--level", "3", *server)
        assert [] == found["findings"]
        return int(found["topics"][0]["records"])

    planned = told("merge", *of, "--dry-run")
    assert [(0, 0, 200, 2), (1, 0, 20, 2)] == [
        (one["partition"], one["first_offset"], one["end_offset"], one["files"])
        for one in planned["groups"]
    ]
    merged = told("merge", *of)
    assert [False, False] == [one["is_overtaken"] for one in merged["groups"]]
    assert 220 == audited()
    assert {"groups": [], "removed_files": []} == told("merge", *of)

    compact = ("compact", *of, "-t", "tended")
    assert [1.0, 1.0] == [one["dirty_ratio"] for one in told(*compact, "--dry-run")["partitions"]]
    compacted = told(*compact)["partitions"]
    assert [(200, 190), (20, 10)] == [(one["records"], one["fallen"]) for one in compacted]
    assert 20 == audited()
    again = told(*compact, "--grace", "PT0S")
    # Those that archived, and those that were merged.
    assert (0, 6) == (len(again["partitions"]), len(again["removed_files"]))
    assert 2 == len(list(tmp_path.rglob("*.parquet")))

    retain = ("retain", *of, "-t", "tended", "-p", "1", "--log", *server)
    planned = told(*retain, "--before-offset", "20", "--dry-run")
    assert [(1, 20, 10)] == [
        (one["partition"], one["end_offset"], one["records"]) for one in planned["partitions"]
    ]
    assert [(1, 0, 20)] == [
        (one["partition"], one["log_start_offset"], one["before_offset"]) for one in planned["log"]
    ]
    assert 0 == served.wire.bounds("tended", [1])[1].earliest
    done = told(*retain, "--before-offset", "20", "--grace", "PT0S")
    assert (20, 1) == (done["log"][0]["log_start_offset"], len(done["removed_files"]))
    assert [0, 20] == [served.wire.bounds("tended", [one])[one].earliest for one in range(2)]
    assert 10 == audited()


def test_what_is_wrong_is_told_in_a_line(tmp_path: Path) -> None:
    """An archive that is none, a limit that is missing, a group without the topic's records."""
    of = ("--archive", str(tmp_path))
    run = CliRunner().invoke
    for command in ("merge", "compact -t x", "retain -t x --max-age PT1H"):
        result = run(main, ["pipeline", *command.split(), *of], prog_name="kgw")
        told_text = f"error: {tmp_path} is no archive: it has no commit log\n"
        assert (1, told_text) == (result.exit_code, result.stderr)
    result = run(main, ["pipeline", "retain", "-t", "x", *of], prog_name="kgw")
    assert 2 == result.exit_code
    assert "give --before-offset, --max-age or --max-bytes" in result.stderr
    given = ("-t", "x", "--max-bytes", "1", "--protect-group", "g")
    result = run(main, ["pipeline", "retain", *of, *given], prog_name="kgw")
    assert 2 == result.exit_code
    assert "--protect-group keeps records of the topic: give --log as well" in result.stderr
