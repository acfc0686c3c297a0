from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kgw.cli.shared.errors import ExitCode

if TYPE_CHECKING:
    from tests.cli.conftest import Commands


def test_a_topic_lives_and_goes(kgw: Commands) -> None:
    """Create, list, describe and delete, for people and for programs."""
    assert "Created life with 2 partitions.\n" == kgw.succeed("topics", "create", "life", "-p", "2")
    listed = {topic["name"]: topic for topic in kgw.json("topics", "list")}
    assert 2 == listed["life"]["partitions"]
    assert 22 == len(listed["life"]["topic_id"])
    assert "life" in kgw.succeed("topics", "list")
    (described,) = kgw.json("topics", "describe", "life")
    assert [0, 1] == [one["partition"] for one in described["partitions"]]
    assert {0} == {one["high_watermark"] for one in described["partitions"]}
    assert listed["life"]["topic_id"] in kgw.succeed("topics", "describe", "life")
    assert "Deleted life.\n" == kgw.succeed("topics", "delete", "life")
    assert "there is no such topic" in kgw.fail(ExitCode.FAILED, "topics", "describe", "life")


def test_what_exists_is_not_created_again(kgw: Commands) -> None:
    """Creating twice fails, unless that is all right."""
    kgw.succeed("topics", "create", "twice")
    assert "TOPIC_ALREADY_EXISTS" in kgw.fail(ExitCode.FAILED, "topics", "create", "twice")
    (result,) = kgw.json("topics", "create", "twice", "--if-not-exists")
    assert result["created"] is False
    assert "Found twice" in kgw.succeed("topics", "create", "twice", "--if-not-exists")


def test_what_does_not_exist_is_not_deleted(kgw: Commands) -> None:
    """Deleting a missing topic fails, unless that is all right."""
    assert "UNKNOWN_TOPIC" in kgw.fail(ExitCode.FAILED, "topics", "delete", "missing")
    assert "There was no missing.\n" == kgw.succeed("topics", "delete", "missing", "--if-exists")


def test_settings_are_set_and_taken_back(kgw: Commands) -> None:
    """A topic's own settings are shown, and partitions only ever grow."""
    kgw.succeed("topics", "create", "tuned", "--set", "max.message.bytes=5000")
    assert "max.message.bytes = 5000" in kgw.succeed("topics", "describe", "tuned")
    described = kgw.json(
        "topics", "alter", "tuned", "--unset", "max.message.bytes", "--partitions", "3"
    )
    assert 3 == len(described["partitions"])
    assert "default" == described["settings"]["max.message.bytes"]["source"]
    changed = kgw.succeed("topics", "alter", "tuned", "--set", "segment.bytes=2000000")
    assert "segment.bytes = 2000000" in changed


def test_bad_settings_are_refused_with_the_reason(kgw: Commands) -> None:
    """The server's own words reach the terminal in one line."""
    message = kgw.fail(ExitCode.FAILED, "topics", "create", "old", "--set", "preallocate=true")
    assert "grow as they are written" in message
    message = kgw.fail(ExitCode.USAGE, "topics", "create", "old", "--set", "retention.ms")
    assert "KEY=VALUE" in message
    message = kgw.fail(ExitCode.FAILED, "topics", "create", "bad/name")
    assert "INVALID_TOPIC" in message


def test_records_are_deleted(kgw: Commands) -> None:
    """Below an offset, or all of them, of some partitions or all; the rest is refused."""
    kgw.succeed("topics", "create", "trimmed", "-p", "2")
    kgw.succeed("produce", "trimmed", "-p", "0", data="a\nb\nc\n")
    assert "trimmed-0 begins at 2.\n" == kgw.succeed(
        "topics", "delete-records", "trimmed", "--before", "2", "-p", "0"
    )
    expected = [
        {"partition": 0, "log_start_offset": 3, "error": None},
        {"partition": 1, "log_start_offset": 0, "error": None},
    ]
    assert expected == kgw.json("topics", "delete-records", "trimmed", "--all")
    message = kgw.fail(
        ExitCode.FAILED, "topics", "delete-records", "trimmed", "--before", "9", "-p", "0"
    )
    assert "OFFSET_OUT_OF_RANGE" in message
    message = kgw.fail(
        ExitCode.USAGE, "topics", "delete-records", "trimmed", "--before", str(1 << 63)
    )
    assert "is not in the range" in message
    for options in ((), ("--all", "--before", "1")):
        message = kgw.fail(ExitCode.USAGE, "topics", "delete-records", "trimmed", *options)
        assert "either --before OFFSET or --all" in message


def test_one_partition_that_refuses_hides_no_other(kgw: Commands) -> None:
    """What has been deleted cannot be had back: it is told beside what was refused."""
    kgw.succeed("topics", "create", "uneven", "-p", "2")
    kgw.succeed("produce", "uneven", "-p", "1", data="a\nb\n")
    command = ("topics", "delete-records", "uneven", "--before", "1")
    result = kgw.run(*command)
    assert (ExitCode.FAILED, "uneven-1 begins at 1.\n") == (result.exit_code, result.stdout)
    assert (
        "error: cannot delete records of uneven-0: OFFSET_OUT_OF_RANGE: it goes from 0 to 0\n"
        == result.stderr
    )
    refused, deleted = json.loads(kgw.run(*command, "--json").stdout)
    assert refused["log_start_offset"] is None
    assert "OFFSET_OUT_OF_RANGE" in refused["error"]
    assert {"partition": 1, "log_start_offset": 1, "error": None} == deleted


def test_the_servers_settings_are_described_and_changed(kgw: Commands) -> None:
    """Settings that can change live do; the others say that they cannot."""
    rows = kgw.json("config", "describe")
    assert ("1", True) == (rows["num.partitions"]["value"], rows["num.partitions"]["read_only"])
    changed = kgw.json("config", "alter", "--set", "message.max.bytes=2000000")
    assert "2000000" == changed["message.max.bytes"]["value"]
    restored = kgw.json("config", "alter", "--unset", "message.max.bytes")
    assert "1048588" == restored["message.max.bytes"]["value"]
    message = kgw.fail(ExitCode.FAILED, "config", "alter", "--set", "num.partitions=3")
    assert "cannot be changed while the server runs" in message


def test_every_setting_is_listed_without_a_server(offline: Commands) -> None:
    """The tables of settings can be read offline."""
    listed = {row["name"]: row for row in offline.json("config", "list")}
    assert 1_048_588 == listed["message.max.bytes"]["default"]
    topic = {row["name"]: row for row in offline.json("config", "list", "--topic")}
    assert "message.max.bytes" == topic["max.message.bytes"]["server_setting"]
    assert "num.partitions = 1\n" in offline.succeed("config", "list")
