from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kgw.cli.shared.errors import ExitCode
from tests import patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands


def records(kgw: Commands, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """Return what a topic holds."""
    output = kgw.succeed("consume", topic, "--json", *arguments)
    return [json.loads(line) for line in output.splitlines()]


def test_lines_go_in_and_come_out(kgw: Commands) -> None:
    """Each line is a record, in order, and what was stored is told on standard error."""
    result = kgw.run("produce", "lines", data="one\n\nthree")
    assert "3 records to lines: partition 0 offsets 0 to 2\n" == result.stderr
    assert "one\n\nthree\n" == kgw.succeed("consume", "lines")


def test_what_was_stored_is_told_by_partition(kgw: Commands) -> None:
    """With --json the offsets of each partition are a document."""
    kgw.succeed("topics", "create", "told", "-p", "2")
    stored = kgw.json("produce", "told", "-p", "1", data="a\nb\n")
    expected = [{"partition": 1, "records": 2, "first_offset": 0, "last_offset": 1}]
    assert {"topic": "told", "records": 2, "partitions": expected} == stored
    assert [{"partition": 1, "records": 1, "first_offset": 2, "last_offset": 2}] == kgw.json(
        "produce", "told", "-p", "1", data="c"
    )["partitions"]


def test_nothing_in_is_nothing_stored(kgw: Commands) -> None:
    """Empty input stores nothing and succeeds."""
    assert 0 == kgw.json("produce", "empty", data="")["records"]
    assert "" == kgw.succeed("consume", "empty")


def test_keys_headers_and_nulls_survive(kgw: Commands) -> None:
    """Keys choose the partition, headers go on every record, a word stands for null."""
    kgw.succeed("topics", "create", "keyed", "-p", "3")
    arguments = ["-k", ":", "--null", "NULL", "-H", "source=test", "-H", "flag"]
    kgw.succeed("produce", "keyed", *arguments, data="a:1\nb:2\na:NULL\n")
    found = records(kgw, "keyed")
    assert {("a", "1"), ("b", "2"), ("a", None)} == {(one["key"], one["value"]) for one in found}
    assert 1 == len({one["partition"] for one in found if one["key"] == "a"})
    assert [{"key": "source", "value": "test"}, {"key": "flag", "value": None}] == found[0][
        "headers"
    ]
    shown = kgw.succeed("consume", "keyed", "-k", "=", "--null", "-", "--headers")
    assert "source=test,flag=-\ta=-" in shown


def test_json_goes_round(kgw: Commands) -> None:
    """What one topic prints as JSON another takes, binary values included."""
    lines = [
        {"key": "k", "value": "text", "timestamp_ms": 5, "headers": {"h": "1"}},
        {"key_base64": "/w==", "value_base64": "AP8="},
        {"value": {"nested": [1, 2]}},
    ]
    data = "\n".join(json.dumps(line) for line in lines) + "\n\n"
    kgw.succeed("produce", "first", "--format", "json", data=data)
    printed = kgw.succeed("consume", "first", "--json")
    kgw.succeed("produce", "second", "--format", "json", data=printed)
    first, second = records(kgw, "first"), records(kgw, "second")
    for one in (*first, *second):
        del one["topic"]
    assert first == second
    assert 5 == first[0]["timestamp_ms"]
    assert "AP8=" == first[1]["value_base64"]
    assert '{"nested":[1,2]}' == first[2]["value"]


def test_raw_input_is_one_value(kgw: Commands, tmp_path: Path) -> None:
    """A file goes in as one value and comes out byte for byte."""
    content = bytes(range(256)) * 10
    file = tmp_path / "blob"
    file.write_bytes(content)
    kgw.succeed("produce", "raw", "--file", str(file), "--format", "raw")
    result = kgw.run("consume", "raw", "--format", "raw")
    assert content == result.stdout_bytes


def test_batches_are_as_large_as_asked(kgw: Commands) -> None:
    """Small batches go to the partitions in turn, and none is lost or moved."""
    kgw.succeed("topics", "create", "small", "-p", "2")
    stored = kgw.json(
        "produce", "small", "--batch-records", "10", data="".join(f"{n}\n" for n in range(100))
    )
    assert [50, 50] == [one["records"] for one in stored["partitions"]]
    values = [int(one["value"]) for one in records(kgw, "small", "-p", "0")]
    assert sorted(values) == values
    assert 10 == len(records(kgw, "small", "-n", "10"))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_stores(kgw: Commands, acks: str) -> None:
    """The records are there afterwards, whoever was waited for."""
    topic = f"acks-{acks}"
    kgw.succeed("topics", "create", topic)
    kgw.succeed("produce", topic, "--acks", acks, "--no-idempotent", data="a\nb\n")
    assert ["a", "b"] == [one["value"] for one in records(kgw, topic)]


def test_reading_begins_where_asked(kgw: Commands) -> None:
    """Earliest, latest, an offset, milliseconds and a calendar time."""
    lines = [{"value": str(n), "timestamp_ms": 1_000_000 + n} for n in range(5)]
    data = "\n".join(json.dumps(line) for line in lines)
    kgw.succeed("produce", "begin", "--format", "json", data=data)
    assert 5 == len(records(kgw, "begin", "--from", "earliest"))
    assert [] == records(kgw, "begin", "--from", "latest")
    assert ["3", "4"] == [one["value"] for one in records(kgw, "begin", "--from", "3")]
    assert ["2", "3", "4"] == [one["value"] for one in records(kgw, "begin", "--from", "@1000002")]
    assert [] == records(kgw, "begin", "--from", "2026-01-01T00:00:00+00:00")
    assert "has no offset 9: it goes from 0 to 5" in kgw.fail(
        ExitCode.FAILED, "consume", "begin", "--from", "9"
    )
    assert "neither earliest" in kgw.fail(ExitCode.USAGE, "consume", "begin", "--from", "soon")


def test_following_stops_at_the_number_asked_for(kgw: Commands) -> None:
    """--follow goes on until enough has come."""
    kgw.succeed("produce", "followed", data="a\nb\nc\n")
    assert "a\nb\n" == kgw.succeed("consume", "followed", "--follow", "-n", "2")


def test_what_cannot_be_stored_says_why(kgw: Commands) -> None:
    """A bad line, a missing partition, a missing topic and a record that is too large."""
    kgw.succeed("topics", "create", "strict", "--set", "max.message.bytes=1000")
    message = kgw.fail(
        ExitCode.FAILED, "produce", "strict", "--format", "json", data='{"value": 1}\n{oops\n'
    )
    assert "line 2: not JSON" in message
    assert message.rstrip().endswith("; 1 record stored before")
    assert ["1"] == [one["value"] for one in records(kgw, "strict")]
    assert "no partition 4: it has 1" in " ".join(
        kgw.fail(ExitCode.FAILED, "produce", "strict", "-p", "4", data="a").split()
    ).replace("(", "").replace("INVALID_PARTITIONS ", "")
    assert "no such topic" in kgw.fail(
        ExitCode.FAILED, "produce", "missing", "--no-create", data="a"
    )
    assert "MESSAGE_TOO_LARGE" in kgw.fail(ExitCode.FAILED, "produce", "strict", data="x" * 2000)
    message = kgw.fail(ExitCode.FAILED, "produce", "strict", data="x" * 600 + "\n" + "y" * 600)
    assert "2 records were sent together, see --batch-bytes" in message
    kgw.succeed("produce", "strict", "--batch-bytes", "700", data="x" * 600 + "\n" + "y" * 600)
    assert "KEY=VALUE" in kgw.fail(ExitCode.USAGE, "produce", "strict", "-H", "=x", data="a")
    assert "empty" in kgw.fail(ExitCode.USAGE, "produce", "strict", "-k", "", data="a")
    assert "No such file" in kgw.fail(ExitCode.USAGE, "produce", "strict", "-f", "/missing")


def says_what_is_stored(kgw: Commands, topic: str, reason: str, message: str) -> None:
    """Compare a failed command's last words with the topic; `reason` is a pattern."""
    stored = len(records(kgw, topic))
    found = re.fullmatch(
        rf"{reason}; ([0-9]+) records? stored before"
        r"(?:, ([0-9]+) records? more may be stored)?",
        message,
    )
    assert found is not None, message
    told, unknown = int(found[1]), int(found[2] or 0)
    assert told <= stored <= told + unknown
    assert told >= 1


def test_a_refused_batch_says_what_is_stored_all_the_same(kgw: Commands) -> None:
    """In other partitions, too; nothing else is printed, however many batches were under way."""
    kgw.succeed("topics", "create", "partly", "-p", "2", "--set", "max.message.bytes=1000")
    lines = [{"partition": 1, "value": "b"}, {"partition": 0, "value": "a" * 2000}]
    lines += [{"partition": number % 2, "value": "c"} for number in range(60)]
    message = kgw.fail(
        ExitCode.FAILED, "produce", "partly", "--format", "json", "--batch-records", "1",
        data="\n".join(map(json.dumps, lines)),
    )  # fmt: skip
    says_what_is_stored(kgw, "partly", ".*MESSAGE_TOO_LARGE.*", message)


def test_input_that_cannot_be_read_is_told(kgw: Commands) -> None:
    """A device that fails, and a standard input that the shell has closed."""
    message = kgw.fail(ExitCode.FAILED, "produce", "unread", "-f", "/proc/self/mem")
    assert "the input cannot be read: Input/output error" == message
    closed = subprocess.run(
        ["sh", "-c", 'exec "$0" -m kgw produce unread <&-', sys.executable],
        env={**os.environ, "KGW_BOOTSTRAP": kgw.bootstrap},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ExitCode.USAGE, "error: there is no standard input; name a file with --file") == (
        closed.returncode,
        closed.stderr.partition(" (see")[0],
    )


def test_a_journal_that_cannot_be_written_hides_nothing(kgw: Commands) -> None:
    """What is stored is told all the same, or the next run would store it a second time."""
    message = kgw.fail(
        ExitCode.FAILED, "produce", "unwritten", "--batch-records", "1",
        "--ack-journal", "/dev/full", data="a\nb\nc\nd\n",
    )  # fmt: skip
    reason = "the journal cannot be written: .*No space left on device"
    says_what_is_stored(kgw, "unwritten", reason, message)


def signalled_after_two(
    kgw: Commands, topic: str, command: list[str], number: signal.Signals
) -> tuple[int, str, str]:
    """Signal a `kgw produce` whose two records are stored; return its exit code and its output."""
    kgw.succeed("topics", "create", topic)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KGW_BOOTSTRAP": kgw.bootstrap},
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write("a\nb\n")
        process.stdin.flush()
        limit = patience.Limit(10)
        while len(records(kgw, topic)) < 2:
            assert not limit.is_over
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=patience.seconds(10))
    return process.returncode, stdout, stderr


@pytest.mark.slow
@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_has_told_what_is_stored(
    kgw: Commands, number: signal.Signals, code: int, is_json: bool
) -> None:
    """What is acknowledged, with its offsets, and how many records nobody can say that of.

    After SIGTERM the process ends by it, as whoever sent it expects.
    """
    topic = f"interrupted-{number.name}-{is_json}"
    command = [sys.executable, "-m", "kgw", "produce", topic, *(["--json"] if is_json else [])]
    returned, stdout, stderr = signalled_after_two(kgw, topic, command, number)
    assert code == returned
    if is_json:
        told = json.loads(stdout)
        assert (2, True) == (told["records"] + told["unacknowledged_records"], told["interrupted"])
        assert "" == stderr.strip()
    else:
        assert re.fullmatch(
            f"Interrupted: 2 records to {topic}: partition 0 offsets 0 to 1; 0 records sent and not"
            f" acknowledged|Interrupted: 0 records to {topic}; 2 records sent and not acknowledged,"
            " which may be stored",
            stderr.strip(),
        ), stderr


def test_what_cannot_be_read_says_why(kgw: Commands, offline: Commands) -> None:
    """A missing topic, a missing partition and a missing server."""
    assert "no such topic" in kgw.fail(ExitCode.FAILED, "consume", "missing")
    kgw.succeed("topics", "create", "narrow")
    assert "no partition 3" in kgw.fail(ExitCode.FAILED, "consume", "narrow", "-p", "3")
    assert "connection refused" in offline.fail(ExitCode.CANNOT_CONNECT, "consume", "narrow")
    assert "connection refused" in offline.fail(
        ExitCode.CANNOT_CONNECT, "produce", "narrow", data="a"
    )


@pytest.mark.slow
def test_sigterm_is_heard_where_ctrl_c_is_not(kgw: Commands) -> None:
    """A shell without job control has what it runs in the background ignore SIGINT."""
    command = ["sh", "-c", 'trap "" INT; exec "$0" -m kgw produce background', sys.executable]
    returned, _, stderr = signalled_after_two(kgw, "background", command, signal.SIGTERM)
    assert -signal.SIGTERM == returned
    assert "Interrupted: " in stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_command_that_waits(kgw: Commands) -> None:
    """Waiting for input and waiting for records both end at once, quietly, with their own code."""
    kgw.succeed("produce", "waiting", data="a\n")
    environment = {**os.environ, "KGW_BOOTSTRAP": kgw.bootstrap}
    for arguments in (["consume", "waiting", "--follow"], ["produce", "waiting", "--null", "a"]):
        with subprocess.Popen(
            [sys.executable, "-m", "kgw", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        ) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stderr is not None
            if arguments[0] == "consume":
                assert b"a\n" == process.stdout.readline()
            else:
                # Larger than the pipe: once it is written, the command reads.
                process.stdin.write(b"a\n" * 100_000)
                process.stdin.flush()
            process.send_signal(signal.SIGINT)
            assert ExitCode.INTERRUPTED == process.wait(patience.seconds(10))
            assert b"Traceback" not in process.stderr.read()


def test_reading_ends_where_asked(kgw: Commands) -> None:
    """Before an offset, before a time, or at the end, whichever comes first."""
    lines = [{"value": str(n), "timestamp_ms": 1000 + time} for n, time in enumerate((0, 9, 1, 8))]
    kgw.succeed("produce", "ends", "--format", "json", data="\n".join(map(json.dumps, lines)))
    values = [one["value"] for one in records(kgw, "ends", "--to", "2")]
    assert ["0", "1"] == values
    assert ["0", "2"] == [one["value"] for one in records(kgw, "ends", "--to", "@1005")]
    assert 4 == len(records(kgw, "ends", "--to", "100"))
    assert ["2"] == [one["value"] for one in records(kgw, "ends", "--from", "2", "--to", "3")]
    assert "neither latest" in kgw.fail(ExitCode.USAGE, "consume", "ends", "--to", "resume")


def test_partitions_begin_where_each_is_told(kgw: Commands) -> None:
    """Offsets and times mixed; a partition without one begins at --from."""
    kgw.succeed("topics", "create", "mixed", "-p", "3")
    for partition in range(3):
        lines = [{"partition": partition, "timestamp_ms": 1000 + n} for n in range(4)]
        kgw.succeed("produce", "mixed", "--format", "json", data="\n".join(map(json.dumps, lines)))
    found = records(
        kgw, "mixed", "-p", "0:3", "-p", "1:@1002", "-p", "2", "--from", "near:99", "--follow",
        "-n", "3",
    )  # fmt: skip
    assert [(0, 3), (1, 2), (1, 3)] == sorted((one["partition"], one["offset"]) for one in found)
    message = kgw.fail(ExitCode.USAGE, "consume", "mixed", "-p", "0:3", "-p", "0:1")
    assert "partition 0 is named twice" in message


def test_a_group_is_resumed_and_not_moved(kgw: Commands, tmp_path: Path) -> None:
    """At what it has committed; where it has not, at the end that is named."""
    kgw.succeed("topics", "create", "resumed", "-p", "2")
    for partition in ("0", "1"):
        kgw.succeed("produce", "resumed", "-p", partition, data="a\nb\nc\n")
    arguments = ["-t", "resumed:0", "--to-offset", "2", "--undo-file", str(tmp_path / "undo")]
    kgw.succeed("groups", "reset-offsets", "readers", *arguments, "--execute")
    for where, offsets in (("resume", [2, 0, 1, 2]), ("resume-or-latest", [2])):
        for _ in range(2):
            found = records(kgw, "resumed", "--from", where, "--group", "readers")
            assert offsets == [one["offset"] for one in found]
    assert "--group" in kgw.fail(ExitCode.USAGE, "consume", "resumed", "--from", "resume")
    message = kgw.fail(ExitCode.USAGE, "consume", "resumed", "--group", "readers")
    assert "nothing goes to where readers stands" in message
    # A position that the log does not have is told: see the rule in kgw.offsets.seeker.
    kgw.succeed("topics", "delete", "resumed")
    kgw.succeed("topics", "create", "resumed", "-p", "2")
    assert [] == records(kgw, "resumed", "--from", "resume", "--group", "readers")


def test_pages_go_on_with_a_cursor(kgw: Commands) -> None:
    """Each ends with how the next one is read; the last one says so."""
    kgw.succeed("produce", "paged", data="".join(f"{n}\n" for n in range(7)))
    first = kgw.run("consume", "paged", "--page", "3", "--to", "6")
    assert "0\n1\n2\n" == first.stdout
    word = first.stderr.split("--cursor ")[1].strip()
    # What is produced later, and what was not wanted, is not on the next page.
    kgw.succeed("produce", "paged", data="later\n")
    second = kgw.run("consume", "paged", "--page", "3", "--cursor", word, "--json")
    assert [3, 4, 5] == [json.loads(line)["offset"] for line in second.stdout.splitlines()]
    assert {"cursor": None} == json.loads(second.stderr)
    assert "is not a cursor" in kgw.fail(ExitCode.USAGE, "consume", "paged", "--cursor", word[:-3])
    kgw.succeed("topics", "create", "unpaged")
    assert "of topic paged" in kgw.fail(ExitCode.FAILED, "consume", "unpaged", "--cursor", word)
    for option in (("--from", "2"), ("--to", "3"), ("-p", "0"), ("-g", "readers"), ("--follow",)):
        message = kgw.fail(ExitCode.USAGE, "consume", "paged", "--cursor", word, *option)
        assert "the cursor says where to read" in message
    assert "one of --page" in kgw.fail(ExitCode.USAGE, "consume", "paged", "--page", "3", "-n", "2")
