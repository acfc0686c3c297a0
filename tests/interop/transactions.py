"""Transactions of a client library, led through kills, and what readers find of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kgw.client import AsyncClient, GroupClient
from tests.interop.client import DriverError, Topic
from tests.interop.drivers.loop import Record
from tests.interop.scenario import START_MS, stored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

# What a producer says that another one has fenced, in the words of each library; sarama has none
# for PRODUCER_FENCED.
FENCED = r"(?i)^[^\n]*(fenc|epoch|newer|code = 90)"
COMMITTED = "read_committed"


class Place(NamedTuple):
    """What lies in one partition."""

    topic: Topic
    written: list[Record]
    committed: list[Record]


class Story:
    """A producer's transactions, each over three partitions of two topics.

    `kill` says when the gateway is killed, and started again: at the moments of that name.
    """

    def __init__(self, client: Client, gateway: GatewayProcess, name: str, kill: str = "") -> None:
        self.client = client
        self.gateway = gateway
        self.id = f"{name}-{client.name}-{kill}"
        self._kill = kill
        topics = [Topic(client, gateway, f"{self.id}-{kind}") for kind in ("orders", "notes")]
        for topic in topics:
            topic.create()
        orders, notes = topics
        self.places = [
            Place(topic, [], []) for topic in (orders, replace(orders, partition=0), notes)
        ]
        self._count = 0

    def moment(self, name: str) -> None:
        """Kills the gateway and starts it again, if the story is about this moment."""
        if name == self._kill:
            self.gateway.kill()
            self.gateway.start()

    def open(
        self, producer: str, client: Client | None = None, *, timeout_ms: int = 60_000
    ) -> None:
        """Opens a producer, which fences the one before."""
        (client or self.client).open_producer(
            producer,
            bootstrap=self.gateway.bootstrap,
            transactional_id=self.id,
            timeout_ms=timeout_ms,
        )

    def write(self, producer: str | None = None) -> None:
        """Writes some records to each partition, in a producer's transaction or in none."""
        for place in self.places:
            sent = self._records()
            offsets = place.topic.produce(sent, producer=producer, idempotent=True)
            place.written.extend(stored(sent, offsets))
            if producer is None:
                place.committed.extend(place.written[-len(sent) :])

    def begin(self, producer: str) -> None:
        """Begins a transaction with some records; nobody who reads committed ones has them."""
        starts = [len(place.written) for place in self.places]
        self.client.begin(producer)
        self.write(producer)
        firsts = [
            place.written[start].offset for start, place in zip(starts, self.places, strict=True)
        ]
        ends = [place.topic.bounds(COMMITTED)[1] for place in self.places]
        assert firsts == ends, f"open from {firsts} on, readable up to {ends}"
        self.moment("open")

    def transact(self, producer: str, *, commit: bool) -> None:
        """A whole transaction."""
        starts = [len(place.written) for place in self.places]
        self.begin(producer)
        self.client.end(producer, commit=commit)
        self.moment("ended")
        if commit:
            for start, place in zip(starts, self.places, strict=True):
                place.committed.extend(place.written[start:])

    def check(self, readers: Iterable[Client] = ()) -> None:
        """What the library itself and other readers find, with each isolation.

        The last records are committed, so that all before them have been given or left out.
        """
        for place in self.places:
            assert place.written[-1] == place.committed[-1]
            for reader in (self.client, *readers):
                self._check_reading(place, place.written, reader, "read_uncommitted")
                self._check_reading(place, place.committed, reader, COMMITTED)

    def _check_reading(
        self, place: Place, expected: list[Record], reader: Client, isolation: str
    ) -> None:
        found = replace(place.topic, client=reader).consume(0, len(expected), isolation)
        offsets = [[one.offset for one in records] for records in (expected, found)]
        where = f"{place.topic.name}-{place.topic.partition}"
        assert expected == found, f"{reader.name}, {isolation}, {where}: {offsets}"

    def _records(self) -> list[Record]:
        self._count += 1
        return [
            Record(b"key", b"%d of %d" % (number, self._count), [], START_MS + self._count)
            for number in range(3)
        ]


class Transformation:
    """Reads a topic in a group and writes what it makes of it, with the offsets, in transactions.

    `kill` is as a story's.
    """

    RECORDS = 10

    def __init__(self, client: Client, gateway: GatewayProcess, kill: str = "") -> None:
        self.client = client
        self.gateway = gateway
        self.id = f"transform-{client.name}-{kill}"
        self._kill = kill
        self.source = Topic(client, gateway, f"{self.id}-in")
        self.target = Topic(client, gateway, f"{self.id}-out")
        self.written: dict[tuple[int, int], bytes] = {}
        for topic in (self.source, self.target):
            topic.create()

    def write(self) -> None:
        """Writes more to be read."""
        for partition in range(2):
            values = [b"%d" % (len(self.written) + number) for number in range(self.RECORDS)]
            records = [Record(b"key", value, [], START_MS) for value in values]
            offsets = replace(self.source, partition=partition).produce(records)
            places = [(partition, offset) for offset in offsets]
            self.written.update(zip(places, values, strict=True))

    def run(self, *, commit: bool, kill: str = "") -> None:
        """Transforms what the group has not done yet, in one transaction of a new producer.

        Where a library's member has lost its group in a kill, nothing of it may be committed, and
        another one begins anew, as a program would.
        """
        for _ in range(3):
            try:
                self._run(commit=commit, kill=kill)
            except DriverError:
                if not kill:
                    raise
                kill = ""
                self.client.close_producer("worker")
            else:
                return
        raise AssertionError("aborted again and again")

    def committed(self) -> dict[int, int]:
        """What the group has committed, by partition, as the coordinator tells."""

        async def ask() -> dict[int, int]:
            async with AsyncClient([(self.gateway.host, self.gateway.port)]) as client:
                offsets = await GroupClient(client).offsets(self.id)
            return {partition: one.offset for (_, partition), one in offsets.items()}

        return asyncio.run(ask())

    def _run(self, *, commit: bool, kill: str) -> None:
        client = self.client
        client.open_producer(
            "worker",
            bootstrap=self.gateway.bootstrap,
            transactional_id=self.id,
            group=self.id,
            topic=self.source.name,
            strategy="range",
            isolation=COMMITTED,
        )
        before = self.committed()
        missing = {place for place in self.written if place[1] >= before.get(place[0], 0)}
        read: set[tuple[int, int]] = set()
        while not read >= missing:
            records, _ = client.poll_members(["worker"])["worker"]
            assert missing >= set(records), "what was committed came again"
            read.update(records)
        client.begin("worker")
        sent = [Record(b"key", self.written[place], [], START_MS) for place in sorted(read)]
        self.target.produce(sent, producer="worker")
        client.send_offsets("worker")
        assert before == self.committed(), "there before the transaction's end"
        self._moment("sent", kill)
        client.end("worker", commit=commit)
        self._moment("ended", kill)
        client.close_producer("worker")

    def _moment(self, name: str, kill: str) -> None:
        if name == kill:
            self.gateway.kill()
            self.gateway.start()
