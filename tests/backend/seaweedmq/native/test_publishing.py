"""Appends through SMQ's broker: when they are done, and what becomes of those that are lost."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.native.partition_log import FollowOptions, NativePartitionLog
from kgw.backend.seaweedmq.native.publishing import CHECKPOINT, Publisher, messages_of
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.shell import Shell
from kgw.errors import ErrorCode, StorageError
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from kgw.testing.filer import MemoryFiler
from kgw.types import PartitionKey
from tests.backend.seaweedmq.native.scripted import BrokerLog, ScriptedBroker, make_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.append import Append


class Writing:
    """A partition that is written to, its broker and its files."""

    def __init__(self, filer: MemoryFiler, *, waits_for_file: bool) -> None:
        self.filer = filer
        self.clock = ManualClock()
        self.shell = Shell(filer, self.clock, SeaweedMqOptions())
        topic = make_topic()
        self.files = BrokerLog(filer, topic)
        self.broker = ScriptedBroker(self.files)
        publisher = Publisher(
            topic, 0, self.broker, self.shell, waits_for_file=waits_for_file, confirm_s=60
        )
        key = PartitionKey(topic.topic_id, 0)
        memory = None if waits_for_file else self.broker
        self.log = NativePartitionLog(
            key, topic, self.shell, FollowOptions(), publisher, memory=memory
        )

    async def append(self, *values: bytes, key: bytes | None = None) -> Append:
        """Submit a batch and let the broker have it."""
        append = self.log.append([make_batch(values, keys=[key] * len(values))])
        for _ in range(20):
            await sleep(0)
        return append


@pytest.fixture
async def writing() -> AsyncIterator[Writing]:
    """Return a partition with acks=filer."""
    filer = MemoryFiler()
    await filer.open()
    made = Writing(filer, waits_for_file=True)
    await made.log.open()
    yield made
    await made.log.aclose()
    await made.shell.aclose()


def code_of(append: Append) -> ErrorCode:
    """Return what a client is told of a failed append."""
    assert isinstance(append.error, StorageError)
    return append.error.code


async def test_an_append_is_done_once_it_is_in_a_log_file(writing: Writing) -> None:
    """The broker's answer is not enough; whoever is told can read it."""
    append = await writing.append(b"a", b"b", key=b"k")
    await writing.log.look()
    assert not append.is_done
    await writing.files.flush()
    await writing.log.look()
    assert (True, None) == (append.is_done, append.error)
    assert (0, 1) == append.result[:2]
    assert 2 == writing.log.high_watermark


async def test_appends_of_one_partition_share_a_stream(writing: Writing) -> None:
    """Two streams at a time would write out of order."""
    appends = [await writing.append(b"%d" % number) for number in range(5)]
    await writing.files.flush()
    await writing.log.look()
    assert list(range(5)) == [append.result.base_offset for append in appends]
    assert 1 == writing.broker.streams


async def test_others_between_records_leave_no_offset_to_tell(writing: Writing) -> None:
    """A batch whose records are not next to each other has no base offset that counts."""
    writing.broker.is_interrupted = True
    append = await writing.append(b"a", b"b")
    await writing.files.flush()
    await writing.log.look()
    assert (-1, 2) == append.result[:2]


async def test_a_broker_that_is_away(writing: Writing) -> None:
    """Nothing was sent: clients try again, and the next stream serves."""
    writing.broker.refuses = True
    append = await writing.append(b"a")
    assert ErrorCode.LEADER_NOT_AVAILABLE is code_of(append)
    writing.broker.refuses = False
    append = await writing.append(b"a")
    await writing.files.flush()
    await writing.log.look()
    assert append.error is None


async def test_an_answer_that_is_lost(writing: Writing) -> None:
    """Nobody knows whether the broker has it: a client that sends it again may double it."""
    writing.broker.loses_answers = True
    append = await writing.append(b"a")
    assert ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND is code_of(append)
    writing.broker.loses_answers = False
    await writing.append(b"b")
    assert 2 == writing.broker.streams


async def test_a_broker_that_ends_before_it_has_written(writing: Writing) -> None:
    """What it acknowledged to kgw was never acknowledged by kgw."""
    lost = await writing.append(b"a")
    writing.files.crash(0)
    other = await writing.append(b"b")
    assert ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND is code_of(lost)
    await writing.files.flush()
    await writing.log.look()
    assert (None, 0) == (other.error, other.result.base_offset)


async def test_an_offset_that_came_to_be_anothers(writing: Writing) -> None:
    """What is in the log file at the offset is another record: the append is lost."""
    append = await writing.append(b"a")
    writing.files.crash(0)
    writing.files.publish(b"another's")
    await writing.files.flush()
    await writing.log.look()
    assert ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND is code_of(append)
    assert "given offset 0 to another" in str(append.error)


async def test_what_never_comes_is_given_up(writing: Writing) -> None:
    """After a minute nobody waits any more."""
    append = await writing.append(b"a")
    writing.files.crash(9)
    writing.clock.advance(59)
    await writing.log.look()
    assert not append.is_done
    writing.clock.advance(2)
    await writing.log.look()
    assert ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND is code_of(append)


async def test_the_checkpoint_is_not_behind_the_log(writing: Writing) -> None:
    """A broker that begins to count goes by it alone, and would give offsets out again."""
    writing.files.publish(b"a", b"b", b"c")
    await writing.files.flush()
    await writing.filer.put(
        writing.files.directory, FilerEntry(CHECKPOINT, content=(0).to_bytes(8, "big"))
    )
    await writing.log.look()
    await writing.append(b"d")
    found = await writing.filer.look_up(writing.files.directory, CHECKPOINT)
    assert found is not None
    assert 2 == int.from_bytes(found.content, "big")


async def test_a_checkpoint_ahead_of_the_log_stays(writing: Writing) -> None:
    """The broker has given these offsets out, whatever became of the records."""
    content = (99).to_bytes(8, "big")
    await writing.filer.put(writing.files.directory, FilerEntry(CHECKPOINT, content=content))
    await writing.append(b"d")
    found = await writing.filer.look_up(writing.files.directory, CHECKPOINT)
    assert found is not None
    assert content == found.content


async def test_a_stop_fails_what_waits() -> None:
    """Nobody is left without an answer."""
    filer = MemoryFiler()
    await filer.open()
    made = Writing(filer, waits_for_file=True)
    await made.log.open()
    append = await made.append(b"a")
    await made.log.aclose()
    await made.shell.aclose()
    assert ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND is code_of(append)


async def test_acks_of_the_broker() -> None:
    """With acks=broker an append is done when the broker has it, and shown when that is certain."""
    filer = MemoryFiler()
    await filer.open()
    made = Writing(filer, waits_for_file=False)
    await made.log.open()
    append = await made.append(b"a")
    assert (True, None) == (append.is_done, append.error)
    await made.log.look()
    assert 1 == made.log.high_watermark
    await made.log.aclose()
    await made.shell.aclose()


def test_messages_of_batches() -> None:
    """A null key is an empty one; values are as they are."""
    batches = [make_batch([b"a", b""], keys=[None, b"k"]), make_batch([b"b"])]
    assert [(b"", b"a"), (b"k", b""), (b"", b"b")] == [
        (bytes(one.key), bytes(one.value)) for one in messages_of(batches)
    ]
