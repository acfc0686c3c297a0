from __future__ import annotations

import asyncio
import os
from importlib.metadata import PackageNotFoundError
from threading import current_thread
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest
from pyspark.errors import PySparkException

from kgw.cli.pipeline.queries import told_in_one_line
from kgw.cli.pipeline.spark import check_master
from kgw.cli.shared.client import parse_bootstrap
from kgw.cli.shared.errors import CommandError
from kgw.client import AsyncClient
from kgw.client.groups import GroupClient
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile
from kgw.pipeline.archive.names import data_path, generation_directory
from kgw.pipeline.master import Master

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands


def produced(kgw: Commands, topic: str) -> UUID:
    """Create a topic of two partitions, ten records in the first, to which a group commits 4."""

    async def commit() -> UUID:
        async with AsyncClient(parse_bootstrap(kgw.bootstrap), client_id="test") as client:
            await GroupClient(client).commit("readers", {(topic, 0): 4})
            return UUID(bytes=(await client.topic(topic)).topic_id)

    kgw.succeed("topics", "create", topic, "-p", "2")
    kgw.succeed("produce", topic, "-p", "0", data="".join(f"{one}\n" for one in range(10)))
    return asyncio.run(commit())


def archived(root: Path, topic: str, topic_id: UUID) -> None:
    """Commit offsets 0 to 3 of the first partition; leave a file of 4 to 5, and one past a gap."""
    generation = generation_directory(str(root), topic, topic_id)
    path = data_path(0, 0, 3, "append", "a")
    file = DataFile(path, 0, 0, 3, 4, 1, None, None, "append", "crc32:0")
    entry = CommitLogEntry(uuid4(), topic_id, added=(file,), starts={0: 0})
    (generation / "p=00000").mkdir(parents=True)
    for first, last in ((0, 3), (4, 5), (7, 8)):
        (generation / data_path(0, first, last, "append", "a")).write_bytes(b"x")
    CommitLog(generation, topic_id).commit(entry, planned_at=0)


def test_an_archive_is_behind_by_what_it_has_not_read_and_not_committed(
    kgw: Commands, tmp_path: Path
) -> None:
    """Files count as far as they follow each other; a partition without a commit is marked."""
    archived(tmp_path, "behind", produced(kgw, "behind"))
    told = kgw.json("pipeline", "lag", "--archive", str(tmp_path))

    assert {"read_lag": 4, "commit_lag": 2} == told["totals"]
    first, second = told["partitions"]
    assert (4, 6, 4, 2, None) == tuple(
        first[key] for key in ("committed", "written", "read_lag", "commit_lag", "mark")
    )
    assert "not-archived" == second["mark"]
    rows = kgw.succeed("pipeline", "lag", "--archive", str(tmp_path)).splitlines()
    assert [False, True, False] == [one.endswith("  not-archived") for one in rows[1:]]
    assert 1 == kgw.run("pipeline", "lag", "--archive", str(tmp_path), "--check").exit_code


def test_the_archive_of_a_topic_that_is_no_more_is_marked(kgw: Commands, tmp_path: Path) -> None:
    """It is shown as it ended."""
    archived(tmp_path, "removed", uuid4())
    (told,) = kgw.json("pipeline", "lag", "--archive", str(tmp_path))["partitions"]
    assert ("topic-gone", 4, None) == (told["mark"], told["committed"], told["read_lag"])


def test_what_is_no_archive_is_refused(kgw: Commands, tmp_path: Path) -> None:
    """A mistyped directory is not a lag of 0."""
    assert "no commit log" in kgw.fail(1, "pipeline", "lag", "--archive", str(tmp_path))


def test_without_an_archive_it_is_the_lag_of_groups(kgw: Commands) -> None:
    """The same rows as `kgw offsets lag`."""
    produced(kgw, "read")
    told = kgw.json("offsets", "lag", "-g", "readers", "-t", "read")
    assert told == kgw.json("pipeline", "lag", "-g", "readers", "-t", "read")


def timed(kgw: Commands, topic: str) -> None:
    """Store a record in each of ten seconds, and one a minute later, in two partitions."""
    kgw.succeed("topics", "create", topic, "-p", "2")
    times_ms = [*range(0, 10_000, 1000), 70_000]
    for number, time_ms in enumerate(times_ms):
        line = f'{{"timestamp_ms": {1_700_000_000_000 + time_ms}, "partition": {number % 2}}}\n'
        kgw.succeed("produce", topic, "--format", "json", data=line)


@pytest.mark.slow
def test_history_counts_what_came_by_time(kgw: Commands) -> None:
    """By topic or by partition, between two times, and how much of it a group has yet to read."""
    timed(kgw, "history")

    async def commit() -> None:
        async with AsyncClient(parse_bootstrap(kgw.bootstrap), client_id="test") as client:
            await GroupClient(client).commit("of-history", {("history", 0): 5})

    asyncio.run(commit())
    lag = ("pipeline", "lag", "--history", "-t", "history")
    told = kgw.json(*lag, "--bucket", "PT10S", "-g", "of-history")
    assert [10, 0, 0, 0, 0, 0, 0, 1] == [one["records"] for one in told["rows"]]
    assert [0, 0, 0, 0, 0, 0, 0, 1] == [one["unread"] for one in told["rows"]]
    first = told["rows"][0]
    assert (1_700_000_000_000, 1.0) == (first["time_ms"], first["records_per_s"])
    assert [round(one["bytes"] / 10, 1) for one in told["rows"]] == [
        one["bytes_per_s"] for one in told["rows"]
    ]
    assert first["bytes"] > 0
    assert [{"topic": "history", "partition": 1}] == told["nothing_committed"]
    between = (*lag, "--since", "@1700000002000", "--until", "@1700000005000", "--partitions")
    told = kgw.json(*between, "--bucket", "PT10S")
    assert [(0, 2), (1, 1)] == [(one["partition"], one["records"]) for one in told["rows"]]
    told = kgw.succeed(*lag)
    assert "2023-11-14T22:13:20.000Z" in told
    assert "#" * 30 in told


@pytest.mark.slow
def test_history_of_a_time_that_is_far_off(kgw: Commands) -> None:
    """A time in nanoseconds makes few rows of long times, or too many that are asked for."""
    timed(kgw, "far")
    kgw.succeed("topics", "alter", "far", "--set", f"message.timestamp.after.max.ms={2**63 - 1}")
    line = '{"timestamp_ms": 1700000000000000000, "partition": 0}\n'
    kgw.succeed("produce", "far", "--format", "json", data=line)
    lag = ("pipeline", "lag", "--history", "-t", "far")
    told = kgw.json(*lag)
    assert (12, True) == (sum(one["records"] for one in told["rows"]), len(told["rows"]) < 50)
    result = kgw.run(*lag, "--bucket", "PT1H")
    assert (2, True) == (result.exit_code, "more than 10000 rows" in result.stderr)


def test_history_refuses_what_it_cannot_show(kgw: Commands) -> None:
    """Mistakes are told in a line."""
    timed(kgw, "refused")
    lag = ("pipeline", "lag", "--history")
    topic = ("-t", "refused")
    for arguments, told in (
        (lag, "say which topic"),
        ((*lag, *topic, "--check"), "takes no --archive, --check or --watch"),
        ((*lag, *topic, "-g", "a", "-g", "b"), "takes one --group"),
        ((*lag, *topic, "--bucket", "PT0S"), "some time"),
        ((*lag, *topic, "--since", "@5", "--until", "@5"), "not later"),
        ((*lag, *topic, "--since", "@5", "--bucket", "PT0.1S"), "not a duration"),
        (("pipeline", "lag", "--since", "@5"), "belong to --history"),
    ):
        result = kgw.run(*arguments)
        assert (2, True) == (result.exit_code, told in result.stderr), result.stderr
    assert "there is no topic absent" == kgw.fail(1, *lag, "-t", "absent")
    assert "group g has committed no offset of refused" == kgw.fail(1, *lag, *topic, "-g", "g")


def test_options_of_queries_that_do_not_go_together(kgw: Commands, tmp_path: Path) -> None:
    """Told before Spark is started."""
    of = ("--archive", str(tmp_path), "-t", "orders", "--to", "copies")
    query = ("--sql", "select 1")
    staging = ("--staging", str(tmp_path))
    for arguments, told in (
        (("backfill", *of, *query), "--sql needs --staging"),
        (("backfill", *of, *staging), "need --sql"),
        (("backfill", *of, "--keep-staging"), "need --sql"),
        (("backfill", *of, "--repartition-by-key"), "need --sql"),
        (("backfill", *of, "--same-topic"), "need --sql"),
        (("backfill", *of, "--decode", "json"), "need --sql"),
        (("backfill", *of, "--schema", "a INT"), "need --sql"),
        (("backfill", *of, *query, *staging, "--dry-run"), "--dry-run does not run a query"),
        (("backfill", *of, *query, *staging, "--schema", "a INT"), "say --decode json"),
        (("sql", "select 1", "--schema", "a INT"), "say --decode json"),
        (("sql", "select 1", "--no-tail"), "nothing to query without --archive"),
        (("sql", "select 1", "--topic-id", str(uuid4())), "--topic-id is for --archive"),
        (("sql", "select 1", "--decode", "avro"), "decoding avro is missing so far; there is json"),
        (("sql", "select 1", "--schema", "a INT", "--schema", "t=b INT"), "each needs its topic"),
    ):
        assert told in kgw.fail(2, "pipeline", *arguments)


def test_a_query_that_is_written_needs_pandas(
    kgw: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark asks for it; that is told before Spark is started, with what installs it."""

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("kgw.cli.doctor.spark.version", absent)
    of = ("--archive", str(tmp_path), "-t", "orders", "--to", "copies", "--sql", "select 1")
    told = kgw.fail(1, "pipeline", "backfill", *of, "--staging", str(tmp_path))
    assert "--sql needs pandas, which is not installed: " in told
    assert "kgw-broker[spark]" in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--out", "s3://bucket/archive"),
            "an archive is a local directory: 's3://bucket/archive'",
        ),
        (("--out", ""), "an archive is a local directory: ''"),
        (("--out", "a", "--master", "127.0.0.1:7077"), "no master of Spark: 127.0.0.1:7077"),
        (
            ("--out", "a", "--conf", "executor.memory=1g"),
            "not a setting of Spark, spark.NAME=VALUE",
        ),
        (("--out", "a", "--target-file", "0"), "not above 0: 0"),
        (("--out", "a", "--follow", "--dry-run"), "what one run would do, --follow does not end"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    kgw: Commands, options: tuple[str, ...], told: str
) -> None:
    """With what is wrong, before anything is asked or made."""
    result = kgw.run("pipeline", "archive", "--topic", "t", *options)
    assert 2 == result.exit_code
    assert told in result.stderr


def test_what_spark_needs_is_looked_for_before_it_starts() -> None:
    """A Java, and the master of a standalone cluster: each missing one is named."""
    with pytest.raises(CommandError, match=r"Spark cannot start: Java: /no/bin/java .*JAVA_HOME"):
        check_master(Master(), {"JAVA_HOME": "/no"})
    with pytest.raises(CommandError, match=r"can be reached at 127\.0\.0\.1:1: .*refused; x: "):
        check_master(Master("spark://127.0.0.1:1,x"), os.environ)
    with pytest.raises(CommandError, match="set HADOOP_CONF_DIR or YARN_CONF_DIR"):
        check_master(Master("yarn"), {"PATH": os.environ["PATH"]})


def test_a_query_is_asked_in_a_thread_of_its_own() -> None:
    """Ctrl-C reaches the one that waits, and no call of Py4J; errors are told in a line."""
    assert current_thread() is not told_in_one_line(current_thread)

    def fail() -> None:
        raise PySparkException("[WRONG] It is.;\n'Project [*]\n\tat org.apache.spark")

    with pytest.raises(CommandError, match=r"^\[WRONG\] It is\.$"):
        told_in_one_line(fail)
