"""What is produced, and the journal of it: which record got which offset."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from kgw.client import AdminClient, NewRecord, Producer, TransactionalClient
from kgw.pipeline.wire import WireClient
from kgw.records.batch import Compression

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.client import TransactionalProducer

PARTITIONS = 4
_FIRST_MS = 1_700_000_000_000
_MOST_IN_BATCH = 400
_TIMEOUT_MS = 60_000
_ID = "exactness-journal"


class Record(NamedTuple):
    """A committed record. No two records of a journal have the same time."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_type: int = 0


class Journal:
    """Fills one topic, and remembers what of it is committed."""

    def __init__(self, topic: str, seed: int) -> None:
        self.topic = topic
        self.records: list[Record] = []
        self._choices = Random(seed)
        self._next_ms = _FIRST_MS

    def create(self, address: str) -> None:
        """Create the topic."""
        with WireClient(address) as wire:
            wire.call(AdminClient(wire.client).create_topic(self.topic, partitions=PARTITIONS))

    def fill(self, address: str, count: int, *, with_transactions: bool = True) -> None:
        """Produce until so many more records are committed.

        Batches of each codec follow each other. With transactions a fifth of them are in one, and
        every other transaction is aborted.
        """
        with WireClient(address, retry_s=120.0) as wire:
            wire.call(self._fill(wire, len(self.records) + count, with_transactions))

    async def _fill(self, wire: WireClient, until: int, with_transactions: bool) -> None:
        transactions = TransactionalClient(wire.client)
        number = 0
        while len(self.records) < until:
            number += 1
            codec = list(Compression)[number % len(Compression)]
            batches = list(self._batches(until - len(self.records)))
            if not with_transactions or number % 5:
                await self._send(wire, codec, batches)
                continue
            producer = await transactions.begin(_ID, timeout_ms=_TIMEOUT_MS)
            is_commit = number % 10 == 0
            await self._send(wire, codec, batches, producer, is_kept=is_commit)
            await transactions.end(producer, is_commit=is_commit)

    async def _send(
        self,
        wire: WireClient,
        codec: Compression,
        batches: Sequence[tuple[int, list[NewRecord]]],
        producer: TransactionalProducer | None = None,
        *,
        is_kept: bool = True,
    ) -> None:
        async with Producer(wire.client, compression=codec, transaction=producer) as sender:
            answers = [await sender.send(self.topic, *batch) for batch in batches]
        for (partition, batch), answer in zip(batches, answers, strict=True):
            first = (await answer).base_offset
            if is_kept:
                self.records += [
                    Record(
                        partition,
                        first + index,
                        one.timestamp_ms,
                        one.key,
                        one.value,
                        tuple(one.headers),
                    )
                    for index, one in enumerate(batch)
                ]

    def _batches(self, left: int) -> Iterator[tuple[int, list[NewRecord]]]:
        for partition in range(PARTITIONS):
            length = min(left, self._choices.randint(1, _MOST_IN_BATCH))
            if length:
                yield partition, [self._record() for _ in range(length)]
            left -= length

    def _record(self) -> NewRecord:
        """Return a record like no other: keys repeat, some parts are null, and some are empty."""
        draw = self._choices
        self._next_ms += 1
        shape = draw.randrange(20)
        key = {0: None, 1: b""}.get(shape, b"key-%d" % draw.randrange(1000))
        text = b"%d %s" % (self._next_ms, b"what a record says, " * draw.randrange(4))
        value = {2: None, 3: b""}.get(shape, text + draw.randbytes(draw.randrange(60)))
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if shape in {4, 5, 6}:
            headers = (("trace", draw.randbytes(8)), ("none", None), ("trace", b""))[: shape - 3]
        return NewRecord(key, value, self._next_ms, headers)
