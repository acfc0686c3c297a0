from __future__ import annotations

import asyncio
import gc
import threading
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.client import (
    AdminClient,
    AsyncClient,
    ClientError,
    NewRecord,
    Producer,
    ServerRefusedError,
)
from kgw.client.admin import TOPIC
from kgw.errors import ErrorCode
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.arrow.encode import encode_at_offsets
from kgw.pipeline.jobs import backfill as append
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.backfill import Backfill
from kgw.pipeline.jobs.loading import HandOff, LoadProgress, abandon, begin, hand_over
from kgw.pipeline.jobs.restore import Restore, plan, restore_partition, run
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading, parse_bootstrap
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.sending import send_aborted
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


def archive(served: ServedTopics, root: Path, topic: str) -> None:
    """Archive what a topic has."""
    job = ArchiveJob(
        served.wire, served.cluster, root, Backwards(), ArchiveOptions(), now_ms=lambda: 0
    )
    job.run_once(topic)


def archived(served: ServedTopics, root: Path, topic: str) -> Restore:
    """Archive a topic of two partitions, with a transaction in each, of which one begins late.

    Partition 1 begins at 3, has an aborted record at 5 and ends with the marker at 6.
    """
    served.create(topic, 2)
    served.create(f"{topic}-again", 2)
    for first in (0, 1000, 2000):
        served.number(
            topic,
            {0: 1000},
            first=first,
            record=lambda _, index: NewRecord(
                None if index % 7 == 0 else b"%d" % index,
                None if index % 5 == 0 else b"%d" % index,
                1000 + index,
                (("h", None), ("h", b"x")) if index % 3 == 0 else (),
            ),
        )
    served.number(topic, {1: 5})
    served.wire.call(served.admin.delete_records(topic, {1: 3}))
    served.wire.call(send_aborted(served.wire.client, topic, partition=1))
    archive(served, root, topic)
    described = served.wire.find_topic(topic)
    assert described is not None
    topic_id = UUID(bytes=bytes(described.topic_id))
    generation = generation_directory(str(root), topic, topic_id)
    return Restore(served.cluster, generation, topic_id, f"{topic}-again")


def records(served: ServedTopics, topic: str, partition: int) -> list[tuple[object, ...]]:
    """Return what a reader of committed records gets."""
    bounds = served.wire.bounds(topic, [partition], read_committed=True)[partition]
    wanted = OffsetRange(topic, partition, bounds.earliest, bounds.latest)
    return [
        (row["offset"], row["key"], row["value"], row["timestamp_ms"], str(row["headers"]))
        for piece in served.wire.decoded(wanted, reading=Reading(read_committed=True))
        for row in piece.batch.to_pylist()
    ]


def assert_equal(served: ServedTopics, topic: str) -> None:
    """Compare a topic with what was restored of it, offsets included."""
    for partition in range(2):
        assert records(served, topic, partition) == records(served, f"{topic}-again", partition)
    bounds = served.wire.bounds(topic, [0, 1])
    assert bounds == served.wire.bounds(f"{topic}-again", [0, 1])


def test_records_come_back_at_their_offsets(served: ServedTopics, tmp_path: Path) -> None:
    """So do beginnings and ends, where no record is; then others go on behind them."""
    asked = archived(served, tmp_path, "orders")
    assert [LoadProgress(0, 0, 0, 3000), LoadProgress(1, 3, 0, 7)] == plan(served.wire, asked)
    begin(served.wire, asked)
    written = run(served.wire, asked, Backwards())
    assert [(0, 3000, 3000), (1, 2, 7)] == written
    assert_equal(served, "orders")
    assert [] == run(served.wire, asked, Backwards())
    with pytest.raises(ServerRefusedError, match="NOT_ENOUGH_REPLICAS"):
        produce_once(served, "orders-again", 1)
    handed = hand_over(served.wire, asked, plan(served.wire, asked))
    assert [HandOff(0, 3000), HandOff(1, 7)] == handed
    assert 7 == produce_once(served, "orders-again", 1)
    with pytest.raises(ArchiveError, match=r"orders-again is not empty: partition 0 .* 3000"):
        plan(served.wire, asked)


def produce_once(served: ServedTopics, topic: str, partition: int) -> int:
    """Produce a record; return its offset. Raises ClientError where it has to be sent again."""

    async def send() -> int:
        async with (
            AsyncClient(parse_bootstrap(served.address), retry_s=0.0) as client,
            Producer(client) as producer,
        ):
            answer = await producer.send(topic, partition, [NewRecord(b"k", b"live", 1)])
            return (await answer).base_offset

    return served.wire.call(send())


def test_what_came_to_the_archive_meanwhile_is_written_too(
    served: ServedTopics, tmp_path: Path
) -> None:
    """A run of the same job goes on where the one before ended."""
    asked = archived(served, tmp_path, "grown")
    begin(served.wire, asked)
    run(served.wire, asked, Backwards())
    served.number("grown", {0: 10, 1: 10})
    archive(served, tmp_path, "grown")
    with pytest.raises(ArchiveError, match="partition 0: offsets 3000 to 3009 of the archive are"):
        hand_over(served.wire, asked, plan(served.wire, asked))
    begin(served.wire, asked)
    assert [(0, 10, 3010), (1, 10, 17)] == run(served.wire, asked, Backwards())
    assert_equal(served, "grown")


@pytest.mark.parametrize("is_stored", [False, True], ids=["not stored", "stored"])
def test_an_attempt_that_is_killed_is_gone_on_with(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool
) -> None:
    """After each batch that is sent: nothing is doubled, and nothing is left out."""
    name = "after" if is_stored else "before"
    asked = archived(served, tmp_path, name)
    begin(served.wire, asked)
    monkeypatch.setattr("kgw.pipeline.jobs.restore._BATCH_BYTES", 2_000)
    real = AsyncClient.start_produce
    sent = 0

    async def start(self: AsyncClient, *arguments: Any, **named: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent % 3:
            return await real(self, *arguments, **named)
        if is_stored:
            await (await real(self, *arguments, **named))
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(AsyncClient, "start_produce", start)
        for _ in range(3):
            with pytest.raises(OSError, match="killed"):
                restore_partition(asked, 0)
    run(served.wire, asked, Backwards())
    assert_equal(served, name)


def test_two_attempts_at_once_write_once(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is ahead: the other one finds where the partition ends."""
    asked = archived(served, tmp_path, "both")
    begin(served.wire, asked)
    monkeypatch.setattr("kgw.pipeline.jobs.restore._BATCH_BYTES", 2_000)
    attempts = [
        threading.Thread(target=restore_partition, args=(asked, number % 2)) for number in range(4)
    ]
    for one in attempts:
        one.start()
    for one in attempts:
        one.join()
    assert [] == run(served.wire, asked, Backwards())
    assert_equal(served, "both")


def test_an_attempt_that_slept_writes_nothing(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one has written all meanwhile, and the topic was handed over."""
    asked = archived(served, tmp_path, "slept")
    begin(served.wire, asked)
    is_first = True

    def encode(*arguments: Any, **named: Any) -> Any:
        nonlocal is_first
        encoded = encode_at_offsets(*arguments, **named)
        if is_first:
            is_first = False
            run(served.wire, asked, Backwards())
            hand_over(served.wire, asked, plan(served.wire, asked))
        return encoded

    monkeypatch.setattr("kgw.pipeline.jobs.restore.encode_at_offsets", encode)
    with pytest.raises(ServerRefusedError, match="comes after the topic was loaded"):
        restore_partition(asked, 0)
    assert_equal(served, "slept")


def test_what_cannot_be_restored_is_refused(served: ServedTopics, tmp_path: Path) -> None:
    """Before anything is written, with the reason."""
    asked = archived(served, tmp_path, "refused")
    target = asked.target

    def expect(reason: str, **settings: str | None) -> None:
        changes = {name.replace("_", "."): value for name, value in settings.items()}
        served.wire.call(served.admin.alter_settings(TOPIC, target, changes))
        with pytest.raises(ArchiveError, match=reason):
            plan(served.wire, asked)
        undone = dict.fromkeys(changes)
        served.wire.call(served.admin.alter_settings(TOPIC, target, undone))

    expect("gives records its own time", message_timestamp_type="LogAppendTime")
    expect("has kgw.durability=relaxed", kgw_durability="relaxed")
    expect("has a kgw.archive.hold", kgw_archive_hold="group")
    expect("is being loaded by another job, with new offsets", kgw_loading="another")
    expect("kgw.loading=kgw-restore-x", kgw_loading="kgw-restore-x", kgw_loading_offsets="original")
    with pytest.raises(ArchiveError, match="there is no topic absent"):
        plan(served.wire, asked._replace(target="absent"))
    assert not abandon(served.wire, asked)
    served.number(target, {1: 1})
    with pytest.raises(ArchiveError, match="refused-again is not empty: partition 1 ends at"):
        plan(served.wire, asked)
    with pytest.raises(ClientError, match="is for empty topics: partition 1"):
        begin(served.wire, asked)


def test_a_file_that_was_altered_is_refused(served: ServedTopics, tmp_path: Path) -> None:
    """A record that it lacks would look like one that compaction removed."""
    asked = archived(served, tmp_path, "altered")
    appended = Backfill(
        served.cluster, "altered", asked.generation, asked.topic_id, "altered-again"
    )
    (path,) = (asked.generation / "p=00000").iterdir()
    pq.write_table(pq.read_table(path).slice(1), path)
    for write in (
        partial(append.backfill_partition, appended),
        partial(restore_partition, asked),
    ):
        with pytest.raises(ArchiveError, match=rf"{path.name} was altered after its commit"):
            write(0)
    assert 0 == served.wire.bounds("altered-again", [0])[0].latest


def test_records_at_other_offsets_end_the_job(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a topic that was created again meanwhile, and that others write to."""
    asked = archived(served, tmp_path, "elsewhere")
    real_produce = AsyncClient.start_produce
    is_first = True

    async def start_produce(self: AsyncClient, *arguments: Any, **named: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            await asyncio.to_thread(produce_once, served, "elsewhere-again", 0)
        return await real_produce(self, *arguments, **named)

    monkeypatch.setattr(AsyncClient, "start_produce", start_produce)
    with pytest.raises(ArchiveError, match="offset 0 was stored at 1; the topic was created again"):
        restore_partition(asked, 0)


def test_batches_that_are_refused_together_are_told_once(
    served: ServedTopics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the first refusal; those of the batches behind it are looked at, and not told besides."""
    for topic in ("many", "many-again"):
        served.create(topic)
    for first in range(0, 6, 2):
        served.number(
            "many",
            {0: 2},
            first=first,
            record=lambda _, index: NewRecord(None, (b"%d" % index).ljust(400_000), index),
        )
    archive(served, tmp_path, "many")
    described = served.wire.find_topic("many")
    assert described is not None
    topic_id = UUID(bytes=bytes(described.topic_id))
    asked = Restore(
        served.cluster,
        generation_directory(str(tmp_path), "many", topic_id),
        topic_id,
        "many-again",
    )
    begin(served.wire, asked)
    sent = 0

    async def refused() -> None:
        raise ServerRefusedError(ErrorCode.MESSAGE_TOO_LARGE, "a batch is too large")

    async def start_produce(*_: Any, **__: Any) -> Any:
        nonlocal sent
        sent += 1
        return refused()

    monkeypatch.setattr(AsyncClient, "start_produce", start_produce)

    def told() -> str:
        # In a frame of its own, so that nothing holds the answers when it is over.
        with pytest.raises(ServerRefusedError) as error:
            restore_partition(asked, 0)
        return str(error.value)

    assert "a batch is too large" in told()
    assert 6 == sent
    gc.collect()
    assert [] == [one.getMessage() for one in caplog.records if one.name == "asyncio"]


def test_an_abandoned_topic_is_open(served: ServedTopics, tmp_path: Path) -> None:
    """What was written stays, and the job that is still at it is told."""
    asked = archived(served, tmp_path, "left")
    begin(served.wire, asked)
    restore_partition(asked, 1)
    assert abandon(served.wire, asked)
    assert 7 == produce_once(served, "left-again", 1)
    served.create("other", 2)
    # As if the topic had been created again: what has gaps, or an offset, is refused.
    with pytest.raises(ServerRefusedError) as refused:
        restore_partition(asked._replace(target="other"), 1)
    assert ErrorCode.INVALID_RECORD == refused.value.code


def test_what_others_write_as_soon_as_they_may_is_behind_the_hand_over(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who goes on from the offset that is told leaves none of it out."""
    asked = archived(served, tmp_path, "eager")
    begin(served.wire, asked)
    run(served.wire, asked, Backwards())
    real_alter = AdminClient.alter_settings

    async def alter_settings(self: AdminClient, *arguments: Any, **named: Any) -> None:
        await real_alter(self, *arguments, **named)
        await asyncio.to_thread(produce_once, served, "eager-again", 1)

    monkeypatch.setattr(AdminClient, "alter_settings", alter_settings)
    handed = hand_over(served.wire, asked, plan(served.wire, asked))
    assert [HandOff(0, 3000), HandOff(1, 7)] == handed
    assert 8 == served.wire.bounds("eager-again", [1])[1].latest


def test_an_append_is_handed_over(served: ServedTopics, tmp_path: Path) -> None:
    """Others wait until it is done; another job waits, too, and is told."""
    restored = archived(served, tmp_path, "appended")
    served.number("appended-again", {0: 1})
    asked = Backfill(served.cluster, "job", restored.generation, restored.topic_id, restored.target)
    begin(served.wire, asked)
    with pytest.raises(ArchiveError, match="is being loaded by another job, with new offsets"):
        append.plan(served.wire, asked._replace(job="another"))
    append.run(served.wire, asked, Backwards())
    with pytest.raises(ServerRefusedError, match="NOT_ENOUGH_REPLICAS"):
        produce_once(served, restored.target, 0)
    of = ("-t", "appended", "--to", restored.target, "--job", "job", "-b", served.address)
    command = ("pipeline", "backfill", "--archive", str(tmp_path), *of)
    told = CliRunner().invoke(main, command, prog_name="kgw")
    assert (0, True) == (told.exit_code, f"Other producers of {restored.target}" in told.output)
    standing = append.plan(served.wire, asked)
    handed = hand_over(served.wire, asked, standing)
    ends = served.wire.bounds(restored.target, [0, 1])
    assert [HandOff(0, ends[0].latest), HandOff(1, ends[1].latest)] == handed
    assert handed[0].offset == produce_once(served, restored.target, 0)
    expected = [one[1:] for one in records(served, "appended", 0)]
    assert expected == [one[1:] for one in records(served, restored.target, 0)][1:-1]
    # As if somebody else had let them in: where they went on, nobody knows.
    with pytest.raises(ArchiveError, match=r"kgw\.loading was taken away before"):
        hand_over(served.wire, asked, standing)
