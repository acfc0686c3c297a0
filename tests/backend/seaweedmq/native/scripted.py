"""SMQ's broker as far as its facts are known, with its faults: what it writes and what it answers.

Facts: what a broker of SeaweedFS 4.48 was seen to do.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.seaweedmq.entries.log_entries import append_around
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.native.broker import BrokerError, NativeBroker, PublishStream
from kgw.backend.seaweedmq.native.files import file_name
from kgw.backend.seaweedmq.native.messages import FetchedMessage, UnflushedEntry
from kgw.backend.seaweedmq.native.names import NativePartition, NativeTopic
from kgw.backend.seaweedmq.topics.topic_conf import TOPIC_CONF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.native.messages import NativeMessage

SECOND = 1_700_000_000
NS = 1_000_000_000


class Stored(NamedTuple):
    """What the broker has of a message."""

    offset: int
    ts_ns: int
    key: bytes
    value: bytes


def make_topic(
    partitions: int = 1, *, namespace: str = "sensors", name: str = "heat", second: int = SECOND
) -> NativeTopic:
    """Return a topic with the ranges that the broker gives its partitions."""
    size = 2520 // partitions
    return NativeTopic(
        namespace,
        name,
        tuple(
            NativePartition(2520, number * size, (number + 1) * size, second * NS + 17)
            for number in range(partitions)
        ),
    )


async def write_conf(filer: Filer, topic: NativeTopic) -> None:
    """Write a topic's configuration as SMQ does."""
    rows = [
        {
            "partition": {
                "ringSize": one.ring_size,
                "rangeStart": one.range_start,
                "rangeStop": one.range_stop,
                "unixTimeNs": str(one.unix_time_ns),
            },
            "leaderBroker": "127.0.0.1:17777",
            "followerBroker": "",
        }
        # In no order that counts.
        for one in reversed(topic.partitions)
    ]
    conf = {"brokerPartitionAssignments": rows, "retention": None, "keyColumns": []}
    await filer.put(topic.parent, FilerEntry(TOPIC_CONF, content=json.dumps(conf).encode()))


def window(entries: Sequence[Stored]) -> bytes:
    """Return what a flush of these appends to a log file."""
    output = bytearray()
    for one in entries:
        tail = bytearray()
        append_around(
            output,
            tail,
            offset=one.offset,
            ts_ns=one.ts_ns,
            data_bytes=len(one.value),
            key=one.key,
        )
        output += one.value
        output += tail
    return bytes(output)


class BrokerLog:
    """One partition as the broker has it: a counter, what is in memory, and log files."""

    def __init__(self, filer: Filer, topic: NativeTopic, partition: int = 0) -> None:
        """Begin to count at 0, at the second of the topic's creation."""
        self.filer = filer
        self.topic = topic
        self.directory = topic.directory(partition)
        self.next_offset = 0
        self.now_ns = SECOND * NS
        self.memory: list[Stored] = []
        self.has_flushed = False

    def publish(self, *values: bytes, key: bytes = b"") -> list[int]:
        """Take messages into memory and return their offsets."""
        offsets = []
        for value in values:
            self.now_ns += 1_000_000
            self.memory.append(Stored(self.next_offset, self.now_ns, key, value))
            offsets.append(self.next_offset)
            self.next_offset += 1
        return offsets

    async def flush(self) -> None:
        """Write what is in memory: into the file of the second of its first entry."""
        entries, self.memory = self.memory, []
        if entries:
            await self.write(entries)
            self.has_flushed = True
            self.now_ns += NS

    async def write(self, entries: Sequence[Stored], *, second: int | None = None) -> None:
        """Append a window to a log file."""
        name = file_name(entries[0].ts_ns // NS if second is None else second)
        before = await self.filer.look_up(self.directory, name)
        chunk = await self.filer.upload([window(entries)])
        chunks = () if before is None else before.chunks
        position = 0 if before is None else before.size_bytes
        # None where offset 0 is, as the broker does it.
        extended = {} if before is None else dict(before.extended)
        lowest = min(one.offset for one in entries)
        if lowest > 0:
            extended.setdefault("offset_min", lowest.to_bytes(8, "big"))
            extended["offset_max"] = max(one.offset for one in entries).to_bytes(8, "big")
        entry = FilerEntry(name, (*chunks, chunk._replace(position=position)), extended=extended)
        # `put` in memory removes the chunks that an entry no longer names: none is.
        await self.filer.put(self.directory, entry)

    def crash(self, next_offset: int) -> None:
        """Lose what is in memory, and count from a checkpoint."""
        self.memory = []
        self.next_offset = next_offset
        self.now_ns += 5 * NS


class ScriptedBroker(NativeBroker):
    """A broker in process that leads one partition."""

    def __init__(self, log: BrokerLog) -> None:
        """All works until `refuses` or `is_silent` is set."""
        self.log = log
        self.refuses = False
        self.loses_answers = False
        self.is_interrupted = False
        """Whether another publisher is between any two messages."""
        self.streams = 0

    async def open_stream(self, topic: NativeTopic, partition: int) -> PublishStream:
        if self.refuses:
            raise BrokerError("the broker is away")
        self.streams += 1
        return _Stream(self)

    async def unflushed(
        self, topic: NativeTopic, partition: int, start_offset: int
    ) -> Sequence[UnflushedEntry]:
        # The first one behind a flush is left out.
        memory = self.log.memory[1:] if self.log.has_flushed else self.log.memory
        return [UnflushedEntry(one.offset, one.ts_ns) for one in memory]

    async def fetch(
        self, topic: NativeTopic, partition: int, start_offset: int
    ) -> Sequence[FetchedMessage]:
        return [
            FetchedMessage(one.ts_ns, one.key, one.value)
            for one in self.log.memory
            if one.offset >= start_offset
        ]

    async def aclose(self) -> None:
        """Nothing is held."""


class _Stream(PublishStream):
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker

    async def publish(self, messages: Sequence[NativeMessage]) -> list[int]:
        from kgw.backend.seaweedmq.native.broker import PublishUnknownError

        broker = self._broker
        offsets = []
        for message in messages:
            offsets += broker.log.publish(bytes(message.value), key=bytes(message.key))
            if broker.is_interrupted:
                broker.log.publish(b"another's")
        if broker.loses_answers:
            raise PublishUnknownError("the stream has ended")
        return offsets

    async def aclose(self) -> None:
        """Nothing is held."""
