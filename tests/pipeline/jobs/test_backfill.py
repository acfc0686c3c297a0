from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kgw.client import ClientError, NewRecord, TransactionalClient
from kgw.client.admin import TOPIC
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.backfill import Backfill, backfill_partition, default_job, plan, run
from kgw.pipeline.jobs.loading import LoadProgress
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading, WireClient
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kgw.client import TransactionalProducer
    from kgw.pipeline.jobs.backfill import WrittenPartition
    from kgw.testing.broker import Broker


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


def archived(served: ServedTopics, root: Path, topic: str, target: str) -> Backfill:
    """Create two topics of two partitions, and archive the first; return how it is written."""
    served.create(topic, 2)
    served.create(target, 2)
    # A file each time, so that there are several transactions.
    for first in (0, 1000, 2000):
        served.number(
            topic,
            {0: 1000, 1: 5},
            first=first,
            record=lambda partition, index: NewRecord(
                None if index % 7 == 0 else b"%d" % index,
                None if index % 5 == 0 else b"%d-%d" % (partition, index),
                1000 + index,
                (("h", None), ("h", b"x")) if index % 3 == 0 else (),
            ),
        )
        ArchiveJob(
            served.wire, served.cluster, root, Backwards(), ArchiveOptions(), now_ms=lambda: 0
        ).run_once(topic)
    described = served.wire.find_topic(topic)
    assert described is not None
    topic_id = UUID(bytes=bytes(described.topic_id))
    generation = generation_directory(str(root), topic, topic_id)
    return Backfill(served.cluster, topic, generation, topic_id, target, transaction_bytes=1)


def records(served: ServedTopics, topic: str, partition: int) -> list[tuple[object, ...]]:
    """Return what a reader of committed records gets, without offsets."""
    latest = served.wire.bounds(topic, [partition], read_committed=True)[partition].latest
    wanted = OffsetRange(topic, partition, 0, latest)
    reading = Reading(read_committed=True)
    return [
        (row["key"], row["value"], row["timestamp_ms"], str(row["headers"]))
        for piece in served.wire.decoded(wanted, reading=reading)
        for row in piece.batch.to_pylist()
    ]


def test_what_was_archived_is_written_once(served: ServedTopics, tmp_path: Path) -> None:
    """Keys, values, times and headers, in order; a second run has nothing to do."""
    asked = archived(served, tmp_path, "source", "target")
    written = run(served.wire, asked, Backwards())

    assert [(0, 3000), (1, 15)] == [(one.partition, one.records) for one in written]
    for partition in range(2):
        assert records(served, "source", partition) == records(served, "target", partition)
    assert [] == run(served.wire, asked, Backwards())
    assert [LoadProgress(0, 0, 3000, 3000), LoadProgress(1, 0, 15, 15)] == plan(served.wire, asked)


@pytest.mark.parametrize("is_stored", [False, True], ids=["before the commit", "after it"])
def test_an_attempt_that_ends_in_the_middle_is_gone_on_with(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool
) -> None:
    """Wherever it ends: nothing is written twice, and nothing is left out."""
    name = "after" if is_stored else "before"
    asked = archived(served, tmp_path, name, f"{name}-target")
    ends = 0
    real_end = TransactionalClient.end

    async def end(
        self: TransactionalClient, producer: TransactionalProducer, *, is_commit: bool
    ) -> None:
        nonlocal ends
        ends += 1
        if is_stored:
            await real_end(self, producer, is_commit=is_commit)
        raise OSError("killed")

    for _ in range(2):
        monkeypatch.setattr(TransactionalClient, "end", end)
        with pytest.raises(OSError, match="killed"):
            backfill_partition(asked, 0)
        monkeypatch.undo()
    assert 2 == ends
    run(served.wire, asked, Backwards())
    for partition in range(2):
        assert records(served, name, partition) == records(served, f"{name}-target", partition)


def test_what_a_killed_attempt_has_open_holds_up_nothing(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second transaction has the next position: the next attempt ends it, and goes on."""
    asked = archived(served, tmp_path, "open", "open-target")
    real_end = TransactionalClient.end
    ends = 0

    async def end(
        self: TransactionalClient, producer: TransactionalProducer, *, is_commit: bool
    ) -> None:
        nonlocal ends
        ends += 1
        if ends == 2:
            raise OSError("killed")
        await real_end(self, producer, is_commit=is_commit)

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalClient, "end", end)
        with pytest.raises(OSError, match="killed"):
            backfill_partition(asked, 0)
    assert LoadProgress(0, 0, 1000, 3000) == plan(served.wire, asked)[0]
    run(served.wire, asked, Backwards())
    for partition in range(2):
        assert records(served, "open", partition) == records(served, "open-target", partition)


def test_an_attempt_that_slept_does_not_write_again(served: ServedTopics, tmp_path: Path) -> None:
    """Another one has written all meanwhile; the sleeper finds that out before it writes."""
    asked = archived(served, tmp_path, "slept", "slept-target")
    is_first = True

    def read(*arguments: Any, **named: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            backfill_partition(asked, 0)
        return read_range(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kgw.pipeline.jobs.backfill.read_range", read)
        with pytest.raises(Exception, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
            backfill_partition(asked, 0)
    assert 0 == backfill_partition(asked, 0).records
    assert records(served, "slept", 0) == records(served, "slept-target", 0)


def test_an_attempt_that_slept_before_it_began_does_not_write_again(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another one wrote before the sleeper's producer began is no longer left to write."""
    asked = archived(served, tmp_path, "late", "late-target")
    written: list[WrittenPartition] = []
    real_begin = TransactionalClient.begin

    async def begin(
        self: TransactionalClient, transactional_id: str, *, timeout_ms: int
    ) -> TransactionalProducer:
        if not written:
            monkeypatch.undo()
            written.append(await asyncio.to_thread(backfill_partition, asked, 0))
        return await real_begin(self, transactional_id, timeout_ms=timeout_ms)

    monkeypatch.setattr(TransactionalClient, "begin", begin)
    assert 0 == backfill_partition(asked, 0).records
    assert [3000] == [one.records for one in written]
    assert records(served, "late", 0) == records(served, "late-target", 0)


def test_records_that_the_server_refuses_end_the_job(served: ServedTopics, tmp_path: Path) -> None:
    """Nothing counts as written then; once they are taken, the job writes all of them, once."""
    asked = archived(served, tmp_path, "keyless", "keyless-target")
    # Some records have no key, and a topic that is compacted takes none of those.
    policy = "cleanup.policy"
    served.wire.call(served.admin.alter_settings(TOPIC, "keyless-target", {policy: "compact"}))
    with pytest.raises(ClientError, match="INVALID_RECORD"):
        run(served.wire, asked, Backwards())
    assert [0, 0] == [one.position for one in plan(served.wire, asked)]

    served.wire.call(served.admin.alter_settings(TOPIC, "keyless-target", {policy: None}))
    assert [3000, 15] == [one.records for one in run(served.wire, asked, Backwards())]
    for partition in range(2):
        assert records(served, "keyless", partition) == records(served, "keyless-target", partition)


@pytest.mark.kgw_topics("source", "target")
def test_a_position_that_is_refused_is_committed_again(kgw_broker: Broker, tmp_path: Path) -> None:
    """With a transaction that left it out, the next look would find all of it left to write."""
    kgw_broker.produce("source", ["a", "b", "c"])
    with WireClient(kgw_broker.bootstrap) as wire:
        archive = ArchiveJob(
            wire,
            Cluster(kgw_broker.bootstrap),
            tmp_path,
            Backwards(),
            ArchiveOptions(),
            now_ms=lambda: 0,
        )
        topic_id = archive.run_once("source").topic_id
        generation = generation_directory(str(tmp_path), "source", topic_id)
        asked = Backfill(Cluster(kgw_broker.bootstrap), "job", generation, topic_id, "target")
        kgw_broker.faults.refuse(
            "TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=1, must_strike=True
        )
        assert [3] == [one.records for one in run(wire, asked, Backwards())]
        assert [] == run(wire, asked, Backwards())
    assert [b"a", b"b", b"c"] == [one.value for one in kgw_broker.records("target")]


def test_what_cannot_be_written_is_refused(served: ServedTopics, tmp_path: Path) -> None:
    """A target that is not there, or too narrow, and a job's name that is another archive's."""
    asked = archived(served, tmp_path, "refused", "refused-target")
    with pytest.raises(ArchiveError, match="there is no topic absent"):
        plan(served.wire, asked._replace(target="absent"))
    served.create("narrow")
    with pytest.raises(ArchiveError, match="narrow has 1 partitions; the archive has partition 1"):
        plan(served.wire, asked._replace(target="narrow"))
    run(served.wire, asked, Backwards())
    other = archived(served, tmp_path, "another", "another-target")
    with pytest.raises(ArchiveError, match="job refused has written another archive"):
        plan(served.wire, other._replace(job="refused", target="refused-target"))


def test_no_two_pairs_of_topics_have_a_job_in_common() -> None:
    """Topics have dashes, dots and underscores in their names."""
    pairs = ("a-b", "c"), ("a", "b-c"), ("a.b", "c"), ("a", "b.c")
    assert 4 == len({default_job(*pair) for pair in pairs})
