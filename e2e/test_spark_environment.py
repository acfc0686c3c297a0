"""An environment that is packed and sent to executors, as docs/spark-clusters.md says.

Its packages come from PyPI; the cluster is of this machine, and its own Python has none of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.serving import ServedTopics
from tests.pipeline.spark.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[1]
RECORDS = 10_000
COUNT = """
import sys
from kgw.pipeline.session import session
settings = dict(one.split("=", 1) for one in sys.argv[3:])
spark = session("count", master=sys.argv[1], settings=settings)
frame = spark.read.format("kgw").option("kafka.bootstrap.servers", sys.argv[2])
print(frame.option("subscribe", "sent").load().count())
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an environment in `env`, packed as `env.tar.gz`, and an empty one."""
    made = tmp_path_factory.mktemp("packed")

    def run(*command: str) -> None:
        subprocess.run(command, cwd=made, check=True, stdout=subprocess.DEVNULL)

    build = ("--no-deps", "--no-build-isolation", "--wheel-dir", "wheels")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", *build, str(ROOT))
    (wheel,) = made.glob("wheels/kgw_broker-*.whl")
    packages = [f"{name}=={version(name)}" for name in ("numpy", "pyarrow")]
    run(sys.executable, "-m", "venv", "env")
    run("env/bin/pip", "install", "--quiet", str(wheel), *packages, "venv-pack")
    run("env/bin/venv-pack", "--quiet", "--prefix", "env", "--output", "env.tar.gz")
    run(sys.executable, "-m", "venv", "--without-pip", "bare")
    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one worker."""
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=1) as made:
        yield made


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory, with a topic."""
    with ServedTopics() as topics:
        topics.create("sent")
        topics.number("sent", {0: RECORDS})
        yield topics


def settings(**more: str) -> list[str]:
    """Return settings of Spark; names have _ for their dots."""
    told = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
    } | {name.replace("_", "."): value for name, value in more.items()}
    return [f"{name}={value}" for name, value in told.items()]


PACKED = settings(spark_archives="env.tar.gz#env", spark_pyspark_python="./env/bin/python")


def archive(
    place: Path, cluster: Cluster, served: ServedTopics, told: list[str]
) -> subprocess.CompletedProcess[str]:
    """Archive the topic on the cluster."""
    to = ("--topic", "sent", "--out", "archive", "--bootstrap", served.address, "--json")
    on = ("--master", cluster.url, *(f"--conf={one}" for one in told))
    return subprocess.run(
        [sys.executable, "-m", "kgw", "pipeline", "archive", *to, *on],
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
    )


def test_executors_run_what_was_sent_to_them(
    place: Path, cluster: Cluster, served: ServedTopics
) -> None:
    """Their own Python has no kgw, which is an error that says so; the packed one has."""
    bare = settings(spark_pyspark_python=str(place / "bare" / "bin" / "python"))
    refused = archive(place, cluster, served, bare)
    told = "Spark's executors cannot run kgw: ModuleNotFoundError: No module named 'kgw'"
    assert 1 == refused.returncode
    assert {"error": told, "exit_code": 1} == json.loads(refused.stderr.splitlines()[-1])

    done = archive(place, cluster, served, PACKED)
    assert 0 == done.returncode, done.stderr
    (summary,) = json.loads(done.stdout)
    assert RECORDS == summary["records"]
    assert list(cluster.place.glob("work-0/app-*/0/env/bin/python"))


def test_the_source_reads_with_what_was_sent(
    place: Path, cluster: Cluster, served: ServedTopics
) -> None:
    """A session's driver runs the same ./env/bin/python: it is started beside the environment."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT, cluster.url, served.address, *PACKED],
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (0, str(RECORDS)) == (done.returncode, done.stdout.strip()), done.stderr
