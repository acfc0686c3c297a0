from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kgw.cli.shared.errors import ExitCode

if TYPE_CHECKING:
    from tests.cli.conftest import Commands


def store(kgw: Commands, topic: str, *timestamps_ms: int) -> None:
    """Store a record for each time, in partition 0."""
    lines = [{"partition": 0, "value": "v", "timestamp_ms": one} for one in timestamps_ms]
    data = "\n".join(json.dumps(line) for line in lines)
    kgw.succeed("produce", topic, "--format", "json", data=data)


def test_describe_tells_what_a_partition_holds(kgw: Commands) -> None:
    """Both ends, the times of the records and the epochs, one row a partition."""
    kgw.succeed("topics", "create", "held", "-p", "2")
    store(kgw, "held", 5000, 9000, 7000)
    filled, empty = kgw.json("offsets", "describe", "held")
    assert {
        "topic": "held",
        "partition": 0,
        "log_start_offset": 0,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "end_offset": 3,
        "first_timestamp_ms": 5000,
        "greatest_timestamp_ms": 9000,
        "epochs": [{"leader_epoch": 0, "end_offset": 3}],
        "offset_count": 3,
    } == filled
    assert (1, 0, -1, -1) == (
        empty["partition"],
        empty["offset_count"],
        empty["first_timestamp_ms"],
        empty["greatest_timestamp_ms"],
    )
    shown = kgw.succeed("offsets", "describe", "held").splitlines()
    assert 3 == len(shown)
    assert shown[1].endswith("1970-01-01T00:00:05.000Z  1970-01-01T00:00:09.000Z")
    assert shown[2].endswith("-")


def test_a_seek_is_tried_before_it_is_made(kgw: Commands) -> None:
    """Each WHERE in each partition: the offset, the valid range, and why not."""
    kgw.succeed("topics", "create", "sought", "-p", "2")
    store(kgw, "sought", 5000, 9000, 7000)
    where = ("earliest", "latest", "2", "near:50", "@6000", "@9001", "newest")
    targets = [word for one in where for word in ("--to", one)]
    found = kgw.json("offsets", "seek-dry-run", "sought", "-p", "0", *targets)
    assert [0, 3, 2, 3, 1, 3, 1] == [one["offset"] for one in found]
    assert {(0, 3)} == {(one["earliest"], one["latest"]) for one in found}
    assert [None, None, None, None, 9000, None, 9000] == [one["timestamp_ms"] for one in found]
    assert ["exact-ts-ns", "newest-ts"] == [one["kind"] for one in found[-2:]]
    shown = kgw.succeed(
        "offsets", "seek-dry-run", "sought", "--to", "@6000", "-p", "1", "-p", "0:2"
    )
    assert [["1", "@6000", "0", "0", "0", "-"], ["0", "@6000", "2", "0", "3", "-"]] == [
        line.split() for line in shown.splitlines()[1:]
    ]


def test_a_seek_that_leads_nowhere_says_why(kgw: Commands) -> None:
    """Out of range with the range, and the exit code of a failure."""
    store(kgw, "short", 1)
    result = kgw.run("offsets", "seek-dry-run", "short", "--to", "7", "--to", "0", "--json")
    assert ExitCode.FAILED == result.exit_code
    wrong, right = json.loads(result.stdout)
    assert "partition 0 has no offset 7: it goes from 0 to 1" == wrong["error"]
    assert ("OFFSET_OUT_OF_RANGE", None, 0, 1) == (
        wrong["kafka_error"],
        wrong["offset"],
        wrong["earliest"],
        wrong["latest"],
    )
    assert (0, None) == (right["offset"], right["error"])
    arguments = ("offsets", "seek-dry-run", "short")
    assert "--group" in kgw.fail(ExitCode.USAGE, *arguments, "--to", "resume")
    assert "neither earliest" in kgw.fail(ExitCode.USAGE, *arguments, "--to", "soon")
    assert "neither N nor" in kgw.fail(ExitCode.USAGE, *arguments, "--to", "0", "-p", "x")
    assert "no partition 4" in kgw.fail(ExitCode.FAILED, *arguments, "--to", "0", "-p", "4")
