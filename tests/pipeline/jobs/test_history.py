from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.pipeline.jobs.history import plan, run
from kgw.pipeline.ranges import TopicPartition
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


def test_what_retention_takes_meanwhile_is_not_counted(served: ServedTopics) -> None:
    """It is no error: the rest is, and a partition that has nothing left comes to nothing."""
    served.create("events", 2)
    for first in range(0, 30, 10):
        served.number("events", {0: 10, 1: 10}, first=first)
    planned = plan(served.wire, ["events"], bucket_ms=10)
    served.wire.call(served.admin.delete_records("events", {0: 20, 1: 30}))
    counted = run(served.cluster, planned, Backwards())
    assert {
        TopicPartition("events", 0): {20: 10},
        TopicPartition("events", 1): {},
    } == {
        key: {time_ms: one.records for time_ms, one in histogram.items()}
        for key, histogram in counted.items()
    }
