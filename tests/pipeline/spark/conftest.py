"""One Spark session for all tests of this folder, and one gateway."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder more time: the first of them waits for a session to start."""
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(120))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that knows `format("kgw")`."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        missing = "Spark needs a Java runtime: install one of version 17 or later"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    from kgw.pipeline.session import session

    # No warnings of failed tasks: some are meant to fail.
    made = session(
        "kgw tests",
        master="local[2,4]",
        settings={
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
        },
        log_level="OFF",
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics
