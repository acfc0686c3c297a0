"""Idempotent producers that crash a gateway, start it again and send what they have no answer to.

Some of them are transactional: all that they send is one transaction, which stays open.

What a life of the gateway is made of is told by whoever starts it: on a simulated disk (`retries`),
or as a process (`retry_kills`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.errors import ErrorCode
from kgw.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest
from kgw.testing.batches import make_batch, read_stored
from tests.handlers.support import fetch_request, produce_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from random import Random

    from kgw.protocol.schema import Request
    from kgw.testing.batches import StoredRecord
    from tests.campaigns.support import Report

TOPIC = "retried"
PARTITIONS = 2
PRODUCERS = 3
IN_FLIGHT = 5
"""What a client has on its way to a partition, and a server knows again."""
AGAIN_SHARE = 0.3
"""How often a client asks again for what it has an answer to: the answer came, and was lost."""
TRANSACTIONAL_SHARE = 0.35
TIMEOUT_MS = 900_000
"""Of their transactions: longer than a directory is used."""


class Batch(NamedTuple):
    """A batch as its producer sends it, every time with the same bytes."""

    producer_id: int
    partition: int
    base_sequence: int
    values: tuple[bytes, ...]
    transactional_id: str | None = None

    def records(self) -> bytes:
        """Return the bytes to send."""
        batch = make_batch(
            self.values,
            timestamps_ms=[1_700_000_000_000] * len(self.values),
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.base_sequence,
            is_transactional=self.transactional_id is not None,
        )
        return bytes(batch.buffer)

    def __str__(self) -> str:
        return (
            f"producer {self.producer_id} partition {self.partition} sequence {self.base_sequence}"
        )


class Clients:
    """Idempotent producers, and what they know."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.ids: list[int] = []
        """Every id that was handed out, in order."""
        self.silent: set[int] = set()
        """Those of producers that never send anything: no log knows them."""
        self.transactional: dict[int, str] = {}
        """The transactional ids of those producers that have one."""
        self.sent: dict[tuple[int, int], list[Batch]] = {}
        """By producer and partition, all batches in order."""
        self.answered: dict[Batch, int] = {}
        """The base offset of each batch that was answered."""
        self._number = 0
        self._names = 0

    def new_name(self) -> str | None:
        """Return the transactional id of a new producer, or None. None is used again."""
        if self._random.random() >= TRANSACTIONAL_SHARE:
            return None
        self._names += 1
        return f"copier-{self._names}"

    def next_batches(self) -> list[Batch]:
        """Return what the producers send next, their batches mixed, each partition's in order."""
        queues: list[list[Batch]] = []
        sending = [one for one in self.ids if one not in self.silent]
        for producer_id in sending[-PRODUCERS:]:
            for partition in self._random.sample(range(PARTITIONS), self._random.randint(1, 2)):
                own = self.sent.setdefault((producer_id, partition), [])
                queues.append([self._next(own, producer_id, partition) for _ in self._burst()])
        return self.mixed(queues)

    def _burst(self) -> range:
        return range(self._random.randint(1, IN_FLIGHT))

    def _next(self, own: list[Batch], producer_id: int, partition: int) -> Batch:
        sequence = own[-1].base_sequence + len(own[-1].values) if own else 0
        values: list[bytes] = []
        for _ in range(self._random.choice((1, 1, 2, 5))):
            self._number += 1
            values.append(b"%d." % self._number + b"." * self._random.choice((0, 30, 400)))
        name = self.transactional.get(producer_id)
        own.append(Batch(producer_id, partition, sequence, tuple(values), name))
        return own[-1]

    def unanswered(self) -> list[Batch]:
        """Return what has to be sent again, and at times of what need not: the last five."""
        queues: list[list[Batch]] = []
        for own in self.sent.values():
            last = own[-IN_FLIGHT:]
            if self._random.random() >= AGAIN_SHARE:
                last = [batch for batch in last if batch not in self.answered]
            queues.append(last)
        return self.mixed(queues)

    def mixed(self, queues: Sequence[list[Batch]]) -> list[Batch]:
        """Return batches of all queues in a random order that keeps that of each queue."""
        order = [which for which, queue in enumerate(queues) for _ in queue]
        self._random.shuffle(order)
        iterators = [iter(queue) for queue in queues]
        return [next(iterators[which]) for which in order]

    def forget_after(self, answered: dict[Batch, int], ids: int) -> None:
        """Know only what was known when the crash came."""
        self.answered = answered
        del self.ids[ids:]

    def check(self, stored: dict[int, list[StoredRecord]]) -> Iterator[str]:
        """Yield what is wrong with the log, once everything has been answered."""
        for partition, records in stored.items():
            offsets = {record.value: record.offset for record in records}
            counts = Counter(record.value for record in records)
            for value, count in counts.items():
                if count > 1:
                    yield f"DUPLICATE: {value[:20]!r} is stored {count} times"
            for (_, sent_to), own in self.sent.items():
                if sent_to != partition:
                    continue
                before = -1
                for batch in own:
                    if batch not in self.answered:
                        yield f"UNANSWERED: {batch}"
                        continue
                    for number, value in enumerate(batch.values):
                        offset = offsets.pop(value, None)
                        expected = self.answered[batch] + number
                        if offset is None:
                            yield f"LOST: {batch} was answered with {expected}"
                        elif offset != expected:
                            yield f"MOVED: {batch} is at {offset}, answered {expected}"
                        elif offset < before:
                            yield f"OUT OF ORDER: {batch} is at {offset}, after {before}"
                        before = expected
            for value in offsets:
                yield f"PHANTOM: {value[:20]!r}, which nobody has sent"


class Crash(ABC):
    """When one life of a gateway ends, and what everybody knows then."""

    @property
    @abstractmethod
    def has_come(self) -> bool:
        """Whether the crash has come: what is answered from now on, nobody hears."""

    @property
    @abstractmethod
    def came_at(self) -> str:
        """The place that it has come at; empty where somebody ended a life that went on."""

    @abstractmethod
    def arm(self) -> str:
        """Have it come at a place, and name the place."""

    @abstractmethod
    def answer(self) -> None:
        """An answer is on its way; it does not arrive when the crash comes now."""

    @abstractmethod
    def come(self) -> None:
        """Crash now, unless that has happened."""


class Life(ABC):
    """The lives of a gateway over one directory, each from its start to its crash."""

    def __init__(
        self, report: Report, random: Random, clients: Clients, *, is_relaxed: bool
    ) -> None:
        self._report = report
        self._random = random
        self._clients = clients
        self._is_relaxed = is_relaxed
        self._crash: Crash

    @abstractmethod
    def _serving(self) -> AbstractAsyncContextManager[None]:
        """Serve, with a new crash to come; at the end go on from what it has left."""

    @abstractmethod
    def _start(self, request: Request, version: int) -> Awaitable[Any]:
        """Begin a request; its answer is None when there is none any more."""

    @abstractmethod
    async def _checkpoint(self) -> None:
        """Make a checkpoint, with its snapshots of the producers' state."""

    async def run(self, *, is_first: bool) -> None:
        """Start, send again, check, go on, crash."""
        async with self._serving():
            if is_first:
                await self._create_topic()
            await self._live()
            self._crash.come()
        self._report.count("points")
        self._report.count(f"crashes_at: {self._crash.came_at or 'the end'}")

    async def _create_topic(self) -> None:
        mode = "relaxed" if self._is_relaxed else "strict"
        settings = {"kgw.durability": mode, "segment.bytes": "4096"}
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=name, value=settings[name]) for name in settings],
        )
        response = await self._start(CreateTopicsRequest(topics=[topic]), 5)
        assert ErrorCode.NONE == response.topics[0].error_code, response.topics[0].error_message

    async def _live(self) -> None:
        if self._random.random() < 0.25:
            self._arm("while_sending_again")
        await self._send_again()
        if not self._crash.has_come:
            await self._judge()
        if not self._crash.has_come:
            await self._new_producers()
        for _ in range(self._random.choice((0, 0, 1, 3))):
            await self._send_on()
        if self._random.random() < 0.4:
            await self._checkpoint()
        beside: list[Awaitable[object]] = []
        if not self._crash.has_come:
            self._arm("while_sending")
        if self._random.random() < 0.3:
            self._report.count("points_beside_a_checkpoint", not self._crash.has_come)
            beside.append(asyncio.ensure_future(self._checkpoint()))
        await self._send_on()
        await asyncio.gather(*beside)

    def _arm(self, when: str) -> None:
        self._report.count(f"points_at: {self._crash.arm()}")
        self._report.count(f"points_{when}")

    async def _send_on(self) -> None:
        # A client sends nothing new before it knows what became of the last five.
        if not self._crash.has_come:
            await self._send(self._clients.next_batches())

    async def _new_producers(self) -> None:
        """Get ids: for all at first, now and then for a new one, or one that never sends."""
        clients = self._clients
        await self._get_ids(PRODUCERS if not clients.ids else self._random.choice((0, 0, 1)))
        known = len(clients.ids)
        await self._get_ids(self._random.choice((0, 1)))
        clients.silent.update(clients.ids[known:])

    async def _get_ids(self, count: int) -> None:
        ids = self._clients.ids
        for _ in range(count):
            name = self._clients.new_name()
            request = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=TIMEOUT_MS
            )
            answer = await self._start(request, 4)
            if answer is None:
                return
            if name is not None:
                self._clients.transactional[answer.producer_id] = name
            self._report.count("producer_ids")
            if answer.error_code or answer.producer_id in ids:
                self._report.fail(f"producer id {answer.producer_id} was HANDED OUT TWICE")
            ids.append(answer.producer_id)

    async def _send(self, batches: Sequence[Batch]) -> dict[Batch, int]:
        """Send batches one behind the other, as a client does; return the answers."""
        pending = [self._start(*_produce(one)) for one in batches]
        answers = await asyncio.gather(*map(self._answer, batches, pending))
        return dict(zip(batches, answers, strict=True))

    async def _answer(self, batch: Batch, pending: Awaitable[Any]) -> int:
        """Take an answer: the base offset, -1 where there is none."""
        response = await pending
        self._crash.answer()
        if self._crash.has_come or response is None:
            return -1
        (answer,) = response.responses[0].partition_responses
        if answer.error_code:
            self._report.fail(f"{ErrorCode(answer.error_code).name} for {batch}")
            return -1
        self._clients.answered[batch] = answer.base_offset
        return int(answer.base_offset)

    async def _send_again(self) -> None:
        known = dict(self._clients.answered)
        stored = {
            record.value: record.offset
            for number in range(PARTITIONS)
            async for record in self._read(number)
        }
        for batch, offset in (await self._send(self._clients.unanswered())).items():
            is_stored = batch.values[0] in stored
            self._report.count("retries")
            self._report.count("retries_of_stored_batches", is_stored)
            self._report.count("retries_of_answered_batches", batch in known)
            is_transactional = is_stored and batch.transactional_id is not None
            self._report.count("retries_of_stored_transactional_batches", is_transactional)
            # What the campaign is about: the append was done, and its answer did not arrive.
            is_unheard = is_stored and batch not in known
            self._report.count("retries_of_stored_unanswered_batches", is_unheard)
            original = known.get(batch, stored.get(batch.values[0], offset))
            if offset not in (-1, original):
                self._report.fail(f"MOVED: {batch} was stored at {original}, now answered {offset}")

    async def _judge(self) -> None:
        stored = {
            number: [record async for record in self._read(number)] for number in range(PARTITIONS)
        }
        if self._crash.has_come:
            return
        for broken in self._clients.check(stored):
            self._report.fail(broken)
        self._report.count("records_looked_at", sum(map(len, stored.values())))

    async def _read(self, partition: int) -> AsyncIterator[StoredRecord]:
        """Yield what a consumer is served, as long as the gateway lives."""
        offset = 0
        while True:
            response = await self._start(fetch_request(offset, name=TOPIC, index=partition), 12)
            if response is None:
                return
            data = response.responses[0].partitions[0]
            if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                self._report.fail(f"{ErrorCode(data.error_code).name} for a fetch at {offset}")
                return
            records = read_stored([data.records] if data.records else [])
            for record in records:
                if record.offset >= offset:
                    yield record
            if not records and offset >= data.high_watermark:
                return
            # A relaxed log leaves offsets out after a crash.
            offset = records[-1].offset + 1 if records else offset + 1


def _produce(batch: Batch) -> tuple[Request, int]:
    """Return the request for a batch, and its version: the newer takes it into a transaction."""
    name = batch.transactional_id
    request = produce_request(
        batch.records(), name=TOPIC, index=batch.partition, transactional_id=name
    )
    return request, 9 if name is None else 12
