"""The pipeline's commands on a standalone cluster of two workers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import NewRecord
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading
from tests import patience
from tests.pipeline.serving import ServedTopics
from tests.pipeline.spark.cluster import Cluster, until
from tests.signals import send, send_to_group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]

PARTITIONS = 3
PER_PARTITION = 40_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two workers with one processor each."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory, with a topic of numbered records."""
    with ServedTopics() as topics:
        topics.create("numbers", PARTITIONS)
        for first in range(0, PER_PARTITION, 2000):
            counts = dict.fromkeys(range(PARTITIONS), 2000)
            topics.number("numbers", counts, first=first, record=numbered)
        yield topics


def numbered(partition: int, index: int) -> NewRecord:
    """Return a record of about 200 bytes."""
    return NewRecord(b"%d" % index, b"%d-%d-" % (partition, index) + b"x" * 180, index)


def options(cluster: Cluster, served: ServedTopics) -> list[str]:
    """Return what a command is told to run on the cluster."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
    }
    told = [f"--conf={name}={value}" for name, value in settings.items()]
    return ["--master", cluster.url, *told, "-b", served.address, "--json"]


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a command of the pipeline, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "kgw", "pipeline", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> Any:
    """Return what a command has printed as JSON, that must succeed."""
    out, told = process.communicate(timeout=patience.seconds(300))
    assert 0 == process.returncode, told
    return json.loads(out)


def kill_executors(cluster: Cluster) -> None:
    """End executors one after the other with their tasks, without a word to anybody."""
    for victim in cluster.executors():
        send(victim, signal.SIGKILL)
        until(lambda victim=victim: victim not in cluster.executors(), "the executor is dead")  # type: ignore[misc]


def has_begun(archive: Path) -> bool:
    """Whether a task has begun a file."""
    return any(archive.rglob("p=*/.*.tmp"))


def values(served: ServedTopics, topic: str) -> dict[int, list[bytes]]:
    """Return the values that a reader of committed records finds, by partition."""
    described = served.wire.find_topic(topic)
    assert described is not None
    found = {}
    for partition, one in served.wire.bounds(topic, range(PARTITIONS), read_committed=True).items():
        wanted = OffsetRange(topic, partition, 0, one.latest, described.topic_id)
        parts = served.wire.decoded(wanted, reading=Reading(read_committed=True))
        found[partition] = [one for part in parts for one in part.batch.column("value").to_pylist()]
    return found


def expected() -> dict[int, list[bytes]]:
    """Return the values that were stored, by partition."""
    return {
        partition: [numbered(partition, index).value or b"" for index in range(PER_PARTITION)]
        for partition in range(PARTITIONS)
    }


def test_executors_that_are_killed_cost_nothing(
    cluster: Cluster, served: ServedTopics, tmp_path: Path
) -> None:
    """Archived and written back on two executors, each of which dies in the midst of each job."""
    archive = tmp_path / "archive"
    to = options(cluster, served)
    archiving = start("archive", "-t", "numbers", f"--out={archive}", *to, "--max-fetch-rate", "2m")
    until(lambda: has_begun(archive), "a task has begun a file")
    kill_executors(cluster)
    assert archiving.poll() is None
    (summary,) = ended(archiving)
    assert PARTITIONS * PER_PARTITION == summary["records"]

    served.create("again", PARTITIONS)
    of = ("--archive", str(archive), "-t", "numbers", "--to", "again")
    writing = start("backfill", *of, *to)

    def is_written() -> bool:
        return any(one.latest for one in served.wire.bounds("again", range(PARTITIONS)).values())

    until(is_written, "a task has written records")
    kill_executors(cluster)
    assert writing.poll() is None
    ended(writing)
    assert expected() == values(served, "again")

    proof = start("audit", f"--archive={archive}", "--level=3", "-b", served.address, "--json")
    assert [] == ended(proof)["findings"]


def test_ctrl_c_leaves_executors_clean(
    cluster: Cluster, served: ServedTopics, tmp_path: Path
) -> None:
    """In the midst of a job: its tasks and executors end, and the next run goes on."""
    archive = tmp_path / "archive"
    arguments = ("archive", "-t", "numbers", f"--out={archive}", *options(cluster, served))
    archiving = start(*arguments, "--max-fetch-rate", "1m")
    until(lambda: has_begun(archive), "a task has begun a file")
    # As a terminal does it: to all processes of the command.
    assert send_to_group(archiving.pid, signal.SIGINT)
    _, told = archiving.communicate(timeout=patience.seconds(60))
    assert 130 == archiving.returncode, told
    assert told.endswith(
        "Interrupted. What was committed stays; the next run goes on from there.\n"
    )
    until(lambda: not cluster.executors(), "executors have ended")

    (summary,) = ended(start(*arguments))
    # Of what one partition had before, too.
    assert [PER_PARTITION] * PARTITIONS == [one["end_offset"] for one in summary["partitions"]]
    proof = start("audit", f"--archive={archive}", "--level=3", "-b", served.address, "--json")
    assert [] == ended(proof)["findings"]
