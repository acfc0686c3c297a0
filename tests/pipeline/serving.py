"""A gateway in a thread, and topics in it, for tests of code that blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kgw.client import AdminClient, NewRecord, Producer
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.wire import WireClient
from kgw.records.batch import Compression
from tests.client.serving import ServerThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kgw.config import Value
    from kgw.gateway import Gateway


class ServedTopics:
    """A gateway in memory on a free port of this machine, and what tests do to its topics."""

    def __init__(self, **settings: Value) -> None:
        self._server = ServerThread(**settings)

    def __enter__(self) -> Self:
        self._server.__enter__()
        self.address = self._server.address
        self.wire = WireClient(self.address)
        self.admin = AdminClient(self.wire.client)
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()
        self._server.__exit__()

    @property
    def cluster(self) -> Cluster:
        """The gateway as tasks of jobs connect to it."""
        return Cluster(self.address)

    @property
    def gateway(self) -> Gateway:
        """The gateway itself, for tests that spoil its storage."""
        return self._server.gateway

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic."""
        self.wire.call(self.admin.create_topic(topic, partitions=partitions))

    def add_partitions(self, topic: str, count: int) -> None:
        """Give a topic so many partitions."""
        self.wire.call(self.admin.create_partitions(topic, count))
        # The client remembers how many there were until it asks again.
        self.wire.find_topic(topic)

    def produce(
        self,
        topic: str,
        records: Mapping[int, Iterable[NewRecord]],
        compression: Compression = Compression.NONE,
    ) -> None:
        """Store a batch in each of some partitions."""

        async def send() -> None:
            async with Producer(self.wire.client, compression=compression) as producer:
                for partition, batch in records.items():
                    await (await producer.send(topic, partition, batch))

        self.wire.call(send())

    def number(
        self,
        topic: str,
        counts: Mapping[int, int],
        *,
        first: int = 0,
        record: Callable[[int, int], NewRecord] | None = None,
    ) -> None:
        """Store so many records in partitions, told apart by partition and number."""
        make = record or numbered
        self.produce(
            topic,
            {
                partition: [make(partition, first + index) for index in range(count)]
                for partition, count in counts.items()
            },
        )


def numbered(partition: int, index: int) -> NewRecord:
    """Return a record that says where it is from; its time in ms is its number."""
    return NewRecord(b"%d" % index, b"%d-%d" % (partition, index), index)
