from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kgw.cli.errors import ExitCode

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


def test_describe_of_no_topic_is_refused(kgw: Commands) -> None:
    """What does not exist is said, not shown as empty."""
    assert "no such topic" in kgw.fail(ExitCode.FAILED, "offsets", "describe", "missing")
