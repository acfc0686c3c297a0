from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.pipeline.jobs.history import plan, run
from kgw.pipeline.jobs.running import HereRunner, SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.serving import ServedTopics

pytestmark = pytest.mark.slow


def test_spark_counts_what_one_process_counts(spark: SparkSession, served: ServedTopics) -> None:
    """Its tasks have a range each."""
    served.create("counted", 3)
    served.number("counted", {0: 5000, 1: 7})
    served.number("counted", {0: 300, 2: 1}, first=5000)
    planned = plan(served.wire, ["counted"], bucket_ms=1000)
    here = run(served.cluster, planned, HereRunner())
    assert here == run(served.cluster, planned, SparkRunner(spark, "test"))
    assert 5308 == sum(one.records for histogram in here.values() for one in histogram.values())
