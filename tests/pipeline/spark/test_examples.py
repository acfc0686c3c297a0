"""The programs of examples/spark: in the session of all tests, and as processes that are killed."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kgw.client import NewRecord
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading
from tests.pipeline.serving import ServedTopics
from tests.pipeline.spark.campaign import Killable
from tests.pipeline.spark.streams import run_to_the_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parents[3] / "examples" / "spark"
AIRLINES = {"UA": "United Air Lines Inc.", "DL": "Delta Air Lines Inc."}
KILLS = 3
BETWEEN = 240
"""How many flights come to each partition before each kill."""
PARTITIONS = 2


@pytest.fixture
def topics() -> Iterator[ServedTopics]:
    """A gateway of its own: programs are killed here, and their transactions stay open."""
    with ServedTopics() as made:
        yield made


def program(name: str) -> Any:
    """Return a program as a module."""
    spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flight(partition: int, index: int) -> NewRecord:
    """Return a flight, an hour after the one before; each third one is of an unknown airline."""
    carrier = ("UA", "DL", "??")[index % 3]
    day, hour = divmod(index, 24)
    value = {
        "carrier": carrier,
        "flight": index,
        "origin": ("EWR", "JFK")[partition],
        "time_hour": f"2013-{1 + day // 28:02}-{1 + day % 28:02}T{hour:02}:00:00Z",
    }
    return NewRecord(b"%d-%d" % (partition, index), json.dumps(value).encode(), index)


def fill(topics: ServedTopics, topic: str, first: int, end: int) -> None:
    """Store flights in every partition."""
    counts = dict.fromkeys(range(PARTITIONS), end - first)
    topics.number(topic, counts, first=first, record=flight)


def named(partition: int, index: int) -> dict[str, Any]:
    """Return what becomes of a flight."""
    told = json.loads(flight(partition, index).value or b"")
    airline = AIRLINES.get(told["carrier"])
    return {"flight": told} | ({"airline": airline} if airline else {})


def committed(topics: ServedTopics, topic: str) -> dict[int, list[bytes]]:
    """Return the values that a reader of committed records finds, by partition."""
    described = topics.wire.find_topic(topic)
    assert described is not None
    bounds = topics.wire.bounds(topic, range(PARTITIONS), read_committed=True)
    return {
        partition: [
            value
            for part in topics.wire.decoded(
                OffsetRange(topic, partition, 0, one.latest, described.topic_id),
                reading=Reading(read_committed=True),
            )
            for value in part.batch.column("value").to_pylist()
        ]
        for partition, one in bounds.items()
    }


def test_flights_are_named(spark: SparkSession, served: ServedTopics, tmp_path: Path) -> None:
    """Each flight with its airline, where that is known; what is not JSON stays as it is."""
    enrich = program("enrich")
    served.create("flights", PARTITIONS)
    served.create("flights-named", PARTITIONS)
    fill(served, "flights", 0, 9)
    served.produce("flights", {0: [NewRecord(b"k", b"not JSON", 0), NewRecord(b"k", None, 0)]})
    arguments = argparse.Namespace(
        bootstrap=served.address,
        source="flights",
        target="flights-named",
        checkpoint=str(tmp_path),
        batch=100,
        once=True,
    )
    airlines = spark.createDataFrame([*AIRLINES.items()], "carrier string, name string")
    run_to_the_end(lambda: enrich.start(spark, arguments, airlines))

    found = committed(served, "flights-named")
    assert [b"not JSON", None] == found[0][9:]
    for partition, values in found.items():
        assert [named(partition, one) for one in range(9)] == [*map(json.loads, values[:9])]


def test_what_has_no_time_is_not_counted(spark: SparkSession) -> None:
    """It is left out, and does not end the query."""
    texts = [b"not JSON", None, b'{"time_hour": "soon"}', *(flight(0, one).value for one in (0, 1))]
    rows = spark.createDataFrame([(one,) for one in texts], "value binary")
    counted = program("windowed_counts").counted(rows).collect()
    assert [("EWR", 2)] == [(one.origin, one.flights) for one in counted]


def run_with_kills(topics: ServedTopics, name: str, *arguments: str, log: Path) -> None:
    """Run a program to its end over flights that come meanwhile; it is killed some times before."""
    shared = ("--bootstrap", topics.address, "--batch", "200", *arguments)
    command = [str(PROGRAMS / f"{name}.py"), *shared, "--master", "local[2,4]"]
    for kill in range(KILLS):
        fill(topics, "flights", BETWEEN * kill, BETWEEN * (kill + 1))
        with Killable(command, log) as query:
            # In the midst of what is left of the flights.
            for _ in range(1 + kill % 2):
                assert query.wait_for_line(240), log.read_text()[-3000:]
    with Killable([*command, "--once"], log) as query:
        assert 0 == query.result(600), log.read_text()[-3000:]


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_kills_lose_and_double_no_flight(topics: ServedTopics, tmp_path: Path) -> None:
    """Each flight is in the target once for readers of committed records."""
    topics.create("flights", PARTITIONS)
    topics.create("flights-named", PARTITIONS)
    file = tmp_path / "airlines.csv"
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([("carrier", "name"), *AIRLINES.items()])
    arguments = (f"--airlines={file}", f"--checkpoint={tmp_path / 'checkpoint'}")
    run_with_kills(topics, "enrich", *arguments, log=tmp_path / "enrich.log")
    for partition, values in committed(topics, "flights-named").items():
        found = sorted((json.loads(one) for one in values), key=lambda one: one["flight"]["flight"])
        assert [named(partition, one) for one in range(BETWEEN * KILLS)] == found


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_kills_lose_and_double_no_count(topics: ServedTopics, tmp_path: Path) -> None:
    """Every day that is over is in the Delta table once, with all its flights."""
    jars = Path(os.environ.get("KGW_SPARK_JARS", ".cache/spark-jars"))
    if not list(jars.glob("delta-spark*.jar")):
        pytest.fail(f"no jars in {jars}: kgw pipeline jars --delta --to {jars}")
    topics.create("flights", PARTITIONS)
    table = tmp_path / "table"
    arguments = (f"--table={table}", f"--checkpoint={tmp_path / 'checkpoint'}", f"--jars={jars}")
    run_with_kills(topics, "windowed_counts", *arguments, log=tmp_path / "counts.log")
    # The last day is not over: a later flight is still to come.
    days = BETWEEN * KILLS // 24 - 1
    rows = delta_rows(table)
    assert [24] * (PARTITIONS * days) == [one["flights"] for one in rows]
    assert PARTITIONS * days == len({(one["day"], one["origin"]) for one in rows})


def delta_rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows of a Delta table, by its log."""
    files: set[str] = set()
    for version in sorted((table / "_delta_log").glob("*.json")):
        for line in version.read_text().splitlines():
            action = json.loads(line)
            files |= {action["add"]["path"]} if "add" in action else set()
            files -= {action["remove"]["path"]} if "remove" in action else set()
    return [row for file in sorted(files) for row in pq.read_table(table / file).to_pylist()]
