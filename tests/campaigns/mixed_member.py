"""One client of the mixed faults, in a process of its own: it says each operation and its end.

Run as `python -m tests.campaigns.mixed_member LIBRARY OPTIONS` in the environment of a client
library; OPTIONS is a JSON object with name, role, bootstrap, topic, partitions and seed. Each line
of its output is a JSON object; `at` says what it is about, `began` and `ended` are monotonic
seconds, `outcome` is ok, fail or info:

    sent         sends: [[process, partition, value, outcome, offset, transaction, began, ended]]
    end          transaction, how (commit, abort, left), outcome, and why it is not ok
    polled       records: [[partition, [[offset, value], ...]]]
    sought       partitions that were given to it, which it goes on reading elsewhere
    commit       offsets: [[partition, offset]], outcome
    fetched      offsets: [[partition, offset]] that are committed
    trouble      what failed otherwise, and why; it goes on
    anew         why: a producer made itself anew
    ended

SIGTERM has a producer end what it has begun, and then everybody end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

# A producer with transactions waits longer than a fault lasts: if it gave up a connection that
# holds its EndTxn, and asked again on another one, the first could arrive in its next transaction.
# Only version 2 of transactions, which none of these libraries speaks, tells the two apart.
ASK_S = 3.0
TRANSACTIONAL_ASK_S = 20.0
DELIVERY_S = 60.0
TRANSACTION_S = 30.0
FLUSH_S = 30.0
HUNG_S = 6.0
"""kafka-python 3.0 waits for ever, now and then, for the end of a transaction whose connection was
lost: nothing is on the wire, and its thread sleeps without a deadline. So long it is given."""
BACKOFF_MS = 50
BACKOFF_MAX_MS = 300
SESSION_MS = 4_000
HEARTBEAT_MS = 500
REBALANCE_MS = 6_000
TICK_S = 0.1
RECORDS_A_TICK = 20
PLACES_A_TICK = 2
PENDING_MAX = 600
COMMIT_EVERY_S = 0.3
COMMITS_PER_LOOK = 8
PAUSE_S = 0.1
VALUE_BYTES = 60

Offsets = dict[int, int]
Records = list[tuple[int, int, bytes]]


def now_s() -> float:
    """The clock that all processes of the machine share."""
    return time.monotonic()


_saying = threading.Lock()


def say(at: str, **fields: object) -> None:
    """Write one line, whole and at once, from whichever thread."""
    with _saying:
        sys.stdout.write(json.dumps({"at": at, **fields}) + "\n")
        sys.stdout.flush()


def reason(error: object) -> str:
    """Return what a library says went wrong."""
    return f"{type(error).__name__}: {error}"[:300]


class Sent:
    """A record on its way, and what became of it. The library's threads call back."""

    __slots__ = ("began_s", "ended_s", "offset", "partition", "value", "why")

    def __init__(self, partition: int, value: str) -> None:
        self.partition = partition
        self.value = value
        self.began_s = now_s()
        self.ended_s: float | None = None
        self.offset: int | None = None
        self.why = ""

    def succeed(self, offset: int) -> None:
        self.offset = offset
        self.ended_s = now_s()

    def fail(self, error: object) -> None:
        self.why = reason(error)
        self.ended_s = now_s()


class HungError(Exception):
    """A library does not return."""


def within(for_s: float, call: Callable[[], None]) -> None:
    """Make a call in a thread, and leave it there when it takes too long: HungError."""
    errors: list[Exception] = []
    is_done = threading.Event()

    def run() -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - it is raised where it belongs
            errors.append(error)
        is_done.set()

    threading.Thread(target=run, daemon=True).start()
    if not is_done.wait(for_s):
        raise HungError(f"not back after {for_s:g} s")
    if errors:
        raise errors[0]


# --- producers ------------------------------------------------------------------------------------


class ConfluentProducer:
    """confluent-kafka."""

    def __init__(self, options: dict[str, Any], transactional_id: str | None) -> None:
        from confluent_kafka import Producer

        self._topic = options["topic"]
        ask_s = TRANSACTIONAL_ASK_S if transactional_id else ASK_S
        settings = {
            "bootstrap.servers": options["bootstrap"],
            "enable.idempotence": True,
            "linger.ms": 5,
            "socket.timeout.ms": int(ask_s * 1_000),
            "message.timeout.ms": int((TRANSACTION_S if transactional_id else DELIVERY_S) * 1_000),
            "retry.backoff.ms": BACKOFF_MS,
            "retry.backoff.max.ms": BACKOFF_MAX_MS,
            "reconnect.backoff.ms": BACKOFF_MS,
            "reconnect.backoff.max.ms": BACKOFF_MAX_MS,
        }
        if transactional_id:
            settings["transactional.id"] = transactional_id
            settings["transaction.timeout.ms"] = int(TRANSACTION_S * 1_000)
        self._producer = Producer(settings)
        if transactional_id:
            self._producer.init_transactions(TRANSACTIONAL_ASK_S)

    def send(self, sents: list[Sent]) -> None:
        for sent in sents:
            self._producer.produce(
                self._topic,
                sent.value.encode(),
                partition=sent.partition,
                on_delivery=lambda error, message, sent=sent: (
                    sent.succeed(message.offset()) if error is None else sent.fail(error)
                ),
            )

    def serve(self, for_s: float) -> None:
        """Let the library call back."""
        until_s = now_s() + for_s
        self._producer.poll(0)
        while (left_s := until_s - now_s()) > 0:
            self._producer.poll(left_s)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._repeat(self._producer.commit_transaction)

    def abort(self) -> None:
        self._repeat(self._producer.abort_transaction)

    def _repeat(self, end: Callable[[float], None]) -> None:
        """End a transaction. A time-out leaves it open whether it has, and asking again is told."""
        from confluent_kafka import KafkaException

        deadline_s = now_s() + TRANSACTIONAL_ASK_S
        while True:
            try:
                end(ASK_S)
            except KafkaException as error:
                if not error.args[0].retriable() or now_s() > deadline_s:
                    raise
            else:
                return

    def may_abort(self, error: Exception) -> bool:
        """Whether the library would go on after an abort."""
        from confluent_kafka import KafkaException

        is_its_own = isinstance(error, KafkaException)
        return is_its_own and bool(error.args[0].txn_requires_abort())

    def drop(self) -> None:
        self._producer.purge()


class KafkaPythonProducer:
    """kafka-python, 2.x and 3.x."""

    def __init__(self, options: dict[str, Any], transactional_id: str | None) -> None:
        from kafka import KafkaProducer

        self._topic = options["topic"]
        ask_s = TRANSACTIONAL_ASK_S if transactional_id else ASK_S
        self._producer = KafkaProducer(
            bootstrap_servers=options["bootstrap"],
            enable_idempotence=True,
            transactional_id=transactional_id,
            transaction_timeout_ms=int(TRANSACTION_S * 1_000),
            acks="all",
            linger_ms=5,
            request_timeout_ms=int(ask_s * 1_000),
            delivery_timeout_ms=int(DELIVERY_S * 1_000),
            max_block_ms=int(TRANSACTIONAL_ASK_S * 1_000),
            retry_backoff_ms=BACKOFF_MS,
            reconnect_backoff_ms=BACKOFF_MS,
            reconnect_backoff_max_ms=BACKOFF_MAX_MS,
        )
        self._transactional = transactional_id is not None
        if self._transactional:
            self._producer.init_transactions()

    def send(self, sents: list[Sent]) -> None:
        for sent in sents:
            future = self._producer.send(self._topic, sent.value.encode(), partition=sent.partition)
            future.add_callback(lambda metadata, sent=sent: sent.succeed(metadata.offset))
            future.add_errback(lambda error, sent=sent: sent.fail(error))

    def serve(self, for_s: float) -> None:
        time.sleep(for_s)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        within(HUNG_S, self._producer.commit_transaction)

    def abort(self) -> None:
        within(HUNG_S, self._producer.abort_transaction)

    def may_abort(self, error: Exception) -> bool:
        manager = self._producer._transaction_manager  # noqa: SLF001 - nothing else tells
        return not isinstance(error, HungError) and not manager.has_fatal_error()

    def drop(self) -> None:
        self._producer.close(timeout=0)


class AiokafkaLoop:
    """An event loop in a thread of its own, which aiokafka needs at all times."""

    def __init__(self) -> None:
        import asyncio

        self._asyncio = asyncio
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        """Return what a coroutine returns."""
        return self._asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)


class AiokafkaProducer:
    """aiokafka."""

    _running: ClassVar[AiokafkaLoop | None] = None

    def __init__(self, options: dict[str, Any], transactional_id: str | None) -> None:
        self._topic = options["topic"]
        loop = AiokafkaProducer._running = AiokafkaProducer._running or AiokafkaLoop()
        self._loop = loop
        self._producer: Any = None
        loop.run(self._open(options["bootstrap"], transactional_id))

    async def _open(self, bootstrap: str, transactional_id: str | None) -> None:
        from aiokafka import AIOKafkaProducer

        # Its batches expire when a request does, idempotent or not: no shorter time than theirs.
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            transactional_id=transactional_id,
            transaction_timeout_ms=int(TRANSACTION_S * 1_000),
            linger_ms=5,
            request_timeout_ms=int(TRANSACTIONAL_ASK_S * 1_000),
            retry_backoff_ms=BACKOFF_MS,
        )
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        self._producer = producer

    def send(self, sents: list[Sent]) -> None:
        self._loop.run(self._send(sents))

    async def _send(self, sents: list[Sent]) -> None:
        for sent in sents:
            future = await self._producer.send(
                self._topic, sent.value.encode(), partition=sent.partition
            )
            future.add_done_callback(lambda future, sent=sent: self._take(future, sent))

    @staticmethod
    def _take(future: asyncio.Future[Any], sent: Sent) -> None:
        if future.cancelled():
            sent.fail("cancelled")
        elif (error := future.exception()) is not None:
            sent.fail(error)
        else:
            sent.succeed(future.result().offset)

    def serve(self, for_s: float) -> None:
        time.sleep(for_s)

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def may_abort(self, error: Exception) -> bool:
        from aiokafka.errors import OutOfOrderSequenceNumber, ProducerFenced

        # A dead sender has a fatal error: it says so to whatever is asked next.
        is_dead = self._producer._sender.sender_task.done()  # noqa: SLF001
        return not is_dead and not isinstance(error, (ProducerFenced, OutOfOrderSequenceNumber))

    def drop(self) -> None:
        self._loop.run(self._producer.stop(), PAUSE_S)


Producer = ConfluentProducer | KafkaPythonProducer | AiokafkaProducer

PRODUCERS: dict[str, Callable[[dict[str, Any], str | None], Producer]] = {
    "confluent-kafka": ConfluentProducer,
    "kafka-python-2": KafkaPythonProducer,
    "kafka-python-3": KafkaPythonProducer,
    "aiokafka": AiokafkaProducer,
}


class BrokenProducerError(Exception):
    """A record could not be delivered, or the library says that it cannot go on."""


class Writing:
    """A producer that makes itself anew when it has to, and says what became of its records."""

    def __init__(self, library: str, options: dict[str, Any], stopping: threading.Event) -> None:
        self._library = library
        self._options = options
        self._stopping = stopping
        self._random = Random(options["seed"])
        self._name: str = options["name"]
        self._life = 0
        self._number = 0
        self._transactions = 0
        self._producer: Producer | None = None
        self._pending: list[Sent] = []

    def run(self) -> None:
        """Write until it is told to stop."""
        is_transactional = self._options["role"] == "transactional"
        while not self._stopping.is_set():
            try:
                producer = self._opened(is_transactional=is_transactional)
                if is_transactional:
                    self._transact(producer)
                else:
                    self._write(producer)
                    self._tell()
            except Exception as error:  # noqa: BLE001 - each library has classes of its own
                self._give_up(error)
        if is_transactional and self._producer is None:
            # What was left open ends with the next producer of the id.
            self._opened(is_transactional=True)
        if self._producer is not None:
            self._await_all(self._producer, FLUSH_S)
        self._tell(is_over=True)

    def _opened(self, *, is_transactional: bool) -> Producer:
        if self._producer is None:
            began_s = now_s()
            try:
                self._producer = PRODUCERS[self._library](
                    self._options, self._name if is_transactional else None
                )
            except Exception as error:
                say("trouble", what="open", why=reason(error), began=began_s, ended=now_s())
                time.sleep(PAUSE_S)
                raise
            self._life += 1
        return self._producer

    def _write(self, producer: Producer) -> list[Sent]:
        """Send some records to some partitions, and see to it that none has failed."""
        sents: list[Sent] = []
        if len(self._pending) < PENDING_MAX:
            places = self._random.sample(range(self._options["partitions"]), PLACES_A_TICK)
            for turn in range(RECORDS_A_TICK):
                self._number += 1
                value = f"{self._name}-{self._number}-".ljust(VALUE_BYTES, "x")
                sents.append(Sent(places[turn % PLACES_A_TICK], value))
            self._pending += sents
            producer.send(sents)
        producer.serve(TICK_S)
        self._refuse_failures()
        return sents

    def _refuse_failures(self) -> None:
        for sent in self._pending:
            if sent.why:
                raise BrokenProducerError(sent.why)

    def _await_all(self, producer: Producer, for_s: float) -> bool:
        """Wait until something has become of all records; False when that takes too long."""
        until_s = now_s() + for_s
        while any(sent.ended_s is None for sent in self._pending):
            if now_s() > until_s:
                return False
            producer.serve(TICK_S / 2)
        return True

    def _tell(self, transaction: str | None = None, *, is_over: bool = False) -> None:
        """Say what became of records; in the end of those, too, of which nobody knows."""
        ended = []
        left = []
        for sent in self._pending:
            if sent.ended_s is None and not is_over:
                left.append(sent)
                continue
            is_ok = sent.ended_s is not None and not sent.why
            ended.append(
                (
                    f"{self._name}/{self._life}",
                    sent.partition,
                    sent.value,
                    "ok" if is_ok else "info",
                    sent.offset if is_ok else None,
                    transaction,
                    sent.began_s,
                    sent.ended_s or now_s(),
                )
            )
        self._pending = left
        if ended:
            say("sent", sends=ended)

    def _give_up(self, error: Exception) -> None:
        """Let go of the producer; what it had under way may be stored or not."""
        self._tell(is_over=True)
        producer, self._producer = self._producer, None
        if producer is not None:
            say("anew", why=reason(error))
            # It may take its time, and nobody waits for it.
            threading.Thread(target=drop, args=(producer,), daemon=True).start()

    def _transact(self, producer: Producer) -> None:
        """Write in one transaction, and end it one way or the other."""
        self._transactions += 1
        transaction = f"{self._name}/{self._transactions}"
        how = self._random.choices(("commit", "abort", "left"), (75, 20, 5))[0]
        has_asked = False
        began_s = now_s()
        try:
            producer.begin()
            for _ in range(self._random.randint(1, 4)):
                self._write(producer)
            if how != "commit" and not self._await_all(producer, HUNG_S):
                # Its end would hang, too, and nobody would go on for twice as long.
                raise HungError(f"records not answered after {HUNG_S:g} s")
            if how == "left":
                raise BrokenProducerError("left on purpose")
            began_s = now_s()
            has_asked = how == "commit"
            (producer.commit if how == "commit" else producer.abort)()
        except Exception as error:  # noqa: BLE001 - each library has classes of its own
            # Nobody has asked for a commit: whatever becomes of it, it is none.
            outcome = "info" if has_asked else "fail"
            self._end(transaction, how, outcome, began_s, reason(error))
            may_go_on = how != "left" and producer.may_abort(error)
            if not may_go_on:
                self._give_up(error)
                return
            say("trouble", what=how, why=reason(error), began=began_s, ended=now_s())
            producer.abort()
        else:
            outcome = "ok" if how == "commit" else "fail"
            self._end(transaction, how, outcome, began_s)

    def _end(self, transaction: str, how: str, outcome: str, began_s: float, why: str = "") -> None:
        ended_s = now_s()
        self._tell(transaction, is_over=True)
        say(
            "end",
            transaction=transaction,
            how=how,
            outcome=outcome,
            why=why,
            began=began_s,
            ended=ended_s,
        )


def drop(producer: Producer) -> None:
    """Close a producer that is of no use any more."""
    try:
        producer.drop()
    except Exception as error:  # noqa: BLE001 - it is of no use any more
        print(reason(error), file=sys.stderr)


# --- consumers ------------------------------------------------------------------------------------


class ConfluentConsumer:
    """confluent-kafka."""

    def __init__(self, options: dict[str, Any], sought: Callable[[list[int]], None]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._topic = options["topic"]
        self._consumer = Consumer(
            {
                "bootstrap.servers": options["bootstrap"],
                "group.id": options["name"],
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": options["isolation"],
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": BACKOFF_MS,
                "socket.timeout.ms": int(ASK_S * 1_000),
                "retry.backoff.ms": BACKOFF_MS,
                "retry.backoff.max.ms": BACKOFF_MAX_MS,
                "reconnect.backoff.ms": BACKOFF_MS,
                "reconnect.backoff.max.ms": BACKOFF_MAX_MS,
            }
        )
        self._consumer.assign(
            [TopicPartition(self._topic, place, 0) for place in range(options["partitions"])]
        )

    def poll(self) -> Records:
        from confluent_kafka import KafkaException

        found: Records = []
        for one in self._consumer.consume(500, TICK_S):
            if one.error() is None:
                found.append((one.partition(), one.offset(), one.value()))
            elif not found and one.error().name() == "_AUTO_OFFSET_RESET":
                raise KafkaException(one.error())
        return found

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonConsumer:
    """kafka-python, 2.x and 3.x."""

    def __init__(self, options: dict[str, Any], sought: Callable[[list[int]], None]) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                sought([one.partition for one in assigned])

            def on_partitions_revoked(self, revoked: Any) -> None:
                pass

        self._topic = options["topic"]
        in_group = options["role"] == "subscribed"
        self._place: Callable[[int], Any] = lambda one: TopicPartition(self._topic, one)
        self._consumer = KafkaConsumer(
            bootstrap_servers=options["bootstrap"],
            group_id=options["name"] if in_group else None,
            isolation_level=options["isolation"],
            auto_offset_reset="earliest" if in_group else "none",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=REBALANCE_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            # 2.x insists on more than a round of the group may take.
            request_timeout_ms=REBALANCE_MS + 1_000,
            retry_backoff_ms=BACKOFF_MS,
            reconnect_backoff_ms=BACKOFF_MS,
            reconnect_backoff_max_ms=BACKOFF_MAX_MS,
            fetch_max_wait_ms=100,
        )
        if in_group:
            self._consumer.subscribe([self._topic], listener=Listener())
        else:
            places = [self._place(one) for one in range(options["partitions"])]
            self._consumer.assign(places)
            for place in places:
                self._consumer.seek(place, 0)

    def poll(self) -> Records:
        # 3.0 begins to join anew at each poll whose time is too short for a round.
        found = self._consumer.poll(timeout_ms=int(TICK_S * 8_000), max_records=500)
        return [(one.partition, one.offset, one.value) for ones in found.values() for one in ones]

    def commit(self, offsets: Offsets) -> None:
        from kafka import OffsetAndMetadata

        self._consumer.commit(
            {
                self._place(partition): OffsetAndMetadata(offset, "", -1)
                for partition, offset in offsets.items()
            }
        )

    def committed(self, partitions: list[int]) -> Offsets:
        found = {one: self._consumer.committed(self._place(one)) for one in partitions}
        return {one: -1 if offset is None else offset for one, offset in found.items()}

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AiokafkaConsumer:
    """aiokafka."""

    def __init__(self, options: dict[str, Any], sought: Callable[[list[int]], None]) -> None:
        self._topic = options["topic"]
        self._sought = sought
        self._loop = AiokafkaLoop()
        self._loop.run(self._open(options))

    async def _open(self, options: dict[str, Any]) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

        sought = self._sought

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                sought([one.partition for one in assigned])

            async def on_partitions_revoked(self, revoked: Any) -> None:
                pass

        self._place: Callable[[int], Any] = lambda one: TopicPartition(self._topic, one)
        in_group = options["role"] == "subscribed"
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=options["bootstrap"],
            group_id=options["name"] if in_group else None,
            isolation_level=options["isolation"],
            auto_offset_reset="earliest" if in_group else "none",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=REBALANCE_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            request_timeout_ms=int(ASK_S * 1_000) + 1_000,
            retry_backoff_ms=BACKOFF_MS,
            fetch_max_wait_ms=100,
        )
        if in_group:
            self._consumer.subscribe([self._topic], listener=Listener())
        else:
            self._consumer.assign([self._place(one) for one in range(options["partitions"])])
        try:
            await self._consumer.start()
        except BaseException:
            await self._consumer.stop()
            raise

    def poll(self) -> Records:
        found = self._loop.run(
            self._consumer.getmany(timeout_ms=int(TICK_S * 1_000), max_records=500)
        )
        return [(one.partition, one.offset, one.value) for ones in found.values() for one in ones]

    def commit(self, offsets: Offsets) -> None:
        wanted = {self._place(partition): offset for partition, offset in offsets.items()}
        self._loop.run(self._consumer.commit(wanted))

    def committed(self, partitions: list[int]) -> Offsets:
        return {one: self._loop.run(self._committed(one)) for one in partitions}

    async def _committed(self, partition: int) -> int:
        found = await self._consumer.committed(self._place(partition))
        return -1 if found is None else int(found)

    def close(self) -> None:
        self._loop.run(self._consumer.stop(), FLUSH_S)


Consumer = ConfluentConsumer | KafkaPythonConsumer | AiokafkaConsumer

CONSUMERS: dict[str, Callable[[dict[str, Any], Callable[[list[int]], None]], Consumer]] = {
    "confluent-kafka": ConfluentConsumer,
    "kafka-python-2": KafkaPythonConsumer,
    "kafka-python-3": KafkaPythonConsumer,
    "aiokafka": AiokafkaConsumer,
}


class Reading:
    """A consumer, which commits what it has read if it is in a group."""

    def __init__(self, library: str, options: dict[str, Any], stopping: threading.Event) -> None:
        self._library = library
        self._options = options
        self._stopping = stopping
        self._consumer: Consumer | None = None
        self._read: Offsets = {}
        self._assignments = 0
        self._commits = 0
        self._committed_s = now_s()

    def run(self) -> None:
        """Read until it is told to stop."""
        while not self._stopping.is_set():
            began_s = now_s()
            try:
                if self._consumer is None:
                    self._consumer = CONSUMERS[self._library](self._options, self._sought)
                self._poll(self._consumer)
            except Exception as error:  # noqa: BLE001 - applications go on as well
                say("trouble", what="poll", why=reason(error), began=began_s, ended=now_s())
                time.sleep(PAUSE_S)
        if self._consumer is not None:
            try:
                self._consumer.close()
            except Exception as error:  # noqa: BLE001 - it has left, or its session will end
                print(reason(error), file=sys.stderr)

    def _sought(self, partitions: list[int]) -> None:
        """Take partitions. What was read before is not this member's to commit any more."""
        self._assignments += 1
        self._read = {}
        say("sought", partitions=partitions, ended=now_s())

    def _poll(self, consumer: Consumer) -> None:
        assignments, began_s = self._assignments, now_s()
        records: dict[int, list[tuple[int, str]]] = {}
        for partition, offset, value in consumer.poll():
            records.setdefault(partition, []).append((offset, value.decode()))
        if records:
            say("polled", records=list(records.items()), began=began_s, ended=now_s())
            if assignments != self._assignments:
                # Nobody knows whether these were read before the partitions were given anew.
                say("sought", partitions=list(records), ended=now_s())
        if self._options["role"] != "subscribed" or isinstance(consumer, ConfluentConsumer):
            return
        if assignments == self._assignments:
            for partition, found in records.items():
                self._read[partition] = found[-1][0] + 1
        if self._read and now_s() - self._committed_s > COMMIT_EVERY_S:
            self._commit(consumer)

    def _commit(self, consumer: KafkaPythonConsumer | AiokafkaConsumer) -> None:
        began_s, outcome, why = now_s(), "ok", ""
        offsets, self._read = self._read, {}
        try:
            consumer.commit(offsets)
        except Exception as error:  # noqa: BLE001 - refused, or nobody knows
            outcome, why = "info", reason(error)
        self._committed_s = now_s()
        self._commits += 1
        wanted = sorted(offsets.items())
        say(
            "commit",
            offsets=wanted,
            outcome=outcome,
            why=why,
            began=began_s,
            ended=self._committed_s,
        )
        if self._commits % COMMITS_PER_LOOK == 0:
            began_s = now_s()
            found = sorted(consumer.committed(sorted(offsets)).items())
            say("fetched", offsets=found, began=began_s, ended=now_s())


def main(library: str, options: dict[str, Any]) -> None:
    """Be a client until SIGTERM."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    is_writing = options["role"] in {"idempotent", "transactional"}
    (Writing if is_writing else Reading)(library, options, stopping).run()
    say("ended")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
    # Threads of what was dropped may wait for answers still.
    os._exit(0)
