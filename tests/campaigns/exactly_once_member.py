"""One process of an exactly-once pipeline: a worker that transforms, or a reader of what came out.

Run as `python -m tests.campaigns.exactly_once_member LIBRARY OPTIONS` in the environment of a
client library; OPTIONS is a JSON object. A worker has bootstrap, group, source, target, partitions
(of the target), transactional_id (null: at least once, with plain commits), transaction_ms and
seed; a reader has bootstrap, target and partitions. Each line of output is a JSON object; `at` says
what has happened:

    ready
    begun       transaction, records: [[partition, text]], offsets: [[partition, offset]],
                generation (null where the library does not tell)
    sent        transaction, offsets: one for each record    they were acknowledged
    offsets     transaction, generation                      they are part of it
    ending      transaction                                  its commit is about to be sent
    ended       transaction, outcome: ok | fail | info, why
    stopping    place                                        it stops itself at once
    woken
    stale       places, told: [[partition, offset, committed]]    the library went on elsewhere than
                where the group is, which the worker has put right: by itself, in partitions that
                it kept (places), or where it had asked how far the group was (told)
    polled      records: [[partition, offset, text]]
    gone        why

What a worker makes of a record is `transaction|partition|offset|value`, with the place that it was
read at and the value turned round. It ends when its producer is fenced, or when anything else goes
wrong but a transaction that could be aborted: whoever started it starts another one, under the same
transactional id.

SIGTERM lets it leave. SIGUSR1 lets a worker stop itself (SIGSTOP) in the middle of its next
transaction, now before it has sent its offsets and now behind it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SESSION_MS = 3_000
HEARTBEAT_MS = 300
REBALANCE_MS = 4_000
REQUEST_MS = 12_000
"""Longer than a fault lasts: an EndTxn that was given up and arrives late, and then once more, may
end the next transaction, with the version of transactions that these libraries speak (KIP-890)."""
PATIENCE_S = 20.0
"""How long a library may try again: longer than a fault lasts."""
POLL_S = 0.1
BATCH = 60
LEAVE_S = 2.0
ABORT_SHARE = 0.08
PLACES = ("sent", "offsets")
ON_PURPOSE = "on purpose"

Offsets = dict[int, int]


class Input(NamedTuple):
    """A record of the source."""

    partition: int
    offset: int
    value: str


class Fenced(Exception):  # noqa: N818 - it is no error of the worker's
    """Another process has this worker's transactional id now."""


class Spent(Exception):  # noqa: N818 - the transaction was aborted as it should be
    """The library's producer cannot be used again."""


def say(at: str, **fields: object) -> None:
    """Write one line, whole and at once."""
    sys.stdout.write(json.dumps({"at": at, **fields}) + "\n")
    sys.stdout.flush()


def is_fenced(error: BaseException) -> bool:
    """Whether a library says that another producer has come, in whatever way."""
    what = f"{type(error).__name__} {error}".lower()
    return "fenced" in what or "producerepoch" in what or "producer_epoch" in what


def transformed(transaction: str, one: Input) -> str:
    """What is made of a record."""
    return f"{transaction}|{one.partition}|{one.offset}|{one.value[::-1]}"


class Worker(Protocol):
    """A member of a group, and the producers of what it makes."""

    survives_errors: bool
    """Whether its producer can be used again once a transaction was aborted for an error."""

    def poll(self) -> list[list[Input]]:
        """Read what comes, in parts that are a transaction each."""

    def begin(self, part: list[Input]) -> None:
        """Begin a transaction for these."""

    def send(self, records: list[tuple[int, str]]) -> list[int]:
        """Send to the target and wait; the offsets."""

    def send_offsets(self, offsets: Offsets) -> None:
        """Make offsets of the source part of the transaction."""

    def generation(self) -> int | None:
        """Return the generation of the group that it is in, if the library tells."""

    def end(self, *, commit: bool) -> None:
        """Commit or abort."""

    def rewind(self, partitions: Iterable[int]) -> None:
        """Read on from what is committed."""

    def close(self) -> None:
        """Leave."""


class Reader(Protocol):
    """A reader of committed records of all partitions of the target, from their start."""

    def poll(self) -> list[tuple[int, int, str]]:
        """Read what comes: partition, offset, text."""

    def close(self) -> None:
        """End."""


# --- confluent-kafka ------------------------------------------------------------------------------


def confluent_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What its clients have in common."""
    return {
        "bootstrap.servers": options["bootstrap"],
        "socket.timeout.ms": REQUEST_MS,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 300,
        "retry.backoff.ms": 50,
        "topic.metadata.refresh.fast.interval.ms": 100,
        # When it has lost every connection, librdkafka 2.16 forgets the brokers to ask for them
        # anew, and a send_offsets_to_transaction that is under way never returns.
        "metadata.recovery.strategy": "none",
    }


def confluent_consumer(options: Mapping[str, Any], group: str, **more: object) -> Any:
    """A consumer that reads committed records."""
    from confluent_kafka import Consumer

    return Consumer(
        {
            **confluent_settings(options),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            **more,
        }
    )


class ConfluentWorker:
    """confluent-kafka."""

    survives_errors = True

    def __init__(self, options: dict[str, Any]) -> None:
        from confluent_kafka import Producer

        self._options = options
        transactional: dict[str, Any] = {
            "transactional.id": options["transactional_id"],
            "transaction.timeout.ms": options["transaction_ms"],
        }
        is_transactional = options["transactional_id"] is not None
        self._producer = Producer(
            {
                **confluent_settings(options),
                "enable.idempotence": True,
                "linger.ms": 0,
                **(transactional if is_transactional else {}),
            }
        )
        if is_transactional:
            self._producer.init_transactions(PATIENCE_S)
        # What came before a round is not of the assignment that it gives.
        self._round = 0
        self._owned_since: dict[int, int] = {}
        self._consumer = confluent_consumer(
            options,
            options["group"],
            **{
                "partition.assignment.strategy": "range",
                "session.timeout.ms": SESSION_MS,
                "max.poll.interval.ms": REBALANCE_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            },
        )
        self._consumer.subscribe(
            [options["source"]],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def _assigned(self, _: object, partitions: list[Any]) -> None:
        self._round += 1
        self._owned_since |= {one.partition: self._round for one in partitions}

    def _revoked(self, _: object, partitions: list[Any]) -> None:
        self._round += 1
        for one in partitions:
            self._owned_since.pop(one.partition, None)

    def poll(self) -> list[list[Input]]:
        """Read what comes."""
        from confluent_kafka import KafkaException

        found: list[Input] = []
        current, until_s = self._round, time.monotonic() + POLL_S
        while len(found) < BATCH and time.monotonic() < until_s:
            one = self._consumer.poll(0.02)
            if self._round != current:
                # A round came before this record. It is read again unless it stayed here.
                found = [
                    old for old in found if self._owned_since.get(old.partition, 1 << 60) <= current
                ]
                current = self._round
            if one is None:
                continue
            if one.error() is None:
                found.append(Input(one.partition(), one.offset(), one.value().decode()))
            elif one.error().fatal() or one.error().name() == "_FATAL":
                raise KafkaException(one.error())
        return [found] if found else []

    def begin(self, part: list[Input]) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def send(self, records: list[tuple[int, str]]) -> list[int]:
        """Send and wait."""
        from confluent_kafka import KafkaException

        offsets: dict[int, int] = {}
        failures: list[Any] = []

        def delivered(number: int, error: Any, message: Any) -> None:
            if error is None:
                offsets[number] = message.offset()
            else:
                failures.append(error)

        for number, (partition, text) in enumerate(records):
            self._producer.produce(
                self._options["target"],
                text.encode(),
                partition=partition,
                on_delivery=lambda error, message, number=number: delivered(number, error, message),
            )
        left = self._producer.flush(PATIENCE_S)
        if failures:
            raise KafkaException(failures[0])
        if left:
            raise TimeoutError(f"{left} records were not answered")
        return [offsets[number] for number in range(len(records))]

    def _places(self, offsets: Offsets) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(self._options["source"], *place) for place in offsets.items()]

    def send_offsets(self, offsets: Offsets) -> None:
        """With member and generation."""
        who = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(self._places(offsets), who, PATIENCE_S)

    def generation(self) -> int | None:
        """The library keeps it to itself."""
        return None

    def end(self, *, commit: bool) -> None:
        """Commit or abort."""
        if commit:
            self._producer.commit_transaction(PATIENCE_S)
        else:
            self._producer.abort_transaction(PATIENCE_S)

    def rewind(self, partitions: Iterable[int]) -> None:
        """Read on from what is committed."""
        owned = self._places({one: 0 for one in partitions if one in self._owned_since})
        for place in self._consumer.committed(owned, PATIENCE_S) if owned else ():
            place.offset = max(place.offset, 0)
            self._consumer.seek(place)

    def close(self) -> None:
        """Leave; what was not sent would be tried for as long as the producer lives."""
        self._consumer.close()
        self._producer.purge()


class PlainConfluentWorker(ConfluentWorker):
    """At least once: the output first, then a plain commit."""

    def begin(self, part: list[Input]) -> None:
        """There is nothing to begin."""

    def send_offsets(self, offsets: Offsets) -> None:
        """Commit them."""
        from confluent_kafka import KafkaException

        for place in self._consumer.commit(offsets=self._places(offsets), asynchronous=False):
            if place.error is not None:
                raise KafkaException(place.error)

    def end(self, *, commit: bool) -> None:
        """There is nothing to end."""


class ConfluentReader:
    """confluent-kafka."""

    def __init__(self, options: dict[str, Any]) -> None:
        from confluent_kafka import TopicPartition

        self._consumer = confluent_consumer(options, "unused")
        partitions = range(options["partitions"])
        self._consumer.assign([TopicPartition(options["target"], one, 0) for one in partitions])

    def poll(self) -> list[tuple[int, int, str]]:
        """Read what comes."""
        found = self._consumer.consume(500, POLL_S)
        return [
            (one.partition(), one.offset(), one.value().decode())
            for one in found
            if one.error() is None
        ]

    def close(self) -> None:
        """End."""
        self._consumer.close()


# --- kafka-python 3 -------------------------------------------------------------------------------


def kafka_python_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What its clients have in common."""
    return {
        "bootstrap_servers": options["bootstrap"],
        "retry_backoff_ms": 50,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 300,
    }


def kafka_python_consumer(options: Mapping[str, Any], **more: object) -> Any:
    """A consumer that reads committed records."""
    from kafka import KafkaConsumer

    return KafkaConsumer(
        **kafka_python_settings(options),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=100,
        # A round of the group may take as long as REBALANCE_MS.
        request_timeout_ms=REBALANCE_MS + 1_000,
        **more,
    )


class KafkaPythonWorker:
    """kafka-python 3.

    3.0.12 goes on from its old positions when it is put out of its group while it joins, whoever
    had the partitions meanwhile. So each round begins where the group is.
    """

    # 3.0.12 keeps offsets that the group has refused, and commits them with the next transaction's.
    survives_errors = False

    def __init__(self, options: dict[str, Any]) -> None:
        from kafka import ConsumerRebalanceListener, KafkaProducer

        from tests.interop.drivers.kafka_python import assignors

        worker = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: set[Any]) -> None:
                pass

            def on_partitions_lost(self, lost: set[Any]) -> None:
                worker._owned = set()

            def on_partitions_assigned(self, assigned: set[Any]) -> None:
                # Of the others it has asked how far the group is.
                worker._kept = worker._owned & assigned
                worker._owned = assigned
                worker._is_new_round = True

        self._options = options
        self._is_new_round = False
        self._owned: set[Any] = set()
        self._kept: set[Any] = set()
        self._producer = KafkaProducer(
            **kafka_python_settings(options),
            transactional_id=options["transactional_id"],
            transaction_timeout_ms=options["transaction_ms"],
            request_timeout_ms=REQUEST_MS,
            delivery_timeout_ms=int(PATIENCE_S * 1_000),
            max_block_ms=int(PATIENCE_S * 1_000),
        )
        self._producer.init_transactions()
        self._consumer = kafka_python_consumer(
            options,
            group_id=options["group"],
            partition_assignment_strategy=assignors("range"),
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=REBALANCE_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        self._consumer.subscribe([options["source"]], listener=Listener())

    def poll(self) -> list[list[Input]]:
        """Read what comes. Rounds end before records are taken, so these belong to the new one."""
        # 3.0 begins to join anew at each poll whose time is too short for a round.
        found = self._consumer.poll(timeout_ms=int(POLL_S * 8_000), max_records=BATCH)
        if self._is_new_round:
            self._is_new_round = False
            self._begin_round({place: records[0].offset for place, records in found.items()})
            return []
        part = [
            Input(one.partition, one.offset, one.value.decode())
            for records in found.values()
            for one in records
        ]
        return [part] if part else []

    def _begin_round(self, read_from: Mapping[Any, int]) -> None:
        """Go to where the group is in all partitions, and say where the library has not."""
        stale: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}
        for place in self._consumer.assignment():
            committed = self._consumer.committed(place) or 0
            self._consumer.seek(place, committed)
            offset = read_from.get(place, committed)
            if offset != committed:
                stale[place in self._kept].append((place.partition, offset, committed))
        if any(stale.values()):
            say("stale", places=stale[True], told=stale[False])

    def begin(self, part: list[Input]) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def send(self, records: list[tuple[int, str]]) -> list[int]:
        """Send and wait."""
        futures = [
            self._producer.send(self._options["target"], text.encode(), partition=partition)
            for partition, text in records
        ]
        return [future.get(timeout=PATIENCE_S).offset for future in futures]

    def send_offsets(self, offsets: Offsets) -> None:
        """With member and generation."""
        from kafka import OffsetAndMetadata, TopicPartition

        places = {
            TopicPartition(self._options["source"], one): OffsetAndMetadata(offset, "", -1)
            for one, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(places, self._consumer.group_metadata())

    def generation(self) -> int | None:
        """As its next offsets would be sent."""
        generation: int = self._consumer.group_metadata().generation_id
        return generation

    def end(self, *, commit: bool) -> None:
        """Commit or abort."""
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def rewind(self, partitions: Iterable[int]) -> None:
        """Read on from what is committed."""
        from kafka import TopicPartition

        for one in partitions:
            place = TopicPartition(self._options["source"], one)
            if place in self._consumer.assignment():
                self._consumer.seek(place, self._consumer.committed(place) or 0)

    def close(self) -> None:
        """Leave."""
        self._consumer.close(autocommit=False)
        self._producer.close(timeout=LEAVE_S)


class KafkaPythonReader:
    """kafka-python 3."""

    def __init__(self, options: dict[str, Any]) -> None:
        from kafka import TopicPartition

        self._consumer = kafka_python_consumer(options)
        places = [TopicPartition(options["target"], one) for one in range(options["partitions"])]
        self._consumer.assign(places)
        for place in places:
            self._consumer.seek(place, 0)

    def poll(self) -> list[tuple[int, int, str]]:
        """Read what comes."""
        found = self._consumer.poll(timeout_ms=int(POLL_S * 1_000), max_records=500)
        return [
            (one.partition, one.offset, one.value.decode())
            for records in found.values()
            for one in records
        ]

    def close(self) -> None:
        """End."""
        self._consumer.close(autocommit=False)


# --- aiokafka -------------------------------------------------------------------------------------


def aiokafka_consumer(options: Mapping[str, Any], *topics: str, **more: object) -> Any:
    """A consumer that reads committed records."""
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=options["bootstrap"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=100,
        retry_backoff_ms=50,
        request_timeout_ms=REBALANCE_MS + 1_000,
        **more,
    )


class AiokafkaWorker:
    """aiokafka, in a loop that runs while something is asked of it.

    It commits offsets with the group's name alone, so that nobody can tell an old member's
    (KIP-447). What makes it exact all the same is the older way: each partition of the source has a
    transactional id, and whoever is given the partition fences its last owner before it asks how
    far the group is.
    """

    survives_errors = True

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._producers: dict[int, Any] = {}
        self._current: Any = None
        self._round = 0
        self._ready_round = 0
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open())

    async def _open(self) -> None:
        from aiokafka import ConsumerRebalanceListener
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        worker = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: set[Any]) -> None:
                worker._round += 1

            async def on_partitions_revoked(self, revoked: set[Any]) -> None:
                worker._round += 1

        self._consumer = aiokafka_consumer(
            self._options,
            group_id=self._options["group"],
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=REBALANCE_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        self._consumer.subscribe([self._options["source"]], listener=Listener())
        await self._consumer.start()

    def _place(self, partition: int) -> Any:
        from aiokafka import TopicPartition

        return TopicPartition(self._options["source"], partition)

    async def _take_over(self) -> None:
        """Fence the last owners of what was assigned, and then go on from where they ended."""
        from aiokafka import AIOKafkaProducer

        while self._ready_round != self._round:
            current = self._round
            for producer in self._producers.values():
                await producer.stop()
            self._producers.clear()
            owned = sorted(one.partition for one in self._consumer.assignment())
            for one in owned:
                self._producers[one] = AIOKafkaProducer(
                    bootstrap_servers=self._options["bootstrap"],
                    transactional_id=f"{self._options['group']}-{one}",
                    transaction_timeout_ms=self._options["transaction_ms"],
                    request_timeout_ms=REQUEST_MS,
                    retry_backoff_ms=50,
                )
                await self._producers[one].start()
            if self._round == current:
                await self._rewind(owned)
                self._ready_round = current

    async def _rewind(self, partitions: Iterable[int]) -> None:
        for place in map(self._place, partitions):
            if place in self._consumer.assignment():
                offset = await self._consumer.committed(place) or 0
                if place in self._consumer.assignment():
                    self._consumer.seek(place, offset)

    async def _poll(self) -> list[list[Input]]:
        await self._take_over()
        found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1_000), max_records=BATCH)
        if self._round != self._ready_round:
            return []  # read again by whoever has taken over
        return [
            [Input(one.partition, one.offset, one.value.decode()) for one in records]
            for records in found.values()
            if records
        ]

    def poll(self) -> list[list[Input]]:
        """Read what comes, a part for each partition."""
        return self._loop.run_until_complete(self._poll())

    def begin(self, part: list[Input]) -> None:
        """Begin a transaction of the partition's own producer."""
        self._current = self._producers[part[0].partition]
        self._loop.run_until_complete(self._current.begin_transaction())

    def send(self, records: list[tuple[int, str]]) -> list[int]:
        """Send and wait."""

        async def send() -> list[int]:
            futures = [
                await self._current.send(self._options["target"], text.encode(), partition=one)
                for one, text in records
            ]
            return [written.offset for written in await asyncio.gather(*futures)]

        return self._loop.run_until_complete(send())

    def send_offsets(self, offsets: Offsets) -> None:
        """With the group's name alone."""
        places = {self._place(one): offset for one, offset in offsets.items()}
        sending = self._current.send_offsets_to_transaction(places, self._options["group"])
        self._loop.run_until_complete(sending)

    def generation(self) -> int | None:
        """It commits without one."""
        return None

    def end(self, *, commit: bool) -> None:
        """Commit or abort."""
        ending = self._current.commit_transaction if commit else self._current.abort_transaction
        self._loop.run_until_complete(ending())

    def rewind(self, partitions: Iterable[int]) -> None:
        """Read on from what is committed."""
        self._loop.run_until_complete(self._rewind(partitions))

    def close(self) -> None:
        """Leave."""

        async def stop() -> None:
            await self._consumer.stop()
            for producer in self._producers.values():
                await producer.stop()

        self._loop.run_until_complete(stop())


class AiokafkaReader:
    """aiokafka, in a loop that runs while something is asked of it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(options))

    async def _open(self, options: dict[str, Any]) -> None:
        from aiokafka import TopicPartition

        self._consumer = aiokafka_consumer(options, group_id=None)
        places = [TopicPartition(options["target"], one) for one in range(options["partitions"])]
        self._consumer.assign(places)
        await self._consumer.start()
        for place in places:
            self._consumer.seek(place, 0)

    def poll(self) -> list[tuple[int, int, str]]:
        """Read what comes."""
        found = self._loop.run_until_complete(
            self._consumer.getmany(timeout_ms=int(POLL_S * 1_000), max_records=500)
        )
        return [
            (one.partition, one.offset, one.value.decode())
            for records in found.values()
            for one in records
        ]

    def close(self) -> None:
        """End."""
        self._loop.run_until_complete(self._consumer.stop())


WORKERS: dict[str, Callable[[dict[str, Any]], Worker]] = {
    "confluent-kafka": ConfluentWorker,
    "kafka-python-3": KafkaPythonWorker,
    "aiokafka": AiokafkaWorker,
}
READERS: dict[str, Callable[[dict[str, Any]], Reader]] = {
    "confluent-kafka": ConfluentReader,
    "kafka-python-3": KafkaPythonReader,
    "aiokafka": AiokafkaReader,
}


class Turns:
    """A worker's transactions, one after the other, and what is said of them."""

    def __init__(self, worker: Worker, options: dict[str, Any]) -> None:
        self.shall_stop = False
        self._worker = worker
        self._random = Random(options["seed"])
        self._name = options["name"]
        self._partitions = options["partitions"]
        self._aborts = options["transactional_id"] is not None
        self._count = 0

    def take(self) -> None:
        """Read once, and make of it what there is to make."""
        for part in self._worker.poll():
            self._transact(part)

    def _transact(self, part: list[Input]) -> None:
        self._count += 1
        name = f"{self._name}/{self._count}"
        offsets: Offsets = {}
        for one in part:
            offsets[one.partition] = one.offset + 1
        records = [
            ((one.partition + one.offset) % self._partitions, transformed(name, one))
            for one in part
        ]
        may_abort = self._aborts and self._random.random() < ABORT_SHARE
        abort_at = self._random.choice(PLACES) if may_abort else ""
        stop_at = self._random.choice(PLACES)
        is_ending = False

        def reach(place: str) -> bool:
            """Stop here if it is due; whether to abort here."""
            if self.shall_stop and place == stop_at:
                self.shall_stop = False
                say("stopping", place=place)
                os.kill(os.getpid(), signal.SIGSTOP)
                say("woken")
            return place == abort_at

        say(
            "begun",
            transaction=name,
            records=records,
            offsets=sorted(offsets.items()),
            generation=self._worker.generation(),
        )
        try:
            self._worker.begin(part)
            acknowledged = self._worker.send(records)
            say("sent", transaction=name, offsets=acknowledged)
            if not reach("sent"):
                self._worker.send_offsets(offsets)
                say("offsets", transaction=name, generation=self._worker.generation())
                if not reach("offsets"):
                    is_ending = True
                    say("ending", transaction=name)
                    self._worker.end(commit=True)
                    say("ended", transaction=name, outcome="ok", why="")
                    return
            why = ON_PURPOSE
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:300]
            if is_fenced(error):
                # An end that is sent again may be refused after the first one was carried out.
                outcome = "info" if is_ending else "fail"
                say("ended", transaction=name, outcome=outcome, why=why)
                raise Fenced(why) from error
        is_spent = why != ON_PURPOSE and not self._worker.survives_errors
        try:
            self._worker.end(commit=False)
        except Exception as error:
            again = f"{type(error).__name__}: {error}"[:300]
            say("ended", transaction=name, outcome="info", why=f"{why}; abort: {again}")
            if is_fenced(error):
                raise Fenced(again) from error
            raise
        say("ended", transaction=name, outcome="info" if is_ending else "fail", why=why)
        if is_spent:
            raise Spent(why)
        self._worker.rewind(offsets)


def leave(close: Callable[[], None]) -> None:
    """Close, but do not wait long: some libraries wait for a server that is not there."""
    thread = threading.Thread(target=close, daemon=True)
    thread.start()
    thread.join(LEAVE_S)


def run_worker(library: str, options: dict[str, Any], is_over: Callable[[], bool]) -> None:
    """Transform until it is over, or fenced, or anything goes wrong."""
    is_plain = options["transactional_id"] is None
    worker = PlainConfluentWorker(options) if is_plain else WORKERS[library](options)
    turns = Turns(worker, options)

    def stop_soon(*_: object) -> None:
        turns.shall_stop = True

    signal.signal(signal.SIGUSR1, stop_soon)
    say("ready")
    try:
        while not is_over():
            turns.take()
    finally:
        leave(worker.close)


def run_reader(library: str, options: dict[str, Any], is_over: Callable[[], bool]) -> None:
    """Read until it is over."""
    reader = READERS[library](options)
    say("ready")
    try:
        while not is_over():
            found = reader.poll()
            if found:
                say("polled", records=found)
    finally:
        leave(reader.close)


def main(library: str, options: dict[str, Any]) -> None:
    """Be what the options say until SIGTERM."""
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    run = run_worker if "group" in options else run_reader
    why = "left"
    try:
        run(library, options, lambda: stopping)
    except Fenced as error:
        why = f"fenced: {error}"
    except Exception as error:  # noqa: BLE001 - whatever it is, another process goes on
        why = f"{type(error).__name__}: {error}"[:300]
    say("gone", why=why)
    # Threads of a library that waits for a server would keep the process.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
