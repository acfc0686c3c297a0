"""Groups of jobs, whose offsets are no positions in a topic."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from kgw.client import TransactionalProducer
from kgw.offsets.committed import is_of_job
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs.backfill import Backfill
from kgw.pipeline.options import TransactionOptions
from kgw.pipeline.sink.exactly_once import BatchDecision, ExactlyOnce, encode_decision
from kgw.pipeline.wire import WireClient


def test_the_lag_monitor_knows_what_jobs_commit() -> None:
    """By the group's name, and by the note that there is beside each offset."""
    backfill = Backfill(Cluster("h:1"), "job", Path("archive"), UUID(int=1), "orders")
    assert is_of_job(backfill.group_id, str(backfill.topic_id))
    with WireClient("127.0.0.1:1") as wire:
        sink = ExactlyOnce(wire, TransactionOptions("query", 1_000))
    decision = BatchDecision("id", 7, (TransactionalProducer("query-task-0-0", 1, 0),))
    assert [True] == [is_of_job(sink.group_id, note) for note in encode_decision(decision)]
