"""What clients do to a gateway before the power goes, and what they were promised.

Everything is asked in raw requests, so that the answer which promises a thing is known by its
connection and correlation id, and can be found in the trace of the server that sent it.
"""

from __future__ import annotations

import ast
import asyncio
import time
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kgw.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kgw.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kgw.protocol.messages.delete_topics import DeleteTopicsRequest
from kgw.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kgw.testing.batches import make_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from random import Random

    from kgw.protocol.schema import Request, Response

    Ask = Callable[[Request, int], Awaitable[Response]]
    """Sends a request in a version and returns its answer."""

ResponseT = TypeVar("ResponseT")

MANY: Final = "many"
SINGLE: Final = "single"
RELAXED: Final = "relaxed"
ROLLING: Final = "rolling"
COMPACTED: Final = "compacted"
BEGUN_LATER: Final = "begun-later"
FLUSH_MS: Final = 60
PARTITIONS: Final = {MANY: 12, SINGLE: 1, RELAXED: 3, ROLLING: 2, COMPACTED: 1, BEGUN_LATER: 1}
TOPIC_SETTINGS: Final[dict[str, dict[str, str]]] = {
    MANY: {},
    SINGLE: {},
    RELAXED: {"kgw.durability": "relaxed", "kgw.flush.ms": str(FLUSH_MS)},
    ROLLING: {"segment.bytes": "4000", "retention.bytes": "16000", "file.delete.delay.ms": "50"},
    COMPACTED: {
        "cleanup.policy": "compact",
        "segment.bytes": "4000",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "50",
    },
    BEGUN_LATER: {},
}
KEYS: Final = 8
CHANGED_SETTING: Final = "max.message.bytes"
_TOPIC_RESOURCE: Final = 2
_EARLIEST: Final = -2

Place = tuple[int, int]
"""Where an answer is found: the client's port and the correlation id."""


class Batch(NamedTuple):
    """One batch of records; `offset` is -1 where there was no answer."""

    place: Place
    worker: str
    topic: str
    partition: int
    key: bytes | None
    values: tuple[bytes, ...]
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    offset: int = -1
    sent_s: float = 0.0
    """When, by the wall clock."""

    def encoded(self) -> bytes:
        """Return the bytes, the same each time."""
        keys = [self.key] * len(self.values)
        return bytes(
            make_batch(
                self.values,
                keys=keys,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
            ).buffer
        )

    def request(self, acks: int = -1) -> ProduceRequest:
        """Return what stores it."""
        data = PartitionProduceData(index=self.partition, records=self.encoded())
        topic = TopicProduceData(name=self.topic, partition_data=[data])
        return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


class Change(NamedTuple):
    """One change of what has one value at a time; one worker makes all changes of a subject.

    A subject is a topic ("topic", name), with its number of partitions or 0 for none; a setting
    ("setting", topic, name); a committed offset ("commit", group, topic, partition); a log's start
    ("start", topic, partition).
    """

    place: Place
    subject: tuple[str | int, ...]
    value: str | int


class Given(NamedTuple):
    """A producer id that was given to a client."""

    place: Place
    producer_id: int


class Seen(NamedTuple):
    """Where a log that retention cuts began, as the gateway said."""

    place: Place
    topic: str
    partition: int
    log_start_offset: int


_KINDS: Final = {kind.__name__: kind for kind in (Batch, Change, Given, Seen)}


class Book:
    """Everything that was asked for, in the order of each worker."""

    def __init__(self, entries: Iterable[Batch | Change | Given | Seen] = ()) -> None:
        self.entries = list(entries)

    def batches(self) -> list[Batch]:
        """Return the batches that were sent."""
        return [entry for entry in self.entries if isinstance(entry, Batch)]

    def changes(self) -> dict[tuple[str | int, ...], list[Change]]:
        """Return the changes of each subject, in order."""
        found: dict[tuple[str | int, ...], list[Change]] = {}
        for entry in self.entries:
            if isinstance(entry, Change):
                found.setdefault(entry.subject, []).append(entry)
        return found

    def dump(self) -> str:
        """Return it as text."""
        return "".join(f"{(type(entry).__name__, *entry)!r}\n" for entry in self.entries)

    @classmethod
    def load(cls, text: str) -> Book:
        """Return what `dump` was given."""
        rows: list[tuple[str, Any]] = [ast.literal_eval(line) for line in text.splitlines()]
        return cls(_KINDS[name](*fields) for name, *fields in rows)


class Wire:
    """A connection that sends requests in order, several before an answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._port: int = writer.get_extra_info("sockname")[1]
        self._waiting: deque[tuple[int, int]] = deque()
        self._sent = 0

    @classmethod
    async def open(cls, host: str, port: int) -> Wire:
        """Connect."""
        return cls(*await asyncio.open_connection(host, port))

    def send(self, message: Request, version: int) -> Place:
        """Send a request; returns where its answer will be found."""
        self._sent += 1
        self._writer.writelines(request_frame(message, version, self._sent, "power-loss"))
        self._waiting.append((message.api_key, version))
        return self._port, self._sent

    async def receive(self) -> Response:
        """Return the answer to the oldest request without one. Raises OSError, EOFError."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        return decode_response(frame, *self._waiting.popleft())[1]

    async def ask(self, message: Request, version: int) -> Response:
        """Send a request and return its answer."""
        self.send(message, version)
        return await self.receive()

    async def aclose(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()


def error_codes(answer: object) -> list[int]:
    """Return every error code in an answer, whatever it answers."""
    if isinstance(answer, list):
        return [code for one in answer for code in error_codes(one)]
    fields: Mapping[str, object] = getattr(answer, "__dict__", None) or {
        name: getattr(answer, name)
        for name in getattr(type(answer), "__slots__", ())
        if hasattr(answer, name)
    }
    found: list[int] = []
    for name, value in fields.items():
        if name == "error_code":
            found.append(int(str(value)))
        elif isinstance(value, list):
            found += error_codes(value)
    return found


class RefusedError(Exception):
    """A gateway with which nothing is wrong has refused a request."""


def checked(answer: Response, kind: type[ResponseT]) -> ResponseT:
    """Return an answer that has no error. Raises RefusedError."""
    if not isinstance(answer, kind) or any(error_codes(answer)):
        raise RefusedError(f"{answer}")
    return answer


def create_request(name: str, partitions: int, settings: Mapping[str, str]) -> CreateTopicsRequest:
    """Return what creates a topic."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=configs
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def commit_request(
    group: str, offsets: Mapping[int, int], topic: str = MANY
) -> OffsetCommitRequest:
    """Return what commits offsets of partitions of one topic."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=f"at-{offset}"
        )
        for partition, offset in offsets.items()
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    return OffsetCommitRequest(group_id=group, topics=topics)


def setting_request(topic: str, name: str, value: str) -> IncrementalAlterConfigsRequest:
    """Return what sets a setting of a topic."""
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


class Work:
    """Workers, each with a connection of its own, all at once; `steps` says how much each does.

    That is half of it for those who administer and take ids, twice or three times of it for some
    who write. What is compacted is written to for `linger_s` at least.
    """

    def __init__(
        self, random: Random, host: str, port: int, steps: int, linger_s: float = 0
    ) -> None:
        self.book = Book()
        self._random = random
        self._address = (host, port)
        self._steps = steps
        self._linger_s = linger_s
        self._wires: list[Wire] = []

    async def run(self) -> None:
        """Do all of it. Raises RefusedError."""
        try:
            admin = await self._wire()
            for name, partitions in PARTITIONS.items():
                if name != BEGUN_LATER:
                    await self._create(admin, name, partitions)
            async with asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(self._produce_many(f"many-{number}"))
                group.create_task(self._produce_single())
                for number in range(2):
                    group.create_task(self._produce_relaxed(f"relaxed-{number}"))
                    group.create_task(self._commit(f"group-{number}"))
                group.create_task(self._roll())
                group.create_task(self._compact())
                group.create_task(self._cut())
                group.create_task(self._administer(admin))
                group.create_task(self._take_ids())
            await self._look_at_starts(admin)
        finally:
            for wire in self._wires:
                await wire.aclose()

    async def _wire(self) -> Wire:
        wire = await Wire.open(*self._address)
        self._wires.append(wire)
        return wire

    async def _change(
        self,
        wire: Wire,
        request: Request,
        version: int,
        values: Mapping[tuple[str | int, ...], str | int],
    ) -> None:
        place = wire.send(request, version)
        self.book.entries += [Change(place, subject, value) for subject, value in values.items()]
        checked(await wire.receive(), object)

    async def _create(self, wire: Wire, name: str, partitions: int) -> None:
        settings = TOPIC_SETTINGS.get(name, {})
        request = create_request(name, partitions, settings)
        await self._change(wire, request, 5, {("topic", name): partitions})

    async def _produce(self, wire: Wire, batches: list[Batch]) -> list[int]:
        """Send batches one behind the other and note what is answered; returns their offsets."""
        random = self._random
        sent: list[int] = []
        for batch in batches:
            place = wire.send(batch.request(random.choice((-1, 1))), 9)
            sent.append(len(self.book.entries))
            self.book.entries.append(batch._replace(place=place, sent_s=time.time()))
        offsets: list[int] = []
        for number in sent:
            answer = checked(await wire.receive(), ProduceResponse)
            offset = answer.responses[0].partition_responses[0].base_offset
            entry = self.book.entries[number]
            assert isinstance(entry, Batch)
            self.book.entries[number] = entry._replace(offset=offset)
            offsets.append(offset)
        return offsets

    def _values(self, worker: str, number: int, sizes: tuple[int, ...]) -> tuple[bytes, ...]:
        random = self._random
        return tuple(
            b"%s/%d/%d;" % (worker.encode(), number, at) + random.randbytes(random.choice(sizes))
            for at in range(random.choice((1, 1, 3)))
        )

    async def _new_id(self, wire: Wire) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        place = wire.send(request, 4)
        answer = checked(await wire.receive(), InitProducerIdResponse)
        self.book.entries.append(Given(place, answer.producer_id))
        return answer.producer_id, answer.producer_epoch

    async def _produce_many(self, worker: str) -> None:
        """Small batches to many partitions: a group of them goes through the journal."""
        wire = await self._wire()
        producer = await self._new_id(wire)
        sequences = [0] * PARTITIONS[MANY]
        for number in range(self._steps):
            batches = []
            for at in range(self._random.choice((1, 3, 6))):
                partition = self._random.randrange(PARTITIONS[MANY])
                values = self._values(worker, 10 * number + at, (10, 300, 300, 5_000))
                place = ((0, 0), worker, MANY, partition, None, values)
                batches.append(Batch(*place, *producer, sequences[partition]))
                sequences[partition] += len(values)
            await self._produce(wire, batches)

    async def _produce_single(self) -> None:
        """Large batches to one partition: its segment is synced itself."""
        wire = await self._wire()
        producer = await self._new_id(wire)
        sequence = 0
        for number in range(self._steps):
            values = self._values("single", number, (100, 40_000, 90_000))
            batch = Batch((0, 0), "single", SINGLE, 0, None, values, *producer, sequence)
            sequence += len(values)
            await self._produce(wire, [batch])

    async def _produce_relaxed(self, worker: str) -> None:
        wire = await self._wire()
        for number in range(3 * self._steps):
            partition = self._random.randrange(PARTITIONS[RELAXED])
            values = self._values(worker, number, (10, 300, 3_000))
            await self._produce(wire, [Batch((0, 0), worker, RELAXED, partition, None, values)])
            await asyncio.sleep(self._random.random() * 0.01)

    async def _roll(self) -> None:
        """Fill segments that retention removes."""
        wire = await self._wire()
        for number in range(2 * self._steps):
            values = self._values("roll", number, (500, 1_500))
            partition = number % PARTITIONS[ROLLING]
            await self._produce(wire, [Batch((0, 0), "roll", ROLLING, partition, None, values)])

    async def _compact(self) -> None:
        """Fill segments of which compaction leaves little."""
        wire = await self._wire()
        until_s = time.monotonic() + self._linger_s
        for number in count():
            if number >= 2 * self._steps and time.monotonic() >= until_s:
                break
            key = b"key-%d" % self._random.randrange(KEYS)
            value = b"compact/%d;" % number + self._random.randbytes(700)
            await self._produce(wire, [Batch((0, 0), "compact", COMPACTED, 0, key, (value,))])
            await asyncio.sleep(0.005)

    async def _cut(self) -> None:
        """Write to a topic that is created beside everything else, and delete its records."""
        wire = await self._wire()
        await self._create(wire, BEGUN_LATER, 1)
        for number in range(self._steps):
            values = self._values("cut", number, (10, 300))
            batch = Batch((0, 0), "cut", BEGUN_LATER, 0, None, values)
            (offset,) = await self._produce(wire, [batch])
            if number % 4 == 3:
                partition = DeleteRecordsPartition(partition_index=0, offset=offset)
                topic = DeleteRecordsTopic(name=BEGUN_LATER, partitions=[partition])
                request = DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
                await self._change(wire, request, 2, {("start", BEGUN_LATER, 0): offset})

    async def _commit(self, group: str) -> None:
        wire = await self._wire()
        for number in range(1, self._steps + 1):
            partitions = self._random.sample(range(PARTITIONS[MANY]), 3)
            offsets = {partition: 100 * number + partition for partition in partitions}
            values: dict[tuple[str | int, ...], str | int] = {
                ("commit", group, MANY, at): offset for at, offset in offsets.items()
            }
            await self._change(wire, commit_request(group, offsets), 8, values)

    async def _administer(self, wire: Wire) -> None:
        """Create topics, change them, delete some again."""
        for number in range(self._steps // 2):
            name = f"made-{number}"
            await self._create(wire, name, self._random.choice((1, 3)))
            value = str(100_000 + number)
            request = setting_request(name, CHANGED_SETTING, value)
            await self._change(wire, request, 1, {("setting", name, CHANGED_SETTING): value})
            if number % 3 == 1:
                await self._change(
                    wire,
                    DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000),
                    5,
                    {("setting", name, CHANGED_SETTING): "", ("topic", name): 0},
                )
            elif number % 3 == 2:
                topic = CreatePartitionsTopic(name=name, count=5, assignments=None)
                more = CreatePartitionsRequest(topics=[topic], timeout_ms=30_000)
                await self._change(wire, more, 3, {("topic", name): 5})

    async def _take_ids(self) -> None:
        wire = await self._wire()
        for _ in range(self._steps // 2):
            await self._new_id(wire)

    async def _look_at_starts(self, wire: Wire) -> None:
        for topic in (ROLLING, COMPACTED):
            for partition in range(PARTITIONS[topic]):
                asked = ListOffsetsPartition(partition_index=partition, timestamp=_EARLIEST)
                request = ListOffsetsRequest(
                    replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
                )
                place = wire.send(request, 5)
                answer = checked(await wire.receive(), ListOffsetsResponse)
                start = answer.topics[0].partitions[0].offset
                self.book.entries.append(Seen(place, topic, partition, start))
